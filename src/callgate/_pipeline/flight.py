"""One call on its way: what the stages of the route hand along beside the call itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from callgate._pipeline.again import RunState
from callgate._pipeline.record import CallRecord
from callgate._pipeline.slots import Slots
from callgate._signals import AbortSignal
from callgate.calls import RawCall, Scope
from callgate.route import ApprovedCall

__all__ = ["Flight"]


class Flight:
    """Mutable, private to the engine, gone when the call has its outcome."""

    __slots__ = (
        "before_start",
        "began",
        "deadline",
        "held",
        "kill",
        "occurrence",
        "parent",
        "progressed",
        "raw",
        "record",
        "scope",
        "started",
        "state",
        "uid",
    )

    def __init__(
        self,
        raw: RawCall,
        scope: Scope,
        state: RunState,
        record: CallRecord,
        *,
        uid: str,
        kill: AbortSignal,
        began: float,
        deadline: float | None = None,
        parent: Flight | None = None,
        occurrence: int = 0,
    ) -> None:
        self.raw = raw
        self.scope = scope
        self.state = state
        self.record = record
        self.uid = uid
        self.kill = kill
        self.began = began
        """On the engine's monotonic clock."""
        self.deadline = deadline
        """Of the call that made this one, on the same clock; None until the call's own clock starts."""
        self.parent = parent
        self.occurrence = occurrence
        """How many earlier calls of the same message have the same id."""
        self.before_start: Callable[[ApprovedCall], Awaitable[None]] | None = None
        """Waited for between approval and start: the emission's say."""
        self.held: tuple[Slots, ...] = ()
        """The slots this call holds while its tool runs."""
        self.progressed = 0
        self.started = False
        """Whether the tool's code may have been entered."""

    async def take(self, slots: tuple[Slots, ...]) -> None:
        for one in slots:
            if not one.take_nowait():
                await one.take()
            self.held = (*self.held, one)

    def give(self) -> tuple[Slots, ...]:
        """Give back every slot; returns them, to be taken again."""
        held, self.held = self.held, ()
        for one in held:
            one.give()
        return held

    def start_clock(self, now: float, timeout_s: float) -> float:
        """The call's deadline: its own time from now, never beyond its parent's."""
        own = now + timeout_s
        self.deadline = own if self.deadline is None else min(own, self.deadline)
        return self.deadline
