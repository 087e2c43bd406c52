"""One pass of a model: streamed once, with a limit on silence, ended at once by stop, kill and follow-up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callgate import Engine, UsageError
from callgate._abort_signals import Control
from callgate._limits_from_environment import silence_from_environment
from callgate.agent import Agent
from callgate.messages import Message, ToolMessage, UserMessage
from callgate.models.model_events import ArgumentsDelta, CallOpened, CallReopened, CallSealed, Fault, Finished, ModelEvent, TextDelta
from callgate.models.model_protocol import StreamingContext
from callgate.models.wire.request import ModelRequest
from callgate.stream import StreamLimits, StreamResult, stream_once
from tests.agent.scripted_model import Answer, Gate, Pause, Script, Step, call, ends, says

SILENT = StreamLimits(idle_s=0.05, grace_s=0.02)
PATIENT = StreamLimits(idle_s=60.0, grace_s=0.02)


class Pass:
    """One pass, and the objects that must be clean after it."""

    def __init__(self, *answer_parts: object, answer: Answer | None = None, limits: StreamLimits = PATIENT) -> None:
        self.model = Script(answer if answer is not None else says(*answer_parts))  # type: ignore[arg-type]
        self.context = StreamingContext("c")
        self.control = Control()
        self.limits = limits
        self.events: list[ModelEvent] = []
        self.history: list[Message] = [UserMessage("hello")]

    async def run(
        self, on_event: Callable[[ModelEvent], None] | None = None, on_call: Callable[[ModelEvent], None] | None = None
    ) -> StreamResult:
        request = ModelRequest(model="m", messages=self.history)
        try:
            return await stream_once(
                self.model,
                request,
                self.context,
                control=self.control,
                limits=self.limits,
                on_event=on_event or self.events.append,
                on_call=on_call,
            )
        finally:
            self.check_clean()

    def check_clean(self) -> None:
        """Assert that no callback remains after the pass, however it ended."""
        assert self.context.on_progress is None
        assert self.context.abort_signal is None
        assert self.context.silence_s is None
        assert self.control.kill_callback("c") is None


async def test_a_finished_answer_has_status_completed_and_its_text() -> None:
    """Requirements B1, B6, B7."""
    result = await Pass("Hello ", "there.").run()
    assert (result.status, result.text) == ("completed", "Hello there.")


async def test_a_call_has_status_function_call_and_its_payload() -> None:
    """Requirement B13."""
    result = await Pass("Let me look.", call("search", {"q": "x"}, id="a")).run()
    assert result.status == "function_call"
    assert result.data is not None
    assert (result.data.id, result.data.name, result.data.arguments) == ("a", "search", '{"q": "x"}')
    assert result.text == "Let me look."


async def test_an_answer_without_visible_text_is_an_empty_response() -> None:
    """Requirement B10."""
    assert (await Pass(answer=[ends()]).run()).status == "empty_response"
    assert (await Pass("  \n").run()).status == "empty_response"


@pytest.mark.parametrize(("said", "shown"), [("SAFETY", "SAFETY"), ("", "stop")])
async def test_an_empty_answer_gives_the_providers_finish_reason_or_else_callgates(said: str, shown: str) -> None:
    whole = ends()
    result = await Pass(answer=[Finished(reason=whole.reason, message=whole.message, said=said)]).run()
    assert (result.status, result.reason) == ("empty_response", f"the answer was empty ({shown})")


async def test_a_fault_reported_by_the_provider_has_status_error() -> None:
    """Requirement B8: an adapter may report an error as an event."""
    fault = Fault(code="overloaded", message="try later", retryable=True)
    ended = ends(reason="error")
    result = await Pass(answer=[TextDelta("I "), fault, type(ended)(reason="error", message=ended.message, fault=fault)]).run()
    assert (result.status, result.text, result.reason, result.retryable) == ("error", "I ", "overloaded: try later", True)


async def test_exceptions_of_the_model_propagate_from_stream_once() -> None:
    """Requirement B22: only silence is a timeout; a timeout error of the provider is an ordinary error."""
    for error in (RuntimeError("broken"), TimeoutError("the provider's own"), TimeoutError("SDK_CALL_TIMEOUT: forged")):
        with pytest.raises(type(error), match=str(error)):
            await Pass(answer=[TextDelta("I "), error]).run()


@pytest.mark.parametrize(("model", "rather"), [(None, "Give an object"), (object(), "Give an object"), ("openai:any", "providers.model")])
async def test_a_value_that_is_not_a_model_is_refused_before_the_pass_starts(model: object, rather: str) -> None:
    context, control = StreamingContext("c"), Control()
    with pytest.raises(UsageError, match=f"which is not a model.*{rather}"):
        await stream_once(model, ModelRequest(model="m", messages=[]), context, control=control, limits=PATIENT)  # type: ignore[arg-type]
    assert (context.abort_signal, context.on_progress, control.kill_callback("c")) == (None, None, None)


async def test_a_silent_stream_times_out_and_fires_its_abort_signal() -> None:
    """Requirement B9: the abort signal makes the adapter close the connection."""
    one = Pass(answer=[TextDelta("I am"), Gate()], limits=SILENT)
    fired: list[str] = []
    one.model._answers[0] = [lambda context: record_abort(context, fired), *one.model._answers[0]]
    result = await one.run()
    assert (result.status, result.text) == ("timeout", "I am")
    assert result.reason.startswith("SDK_CALL_TIMEOUT:")
    assert fired == [result.reason]
    assert one.model.closed == 1


def record_abort(context: StreamingContext, fired: list[str]) -> None:
    signal = context.abort_signal
    assert signal is not None
    signal.on_abort(lambda: fired.append(signal.reason or ""))


@pytest.mark.parametrize("sign", ["event", "beat", None])
async def test_each_event_or_beat_restarts_the_idle_timer(sign: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requirements B2, B15: the test's clock advances by a little less than the limit at each step."""
    loop = asyncio.get_running_loop()
    now = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now)

    def go_on(context: StreamingContext) -> None:
        nonlocal now
        now += 0.9 * SILENT.idle_s
        if sign == "beat":
            assert context.on_progress is not None
            context.on_progress()

    steps: list[Step] = [go_on, *([TextDelta("on ")] if sign == "event" else []), Pause()]
    one = Pass(answer=steps * 10 + says("Done."), limits=SILENT)
    assert (await one.run()).status == ("completed" if sign else "timeout")


@pytest.mark.parametrize(("spoken", "allowed_s"), [(True, 1.0), (False, 3.0)], ids=["after an event", "before the first"])
async def test_the_idle_timer_starts_when_the_model_first_waits(spoken: bool, allowed_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requirement B2: time in which the consumer works is not silence. Before the first event, the limit `first_s` applies."""
    loop = asyncio.get_running_loop()
    now = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now)

    def passes(seconds: float) -> Callable[[StreamingContext], None]:
        def go_on(context: StreamingContext) -> None:
            nonlocal now
            now += seconds

        return go_on

    limits = StreamLimits(idle_s=1.0, first_s=3.0, grace_s=0.02)
    begins: list[Step] = [passes(10.0), *([TextDelta("I ")] if spoken else []), Pause()]
    patient = Pass(answer=[*begins, passes(0.9 * allowed_s), Pause(), *says("Done.")], limits=limits)
    assert (await patient.run()).status == "completed"
    silent = Pass(answer=[*begins, passes(1.1 * allowed_s), Pause(), *says("Done.")], limits=limits)
    assert (await silent.run()).status == "timeout"


async def test_a_kill_fires_the_abort_signal_and_ends_the_pass_at_once() -> None:
    """Requirements B17, B18: the status is `stopped_by_user`, not `timeout`."""
    gate = Gate()
    one = Pass(answer=[TextDelta("I am"), gate])
    running = asyncio.ensure_future(one.run())
    await gate.reached.wait()
    signal = one.context.abort_signal
    assert signal is not None
    assert one.control.kill_callback("c") is not None
    one.control.kill("c", "enough")
    assert signal.aborted
    result = await running
    assert (result.status, result.text, result.reason) == ("stopped_by_user", "I am", "enough")
    assert one.model.closed == 1


async def test_a_stop_while_the_model_streams_ends_the_pass() -> None:
    """Requirement B11."""
    gate = Gate()
    one = Pass(answer=[TextDelta("I am"), gate])
    running = asyncio.ensure_future(one.run())
    await gate.reached.wait()
    one.control.stop("c")
    assert (await running).status == "stopped_by_user"


async def test_a_follow_up_interrupts_the_pass_and_drops_its_text() -> None:
    """Requirement B12."""
    gate = Gate()
    one = Pass(answer=[TextDelta("I am"), gate])
    running = asyncio.ensure_future(one.run())
    await gate.reached.wait()
    one.control.follow_up("c")
    result = await running
    assert (result.status, result.text) == ("follow_up_interrupt", "")


async def test_a_follow_up_never_overrides_a_stop() -> None:
    gate = Gate()
    one = Pass(answer=[gate])
    running = asyncio.ensure_future(one.run())
    await gate.reached.wait()
    one.control.stop("c")
    one.control.follow_up("c")
    assert (await running).status == "stopped_by_user"


async def test_a_pending_stop_or_follow_up_prevents_the_model_request() -> None:
    for ask, status in ((Control.stop, "stopped_by_user"), (Control.follow_up, "follow_up_interrupt")):
        one = Pass("Hello.")
        ask(one.control, "c")
        assert (await one.run()).status == status
        assert one.model.requests == []


async def test_each_pass_has_its_own_abort_signal() -> None:
    """Requirements B14, B15, B16, B19, B21: `check_clean` runs after each pass."""
    signals = []
    one = Pass()
    one.model = Script(*[[lambda context: signals.append(context.abort_signal), *says("Hi.")] for _ in range(3)])
    for _ in range(3):
        await one.run()
    assert len({id(signal) for signal in signals}) == 3
    assert all(signal is not None and not signal.aborted for signal in signals)


async def test_callbacks_are_removed_however_the_pass_ends() -> None:
    """Requirements B16, B19, B21."""
    await Pass(answer=[TextDelta("x")]).run()
    await Pass(answer=[Gate()], limits=SILENT).run()
    with pytest.raises(RuntimeError):
        await Pass(answer=[RuntimeError("broken")]).run()
    cancelled = Pass(answer=[Gate()])
    task = asyncio.ensure_future(cancelled.run())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("end", [says("Done."), [RuntimeError("broken")]], ids=["a success", "a failure"])
async def test_the_timer_of_a_pass_ends_with_it(end: list[Step], monkeypatch: pytest.MonkeyPatch) -> None:
    """Requirement B19: a timer that was left would fire the abort signal of the pass later."""
    loop = asyncio.get_running_loop()
    now = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now)
    fired: list[str] = []
    one = Pass(answer=[lambda context: record_abort(context, fired), Pause(), *end], limits=SILENT)
    with suppress(RuntimeError):
        await one.run()
    now += 60.0  # longer than any limit of the pass
    await Pause().wait()
    assert fired == []


async def test_a_model_that_ignores_cancellation_is_abandoned_after_a_kill() -> None:
    """The pass ends whatever an adapter does with its cancellation."""
    gate = Gate()

    class Deaf(Script):
        async def stream(self, request: ModelRequest, context: StreamingContext):  # type: ignore[no-untyped-def]
            yield TextDelta("I ")
            while not gate.open.is_set():
                try:
                    gate.reached.set()
                    await gate.open.wait()
                except asyncio.CancelledError:
                    continue

    one = Pass()
    one.model = Deaf()
    running = asyncio.ensure_future(one.run())
    await gate.reached.wait()
    one.control.kill("c")
    assert (await running).status == "stopped_by_user"
    gate.open.set()


async def test_a_pass_sends_the_conversation_and_does_not_change_it() -> None:
    """Requirements B3, B4, B5: the provider gets the messages and the results of calls; the pass adds nothing."""
    one = Pass("Done.", call("f", id="b"))
    one.history += [ends(call("f", id="a")).message, ToolMessage(call_id="a", name="f")]
    before = list(one.history)
    await one.run()
    assert one.model.seen == [before]
    assert one.history == before


async def test_on_call_receives_only_sealed_and_reopened_calls_in_order() -> None:
    """Each call is reported at once and in order; pieces of arguments, texts and the end go only to `on_event`."""
    sealed = call("f", {"a": 1})
    answer: list[ModelEvent] = [
        TextDelta("Look."),
        CallOpened(0, sealed.id, "f"),
        ArgumentsDelta(0, "{}"),
        CallSealed(0, sealed),
        CallReopened(0),
        CallSealed(0, sealed, "finished"),
        ends(sealed),
    ]
    one, told = Pass(answer=answer), list[ModelEvent]()
    result = await one.run(on_call=told.append)
    assert told == [answer[3], answer[4], answer[5]]
    assert one.events == answer
    assert result.closed == ("finished",)


async def test_an_exception_of_a_listener_ends_the_pass() -> None:
    def broken(event: ModelEvent) -> None:
        raise ValueError("the listener is broken")

    one = Pass("Hello.", call("f"))
    with pytest.raises(ValueError, match="the listener"):
        await one.run(broken)
    one = Pass("Hello.", call("f"))
    with pytest.raises(ValueError, match="the listener"):
        await one.run(on_call=broken)


@given(ended_at=st.integers(0, 7), how=st.sampled_from(["kill", "stop", "follow_up"]))
@settings(max_examples=60, deadline=None)
def test_kill_stop_and_follow_up_at_any_event_give_the_right_status(ended_at: int, how: str) -> None:
    """The text is what arrived before, and no callback remains."""
    answer = says("one ", "two ", call("f"), "three", call("g", position=1))
    seen = 0

    async def go() -> StreamResult:
        one = Pass(answer=answer)

        def count(event: ModelEvent) -> None:
            nonlocal seen
            if seen == ended_at:
                getattr(one.control, how)("c")
            seen += 1

        return await one.run(count)

    result = asyncio.run(go())
    last = ended_at >= len(answer) - 1  # the message had ended
    expected = "function_call" if last else "follow_up_interrupt" if how == "follow_up" else "stopped_by_user"
    assert result.status == expected


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(None, 120.0), ("30000", 30.0), ("5", 10.0)],
)
def test_the_environment_sets_the_idle_limit(value: str | None, seconds: float) -> None:
    """Requirement B24."""
    assert silence_from_environment({} if value is None else {"STREAM_SDK_CALL_TIMEOUT_MS": value}) == seconds


def test_an_invalid_idle_limit_in_the_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAM_SDK_CALL_TIMEOUT_MS", "x")
    with pytest.raises(UsageError, match="STREAM_SDK_CALL_TIMEOUT_MS is 'x'"):
        Agent(Script(), Engine([]))
