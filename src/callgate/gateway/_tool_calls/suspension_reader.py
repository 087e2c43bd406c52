"""Read the suspended calls that other processes have submitted, or this gateway before it was restarted, from the journal.

Only what was written since the last read is read, at most once a second. Decides nothing about the calls.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial

from msgspec import Struct

from callgate._run_state.event_bodies import approval_id_of
from callgate._run_state.recorder import off_loop
from callgate.engine import Engine
from callgate.event_queries import EventQuery
from callgate.events import Event
from callgate.gateway._tool_calls.submitted_calls import SubmittedCall, recorded_call

__all__ = ["MOST_PENDING", "RecordedSuspension", "SuspensionReader"]

MOST_PENDING = 10_000
"""How many suspended calls are remembered, and read from the journal at once; older ones are not found."""
_READ_TOGETHER = 200
_READ_EVERY_S = 1.0
"""Seconds between two reads of what other processes have written. A human needs longer to answer."""
_READ_AGAIN = 1_000
"""How many positions are read again, because events that are not written yet may still change their positions."""


class RecordedSuspension(Struct, frozen=True):
    """A suspended call, and the approval that it waits for."""

    call: SubmittedCall
    approval: str


class SuspensionReader:
    """Reads the journal of one gateway.

    Args:
        workspace: The workspace of all calls; empty: none.
        is_findable: Whether a client can find a call by making it again. Called in a thread.
    """

    def __init__(self, engine: Engine, workspace: str, is_findable: Callable[[SubmittedCall], bool]) -> None:
        self._engine = engine
        self._workspace = workspace
        self._is_findable = is_findable
        self._seen: OrderedDict[str, None] = OrderedDict()
        """The uids of suspended calls that need not be read."""
        self._read_to = 0
        self._next_read_s = 0.0

    def see(self, uid: str) -> None:
        """Note that a suspended call is known, given its uid."""
        self._seen[uid] = None
        if len(self._seen) > MOST_PENDING:
            self._seen.popitem(last=False)

    async def read_new(self) -> list[RecordedSuspension]:
        """Return the suspended calls that have been written since the last time, the oldest first."""
        engine, now_s = self._engine, self._engine.clock.monotonic()
        if not (engine.may_ask and engine.journal.shared) or now_s < self._next_read_s:
            return []
        self._next_read_s = now_s + _READ_EVERY_S
        found: list[RecordedSuspension] = []
        for event, call in await off_loop(engine.journal, partial(self._read, self._read_to)):
            self.see(event.call)
            self._read_to = max(self._read_to, event.position)
            if call is not None:
                found.append(RecordedSuspension(call, approval_id_of(event)))
        return found

    def _read(self, after: int) -> list[tuple[Event, SubmittedCall | None]]:
        """Return the suspended calls after a position, the oldest first; None for those that were not made by a client of a gateway."""
        journal, life_ns = self._engine.journal, int(self._engine.limits.approval_s * 1e9)
        query = EventQuery(
            kinds=("call.suspended",),
            since_ns=self._engine.clock.wall_ns() - life_ns,
            after=max(0, after - _READ_AGAIN),
            newest_first=True,
            limit=MOST_PENDING,
        )
        asked = [event for event in journal.find(query) if event.call not in self._seen]
        calls: dict[str, SubmittedCall | None] = {}
        for first in range(0, len(asked), _READ_TOGETHER):
            uids = tuple(event.call for event in asked[first : first + _READ_TOGETHER])
            for event in journal.find(EventQuery(calls=uids, kinds=("call.received",))):
                call = recorded_call(event, self._workspace)
                calls[event.call] = call if call is not None and self._is_findable(call) else None
        return [(event, calls.get(event.call)) for event in reversed(asked)]
