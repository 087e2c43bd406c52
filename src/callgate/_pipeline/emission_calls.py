"""One call of a message: its position in the order, what it waits for, and how it ended.

`EmissionExecution` decides with these values when each call starts. A value only knows its own call.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from msgspec import Struct

from callgate._abort_signals import AbortSignal, settled
from callgate._pipeline.call_order import UNDECLARED_READ, Footprint
from callgate._pipeline.call_state import CallState
from callgate.calls import Outcome, Suspended
from callgate.errors import CallFailed
from callgate.stage_types import ValidatedCall

__all__ = ["EmissionCall", "EndedCall"]

_FOREVER_S = 1e9


class EmissionCall(Struct, eq=False):
    """One call of a message on the route."""

    state: CallState
    index: int
    """Its index among the calls of the message that take the route."""
    refusal: CallFailed | None = None
    """The error with which the loop refuses the call, or None."""
    size_bytes: int = 0
    """The approximate size of the call's arguments."""
    footprint: Footprint = UNDECLARED_READ
    """The resources that the call touches: as requested and, once it is approved, as it will run."""
    running: bool = False
    """Whether its tool may have started."""
    call: ValidatedCall | None = None
    """The call, once it is prepared and valid."""
    outcome: Outcome | None = None
    waits: tuple[int, ...] = ()
    """The indexes of the calls that must have ended before this one starts."""
    early: bool = False
    """Whether it was started before the message was complete."""
    queued: bool = False
    """Whether it was given to the task queue."""
    entered: bool = False
    """Whether the call is in the second half of the route, which records its end."""
    same_effect: EmissionCall | None = None
    """The first call of the message with the same arguments, if the tool's effects have keys; None if that is this call itself."""
    ended: asyncio.Future[None] | None = None
    """Resolved when the call ends. Created by the first task that waits for it."""

    @property
    def is_new(self) -> bool:
        """Whether the call is neither prepared nor ended."""
        return self.call is None and self.outcome is None and not self.state.ended

    async def wait_end(self, kill: AbortSignal) -> None:
        """Wait until the call has ended, whether or not it has started; or until the message is killed."""
        if self.outcome is None and not kill.aborted:
            self.ended = self.ended or asyncio.get_running_loop().create_future()
            await settled(self.ended, kill, _FOREVER_S)

    def notify_end(self) -> None:
        """Wake the tasks that wait for the end of the call."""
        if self.ended is not None and not self.ended.done():
            with suppress(RuntimeError):  # the event loop of the waiting task is closed
                self.ended.set_result(None)


class EndedCall(Struct, frozen=True, kw_only=True, gc=False):
    """The end of one call of a message."""

    outcome: Outcome | None = None
    """None if the call has no outcome, for example because it was left out or discarded."""
    uid: str = ""
    """Empty for a call that did not take the route."""
    position: int = 0
    """The position of the call's latest event."""
    arguments: bytes = b""
    """The final arguments as canonical JSON: approved, or at least valid; empty if the arguments were not valid."""
    in_doubt: bool = False
    """Whether the call has no outcome because its caller was cancelled, although it had started."""
    asked_within: tuple[Suspended, ...] = ()
    """The questions to humans about calls that its tool has made."""
