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

    slots: Sequence[EmissionCall]
    """The calls of the message; it grows while the message is streaming."""
    kill: AbortSignal
    """Ends the wait for other calls."""
    _order: CallOrder | None = None
    """Created when a message has more than one call."""
    _changed: list[EmissionCall] = []
    """Calls that will run with other arguments than those for which they were ordered."""

    def add(self, slot: EmissionCall) -> None:
        """Set the calls that must have ended before this one starts. Not needed while a message has one call."""
        if self._order is None:
            self._order = CallOrder()
            for earlier in self.slots[: slot.index]:
                if earlier.call is not None:
                    self._order.add(earlier.index, earlier.footprint)
        slot.waits = self._order.add(slot.index, slot.footprint)

    def clear_to_start(self, slot: EmissionCall, approved: ApprovedCall) -> Awaitable[None] | None:
        """Return an awaitable that ends when no other call conflicts with this one.

        None if no hook or policy has changed a call of the message.
        """
        if self._changed or approved.call is not slot.call:
            return self._wait_for_conflicts(slot, approved)
        slot.running = True
        return None

    async def _wait_for_conflicts(self, slot: EmissionCall, approved: ApprovedCall) -> None:
        if slot.call is not None and approved.encoded != canonical(slot.call.arguments):
            slot.footprint = footprint_of(approved.call)
            self._changed.append(slot)
        if self._changed:
            while not self.kill.aborted and (other := self._conflict_of(slot)) is not None:
                await other.wait_end(self.kill)
        slot.running = True

    def _conflict_of(self, slot: EmissionCall) -> EmissionCall | None:
        """Return a call that this one conflicts with and must wait for; None if there is none.

        If a hook or policy has changed this call, these are all running and all earlier calls. Otherwise, they are the running calls that
        were changed.
        """
        changed = slot in self._changed
        for other in self.slots if changed else self._changed:
            if other is slot or other.outcome is not None or may_run_beside(slot.footprint, other.footprint):
                continue
            if other.running or (changed and other.index < slot.index):
                return other
        return None
