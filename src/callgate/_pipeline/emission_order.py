"""Decide which calls of one message may run concurrently, and let each wait for those before it that it conflicts with.

Calls are ordered by the resources of the arguments that the model gave. If a hook, a policy or a human changes the arguments, the call is
ordered once more directly before it starts. `call_order` decides whether two calls conflict.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from msgspec import Struct

from callgate._abort_signals import AbortSignal
from callgate._json import canonical
from callgate._pipeline.call_order import CallOrder, footprint_of, may_run_beside
from callgate._pipeline.emission_calls import EmissionCall
from callgate.stage_types import ApprovedCall

__all__ = ["EmissionOrder"]


class EmissionOrder(Struct, eq=False):
    """The order of the calls of one message."""

    entries: Sequence[EmissionCall]
    """The calls of the message; it grows while the message is streaming."""
    kill: AbortSignal
    """Ends the wait for other calls."""
    _order: CallOrder | None = None
    """Created when a message has more than one call."""
    _changed: list[EmissionCall] = []
    """Calls that will run with other arguments than those for which they were ordered."""

    def add(self, entry: EmissionCall) -> None:
        """Set the calls that must have ended before this one starts. Not needed while a message has one call."""
        if self._order is None:
            self._order = CallOrder()
            for earlier in self.entries[: entry.index]:
                if earlier.call is not None:
                    self._order.add(earlier.index, earlier.footprint)
        entry.waits = self._order.add(entry.index, entry.footprint)

    def clear_to_start(self, entry: EmissionCall, approved: ApprovedCall) -> Awaitable[None] | None:
        """Return an awaitable that ends when no other call conflicts with this one.

        None if no hook or policy has changed a call of the message.
        """
        if self._changed or approved.call is not entry.call:
            return self._wait_for_conflicts(entry, approved)
        entry.running = True
        return None

    async def _wait_for_conflicts(self, entry: EmissionCall, approved: ApprovedCall) -> None:
        if entry.call is not None and approved.encoded != canonical(entry.call.arguments):
            entry.footprint = footprint_of(approved.call)
            self._changed.append(entry)
        if self._changed:
            while not self.kill.aborted and (other := self._conflict_of(entry)) is not None:
                await other.wait_end(self.kill)
        entry.running = True

    def _conflict_of(self, entry: EmissionCall) -> EmissionCall | None:
        """Return a call that this one conflicts with and must wait for; None if there is none.

        If a hook or policy has changed this call, these are all running and all earlier calls. Otherwise, they are the running calls that
        were changed.
        """
        changed = entry in self._changed
        for other in self.entries if changed else self._changed:
            if other is entry or other.outcome is not None or may_run_beside(entry.footprint, other.footprint):
                continue
            if other.running or (changed and other.index < entry.index):
                return other
        return None
