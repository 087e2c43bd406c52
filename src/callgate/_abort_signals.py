"""Abort signals, and stop, kill and follow-up requests of conversations.

Tools and runners receive an `AbortSignal`; its controller fires it once. `Control` stores, per conversation, whether a stop was
requested, and the abort signal of the current turn. Knows nothing of calls, tools or runners.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Literal

from callgate.errors import UsageError

__all__ = ["FAILURES", "AbortController", "AbortSignal", "Control", "Interruption", "is_own_failure", "settled"]

FAILURES: Final = (Exception, SystemExit, GeneratorExit, asyncio.CancelledError)
"""Exceptions of the host's synchronous code that count as a failure of that code, because while such code runs, no task
can be cancelled and no generator closed. An interrupt of the program does not count.
"""
log = logging.getLogger("callgate")

Interruption = Literal["stop", "kill", "follow_up", "time"]
"""The kinds of interruption of the model's answer."""


class AbortSignal:
    """A signal that fires at most once, with a reason. Pass it to code that must stop when the call is killed.

    Args:
        parent: This signal also fires when `parent` fires. `parent` references it only
            while it has listeners.
    """

    __slots__ = ("_listeners", "_parent", "_reason")

    def __init__(self, parent: AbortSignal | None = None) -> None:
        self._parent = parent
        self._listeners: dict[object, tuple[Callable[[], None], Callable[[], object] | None]] = {}
        """Each listener with the function that removes it from the parent."""
        self._reason: str | None = None

    @property
    def reason(self) -> str | None:
        """The reason with which it fired, or None."""
        if self._reason is None and self._parent is not None:
            return self._parent.reason
        return self._reason

    @property
    def aborted(self) -> bool:
        return self.reason is not None

    def on_abort(self, listener: Callable[[], None]) -> Callable[[], object]:
        """Call `listener` when the signal fires, or now if it has fired. Return a function that removes the listener."""
        if self.reason is not None:
            listener()
            return lambda: None
        place = object()
        remove = None if self._parent is None else self._parent.on_abort(partial(self._tell, place))
        self._listeners[place] = listener, remove
        return partial(self._remove, place)

    async def wait(self) -> str:
        """Wait until the signal fires and return its reason."""
        fired = asyncio.Event()
        remove = self.on_abort(fired.set)
        try:
            await fired.wait()
        finally:
            remove()
        return self.reason or ""

    def fire(self, reason: str) -> None:
        """Fire the signal, unless it has fired already. For the engine and the controller."""
        if self.reason is not None:
            return
        self._reason = reason.encode("utf-8", "backslashreplace").decode()
        while self._listeners:
            self._tell(next(iter(self._listeners)))

    def _tell(self, place: object) -> None:
        listener = self._remove(place)
        if listener is None:
            return
        try:
            listener()
        except BaseException as error:  # a failing listener, or one whose event loop is closed, must not keep others from being called
            if isinstance(error, KeyboardInterrupt):
                raise
            log.error("A listener of an abort signal failed: %s: %s", type(error).__name__, error)

    def _remove(self, place: object) -> Callable[[], None] | None:
        listener, remove = self._listeners.pop(place, (None, None))
        if remove is not None:
            remove()
        return listener


class AbortController:
    """Fires an `AbortSignal`. Must be used on the event loop's thread."""

    __slots__ = ("signal",)

    def __init__(self) -> None:
        self.signal = AbortSignal()

    def abort(self, reason: str = "aborted") -> None:
        self.signal.fire(reason)


def is_own_failure(error: BaseException) -> bool:
    """Return whether `error` is the called code's own failure: not a cancellation of this task, not an interrupt of the program."""
    if isinstance(error, asyncio.CancelledError):
        try:
            task = asyncio.current_task()
        except RuntimeError:  # no running event loop: in a thread
            return True
        return task is None or not task.cancelling()
    return not isinstance(error, KeyboardInterrupt)


async def settled(future: asyncio.Future[Any], kill: AbortSignal, timeout_s: float) -> bool:
    """Wait until `future` is done, the signal fires or the time is over; return whether it is done. Never cancels `future`."""
    woken = asyncio.Event()

    def wake(*_: object) -> None:
        woken.set()

    future.add_done_callback(wake)
    remove = kill.on_abort(wake)
    timer = asyncio.get_running_loop().call_later(max(0.0, timeout_s), wake)
    try:
        await woken.wait()
    finally:
        timer.cancel()
        remove()
        future.remove_done_callback(wake)
    return future.done()


class Control:
    """Stop, kill and follow-up requests, per conversation.

    *stop*: no further call and no second attempt starts. A running call finishes and ends its message as
    `stopped_by_user`.
    *kill*: a stop that also fires the turn's abort signal, so that running tools end now, and ends every wait for the
    turn.
    *follow-up*: a new message arrived. It interrupts the model's answer, but never running tools.

    Failures in a row are counted, so that a loop can end a turn that makes no progress. `end_turn` clears the state of
    one conversation.

    Args:
        on_kill: Called first by `kill`, with the conversation and the reason, to end what waits for its turn.
    """

    def __init__(self, on_kill: Callable[[str, str], None] | None = None) -> None:
        self._on_kill = on_kill
        self.stops: dict[str, str] = {}
        """The reason of each stop request, by conversation."""
        self._turns: dict[str, AbortController] = {}
        self._stopping: dict[str, AbortController] = {}
        self._errors: dict[str, int] = {}
        self._follow_ups: dict[str, str] = {}
        self._passes: dict[str, Callable[[Interruption, str], None]] = {}

    def signal(self, conversation: str) -> AbortSignal:
        """Return the abort signal of the conversation's current turn; the same object until `end_turn`."""
        controller = self._turns.get(conversation)
        if controller is None:
            controller = self._turns[conversation] = AbortController()
        return controller.signal

    def stopping(self, conversation: str) -> AbortSignal:
        """Return a signal that fires when the conversation is stopped or killed. For waits that precede a start."""
        controller = self._stopping.get(conversation)
        if controller is None:
            controller = self._stopping[conversation] = AbortController()
            if conversation in self.stops:
                controller.abort(self.stops[conversation])
        return controller.signal

    def stop(self, conversation: str, reason: str = "stopped by the user") -> None:
        _check_name("stop", conversation)
        self._stop(conversation, reason)
        self._interrupt(conversation, "stop", reason)

    def kill(self, conversation: str, reason: str = "killed by the user") -> None:
        _check_name("kill", conversation)
        if self._on_kill is not None:
            self._on_kill(conversation, reason)
        self._stop(conversation, reason)
        self._interrupt(conversation, "kill", reason)
        self.signal(conversation)
        self._turns[conversation].abort(reason)

    def time_is_up(self, conversation: str, reason: str) -> None:
        """End the turn's model answer and running calls because the turn's time is over, without a stop request."""
        self._interrupt(conversation, "time", reason)
        self.signal(conversation)
        self._turns[conversation].abort(reason)

    def follow_up(self, conversation: str, reason: str = "another message came in") -> None:
        """Ask the turn to yield to a new message.

        The model's answer is interrupted. Running tools finish, and the turn yields before its next request.
        """
        self._follow_ups.setdefault(conversation, reason)
        if conversation not in self.stops:
            self._interrupt(conversation, "follow_up", reason)

    def pending(self, conversation: str) -> str | None:
        """Return the reason of a pending stop request, or None."""
        return self.stops.get(conversation)

    def pending_follow_up(self, conversation: str) -> str | None:
        """Return the reason of a pending follow-up, or None."""
        return self._follow_ups.get(conversation) if self._follow_ups else None

    def enter_pass(self, conversation: str, interrupt: Callable[[Interruption, str], None]) -> None:
        """Register `interrupt`, which ends the model answer that begins now. A conversation has one at a time."""
        self._passes[conversation] = interrupt

    def leave_pass(self, conversation: str) -> None:
        self._passes.pop(conversation, None)

    def kill_callback(self, conversation: str) -> Callable[[Interruption, str], None] | None:
        """Return the function that interrupts the current model answer; None if there is no answer in progress."""
        return self._passes.get(conversation)

    def errors_in_a_row(self, conversation: str) -> int:
        """Return how many calls of the current turn have failed since the last success or restart.

        Denied and refused calls count.
        """
        return self._errors.get(conversation, 0)

    def count(self, conversation: str, *, success: bool) -> None:
        """Count a call's end towards `errors_in_a_row`."""
        if not success:
            self._errors[conversation] = self._errors.get(conversation, 0) + 1
        elif self._errors:
            self._errors.pop(conversation, None)

    def take_over_errors(self, conversation: str, errors: int) -> None:
        """Set the number of failures in a row for a turn that is resumed."""
        if errors:
            self._errors[conversation] = errors

    def end_turn(self, conversation: str) -> None:
        _check_name("end_turn", conversation)
        for kept in (self.stops, self._turns, self._stopping, self._errors, self._follow_ups):
            if kept:
                kept.pop(conversation, None)

    def _stop(self, conversation: str, reason: str) -> None:
        self.stops.setdefault(conversation, reason)
        if conversation in self._stopping:
            self._stopping[conversation].abort(reason)

    def _interrupt(self, conversation: str, kind: Interruption, reason: str) -> None:
        interrupt = self._passes.get(conversation)
        if interrupt is not None:
            interrupt(kind, reason)


def _check_name(method: str, conversation: object) -> None:
    """Raise `UsageError` if `conversation` cannot be the name of one, so that nothing would be stopped."""
    if not isinstance(conversation, str):
        raise UsageError(
            f"control.{method} was given {type(conversation).__name__}, not text. Give the name of the conversation: Scope.conversation of"
            " its calls."
        )
