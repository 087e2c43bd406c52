"""Stop, kill and abort: how something outside ends what runs inside.

An `AbortSignal` is handed to tools and runners; its controller fires it once. `Control` keeps, per conversation, whether a stop was
asked for and the abort signal of the turn in progress. Knows nothing of calls, tools or runners.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Literal

__all__ = ["FAILURES", "AbortController", "AbortSignal", "Control", "Interruption", "is_own_failure", "settled"]

FAILURES: Final = (Exception, SystemExit, GeneratorExit, asyncio.CancelledError)
"""What code of others that is called, and not awaited, may raise without ending more than itself: nothing can be cancelled or closed while
it runs. Only an interrupt is somebody else's."""
log = logging.getLogger("callgate")

Interruption = Literal["stop", "kill", "follow_up", "time"]
"""How somebody outside ends a pass of the model."""


class AbortSignal:
    """Fires at most once, with a reason. Hand it on to whatever should stop when the call is killed.

    Args:
        parent: This signal fires when `parent` does, for as long as anybody has it, and may be fired alone. `parent` knows of it only
            while somebody listens.
    """

    __slots__ = ("_listeners", "_parent", "_reason")

    def __init__(self, parent: AbortSignal | None = None) -> None:
        self._parent = parent
        self._listeners: dict[object, tuple[Callable[[], None], Callable[[], object] | None]] = {}
        """Each with what takes it off the parent."""
        self._reason: str | None = None

    @property
    def reason(self) -> str | None:
        """Why it has fired; None: it has not."""
        if self._reason is None and self._parent is not None:
            return self._parent.reason
        return self._reason

    @property
    def aborted(self) -> bool:
        return self.reason is not None

    def on_abort(self, listener: Callable[[], None]) -> Callable[[], object]:
        """Call `listener` when the signal fires, at once if it has. Returns a function that takes it off again."""
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
        """Fire, unless it has. For the engine and the controller."""
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
        except BaseException as error:  # a listener of a tool's own, or one whose event loop is gone: the others hear all the same
            if isinstance(error, KeyboardInterrupt):
                raise
            log.error("A listener of an abort signal failed: %s: %s", type(error).__name__, error)

    def _remove(self, place: object) -> Callable[[], None] | None:
        listener, remove = self._listeners.pop(place, (None, None))
        if remove is not None:
            remove()
        return listener


class AbortController:
    """The side that may fire a signal. Must be used on the event loop's thread."""

    __slots__ = ("signal",)

    def __init__(self) -> None:
        self.signal = AbortSignal()

    def abort(self, reason: str = "aborted") -> None:
        self.signal.fire(reason)


def is_own_failure(error: BaseException) -> bool:
    """Whether code that was called has failed by itself: no cancel that this task was asked for, and no interrupt of the program."""
    if isinstance(error, asyncio.CancelledError):
        try:
            task = asyncio.current_task()
        except RuntimeError:  # in a thread
            return True
        return task is None or not task.cancelling()
    return not isinstance(error, KeyboardInterrupt)


async def settled(future: asyncio.Future[Any], kill: AbortSignal, timeout_s: float) -> bool:
    """Wait for `future` until it is done, the signal fires or the time is over; tells whether it is done. Never cancels it."""
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
    """Stop, kill and follow-up, per conversation: three different things.

    *stop* lets what runs finish being told: no further call and no second attempt starts, and a call that is running ends its message as
    `stopped_by_user`.
    *kill* is stop, aborts the turn's signal, so that running tools end now, and ends whatever waits for the turn. A *follow-up* is a
    message that came in between: it ends a pass of the model, and never a chain of tools. Failures in a row are counted, so that a loop
    can end a turn that gets nowhere.
    `end_turn` forgets them all; a host with many conversations calls it for each.

    Args:
        on_kill: Told the conversation and the reason first, to end what waits for its turn.
    """

    def __init__(self, on_kill: Callable[[str, str], None] | None = None) -> None:
        self._on_kill = on_kill
        self.stops: dict[str, str] = {}
        """Why each conversation that should stop should."""
        self._turns: dict[str, AbortController] = {}
        self._stopping: dict[str, AbortController] = {}
        self._errors: dict[str, int] = {}
        self._follow_ups: dict[str, str] = {}
        self._passes: dict[str, Callable[[Interruption, str], None]] = {}

    def signal(self, conversation: str) -> AbortSignal:
        """The abort signal of the conversation's present turn; the same object until `end_turn`."""
        controller = self._turns.get(conversation)
        if controller is None:
            controller = self._turns[conversation] = AbortController()
        return controller.signal

    def stopping(self, conversation: str) -> AbortSignal:
        """Fires when the conversation is stopped or killed; has fired where it is. For waits after which something would start."""
        controller = self._stopping.get(conversation)
        if controller is None:
            controller = self._stopping[conversation] = AbortController()
            if conversation in self.stops:
                controller.abort(self.stops[conversation])
        return controller.signal

    def stop(self, conversation: str, reason: str = "stopped by the user") -> None:
        self._stop(conversation, reason)
        self._interrupt(conversation, "stop", reason)

    def kill(self, conversation: str, reason: str = "killed by the user") -> None:
        if self._on_kill is not None:
            self._on_kill(conversation, reason)
        self._stop(conversation, reason)
        self._interrupt(conversation, "kill", reason)
        self.signal(conversation)
        self._turns[conversation].abort(reason)

    def time_is_up(self, conversation: str, reason: str) -> None:
        """The turn has used up its time: end its pass and its running calls now, as a kill does, but nobody asked for a stop."""
        self._interrupt(conversation, "time", reason)
        self.signal(conversation)
        self._turns[conversation].abort(reason)

    def follow_up(self, conversation: str, reason: str = "another message came in") -> None:
        """Ask the turn to yield. A pass of the model ends now; a chain of tools goes on, and the turn yields before its next pass."""
        self._follow_ups.setdefault(conversation, reason)
        if conversation not in self.stops:
            self._interrupt(conversation, "follow_up", reason)

    def pending(self, conversation: str) -> str | None:
        """Why the conversation should stop, or None."""
        return self.stops.get(conversation)

    def pending_follow_up(self, conversation: str) -> str | None:
        """Why the conversation should yield to another message, or None."""
        return self._follow_ups.get(conversation) if self._follow_ups else None

    def enter_pass(self, conversation: str, interrupt: Callable[[Interruption, str], None]) -> None:
        """A pass of the model begins; `interrupt` ends it from outside. One at a time."""
        self._passes[conversation] = interrupt

    def leave_pass(self, conversation: str) -> None:
        self._passes.pop(conversation, None)

    def kill_callback(self, conversation: str) -> Callable[[Interruption, str], None] | None:
        """What would end the pass in progress; None outside one."""
        return self._passes.get(conversation)

    def errors_in_a_row(self, conversation: str) -> int:
        """How many calls of the present turn, denied and refused ones included, have failed since the last success or restart."""
        return self._errors.get(conversation, 0)

    def count(self, conversation: str, *, success: bool) -> None:
        """Count a call's end towards `errors_in_a_row`."""
        if not success:
            self._errors[conversation] = self._errors.get(conversation, 0) + 1
        elif self._errors:
            self._errors.pop(conversation, None)

    def take_over_errors(self, conversation: str, errors: int) -> None:
        """A turn goes on that had so many failures in a row."""
        if errors:
            self._errors[conversation] = errors

    def end_turn(self, conversation: str) -> None:
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
