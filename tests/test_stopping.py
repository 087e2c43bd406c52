"""Stop, kill and deadline: what ends a call, and what its outcome says."""

from __future__ import annotations

import asyncio

import pytest

from callgate import AbortController, Aborted, Allow, Engine, RawCall, RetryPolicy, Scope, Tool, ToolContext, UsageError, tool
from callgate._limits_from_environment import timeout_from_environment
from callgate.calls import Effect
from callgate.protocols import Verdict
from callgate.stage_types import ValidatedCall
from callgate.testing import ManualClock
from tests.engine_calls import bodies, call, kinds, result_of, said
from tests.waiting import HANGS_S, PATIENCE_S, until

HERE = Scope(conversation="here")


async def test_a_pending_stop_aborts_before_any_tool_runs() -> None:
    ran = []

    @tool
    async def pay() -> str:
        """Pay."""
        ran.append(1)
        return "paid"

    async with Engine([pay]) as engine:
        engine.control.stop("here")
        outcome = await engine.call(call("pay"), HERE)
        assert isinstance(outcome, Aborted)
        assert outcome.status == "stopped_by_user"
        assert (await said(engine, call("pay"), Scope(conversation="elsewhere"))).success
    assert ran == [1]


UNREADABLE = {
    "malformed": RawCall(name="pay", arguments='{"amount": nope}'),
    "cut": RawCall(name="pay", arguments='{"amount": ', closed="cut"),
    "unknown": RawCall(name="no_such_tool", arguments="{}"),
    "invalid": RawCall(name="pay", arguments='{"amount": "much"}'),
    "long id": RawCall(name="pay", arguments="{}", id="i" * 999),
}


@pytest.mark.parametrize("raw", UNREADABLE.values(), ids=UNREADABLE.keys())
async def test_a_pending_stop_is_checked_before_the_arguments(raw: RawCall) -> None:
    """Requirements A8 and A12: a pending stop ends the message whatever the call looks like, and the call has no result."""

    @tool
    async def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    async with Engine([pay]) as engine:
        engine.control.stop("here", "enough")
        one = await engine.call(raw, HERE)
        several = await engine.call_many([raw, raw], HERE)
        ended = [(end.status, end.reason) for end in [one, *several] if isinstance(end, Aborted)]
        assert ended == [("stopped_by_user", "enough")] * 3
        assert engine.control.errors_in_a_row("here") == 0


class Asking:
    """A policy that waits for `answer`, then allows the call."""

    def __init__(self) -> None:
        self.asked, self.answer = asyncio.Event(), asyncio.Event()

    async def decide(self, call: ValidatedCall) -> Verdict:
        self.asked.set()
        await self.answer.wait()
        return Allow()


class Till:
    """A tool with an effect and one slot, which a call holds until `free` is set."""

    def __init__(self) -> None:
        self.paid: list[int] = []
        self.busy, self.free = asyncio.Event(), asyncio.Event()

    def tools(self) -> list[Tool]:
        @tool(effect="once", parallel=1)
        async def pay(amount: int) -> str:
            """Pay."""
            self.paid.append(amount)
            self.busy.set()
            await self.free.wait()
            return "paid"

        return [pay]


async def test_a_call_received_before_a_stop_does_not_start_after_it() -> None:
    """Requirement A12: calls of a streamed message are read one by one. A stop applies to every tool that has not started."""
    till = Till()
    async with Engine(till.tools()) as engine:
        emission = engine.emission(HERE)
        emission.add(call("pay", amount=1))
        engine.control.stop("here", "enough")
        (outcome,) = await emission.seal()
        assert isinstance(outcome, Aborted)
        assert (outcome.status, till.paid) == ("stopped_by_user", [])
        assert "call.verdict" not in kinds(engine)


async def test_a_call_does_not_start_after_a_stop_during_its_policy_decision() -> None:
    till, asking = Till(), Asking()
    async with Engine(till.tools(), policies=[asking]) as engine:
        asked = asyncio.create_task(engine.call(call("pay", amount=1), HERE))
        await asking.asked.wait()
        engine.control.stop("here")
        asking.answer.set()
        assert isinstance(await asked, Aborted)
    assert till.paid == []


async def test_a_call_does_not_start_after_a_stop_during_its_wait_for_a_slot() -> None:
    till = Till()
    async with Engine(till.tools()) as engine:
        other = asyncio.create_task(engine.call(call("pay", amount=1), Scope(conversation="elsewhere", run="other")))
        await till.busy.wait()
        waiting = asyncio.create_task(engine.call(call("pay", amount=2), HERE))
        await until(lambda: "call.received" in kinds(engine, engine.run + "/0/0"))
        engine.control.stop("here")
        till.free.set()
        assert (await other).result.success  # type: ignore[union-attr]
        assert isinstance(await waiting, Aborted)
    assert till.paid == [1]


async def test_a_call_without_a_name_is_an_error_even_with_a_pending_stop() -> None:
    """Requirement A8: the payload is checked first, and the stop second."""
    async with Engine() as engine:
        engine.control.stop("here")
        outcome = await engine.call(RawCall(name=" ", arguments="{"), HERE)
    assert isinstance(outcome, Aborted)
    assert outcome.status == "error"


async def test_a_kill_ends_a_running_tool_and_aborts_its_message() -> None:
    running = asyncio.Event()

    @tool(effect="none")
    async def hang(ctx: ToolContext) -> None:
        """Hang."""
        running.set()
        await asyncio.Event().wait()

    async with Engine([hang]) as engine:
        task = asyncio.create_task(engine.call(call("hang"), HERE))
        await running.wait()
        engine.control.kill("here")
        outcome = await task
        assert isinstance(outcome, Aborted)
        assert outcome.status == "stopped_by_user"
        assert kinds(engine)[-1] == "call.aborted"
        assert bodies(engine, "call.aborted")[0]["details"] is not None


async def test_a_kill_ends_the_wait_between_two_attempts() -> None:
    failed = asyncio.Event()

    @tool(effect="none", retry=RetryPolicy(base_s=60, jitter=False))
    async def ask() -> None:
        """Ask."""
        failed.set()
        raise ConnectionError("reset")

    async with Engine([ask]) as engine:
        task = asyncio.create_task(engine.call(call("ask"), HERE))
        await failed.wait()
        await asyncio.sleep(0)
        engine.control.kill("here")
        assert isinstance(await task, Aborted)


async def test_a_host_abort_signal_gives_a_killed_result() -> None:
    from callgate import AbortController

    running = asyncio.Event()

    @tool
    async def hang() -> None:
        """Hang."""
        running.set()
        await asyncio.Event().wait()

    controller = AbortController()
    async with Engine([hang]) as engine:
        task = asyncio.create_task(engine.call(call("hang"), signal=controller.signal))
        await running.wait()
        controller.abort("the page was closed")
        result = result_of(await task)
    assert (result.status, result.failure_class) == ("unknown", "killed")
    assert "the page was closed" in result.text


async def test_a_tool_can_wait_for_and_listen_to_its_abort_signal() -> None:
    seen = []

    @tool(effect="none")
    async def fetch(ctx: ToolContext) -> str:
        """Fetch."""
        ctx.signal.on_abort(lambda: seen.append(ctx.signal.reason))
        await ctx.signal.wait()
        return "stopped by itself"

    async with Engine([fetch]) as engine:
        task = asyncio.create_task(engine.call(call("fetch"), HERE))
        while not kinds(engine).count("call.started"):
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        engine.control.kill("here", "enough")
        await task
    assert seen == ["enough"]


async def test_a_stop_without_a_kill_lets_the_tool_finish_and_then_ends_the_message() -> None:
    release = asyncio.Event()

    @tool
    async def pay() -> str:
        """Pay."""
        await release.wait()
        return "paid"

    async with Engine([pay]) as engine:
        task = asyncio.create_task(engine.call(call("pay"), HERE))
        while not kinds(engine).count("call.started"):
            await asyncio.sleep(0)
        engine.control.stop("here")
        release.set()
        outcome = await task
        assert isinstance(outcome, Aborted)
        assert outcome.kept_result is not None
        assert (outcome.status, outcome.kept_result.text) == ("stopped_by_user", "paid")
        assert kinds(engine)[-1] == "call.completed"


@pytest.mark.parametrize("during", ["the attempt", "the wait"])
@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_a_call_is_not_retried_after_a_stop_or_kill(during: str, end: str) -> None:
    """After a stop nothing starts, not even a second attempt, and nothing waits for one. The call has its own abort signal."""
    tried: list[int] = []

    @tool(effect="none", retry=RetryPolicy(base_s=HANGS_S, max_s=HANGS_S))
    async def flaky() -> str:
        """Fail transiently."""
        tried.append(1)
        if during == "the attempt":
            getattr(engine.control, end)("here")
        raise ConnectionError("reset")

    async with Engine([flaky], timeout_s=2 * HANGS_S) as engine:
        task = asyncio.create_task(engine.call(call("flaky"), HERE, signal=AbortController().signal))
        if during == "the wait":
            await until(lambda: "call.attempt_failed" in kinds(engine))
            getattr(engine.control, end)("here")
        outcome = await asyncio.wait_for(task, PATIENCE_S)
        assert isinstance(outcome, Aborted)
        details = bodies(engine, "call.aborted")[0]["details"]
        assert isinstance(details, dict)
        assert (details["status"], details["attempts"]) == ("error", 1)
        assert kinds(engine).count("call.attempt_failed") == (during == "the wait")  # the event says that another attempt follows
    assert tried == [1]


@pytest.mark.parametrize("effect", ["none", "idempotent"])
async def test_a_host_abort_signal_ends_the_wait_between_two_attempts(effect: Effect) -> None:
    tried: list[int] = []

    @tool(effect=effect, retry=RetryPolicy(base_s=HANGS_S, max_s=HANGS_S))
    async def flaky() -> str:
        """Fail transiently."""
        tried.append(1)
        raise ConnectionError("reset")

    controller = AbortController()
    async with Engine([flaky], timeout_s=2 * HANGS_S) as engine:
        task = asyncio.create_task(engine.call(call("flaky"), HERE, signal=controller.signal))
        await until(lambda: "call.attempt_failed" in kinds(engine))
        controller.abort("the page was closed")
        result = result_of(await asyncio.wait_for(task, PATIENCE_S))
    assert (result.failure_class, tried) == ("killed", [1])
    assert "the page was closed" in result.text


def test_an_ending_event_loop_ends_the_calls_left_in_it() -> None:
    """Each call has one terminal event, even if the host leaves it in a task and the loop stops."""
    cleaned: list[str] = []
    engines: list[Engine] = []

    @tool(effect="none")
    async def wait() -> str:
        """Wait forever."""
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append("tidied up")
        return "never"

    async def host() -> None:
        engines.append(Engine([wait], run="r"))
        forgotten.append(asyncio.ensure_future(engines[0].call(RawCall(name="wait"))))
        await entered.wait()

    entered = asyncio.Event()
    forgotten: list[asyncio.Future[object]] = []
    asyncio.run(host())
    assert cleaned == ["tidied up"]
    assert [event.kind for event in engines[0].journal.read()][-1] == "call.aborted"
    assert forgotten[0].cancelled()


async def test_errors_in_a_row_are_counted_until_a_success_or_a_restart() -> None:
    @tool(effect="none")
    async def look(at: str) -> dict[str, str]:
        """Look."""
        if at == "dark":
            raise ValueError("nothing to see")
        return {"type": "context_restart_image"} if at == "image" else {"seen": at}

    async def restart(data: object) -> bool:
        return True

    async with Engine([look], restart=restart) as engine:
        counts = []
        for at in ("dark", "dark", "door", "dark", "image", "dark", "dark"):
            await engine.call(call("look", at=at), HERE)
            counts.append(engine.control.errors_in_a_row("here"))
        await engine.call(call("nobody"), HERE)
        await engine.call(call("look", at=5), HERE)
        counts.append(engine.control.errors_in_a_row("here"))
        assert counts == [1, 2, 0, 1, 0, 1, 2, 4]
        assert engine.control.errors_in_a_row("elsewhere") == 0
        engine.control.end_turn("here")
        assert engine.control.errors_in_a_row("here") == 0


async def test_the_late_result_of_an_abandoned_coroutine_is_recorded_and_discarded() -> None:
    release = asyncio.Event()

    @tool
    async def stubborn() -> str:
        """Ignore cancellation."""
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await release.wait()
        return "too late"

    async with Engine([stubborn], timeout_s=0.05, clock=ManualClock()) as engine:
        result = await said(engine, call("stubborn"))
        assert (result.status, result.failure_class) == ("unknown", "timeout")
        release.set()
        while "call.late" not in kinds(engine):
            await asyncio.sleep(0)


async def test_an_unrequested_cancelled_error_is_a_failure_of_the_tool() -> None:
    @tool(effect="none")
    async def odd() -> None:
        """Raise `CancelledError`."""
        raise asyncio.CancelledError

    async with Engine([odd]) as engine:
        assert (await said(engine, call("odd"))).failure_class == "exception"


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), MemoryError(), GeneratorExit()], ids=lambda e: type(e).__name__)
async def test_no_exception_of_a_tool_stops_the_engine(error: BaseException) -> None:
    @tool(effect="none")
    async def odd() -> None:
        """Raise."""
        raise error

    @tool(effect="none")
    def odd_too() -> None:
        """Raise in a thread."""
        raise error

    async with Engine([odd, odd_too]) as engine:
        assert (await said(engine, call("odd"))).code == "tool_raised"
        assert (await said(engine, call("odd_too"))).code == "tool_raised"


async def test_an_internal_engine_error_ends_the_call_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    ran = []

    @tool
    async def act() -> str:
        """Act."""
        ran.append(1)
        return "done"

    async with Engine([act]) as engine:
        engine.blobs = None  # type: ignore[assignment]
        engine._parts.context.normaliser.result = None  # type: ignore[assignment, method-assign]
        result = await said(engine, call("act"))
        assert (result.status, result.code) == ("unknown", "internal_error")
        assert kinds(engine)[-1] == "call.completed"
        engine._parts.plans.by_identity.clear()
        result = await said(engine, call("act"))
        assert (result.status, result.code) == ("error", "internal_error")
    assert ran == [1]
    assert "fault" in caplog.text


@pytest.mark.parametrize(
    ("value", "seconds"), [(None, 300), ("", 300), (" 450000 ", 450), ("5", 10), ("-3", 10), ("10000", 10), ("450000", 450)]
)
def test_the_environment_sets_the_timeout_with_a_lower_bound(value: str | None, seconds: float) -> None:
    environ = {} if value is None else {"TOOL_EXECUTION_TIMEOUT_MS": value}
    assert timeout_from_environment(environ) == seconds


@pytest.mark.parametrize("value", ["abc", "1.5", "2147483648", "1e6", "-", "9" * 5_000])
def test_an_invalid_timeout_in_the_environment_is_refused_unless_set_in_code(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the timeout would not be the one that was set."""
    monkeypatch.setenv("TOOL_EXECUTION_TIMEOUT_MS", value)
    with pytest.raises(UsageError, match=r"TOOL_EXECUTION_TIMEOUT_MS is .* up to 2147483647, of which less than 10000 counts as 10000"):
        Engine([])
    Engine([], timeout_s=1.0)


async def test_an_explicit_timeout_may_be_any_positive_number() -> None:
    @tool(effect="none")
    async def hang() -> None:
        """Hang."""
        await asyncio.Event().wait()

    async with Engine([hang], timeout_s=0.01, clock=ManualClock()) as engine:
        assert (await said(engine, call("hang"))).failure_class == "timeout"


async def test_an_abort_listener_that_raises_does_not_prevent_the_kill() -> None:
    """The listener is the tool's own code, and is called first."""
    begun = asyncio.Event()

    def fails() -> None:
        raise SystemExit("a listener")

    @tool
    async def hang(ctx: ToolContext) -> None:
        """Hang."""
        ctx.signal.on_abort(fails)
        begun.set()
        await asyncio.Event().wait()

    async with Engine([hang]) as engine:
        running = asyncio.ensure_future(engine.call(call("hang"), Scope(conversation="c")))
        await begun.wait()
        engine.control.kill("c")
        assert isinstance(await asyncio.wait_for(running, PATIENCE_S), Aborted)
