"""Retries, repeated calls and unknown outcomes: no effect is started twice, and an unknown outcome is reported."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate import Engine, Retryable, RetryPolicy, Scope, SqliteJournal, Tool, ToolContext, Verified, tool
from callgate.errors import UsageError
from callgate.testing import ManualClock
from callgate.tools import is_retryable_error
from tests.effect_ledger import Ledger
from tests.effect_tools import paying_amounts
from tests.engine_calls import bodies, call, said

QUICK = RetryPolicy(base_s=0.0, max_s=0.0)


class Flaky:
    """A service that fails a number of times, then answers."""

    def __init__(self, failures: int, error: Exception) -> None:
        self.failures = failures
        self.error = error
        self.keys: list[str] = []

    def answer(self, ctx: ToolContext) -> str:
        self.keys.append(ctx.idempotency_key)
        if len(self.keys) <= self.failures:
            raise self.error
        return "answered"


def tool_over(service: Flaky, **settings: Any) -> Any:
    @tool(name="ask", retry=QUICK, **settings)
    async def ask(ctx: ToolContext) -> str:
        """Ask the service."""
        return service.answer(ctx)

    return ask


@pytest.mark.parametrize("effect", ["none", "idempotent"])
async def test_a_transient_failure_is_retried_with_the_same_idempotency_key(effect: str) -> None:
    service = Flaky(3, ConnectionError("connection reset"))
    async with Engine([tool_over(service, effect=effect)]) as engine:
        result = await said(engine, call("ask"))
    assert result.success
    assert (result.metadata.attempts, result.metadata.retry_count) == (4, 3)
    assert len(set(service.keys)) == 1


async def test_a_call_has_at_most_four_attempts_by_default() -> None:
    service = Flaky(9, ConnectionError("connection reset"))
    async with Engine([tool_over(service, effect="none")]) as engine:
        result = await said(engine, call("ask"))
        assert [body["status"] for body in bodies(engine, "call.attempt_failed")] == ["raised"] * 3
    assert (len(service.keys), result.metadata.retry_count) == (4, 3)
    assert "4 times" in result.text


async def test_a_permanent_failure_is_not_retried() -> None:
    service = Flaky(9, ValueError("no such account"))
    async with Engine([tool_over(service, effect="none")]) as engine:
        assert (await said(engine, call("ask"))).metadata.attempts == 1


async def test_a_once_call_is_not_retried_after_it_may_have_started() -> None:
    service = Flaky(9, ConnectionError("connection reset"))
    async with Engine([tool_over(service)]) as engine:
        assert (await said(engine, call("ask"))).metadata.attempts == 1


async def test_a_not_started_failure_is_retried_even_for_a_once_tool() -> None:
    service = Flaky(2, Retryable("refused before the request left", not_started=True))
    async with Engine([tool_over(service)]) as engine:
        result = await said(engine, call("ask"))
    assert (result.success, result.metadata.attempts) == (True, 3)


async def test_a_tool_with_retryable_false_is_never_retried() -> None:
    service = Flaky(9, ConnectionError("reset"))
    async with Engine([tool_over(service, effect="none", retryable=False)]) as engine:
        assert (await said(engine, call("ask"))).metadata.attempts == 1


@given(st.integers(1, 12), st.floats(0, 1, exclude_max=True))
def test_the_backoff_doubles_from_one_second_to_ten_with_jitter(failures: int, chance: float) -> None:
    policy = RetryPolicy()
    full = min(10.0, 1.0 * 2.0 ** (failures - 1))
    assert (policy.attempts, policy.base_s, policy.max_s, policy.multiplier, policy.jitter) == (4, 1.0, 10.0, 2.0, True)
    assert full / 2 <= policy.delay_s(failures, chance) <= full


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (TimeoutError(), True),
        (ConnectionResetError("reset"), True),
        ("network is unreachable", True),
        ("temporary failure in name resolution", True),
        ("Rate limit exceeded", True),
        ("please try again later", True),
        ("no such file", False),
        (KeyError("x"), False),
    ],
)
def test_is_retryable_error_recognises_transient_errors(error: Exception | str, passes: bool) -> None:
    assert is_retryable_error(error) is passes


async def test_a_timed_out_attempt_is_retried_while_the_deadline_allows() -> None:
    attempts = []

    @tool(effect="none", attempt_timeout_s=0.05, retry=QUICK)
    async def ask() -> str:
        """Ask."""
        attempts.append(1)
        if len(attempts) < 3:
            await asyncio.Event().wait()
        return "answered"

    async with Engine([ask]) as engine:
        result = await said(engine, call("ask"))
    assert (result.success, result.metadata.attempts) == (True, 3)


async def test_a_call_that_uses_up_its_timeout_is_not_retried() -> None:
    @tool(effect="none", timeout_s=0.05, retry=QUICK)
    async def hang() -> None:
        """Hang."""
        await asyncio.Event().wait()

    async with Engine([hang]) as engine:
        result = await said(engine, call("hang"))
        assert [body["timeout_s"] for body in bodies(engine, "call.started")] == [0.05]
    assert (result.failure_class, result.metadata.attempts) == ("timeout", 1)


@pytest.mark.parametrize(("timeout_s", "attempts"), [(0.5, 1), (2.5, 2), (3.5, 3), (None, 4)])
async def test_the_timeout_of_a_tool_includes_retries_and_backoff(timeout_s: float | None, attempts: int) -> None:
    """The delays are one, two and four seconds. A delay begins only if it ends before the timeout."""
    clock = ManualClock(jitter=1.0)
    service = Flaky(9, ConnectionError("connection reset"))

    @tool(effect="none", timeout_s=timeout_s)
    async def ask(ctx: ToolContext) -> str:
        """Ask the service."""
        return service.answer(ctx)

    async with Engine([ask], clock=clock) as engine:
        task = asyncio.create_task(said(engine, call("ask")))
        while not task.done():
            await asyncio.sleep(0)
            if clock.sleeping:
                clock.advance(0.25)
        assert (await task).metadata.attempts == attempts


async def test_each_attempt_gets_its_own_timeout_capped_by_the_time_left() -> None:
    clock = ManualClock(jitter=1.0)
    service = Flaky(9, ConnectionError("connection reset"))

    @tool(effect="none", timeout_s=4.0, attempt_timeout_s=2.0)
    async def ask(ctx: ToolContext) -> str:
        """Ask the service."""
        return service.answer(ctx)

    async with Engine([ask], clock=clock) as engine:
        task = asyncio.create_task(said(engine, call("ask")))
        while not task.done():
            await asyncio.sleep(0)
            if clock.sleeping:
                clock.advance(0.25)
        await task
        assert [body["timeout_s"] for body in bodies(engine, "call.started")] == [2.0, 2.0, 1.0]


async def test_a_timeout_is_final_without_an_attempt_timeout() -> None:
    @tool(effect="none")
    async def hang() -> None:
        """Hang."""
        await asyncio.Event().wait()

    async with Engine([hang], timeout_s=0.05, clock=ManualClock()) as engine:
        result = await said(engine, call("hang"))
    assert (result.status, result.failure_class, result.metadata.attempts) == ("error", "timeout", 1)
    assert "timed out" in str(result.error)


async def test_a_timed_out_call_with_an_effect_is_unknown_and_does_not_suggest_a_retry() -> None:
    @tool
    async def pay() -> None:
        """Pay."""
        await asyncio.Event().wait()

    async with Engine([pay], timeout_s=0.05, clock=ManualClock()) as engine:
        result = await said(engine, call("pay"))
    assert (result.status, result.failure_class) == ("unknown", "timeout")
    assert "may have taken effect" in result.text
    assert "try again" not in result.text


async def test_every_call_gets_a_fresh_deadline() -> None:
    clock = ManualClock()

    @tool(effect="none")
    async def quick() -> str:
        """Quick."""
        clock.advance(30)
        return "done"

    async with Engine([quick], timeout_s=100, clock=clock) as engine:
        assert all([(await said(engine, call("quick", id=str(n)))).success for n in range(5)])


async def test_a_repeated_idempotency_key_returns_the_stored_result(ledger: Ledger) -> None:
    async with Engine([paying_amounts(ledger)]) as engine:
        first = await said(engine, call("pay", id="c1", key="k1", to="ann", amount=5))
        again = await said(engine, call("pay", id="c2", key="k1", to="ann", amount=5))
    assert (first.metadata.replayed, again.metadata.replayed) == (False, True)
    assert (again.id, again.text) == ("c2", first.text)
    assert ledger.lines() == ["ann 5"]


async def test_an_idempotency_key_reused_for_another_call_is_a_conflict(ledger: Ledger) -> None:
    async with Engine([paying_amounts(ledger)]) as engine:
        await said(engine, call("pay", key="k1", to="ann", amount=5))
        result = await said(engine, call("pay", key="k1", to="bob", amount=5))
    assert result.code == "idempotency_conflict"
    assert ledger.lines() == ["ann 5"]


async def test_a_nul_in_a_key_does_not_give_its_principal_the_stored_result_of_another(ledger: Ledger) -> None:
    async with Engine([paying_amounts(ledger)]) as engine:
        await said(engine, call("pay", key="k", to="ann", amount=5), Scope(principal="p\0pay\0x"))
        other = await said(engine, call("pay", key="x\0pay\0k", to="ann", amount=5), Scope(principal="p"))
    assert (other.success, other.metadata.replayed) == (True, False)
    assert ledger.lines() == ["ann 5", "ann 5"]


async def test_an_idempotency_key_is_scoped_to_its_principal(ledger: Ledger) -> None:
    async with Engine([paying_amounts(ledger)]) as engine:
        await said(engine, call("pay", key="k1", to="ann", amount=5), Scope(principal="one"))
        assert (await said(engine, call("pay", key="k1", to="ann", amount=5), Scope(principal="two"))).success
    assert ledger.lines() == ["ann 5", "ann 5"]


async def test_a_repeated_call_id_has_no_second_effect(ledger: Ledger) -> None:
    async with Engine([paying_amounts(ledger)]) as engine:
        await said(engine, call("pay", id="c1", to="ann", amount=5))
        assert (await said(engine, call("pay", id="c1", to="ann", amount=5))).metadata.replayed
    assert ledger.lines() == ["ann 5"]


async def test_a_call_id_reused_in_a_later_message_is_another_call(ledger: Ledger) -> None:
    async with Engine([paying_amounts(ledger)]) as engine:
        for iteration in range(2):
            assert (await said(engine, call("pay", id="call_0", to="ann", amount=5), Scope(iteration=iteration))).success
    assert len(ledger.lines()) == 2


async def test_a_repeated_call_joins_the_one_still_running(ledger: Ledger) -> None:
    released = asyncio.Event()
    async with Engine([paying_amounts(ledger, released)]) as engine:
        first = asyncio.create_task(engine.call(call("pay", key="k", to="ann", amount=1)))
        while not ledger.lines():
            await asyncio.sleep(0)
        second = asyncio.create_task(engine.call(call("pay", key="k", to="ann", amount=1)))
        await asyncio.sleep(0)
        released.set()
        results = [outcome.result for outcome in await asyncio.gather(first, second)]  # type: ignore[union-attr]
    assert [result.metadata.joined for result in results] == [False, True]
    assert ledger.lines() == ["ann 1"]


async def test_a_retried_tool_does_not_repeat_the_effects_of_its_nested_calls(ledger: Ledger) -> None:
    """A later attempt recognises the nested calls of an earlier one."""
    attempts = []

    @tool(effect="idempotent", retry=QUICK)
    async def order(ctx: ToolContext) -> list[str]:
        """Pay one person twice and another once, and fail in the first attempts."""
        attempts.append(1)
        paid = [(await ctx.call("pay", {"to": to, "amount": 5})).text for to in ("ann", "ann", "bob")]
        if len(attempts) < 3:
            raise ConnectionError("connection reset")
        return paid

    async with Engine([order, paying_amounts(ledger)]) as engine:
        result = await said(engine, call("order"))
    assert (result.success, len(attempts), result.data) == (True, 3, ["paid ann", "paid ann", "paid bob"])
    assert ledger.lines() == ["ann 5", "ann 5", "bob 5"]


async def test_a_call_aborted_by_a_stop_can_be_sent_again_with_the_same_key() -> None:
    ran = []

    @tool
    async def pay(amount: int) -> str:
        """Pay."""
        ran.append(amount)
        return "paid"

    async with Engine([pay]) as engine:
        engine.control.stop("c")
        await engine.call(call("pay", key="k", amount=1), Scope(conversation="c"))
        engine.control.end_turn("c")
        assert (await said(engine, call("pay", key="k", amount=1), Scope(conversation="c"))).success
    assert ran == [1]


async def test_a_call_is_not_dispatched_again_while_its_outcome_is_unknown(ledger: Ledger) -> None:
    async with Engine([paying_amounts(ledger, asyncio.Event())], timeout_s=0.05, clock=ManualClock()) as engine:
        first = await said(engine, call("pay", id="a", to="ann", amount=5))
        again = await said(engine, call("pay", id="b", to="ann", amount=5))
        assert (first.status, again.status, again.code) == ("unknown", "unknown", "outcome_unknown")
        assert first.uid in again.text
        assert ledger.lines() == ["ann 5"]
        await said(engine, call("pay", id="c", to="bob", amount=5))
        await said(engine, call("pay", id="d", to="ann", amount=5), Scope(run="another"))
        assert ledger.lines() == ["ann 5", "bob 5", "ann 5"]


async def test_a_call_can_be_sent_again_after_it_is_settled_as_not_happened(ledger: Ledger) -> None:
    async with Engine([paying_amounts(ledger, asyncio.Event())], timeout_s=0.05, clock=ManualClock()) as engine:
        first = await said(engine, call("pay", id="a", to="ann", amount=5))
        await engine.settle(first.uid, happened=False)
        await said(engine, call("pay", id="b", to="ann", amount=5))
        with pytest.raises(UsageError, match="in doubt"):
            await engine.settle("nobody/0/0", happened=True)
    assert ledger.lines() == ["ann 5", "ann 5"]


@pytest.mark.parametrize(("happened", "effects"), [(True, 1), (False, 2), (None, 1)])
async def test_verify_decides_whether_an_unknown_call_is_dispatched_again(happened: bool | None, effects: int, ledger: Ledger) -> None:
    def verify(arguments: dict[str, object], key: str) -> Verified:
        return Verified(happened=happened, result="paid before" if happened else None)

    async with Engine([paying_amounts(ledger, asyncio.Event(), verify=verify)], timeout_s=0.05, clock=ManualClock()) as engine:
        await said(engine, call("pay", id="a", to="ann", amount=5))
        again = await said(engine, call("pay", id="b", to="ann", amount=5))
    assert len(ledger.lines()) == effects
    if happened:
        assert again.text == "paid before"


class Pay(Tool):
    """A payment that never returns, with a `verify` method that returns a given value."""

    name = "pay"
    description = "Pay somebody."
    parameters = {"type": "object", "properties": {"to": {"type": "string"}}}
    category = "terminal"
    requires_actor = False

    def __init__(self, ledger: Ledger, says: object) -> None:
        self._ledger = ledger
        self._says = says

    async def execute(self, actor: str, **params: object) -> dict[str, object]:
        self._ledger.write(str(params["to"]))
        await asyncio.Event().wait()
        raise AssertionError

    async def verify(self, params: dict[str, Any], idempotency_key: str) -> Verified:
        return self._says  # type: ignore[return-value]


NOTHING: list[object] = [
    None, "no", 0, 1, {"happened": False}, (False,), SimpleNamespace(happened=False, result=None), Verified,
    Verified(happened=0), Verified(happened=1), Verified(happened="yes"),  # type: ignore[arg-type]
]  # fmt: skip


@pytest.mark.parametrize("says", [True, False, *NOTHING], ids=lambda value: repr(value)[:40])
async def test_a_tools_verify_method_without_a_valid_answer_settles_nothing(says: object, ledger: Ledger) -> None:
    """The outcome stays unknown, and nothing is started."""
    async with Engine([Pay(ledger, says)], timeout_s=0.05, clock=ManualClock()) as engine:
        for one in "ab":
            again = await said(engine, call("pay", id=one, to="ann"))
        assert not bodies(engine, "fact.settled")
    assert (again.status, again.code, ledger.lines()) == ("unknown", "outcome_unknown", ["ann"])


@pytest.mark.parametrize("says", NOTHING, ids=lambda value: repr(value)[:40])
@pytest.mark.parametrize("waits", [True, False], ids=["async", "plain"])
async def test_a_verify_function_without_a_valid_answer_settles_nothing(says: object, waits: bool, ledger: Ledger) -> None:
    async def later(arguments: dict[str, object], key: str) -> object:
        return says

    def at_once(arguments: dict[str, object], key: str) -> object:
        return says

    verify: Any = later if waits else at_once
    async with Engine([paying_amounts(ledger, asyncio.Event(), verify=verify)], timeout_s=0.05, clock=ManualClock()) as engine:
        for one in "ab":
            again = await said(engine, call("pay", id=one, to="ann", amount=5))
        assert not bodies(engine, "fact.settled")
    assert (again.status, again.code, ledger.lines()) == ("unknown", "outcome_unknown", ["ann 5"])


async def test_a_verified_result_is_returned_for_its_key_by_this_and_the_next_engine(tmp_path: Path, ledger: Ledger) -> None:
    """The call is not started again in either engine."""
    path, scope = tmp_path / "journal.db", Scope(run="order-1")

    def verify(arguments: dict[str, object], key: str) -> Verified:
        return Verified(happened=True, result="paid before")

    hanging = paying_amounts(ledger, asyncio.Event(), verify=verify)
    async with Engine([hanging], journal=SqliteJournal(path), timeout_s=0.05, clock=ManualClock()) as engine:
        assert (await said(engine, call("pay", id="a", to="ann", amount=5), scope)).status == "unknown"
        first = await said(engine, call("pay", key="k", to="ann", amount=5), scope)
        again = await said(engine, call("pay", key="k", to="ann", amount=5), scope)
    async with Engine([hanging], journal=SqliteJournal(path), timeout_s=0.05, clock=ManualClock()) as engine:
        later = await said(engine, call("pay", key="k", to="ann", amount=5), scope)
        conflict = await said(engine, call("pay", key="k", to="bob", amount=5), scope)
    assert [one.text for one in (first, again, later)] == ["paid before"] * 3
    assert [one.metadata.replayed for one in (first, again, later)] == [False, True, True]
    assert conflict.code == "idempotency_conflict"
    assert ledger.lines() == ["ann 5"]


async def test_a_new_engine_on_the_same_journal_returns_the_stored_result(tmp_path: Path, ledger: Ledger) -> None:
    path = tmp_path / "journal.db"
    scope = Scope(run="order-1")
    async with Engine([paying_amounts(ledger)], journal=SqliteJournal(path)) as engine:
        first = await said(engine, call("pay", key="k", to="ann", amount=5), scope)
    async with Engine([paying_amounts(ledger)], journal=SqliteJournal(path)) as engine:
        again = await said(engine, call("pay", key="k", to="ann", amount=5), scope)
        conflict = await said(engine, call("pay", key="k", to="bob", amount=5), scope)
    assert (again.metadata.replayed, again.text) == (True, first.text)
    assert conflict.code == "idempotency_conflict"
    assert ledger.lines() == ["ann 5"]


@pytest.mark.parametrize("piece", [1, 3, 1_000])
async def test_a_long_journal_read_in_pieces_gives_the_same_results_without_blocking(
    piece: int, tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop runs while a call waits for its run to be restored. Calls that arrive meanwhile share the read."""
    monkeypatch.setattr("callgate._pipeline.run_states._PIECE", piece)
    path, scope, turns = tmp_path / "journal.db", Scope(run="order-1"), [0]

    async def turn() -> None:
        while True:
            turns[0] += 1
            await asyncio.sleep(0)

    async with Engine([paying_amounts(ledger)], journal=SqliteJournal(path)) as engine:
        first = [await said(engine, call("pay", key=f"k{n}", to="ann", amount=n), scope) for n in range(3)]
    async with Engine([paying_amounts(ledger)], journal=SqliteJournal(path)) as engine:
        turning = asyncio.create_task(turn())
        again = await asyncio.gather(
            *(said(engine, call("pay", key=f"k{n}", to="ann", amount=n), Scope(run="order-1")) for n in range(3)),
            said(engine, call("pay", key="new", to="bob", amount=1), Scope(run="order-1")),
        )
        turning.cancel()
    assert [result.metadata.replayed for result in again] == [True, True, True, False]
    assert len({result.uid for result in (*first, *again)}) == 7
    assert ledger.lines() == ["ann 0", "ann 1", "ann 2", "bob 1"]
    assert piece > 12 or turns[0] >= 12 // piece


async def test_closing_an_engine_while_it_reads_the_journal_raises_a_usage_error(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("callgate._pipeline.run_states._PIECE", 1)
    path, scope = tmp_path / "journal.db", Scope(run="order-1")
    async with Engine([paying_amounts(ledger)], journal=SqliteJournal(path)) as engine:
        await said(engine, call("pay", key="k", to="ann", amount=5), scope)
    engine = Engine([paying_amounts(ledger)], journal=SqliteJournal(path))
    reading = asyncio.create_task(said(engine, call("pay", key="k", to="ann", amount=5), scope))
    await asyncio.sleep(0)
    await engine.close()
    with pytest.raises(UsageError, match="closed"):
        await reading
    assert ledger.lines() == ["ann 5"]
