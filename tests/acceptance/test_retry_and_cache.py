"""Tests of attempts and the waits between them, of cached results, and of the record after a success."""

from __future__ import annotations

import asyncio
import itertools
import threading
from pathlib import Path
from typing import Any

import pytest

from callgate import AbortController, Engine, Retryable, RetryPolicy, Scope, SqliteCache, SqliteJournal, Tool, ToolContext, ToolResult, tool
from callgate.calls import Effect
from callgate.testing import ManualClock
from callgate.tools import is_retryable_error
from tests.acceptance.process_tools import asks_for_patience, run_by
from tests.effect_ledger import Ledger
from tests.engine_calls import bodies, call, said
from tests.waiting import HANGS_S, LoopClock, past_deadline


async def told(engine: Engine, clock: ManualClock, name: str) -> ToolResult:
    """Return a call's result, advancing the clock whenever the engine waits."""
    task = asyncio.create_task(said(engine, call(name)))
    while not task.done():
        await asyncio.sleep(0)
        if clock.sleeping:
            clock.advance(0.01)
    return await task


def failing(error: Exception, **settings: Any) -> Any:
    @tool(name="ask", effect="none", **settings)
    async def ask() -> None:
        """Ask a service that is down."""
        raise error

    return ask


async def waits(clock: ManualClock, **settings: Any) -> list[object]:
    async with Engine([failing(ConnectionError("reset"), **settings)], clock=clock) as engine:
        await told(engine, clock, "ask")
        return [body["wait_s"] for body in bodies(engine, "call.attempt_failed")]


async def test_the_default_is_four_attempts_with_waits_of_one_two_and_four_seconds() -> None:
    assert await waits(ManualClock(jitter=1.0)) == [1.0, 2.0, 4.0]


async def test_a_backoff_never_exceeds_ten_seconds() -> None:
    assert await waits(ManualClock(jitter=1.0), retry=RetryPolicy(attempts=8)) == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0, 10.0]


async def test_jitter_shortens_a_backoff_by_up_to_half() -> None:
    """Jitter prevents many callers from retrying at the same moment."""
    assert await waits(ManualClock(jitter=0.0)) == [0.5, 1.0, 2.0]
    assert await waits(ManualClock(jitter=0.5)) == [0.75, 1.5, 3.0]


@pytest.mark.parametrize("effect", ["none", "idempotent"])
async def test_the_actual_wait_never_exceeds_ten_seconds_after_many_attempts(effect: Effect) -> None:
    """Measured on the clock rather than read from the journal, including attempt counts whose doubled wait would overflow a float."""
    clock, started = ManualClock(jitter=1.0), list[float]()

    @tool(effect=effect, retry=RetryPolicy(attempts=1_100))
    async def ask() -> None:
        """Never succeed."""
        started.append(clock.monotonic())
        raise ConnectionError("reset")

    async with Engine([ask], clock=clock, timeout_s=100_000) as engine:
        task = asyncio.create_task(engine.call(call("ask")))
        while not task.done():
            await asyncio.sleep(0)
            if clock.sleeping:
                clock.advance(0.5)
        await task
    waits = [after - before for before, after in itertools.pairwise(started)]
    assert waits == [1.0, 2.0, 4.0, 8.0] + [10.0] * 1_095


@pytest.mark.parametrize(("asked_s", "waited"), [(30.0, [30.0] * 3), (1.5, [1.5, 2.0, 4.0]), (0.0, [1.0, 2.0, 4.0])])
async def test_retry_after_lengthens_the_backoff_and_never_shortens_it(asked_s: float, waited: list[float]) -> None:
    clock = ManualClock(jitter=1.0)
    async with Engine([failing(Retryable("busy", retry_after_s=asked_s))], clock=clock, timeout_s=200) as engine:
        await told(engine, clock, "ask")
        assert [body["wait_s"] for body in bodies(engine, "call.attempt_failed")] == waited
        assert clock.monotonic() >= sum(waited)


async def test_a_call_is_not_retried_if_retry_after_passes_the_deadline() -> None:
    clock = ManualClock(jitter=1.0)
    async with Engine([failing(Retryable("busy", retry_after_s=50.0))], clock=clock, timeout_s=40) as engine:
        result = await told(engine, clock, "ask")
    assert (result.metadata.attempts, clock.monotonic()) == (1, 0.0)


@pytest.mark.process
async def test_retry_after_of_a_process_tool_is_applied() -> None:
    clock = ManualClock(jitter=1.0)
    async with Engine([run_by(asks_for_patience, "process")], clock=clock) as engine:
        await told(engine, clock, "asks_for_patience")
        assert [body["wait_s"] for body in bodies(engine, "call.attempt_failed")] == [20.0, 20.0, 20.0]


async def test_the_next_attempt_starts_after_the_backoff() -> None:
    clock, started = ManualClock(jitter=1.0), []

    @tool(effect="none")
    async def ask() -> str:
        """Fail once."""
        started.append(clock.monotonic())
        if len(started) == 1:
            raise TimeoutError("the service did not answer")
        return "answered"

    async with Engine([ask], clock=clock) as engine:
        result = await told(engine, clock, "ask")
    assert (result.success, result.metadata.attempts) == (True, 2)
    assert started[1] - started[0] == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize(
    ("error", "attempts"),
    [
        (TimeoutError("slow"), 4),
        (RuntimeError("request timed out"), 4),
        (ConnectionResetError("reset by peer"), 4),
        (RuntimeError("connection closed"), 4),
        (OSError("network is unreachable"), 4),
        (RuntimeError("temporary failure"), 4),
        (RuntimeError("429 rate limit"), 4),
        (RuntimeError("busy, try again"), 4),
        (ValueError("no such account"), 1),
        (PermissionError("not yours"), 1),
    ],
)
async def test_only_transient_exceptions_are_retried(error: Exception, attempts: int) -> None:
    clock = ManualClock()
    async with Engine([failing(error)], clock=clock) as engine:
        result = await told(engine, clock, "ask")
    assert (result.failure_class, result.metadata.attempts, result.metadata.retry_count) == ("exception", attempts, attempts - 1)
    assert is_retryable_error(error) is (attempts > 1)


def returning(result: object, effect: Effect = "none", **settings: Any) -> Any:
    @tool(name="ask", effect=effect, **settings)
    async def ask() -> object:
        """Ask a service that answers with this."""
        return result

    return ask


@pytest.mark.parametrize("effect", ["none", "idempotent"])
@pytest.mark.parametrize("key", ["error", "message"])
@pytest.mark.parametrize(
    ("words", "attempts"),
    [
        ("timeout", 4),
        ("the request timed out", 4),
        ("connection lost", 4),
        ("network down", 4),
        ("temporarily unavailable", 4),
        ("rate limit: try again", 4),
        ("busy, try again", 4),
        ("no such account", 1),
    ],
)
async def test_only_transient_returned_failures_are_retried(effect: Effect, key: str, words: str, attempts: int) -> None:
    clock, failure = ManualClock(jitter=1.0), {"success": False, key: words, "data": 7}
    async with Engine([returning(failure, effect)], clock=clock) as engine:
        result = await told(engine, clock, "ask")
        failed = bodies(engine, "call.attempt_failed")
    assert (result.status, result.failure_class, result.error) == ("error", "tool_declared", words)
    assert (result.metadata.attempts, result.metadata.retry_count, result.data) == (attempts, attempts - 1, 7)
    assert [(body["status"], body["error"], body["wait_s"]) for body in failed] == [
        ("returned", words, wait_s) for wait_s in (1.0, 2.0, 4.0)[: attempts - 1]
    ]
    assert is_retryable_error(words) is (attempts > 1)
    assert ('"attempts":4' in result.text) is (attempts > 1)


async def test_a_returned_failure_of_a_once_tool_is_not_retried() -> None:
    """The tool may have done part of its work before it returned the failure."""
    clock = ManualClock()
    async with Engine([returning({"success": False, "error": "rate limit: try again"}, "once")], clock=clock) as engine:
        result = await told(engine, clock, "ask")
    assert (result.status, result.metadata.attempts) == ("error", 1)


async def test_a_returned_failure_is_not_retried_if_retryable_is_false() -> None:
    clock = ManualClock()
    async with Engine([returning({"success": False, "error": "try again"}, retryable=False)], clock=clock) as engine:
        assert (await told(engine, clock, "ask")).metadata.attempts == 1


@pytest.mark.parametrize("result", ["try again", {"error": "try again"}, {"success": True, "error": "try again"}, {"success": False}])
async def test_a_result_that_is_no_transient_failure_is_not_retried(result: object) -> None:
    """A function may return any value; only `success: False` marks a failure."""
    clock = ManualClock()
    async with Engine([returning(result)], clock=clock) as engine:
        assert (await told(engine, clock, "ask")).metadata.attempts == 1


@pytest.mark.parametrize(("result", "attempts"), [({"error": "connection reset"}, 4), ({"success": False, "error": 5}, 1)])
async def test_an_error_of_a_tool_class_is_retried_and_an_invalid_result_is_not(result: dict[str, Any], attempts: int) -> None:
    class Ask(Look):
        name = "ask"
        cacheable = False

        async def execute(self, actor: str, **params: Any) -> dict[str, Any]:
            return result

    clock = ManualClock()
    async with Engine([Ask()], clock=clock) as engine:
        assert (await told(engine, clock, "ask")).metadata.attempts == attempts


async def test_a_retried_returned_failure_can_be_followed_by_a_success() -> None:
    clock, answers = ManualClock(), iter([{"success": False, "error": "rate limit: try again"}, {"success": True, "data": "there"}])

    @tool(effect="none")
    def ask() -> dict[str, object]:
        """Fail once; in a thread."""
        return next(answers)

    async with Engine([ask], clock=clock) as engine:
        result = await told(engine, clock, "ask")
        assert (result.success, result.data, result.metadata.attempts, engine.activity_since_wake) == (True, "there", 2, 1)


async def test_an_abort_between_attempts_keeps_the_failure_the_tool_returned() -> None:
    """An idempotent tool that returned a failure has a known outcome."""
    clock, stop = ManualClock(), AbortController()
    failure = {"success": False, "error": "rate limit: try again"}
    async with Engine([returning(failure, "idempotent")], clock=clock) as engine:
        task = asyncio.create_task(engine.call(call("ask"), signal=stop.signal))
        while not clock.sleeping and not task.done():
            await asyncio.sleep(0)
        stop.abort("the user has left")
        outcome: Any = await task
    assert (outcome.result.status, outcome.result.failure_class, outcome.result.metadata.attempts) == ("error", "tool_declared", 1)


async def test_the_result_states_the_error_and_the_number_of_attempts() -> None:
    clock = ManualClock()
    async with Engine([failing(ConnectionError("reset"))], clock=clock) as engine:
        result = await told(engine, clock, "ask")
        recorded: Any = bodies(engine, "call.completed")[0]["metadata"]
    assert "reset" in str(result.error)
    assert "tried 4 times" in result.text
    assert (result.metadata.retry_count, recorded["attempts"]) == (3, 4)


@pytest.mark.parametrize("flavour", ["sync", "async"])
async def test_a_timeout_ends_sync_and_async_tools_with_a_timeout_result(flavour: str) -> None:
    begun, release = threading.Event(), threading.Event()

    def wait() -> None:
        """Wait."""
        begun.set()
        release.wait(HANGS_S)

    async def wait_async() -> None:
        """Wait."""
        begun.set()
        await asyncio.Event().wait()

    settings: Any = {"name": "wait", "effect": "none", "timeout_s": 250, "retryable": False}
    async with Engine([tool(**settings)(wait if flavour == "sync" else wait_async)], timeout_s=9_000, clock=LoopClock()) as engine:
        result = await past_deadline(said(engine, call("wait")), begun.is_set)
        release.set()
    assert (result.failure_class, result.metadata.attempts) == ("timeout", 1)
    assert "did not end within 250 s" in str(result.error)


class Look(Tool):
    """A cacheable tool that counts its executions."""

    name = "look"
    description = "Look."
    parameters = {"type": "object", "properties": {"at": {"type": "string"}}}
    category = "safe_chain"
    requires_actor = False
    cacheable = True

    def __init__(self) -> None:
        self.runs = 0

    async def execute(self, actor: str, **params: Any) -> dict[str, Any]:
        self.runs += 1
        return {"success": True, "data": self.runs}


async def test_a_cached_result_is_found_by_tool_and_arguments() -> None:
    class Peek(Look):
        name = "peek"

    look, peek = Look(), Peek()
    async with Engine([look, peek]) as engine:
        first = await said(engine, call("look", at="door"))
        again = await said(engine, call("look", at="door"))
        await said(engine, call("look", at="wall"))
        other = await said(engine, call("peek", at="door"))
    assert (first.data, again.data, again.metadata.cached, again.metadata.attempts) == (1, 1, "tick", 0)
    assert (look.runs, peek.runs, other.metadata.cached) == (2, 1, None)


@pytest.mark.parametrize(("scope", "turns", "engines"), [("tick", 2, 4), ("session", 1, 2), ("persistent", 1, 1)])
async def test_a_cached_result_lasts_as_long_as_its_scope(scope: Any, turns: int, engines: int, tmp_path: Path) -> None:
    """Makes the same call in two turns of two engines; `turns` and `engines` are the expected execution counts."""
    look = Look()
    look.cache_scope = scope
    async with Engine([look], persistent_cache=SqliteCache(tmp_path / "cache.db")) as engine:
        for turn in (1, 1, 2, 2):
            assert (await said(engine, call("look"), Scope(turn=turn))).success
    assert look.runs == turns
    async with Engine([look], persistent_cache=SqliteCache(tmp_path / "cache.db")) as engine:
        for turn in (1, 1, 2, 2):
            await said(engine, call("look"), Scope(turn=turn))
    assert look.runs == engines


async def test_persistent_results_are_stored_beside_the_journal_file_by_default(tmp_path: Path) -> None:
    look, path = Look(), tmp_path / "journal.db"
    look.cache_scope = "persistent"
    for scope in ("tick", "persistent"):
        look.cache_scope = scope
        async with Engine([look], journal=SqliteJournal(path)) as engine:
            await said(engine, call("look"))
        assert (tmp_path / "journal.db.cache").exists() is (scope == "persistent")
    async with Engine([look], journal=SqliteJournal(path)) as engine:
        assert (await said(engine, call("look"))).metadata.cached == "persistent"
    assert look.runs == 2


async def test_a_write_invalidates_the_cache_beside_the_journal_for_later_engines(tmp_path: Path) -> None:
    look, path = Look(), tmp_path / "journal.db"
    look.cache_scope, look.reads = "persistent", "board"

    @tool(effect="idempotent", writes="board")
    async def wipe() -> str:
        """Wipe the board."""
        return "wiped"

    async with Engine([look], journal=SqliteJournal(path)) as engine:
        await said(engine, call("look"))
    async with Engine([wipe], journal=SqliteJournal(path)) as engine:
        await said(engine, call("wipe"))
    async with Engine([look], journal=SqliteJournal(path)) as engine:
        assert (await said(engine, call("look"))).metadata.cached is None
    assert look.runs == 2


@pytest.mark.parametrize(("settings", "warned"), [({}, True), ({"journal": "file"}, False), ({"persistent_cache": "file"}, False)])
@pytest.mark.parametrize("later", [False, True])
async def test_an_engine_that_cannot_store_persistent_results_warns_at_registration(
    settings: dict[str, Any], warned: bool, later: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kinds: Any = {"journal": SqliteJournal, "persistent_cache": SqliteCache}
    given: Any = {name: kinds[name](tmp_path / f"{name}.db") for name in settings}
    look = Look()
    look.cache_scope = "persistent"
    async with Engine([] if later else [look], **given) as engine:
        if later:
            engine.register(look)
        engine.register(failing(ValueError("no")))
        lines = [record.getMessage() for record in caplog.records if "nowhere to keep them" in record.getMessage()]
    assert len(lines) == warned
    assert all("tool look" in line for line in lines)


async def test_a_success_counts_as_activity_and_a_cache_hit_does_not() -> None:
    look = Look()
    async with Engine([look, failing(ValueError("no"))]) as engine:
        for _ in range(3):
            await said(engine, call("look"))
        await said(engine, call("ask"))
        assert (look.runs, engine.activity_since_wake) == (1, 1)
        engine.activity_since_wake = 0
        await said(engine, call("look", at="wall"))
        assert engine.activity_since_wake == 1


async def test_the_current_tool_call_is_known_to_the_next_engine(tmp_path: Path) -> None:
    path, scope = tmp_path / "journal.db", Scope(conversation="c1")
    async with Engine([Look(), failing(ValueError("no"))], journal=SqliteJournal(path)) as engine:
        await said(engine, call("look", id="good", at="door"), scope)
        await said(engine, call("ask", id="bad"), scope)
    async with Engine([Look()], journal=SqliteJournal(path)) as engine:
        current = engine.current_tool_call("c1")
        assert engine.current_tool_call("c2") is None
    assert current is not None
    assert (current.id, current.name, current.data) == ("good", "look", 1)


async def test_attempts_share_one_idempotency_key_and_end_with_the_first_success(ledger: Ledger) -> None:
    clock = ManualClock()

    @tool(effect="idempotent")
    async def ask(ctx: ToolContext) -> str:
        """Fail once."""
        ledger.write(f"{ctx.attempt} {ctx.idempotency_key}")
        if ctx.attempt < 2:
            raise ConnectionError("reset")
        return "answered"

    async with Engine([ask], clock=clock) as engine:
        result = await told(engine, clock, "ask")
    assert (result.text, result.metadata.attempts) == ("answered", 2)
    first, second = (line.split() for line in ledger.lines())
    assert (first[0], second[0], first[1]) == ("1", "2", second[1])
