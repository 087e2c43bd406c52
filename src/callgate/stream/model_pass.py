"""Stream a model once: its events as they come, and one result.

The limit on silence is rolling: every sign of life starts it anew, so that a long stream lives and a stalled one dies. A kill, a stop or a
follow-up fires the pass's own abort signal, which closes the connection, and ends the wait in the same moment. What the model raises
leaves this function; only silence becomes a `timeout`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import Struct, field

from callgate._abort_signals import AbortSignal, Control, Interruption
from callgate._options import Options, Pause, Seconds
from callgate._runners.host_awaits import HostAwaits
from callgate.models.events import COMPLETE_REASONS, CallReopened, CallSealed, Finished, ModelEvent, TextDelta
from callgate.models.model import Model, StreamingContext
from callgate.models.wire.request import ModelRequest
from callgate.stream.model_checks import check_call, check_events, check_finished, check_model
from callgate.stream.result import Closed, PassStatus, StreamResult

__all__ = ["StreamLimits", "stream_once"]

_ENDED: dict[Interruption, PassStatus] = {
    "stop": "stopped_by_user",
    "kill": "stopped_by_user",
    "follow_up": "follow_up_interrupt",
    "time": "budget_exhausted",
}


_CLOSING_S = 2.0
"""What a model may take to close its connection once its message has ended."""
_TAKEN = frozenset({TextDelta, CallSealed, CallReopened, Finished})
"""What a pass itself takes note of; the rest is for the listener."""


class StreamLimits(Options, frozen=True, kw_only=True):
    """How long one pass may be silent; seconds, from when the model first waits for something."""

    idle_s: Seconds = 120.0
    """Between two signs of life. `STREAM_SDK_CALL_TIMEOUT_MS` sets it for agents that are given none."""
    first_s: Seconds | None = None
    """Before the first event, where a provider's queue may take longer; None: as `idle_s`."""
    grace_s: Pause = 0.3
    """What a model gets to close its connection before it is left behind."""


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
        model: Streams events and beats.
        request: The conversation so far; read, never written.
        context: Of the turn. Its `abort_signal`, `on_progress` and `silence_s` are this pass's, and gone after it.
        control: Where stop, kill and follow-up come from.
        limits: On silence.
        guards: Keep models that would not stop; None: this pass's own.
        on_event: Told every event at once, in order; what it raises ends the pass.
        on_call: Told only what is sealed and what goes on after all, just before `on_event` is; what it raises ends the pass.
        texts: Gets the pieces of visible text, also of a pass that raises.

    Raises:
        UsageError: `model` is none.
        Exception: Whatever the model raises. A failure that the provider reported is the status `error` instead.
    """
    check_model(model)
    if (waiting := control.pending(context.conversation)) is not None:
        return StreamResult(status="stopped_by_user", reason=waiting)
    if (waiting := control.pending_follow_up(context.conversation)) is not None:
        return StreamResult(status="follow_up_interrupt", reason=waiting)
    idle_s, first_s = limits.idle_s, limits.first_s
    one = _ModelPass(
        context, control, idle_s, idle_s if first_s is None else first_s, on_event, on_call, texts=[] if texts is None else texts
    )
    one.enter()
    try:
        name = f"pass of {context.conversation or model.name}"
        failure = await (guards or HostAwaits()).run(
            one.read(model, request), one.signal, grace_s=limits.grace_s, name=name, on_wait=one.wait
        )
    finally:
        one.leave()
    if failure is not None:
        raise failure
    return one.result()


class _ModelPass(Struct, eq=False):
    """One pass while it runs."""

    context: StreamingContext
    control: Control
    idle_s: float
    allowed_s: float
    """How long the model may be silent from the moment in which it first waits."""
    on_event: Callable[[ModelEvent], None] | None
    on_call: Callable[[CallSealed | CallReopened], None] | None
    signal: AbortSignal = field(default_factory=AbortSignal)
    texts: list[str] = []
    """The pieces of visible text so far."""
    _until: float = 0.0
    _timer: asyncio.TimerHandle | None = None
    """Set once the model has waited: before that, nobody could look."""
    _closed: dict[int, Closed] = {}
    _end: Finished | None = None
    _status: PassStatus | None = None
    """How the pass was ended from outside."""
    _why: str = ""
    _over: bool = False
    """Whether the message is whole, or the pass was ended from outside."""

    def enter(self) -> None:
        self.context.abort_signal = self.signal
        self.context.on_progress = self._beat
        self.context.silence_s = max(self.idle_s, self.allowed_s)
        self.control.enter_pass(self.context.conversation, self._interrupt)

    def wait(self) -> None:
        """The model waits for something: from now on its silence is watched."""
        loop = asyncio.get_running_loop()
        self._until = loop.time() + self.allowed_s
        self._timer = loop.call_at(self._until, self._look)

    def leave(self) -> None:
        self.context.abort_signal = None
        self.context.on_progress = None
        self.context.silence_s = None
        self.control.leave_pass(self.context.conversation)
        if self._timer is not None:
            self._timer.cancel()

    async def read(self, model: Model, request: ModelRequest) -> BaseException | None:
        """Take all events, until somebody ends the pass; returns what the model raised."""
        events, on_event, idle_s = model.stream(request, self.context), self.on_event, self.idle_s
        check_events(model, events)
        failure: BaseException | None = None
        try:
            async for event in events:
                self.allowed_s = idle_s
                if self._timer is not None:
                    self._until = asyncio.get_running_loop().time() + idle_s
                if type(event) in _TAKEN:
                    self._take(event)
                if on_event is not None:
                    on_event(event)
                if self._over:
                    break
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:
            failure = error
        close = getattr(events, "aclose", None)
        if close is not None:
            self._hurry()
            try:
                await close()
            except Exception as error:  # a message that has ended is whole, whatever its connection does then
                failure = failure or (error if self._end is None else None)
        return failure if self._status is None else None

    def _take(self, event: ModelEvent) -> None:
        if isinstance(event, TextDelta):
            self.texts.append(event.text)
        elif isinstance(event, Finished):
            check_finished(event)
            self._end, self._over = event, True
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
            self._until = max(self._until, asyncio.get_running_loop().time() + self.idle_s)

    def _look(self) -> None:
        """The timer: armed once, it looks again at the time that the last sign of life has moved the end to."""
        loop = asyncio.get_running_loop()
        if loop.time() < self._until:
            self._timer = loop.call_at(self._until, self._look)
            return
        self._finish("timeout", "SDK_CALL_TIMEOUT: the model's stream was silent for too long; the request was given up")

    def _hurry(self) -> None:
        """Nothing more is wanted: the model has a moment to close its connection."""
        self.allowed_s = _CLOSING_S
        if self._timer is not None:
            self._timer.cancel()
            self.wait()

    def _interrupt(self, kind: Interruption, reason: str) -> None:
        self._finish(_ENDED[kind], reason)

    def _finish(self, status: PassStatus, why: str) -> None:
        if not self._over:
            self._status, self._why, self._over = status, why, True
        self.signal.fire(why)

    def result(self) -> StreamResult:
        """What the pass came to."""
        end = self._end
        if self._status is None and end is not None and end.reason not in ("error", "cut"):
            return self._answer(end)
        text = "".join(self.texts)
        if self._status is not None:
            return StreamResult(status=self._status, text="" if self._status == "follow_up_interrupt" else text, reason=self._why)
        if end is None:
            return StreamResult(status="error", text=text, reason="the model's stream ended without an end of its message")
        why = "the answer broke off: the connection ended before the message did. Ask again; if it repeats, look for a limit on the way"
        if (fault := end.fault) is not None:
            why = f"{fault.code}: {fault.message}"
        retryable = fault is None or fault.retryable
        return StreamResult(status="error", text=text, finish=end.reason, usage=end.usage, reason=why, retryable=retryable)

    def _answer(self, end: Finished) -> StreamResult:
        """The result of a message that is whole."""
        message = end.message
        calls, text = message.calls, message.text
        empty = not calls and not text.strip()
        otherwise: Closed = "finished" if end.reason in COMPLETE_REASONS else "cut"
        return StreamResult(
            status="function_call" if calls else "empty_response" if empty and end.reason != "pause" else "completed",
            text=text,
            message=message,
            calls=calls,
            closed=tuple([self._closed.get(place, otherwise) for place in range(len(calls))]),
            finish=end.reason,
            usage=end.usage,
            reason=f"the answer was empty ({end.said or end.reason})" if empty else "",
        )
