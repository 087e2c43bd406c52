"""Tests of the deliberate-mode gate, and of a running tool that reaches its deadline, is stopped or is killed."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from callgate import Aborted, Answered, Engine, RawCall, Restarted, Rules, Scope, ToolContext, tool
from callgate.events import KINDS, Event
from callgate.messages import history_entry, openai_message
from callgate.testing import ManualClock
from tests.acceptance.process_tools import RUNNERS, hangs, run_by
from tests.effect_ledger import Ledger
from tests.engine_calls import bodies, body, call, kinds, result_of, said, verdicts
from tests.host_fakes import Hider
from tests.waiting import DEADLINE_S, PATIENCE_S, LoopClock, past_deadline

HERE = Scope(conversation="here")


def paying(ledger: Ledger) -> Any:
    @tool(aliases=("transfer",))
    async def pay(to: str) -> str:
        """Pay."""
        ledger.write(to)
        return "paid"

    return pay


@pytest.mark.parametrize(
    ("deliberate", "allowed", "runs"),
    [
        (True, frozenset({"look"}), False),
        (True, frozenset(), False),
        (True, frozenset({"pay"}), True),
        (True, None, True),
        (False, frozenset({"look"}), True),
        (False, None, True),
    ],
)
async def test_the_gate_blocks_only_tools_outside_the_allowlist_in_deliberate_mode(
    deliberate: bool, allowed: frozenset[str] | None, runs: bool, ledger: Ledger
) -> None:
    async with Engine([paying(ledger)]) as engine:
        result = await said(engine, call("pay", to="ann"), Scope(deliberate=deliberate, allowed_tools=allowed))
    assert (result.success, ledger.lines()) == ((True, ["ann"]) if runs else (False, []))


@pytest.mark.parametrize("arguments", [{"to": "ann"}, {"to": 5}], ids=["valid", "invalid"])
@pytest.mark.parametrize("name", ["pay", "PAY", "functions.pay", "transfer", "no_such_tool"])
async def test_a_blocked_call_is_not_dispatched_and_lists_the_allowed_tools(
    name: str, arguments: dict[str, Any], ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    """The gate runs before the registry lookup and the validation, so unknown tools and invalid arguments get the same result.

    It goes only to the model: no warning is logged.
    """
    async with Engine([paying(ledger)]) as engine:
        with caplog.at_level(logging.WARNING, logger="callgate"):
            blocked = call(name, id="c1", **arguments)
            outcome = await engine.call(blocked, Scope(deliberate=True, allowed_tools=frozenset({"look", "find"})))
        assert not {"call.verdict", "call.started"} & set(kinds(engine))
    result = result_of(outcome)
    told = json.loads(result.text)
    assert (result.failure_class, result.code) == ("blocked_deliberate", "blocked_by_deliberate_tool_mode")
    assert result.structured == {
        "status": "blocked_by_deliberate_tool_mode",
        "function_name": name if name == "no_such_tool" else "pay",
        "allowed_tools": ["find", "look"],
    }
    assert told["allowed_tools"] == ["find", "look"]
    assert told["status"] == "blocked_by_deliberate_tool_mode"
    message = openai_message(result)
    assert (message["role"], message["tool_call_id"]) == ("tool", "c1")
    assert not result.end_turn
    assert caplog.records == []
    assert ledger.lines() == []


async def test_every_way_to_call_a_tool_records_a_verdict_and_a_start(ledger: Ledger) -> None:
    """Direct, nested and agent calls each need their own intent and verdict in the journal before the effect."""
    witness = paying(ledger)

    @tool
    async def pay_twice(ctx: ToolContext) -> str:
        """Pay by nested calls."""
        return f"{(await ctx.call('pay', {'to': 'nested'})).text} {(await ctx.call('pay', {'to': 'again'})).text}"

    async with Engine([witness, pay_twice]) as engine:
        await engine.call(call("pay", to="single"))
        await engine.call_many([call("pay", to="one"), call("pay", to="two")])
        emission = engine.emission()
        emission.add(call("pay", to="streamed"))
        await emission.seal()
        await engine.call(call("pay_twice"))
        events = [event for event in engine.journal.read() if event.kind in ("call.verdict", "call.started")]
    assert sorted(ledger.lines()) == ["again", "nested", "one", "single", "streamed", "two"]
    seen: dict[str, list[str]] = {}
    for event in events:
        seen.setdefault(event.call, []).append(event.kind)
    assert len(seen) == 7
    assert set(map(tuple, seen.values())) == {("call.started",)}
    assert {body(event)["verdict"] for event in events} == {"allow"}


def test_only_the_gate_module_constructs_approved_calls() -> None:
    source = Path(__file__).parents[2] / "src" / "callgate"
    builders = {path.name for path in source.rglob("*.py") if "ApprovedCall(" in path.read_text(encoding="utf-8").replace("class ", "")}
    assert builders - {"stage_types.py"} == {"gate.py"}


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS[1:])
async def test_a_deadline_ends_the_wait_and_returns_a_timeout_result(runner: str) -> None:
    begun = asyncio.Event()
    async with Engine([run_by(hangs, runner)], timeout_s=DEADLINE_S, clock=LoopClock()) as engine:
        engine.bus.subscribe(lambda topic, item: begun.set(), "call.progress")
        outcome = await past_deadline(engine.call(call("hangs"), HERE), begun.is_set)
    assert isinstance(outcome, Answered)
    result = outcome.result
    assert (result.success, result.failure_class) == (False, "timeout")
    assert "timed out" in str(result.error)
    entry = history_entry(call("hangs"), result)
    assert not entry.success
    assert "timed out" in str(entry.function_response)


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS[1:])
async def test_a_kill_ends_the_wait_at_once_and_leaves_no_result(runner: str) -> None:
    """A killed call leaves no result in a history, no completed event, no bus event and no current call."""
    heard: list[str] = []
    begun = asyncio.Event()
    async with Engine([run_by(hangs, runner)]) as engine:
        engine.bus.subscribe(lambda topic, item: heard.append(topic), "tool.completed", "call.completed")
        engine.bus.subscribe(lambda topic, item: begun.set(), "call.progress")
        task = asyncio.create_task(engine.call(call("hangs"), HERE))
        await asyncio.wait_for(begun.wait(), PATIENCE_S)
        engine.control.kill("here")
        outcome = await task
        assert kinds(engine) == ["call.received", "call.started", "call.aborted"]
        assert engine.current_tool_call("here") is None
    assert outcome == Aborted("stopped_by_user", "killed by the user")
    assert heard == []


async def test_a_stop_during_a_call_aborts_it_and_discards_its_result() -> None:
    heard: list[str] = []

    async with Engine() as engine:

        @tool(effect="none")
        async def fail(ctx: ToolContext) -> None:
            """Raise after its turn was stopped."""
            engine.control.stop(ctx.conversation)
            raise ValueError("the half-done work")

        engine.register(fail)
        engine.bus.subscribe(lambda topic, item: heard.append(topic), "tool.completed", "call.completed")
        outcome = await engine.call(call("fail"), HERE)
    assert isinstance(outcome, Aborted)
    assert outcome.status == "stopped_by_user"
    assert "half-done" not in outcome.reason
    assert heard == []


async def test_a_timeout_applies_to_each_call_and_not_to_their_sum() -> None:
    clock = ManualClock()

    @tool(effect="none")
    async def quick(n: int) -> int:
        """Quick."""
        clock.advance(10)
        return n

    async with Engine([quick], timeout_s=80, clock=clock) as engine:
        results = [await said(engine, call("quick", n=n)) for n in range(12)]
    assert [result.structured for result in results] == list(range(12))


async def test_a_call_is_dispatched_at_most_once(ledger: Ledger) -> None:
    """This holds whether the call succeeds, fails, times out or is refused."""

    @tool
    async def act(how: str) -> str:
        """Act, and end in some way."""
        ledger.write(how)
        if how == "fail":
            raise ConnectionError("connection reset; try again")
        if how == "hang":
            await asyncio.Event().wait()
        return "done"

    async with Engine([act], timeout_s=0.1, clock=ManualClock()) as engine:
        for how in ("answer", "fail", "hang"):
            await engine.call(call("act", how=how))
        await engine.call(call("act", how="blocked"), Scope(deliberate=True, allowed_tools=frozenset()))
        await engine.call(call("act", how=["invalid"]))
    assert ledger.lines() == ["answer", "fail", "hang"]


async def test_a_history_entry_pairs_the_call_with_its_data_or_error_object() -> None:
    @tool(effect="none")
    async def draw(what: str) -> dict[str, Any]:
        """Draw."""
        if what == "nothing":
            raise ValueError("an empty page")
        return {"success": True, "data": {"drawn": what}, "imageMetadata": {"mime": "image/png"}, "endTurn": True}

    async with Engine([draw]) as engine:
        raw = call("draw", what="a door")
        drawn, empty = await said(engine, raw), await said(engine, call("draw", what="nothing"))
    entry, failure = history_entry(raw, drawn, {"what": "a door"}), history_entry(raw, empty)
    assert entry.function_call == {"name": "draw", "args": {"what": "a door"}}
    assert entry.function_response == {"name": "draw", "response": {"result": {"drawn": "a door"}}}
    assert (entry.image_metadata, entry.success, entry.end_turn) == ({"mime": "image/png"}, True, True)
    error: Any = failure.function_response["response"]
    assert set(error["result"]) >= {"status", "error", "code", "tool_name"}
    assert (error["result"]["status"], error["result"]["tool_name"]) == ("error", "draw")
    assert "an empty page" in error["result"]["error"]
    assert (failure.success, failure.image_metadata) == (False, None)


async def test_a_result_has_success_data_error_message_end_turn_and_image_metadata() -> None:
    @tool(effect="none")
    async def do(fail: bool) -> dict[str, Any]:
        """Do."""
        if fail:
            return {"success": False, "error": "the door is locked", "data": {"door": 1}}
        return {"success": True, "data": [1], "message": "done", "end_turn": True, "image_metadata": {"w": 1}}

    async with Engine([do]) as engine:
        good, bad = await said(engine, call("do", fail=False)), await said(engine, call("do", fail=True))
    assert (good.success, good.data, good.error, good.message, good.end_turn, good.image_metadata) == (
        True,
        [1],
        None,
        "done",
        True,
        {"w": 1},
    )
    assert (bad.success, bad.data, bad.error, bad.message, bad.end_turn) == (False, {"door": 1}, "the door is locked", None, False)


@pytest.mark.parametrize("standard", [False, True], ids=["plain", "in the standard form"])
@pytest.mark.parametrize("consumed", [True, False])
async def test_an_accepted_context_restart_leaves_no_result_and_a_declined_one_does(consumed: bool, standard: bool) -> None:
    given: list[object] = []
    heard: list[str] = []

    @tool(effect="none")
    async def watch(kind: str) -> dict[str, object]:
        """Watch."""
        data: dict[str, object] = {"type": kind, "item": "v1"}
        return {"success": True, "data": data, "message": "seen"} if standard else data

    async def restart(data: object) -> bool:
        given.append(data)
        return consumed

    async with Engine([watch], restart=restart) as engine:
        engine.bus.subscribe(lambda topic, item: heard.append(topic), "call.completed", "call.restarted", "tool.completed")
        outcome = await engine.call(call("watch", kind="context_restart_video"), HERE)
        assert (engine.current_tool_call("here") is None) is consumed
        assert isinstance(await engine.call(call("watch", kind="other")), Answered)
    assert isinstance(outcome, Restarted if consumed else Answered)
    assert given == [{"type": "context_restart_video", "item": "v1"}]
    assert heard[:1] == ["call.restarted" if consumed else "call.completed"]


async def test_the_other_calls_of_a_message_keep_their_results_despite_a_restart() -> None:
    @tool(effect="none")
    async def watch() -> dict[str, str]:
        """Watch."""
        return {"type": "context_restart_video"}

    @tool(effect="none")
    async def look() -> str:
        """Look."""
        return "seen"

    async def restart(data: object) -> bool:
        return True

    async with Engine([watch, look], restart=restart) as engine:
        outcomes = await engine.call_many([call("look"), call("watch"), call("look")])
    assert [type(outcome) for outcome in outcomes] == [Answered, Restarted, Answered]


async def test_every_verdict_is_recorded_with_its_call() -> None:
    rules = """
    [[rule]]
    id = "no"
    verdict = "deny"
    tool = "pay"
    when = { "arguments.to" = "mallory" }
    [[rule]]
    id = "perhaps"
    verdict = "ask"
    tool = "pay"
    when = { "arguments.to" = "bob" }
    """

    @tool
    async def pay(to: str) -> str:
        """Pay."""
        return "paid"

    async with Engine([pay], policies=[Rules.parse(rules)]) as engine:
        for to in ("ann", "bob", "mallory"):
            await engine.call(call("pay", to=to))
        judged = [event for event in engine.journal.read() if event.kind in ("call.verdict", "call.started")]
        received = {event.position: event.call for event in engine.journal.read() if event.kind == "call.received"}
        said_so = [one["verdict"] for one in verdicts(engine)]
    assert said_so == ["allow", "ask", "deny"]
    assert [received[event.parents[0]] for event in judged] == [event.call for event in judged]


async def test_events_have_normalised_arguments_results_and_causal_parents() -> None:
    @tool(effect="none")
    async def add(a: int, b: int = 2) -> int:
        """Add."""
        return a + b

    events: list[Event] = []
    async with Engine([add]) as engine:
        engine.bus.subscribe(lambda topic, item: events.append(item), *KINDS)  # type: ignore[arg-type]
        await said(engine, RawCall(name=" Add ", arguments='{"a": "40"}'))
        verdict, completed = verdicts(engine)[0], bodies(engine, "call.completed")[0]
    assert verdict["arguments"] == {"a": 40, "b": 2}
    assert completed["structured"] == 42
    assert [event.parents for event in events[1:]] == [(event.position,) for event in events[:-1]]


@pytest.mark.parametrize(("workspace", "runs"), [("/srv/public", True), ("/srv/private", False)])
async def test_a_rule_can_allow_a_tool_in_one_workspace_only(workspace: str, runs: bool, ledger: Ledger) -> None:
    rules = """
    default = "deny"
    [[rule]]
    id = "public"
    verdict = "allow"
    tool = "pay"
    when = { workspace = "/srv/public" }
    """
    async with Engine([paying(ledger)], policies=[Rules.parse(rules)]) as engine:
        result = await said(engine, call("pay", to="ann"), Scope(workspace=workspace))
    assert (result.success, ledger.lines()) == ((True, ["ann"]) if runs else (False, []))


async def test_a_redacted_secret_is_neither_recorded_nor_returned() -> None:
    seen: list[str] = []

    @tool
    async def login(password: str) -> str:
        """Log in."""
        seen.append(password)
        return f"logged in with {password}"

    async with Engine([login], redactor=Hider()) as engine:
        result = await said(engine, call("login", password="hunter2"))
        record = b"".join(event.body for event in engine.journal.read())
    assert seen == ["hunter2"]
    assert result.text == "logged in with [hidden]"
    assert b"hunter2" not in record
    assert record.count(b"[hidden]") >= 3
