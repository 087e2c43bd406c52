"""Stream a model once: forward its events as they arrive and return one result.

The limit on silence is rolling: every event and every report of progress restarts it, so that a long stream continues and a stalled one
ends. A kill, a stop or a follow-up fires the pass's own abort signal, which closes the connection, and ends the wait at once. Errors that
the model raises are raised; only silence becomes the status `timeout`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import Struct, field

from callgate._abort_signals import AbortSignal, Control, Interruption
from callgate._option_checks import Options, Pause, Seconds
from callgate._runners.await_host_code import HostAwaits
from callgate.calls import Text
from callgate.messages import ToolCall
from callgate.models.model_events import COMPLETE_REASONS, CallReopened, CallSealed, Finished, ModelEvent, TextDelta
from callgate.models.model_protocol import Model, StreamingContext
from callgate.models.wire.request import ModelRequest
from callgate.stream.model_checks import check_call, check_finished, not_a_model_error, not_a_stream_error
from callgate.stream.pass_result import Closed, PassStatus, StreamResult

__all__ = ["StreamLimits", "stream_once"]

_STATUS_OF_INTERRUPTION: dict[Interruption, PassStatus] = {
    "stop": "stopped_by_user",
    "kill": "stopped_by_user",
    "follow_up": "follow_up_interrupt",
    "time": "budget_exhausted",
}


_CUT_OFF = (
    "the answer was cut off: the connection ended before the message did. "
    "Ask again; if it repeats, check the proxies in between for a time limit"
)
_CLOSING_S = 2.0
"""Seconds that a model has to close its connection after its message has ended."""
_RECORDED_EVENTS = frozenset({TextDelta, CallSealed, CallReopened, Finished})
"""The events that a pass evaluates itself; all others are only passed to the listener."""


class StreamLimits(Options, frozen=True, kw_only=True):
    """Time limits on a model's silence in one pass, in seconds.

    They apply from the moment when the model first waits for something.
    """

    idle_s: Seconds = 120.0
    """The maximum time between two events or reports of progress. `STREAM_SDK_CALL_TIMEOUT_MS` sets it for agents
    that do not specify limits.
    """
    first_s: Seconds | None = None
    """The maximum time before the first event, which can take longer because providers queue requests. None: the
    same as `idle_s`.
    """
    grace_s: Pause = 0.3
    """Seconds that a model has to close its connection before it is abandoned."""


async def stream_once(
    model: Model,
    request: ModelRequest,
    context: StreamingContext,
    *,
    control: Control,
    limits: StreamLimits,
    guards: HostAwaits | None = None,
    on_event: Callable[[ModelEvent], None] | None = None,
    on_call: Callable[[CallSealed | CallReopened], None] | None = None,
    texts: list[str] | None = None,
) -> StreamResult:
    """Let the model answer once.

    Args:
        model: Yields events and reports progress.
        request: The conversation so far; never modified.
        context: The turn's context. Its `abort_signal`, `on_progress` and `silence_s` belong to this pass and
            are removed after it.
        control: The source of stop, kill and follow-up.
        limits: The limits on silence.
        guards: Awaits the model, and keeps a model that does not stop when the pass ends; None: a new object
            for this pass only.
        on_event: Receives every event at once, in order; an error that it raises ends the pass.
        on_call: Receives only `CallSealed` and `CallReopened`, just before `on_event`; an error that it raises
            ends the pass.
        texts: A list that receives the pieces of visible text. It is filled even if the pass raises.

    Raises:
        UsageError: `model` is not a model.
        Exception: Any error that the model raises. If the provider reported a failure, the status is `error`
            instead.
    """
    if not callable(getattr(model, "stream", None)):
        raise not_a_model_error(model)
    if (pending := control.pending(context.conversation)) is not None:
        return StreamResult(status="stopped_by_user", reason=pending)
    if (pending := control.pending_follow_up(context.conversation)) is not None:
        return StreamResult(status="follow_up_interrupt", reason=pending)
    idle_s, first_s = limits.idle_s, limits.first_s
    model_pass = _ModelPass(
        context, control, idle_s, idle_s if first_s is None else first_s, on_event, on_call, texts=[] if texts is None else texts
    )
    model_pass.enter()
    try:
        name = f"pass of {context.conversation or model.name}"
        failure = await (guards or HostAwaits()).run(
            model_pass.read(model, request), model_pass.signal, grace_s=limits.grace_s, name=name, on_wait=model_pass.start_waiting
        )
    finally:
        model_pass.exit()
    if failure is not None:
        raise failure
    return model_pass.result()


class _ModelPass(Struct, eq=False):
    """The state of one pass while it runs."""

    context: StreamingContext
    control: Control
    idle_s: float
    allowed_silence_s: float
    """How long the model may be silent, in seconds, from its first wait on."""
    on_event: Callable[[ModelEvent], None] | None
    on_call: Callable[[CallSealed | CallReopened], None] | None
    signal: AbortSignal = field(default_factory=AbortSignal)
    texts: list[str] = []
    """The pieces of visible text so far."""
    _silent_until: float = 0.0
    _timer: asyncio.TimerHandle | None = None
    """Set at the model's first wait, because no timer could fire before that."""
    _closed: dict[int, Closed] = {}
    _finished: Finished | None = None
    _status: PassStatus | None = None
    """The status if the pass was ended from outside."""
    _reason: str = ""
    _is_over: bool = False
    """Whether the message is complete, or the pass was ended from outside."""

    def enter(self) -> None:
        self.context.abort_signal = self.signal
        self.context.on_progress = self._beat
        self.context.silence_s = max(self.idle_s, self.allowed_silence_s)
        self.control.enter_pass(self.context.conversation, self._interrupt)

    def start_waiting(self) -> None:
        """Start the timer that limits the model's silence.

        Called when the model first waits, and again while it closes its connection.
        """
        loop = asyncio.get_running_loop()
        self._silent_until = loop.time() + self.allowed_silence_s
        self._timer = loop.call_at(self._silent_until, self._check_silence)

    def exit(self) -> None:
        self.context.abort_signal = None
        self.context.on_progress = None
        self.context.silence_s = None
        self.control.leave_pass(self.context.conversation)
        if self._timer is not None:
            self._timer.cancel()

    async def read(self, model: Model, request: ModelRequest) -> BaseException | None:
        """Read all events until the pass ends; return the error that the model raised."""
        events, on_event, idle_s = model.stream(request, self.context), self.on_event, self.idle_s
        if not hasattr(events, "__aiter__"):
            raise not_a_stream_error(model, events)
        failure: BaseException | None = None
        try:
            async for event in events:
                self.allowed_silence_s = idle_s
                if self._timer is not None:
                    self._silent_until = asyncio.get_running_loop().time() + idle_s
                if type(event) is TextDelta:
                    self.texts.append(event.text)
                elif type(event) in _RECORDED_EVENTS:
                    self._record(event)
                if on_event is not None:
                    on_event(event)
                if self._is_over:
                    break
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:
            failure = error
        close = getattr(events, "aclose", None)
        if close is not None:
            self.allowed_silence_s = _CLOSING_S  # from here on, the model may only close its connection
            if self._timer is not None:
                self._timer.cancel()
                self.start_waiting()
            try:
                await close()
            except Exception as error:  # after the message has ended, errors of its connection are ignored
                failure = failure or (error if self._finished is None else None)
        return failure if self._status is None else None

    def _record(self, event: ModelEvent) -> None:
        if isinstance(event, Finished):
            check_finished(event)
            self._finished, self._is_over = event, True
        elif isinstance(event, CallSealed):
            check_call(event)
            self._closed[event.position] = event.closed
            if self.on_call is not None:
                self.on_call(event)
        elif isinstance(event, CallReopened):
            self._closed.pop(event.position, None)
            if self.on_call is not None:
                self.on_call(event)

    def _beat(self) -> None:
        if self._timer is not None:
            self._silent_until = max(self._silent_until, asyncio.get_running_loop().time() + self.idle_s)

    def _check_silence(self) -> None:
        """End the pass, or wait again if an event or progress has moved the deadline. Called by the timer."""
        loop = asyncio.get_running_loop()
        if loop.time() < self._silent_until:
            self._timer = loop.call_at(self._silent_until, self._check_silence)
            return
        self._finish("timeout", "SDK_CALL_TIMEOUT: the model's stream was silent for too long; the request was abandoned")

    def _interrupt(self, kind: Interruption, reason: str) -> None:
        self._finish(_STATUS_OF_INTERRUPTION[kind], reason)

    def _finish(self, status: PassStatus, reason: str) -> None:
        if not self._is_over:
            self._status, self._reason, self._is_over = status, reason, True
        self.signal.fire(reason)

    def result(self) -> StreamResult:
        """Return the result of the pass."""
        finished = self._finished
        if self._status is None and finished is not None and finished.reason not in ("error", "cut"):
            return self._complete_result(finished)
        text = "".join(self.texts)
        if self._status is not None:
            return StreamResult(status=self._status, text="" if self._status == "follow_up_interrupt" else text, reason=self._reason)
        if finished is None:
            return StreamResult(status="error", text=text, reason="the model's stream ended without `Finished`")
        reason = _CUT_OFF
        if (fault := finished.fault) is not None:
            reason = f"{fault.code}: {fault.message}"
        retryable = fault is None or fault.retryable
        return StreamResult(status="error", text=text, finish=finished.reason, usage=finished.usage, reason=reason, retryable=retryable)

    def _complete_result(self, finished: Finished) -> StreamResult:
        """Return the result of a complete message."""
        message = finished.message
        default: Closed = "finished" if finished.reason in COMPLETE_REASONS else "cut"
        calls: list[ToolCall] = []
        closed: list[Closed] = []
        text = ""
        for part in message.parts:
            if isinstance(part, ToolCall):
                closed.append(self._closed.get(len(calls), default))
                calls.append(part)
            elif isinstance(part, Text):
                text += part.text
        empty = not calls and not text.strip()
        return StreamResult(
            status="function_call" if calls else "empty_response" if empty and finished.reason != "pause" else "completed",
            text=text,
            message=message,
            calls=tuple(calls),
            closed=tuple(closed),
            finish=finished.reason,
            usage=finished.usage,
            reason=f"the answer was empty ({finished.said or finished.reason})" if empty else "",
        )
