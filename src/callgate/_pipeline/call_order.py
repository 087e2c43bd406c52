"""Decide which calls of one message may run at the same time.

Pure. Two calls may run at the same time if neither has an effect, or if both declare the resources that they touch and no write of one
conflicts with the other. A call with an effect that does not declare its resources is a barrier: it waits for all calls before it, and all
calls after it wait for it.
"""

from __future__ import annotations

from msgspec import Struct

from callgate.stage_types import ValidatedCall
from callgate.tools.resource_conflicts import KeyIndex, TouchedKeys, conflict

__all__ = ["UNDECLARED_EFFECT", "UNDECLARED_READ", "CallOrder", "Footprint", "footprint_of", "may_run_beside"]

_MOST_NAMED = 32
"""If a call has to wait for more calls than this, it stands for them: calls that conflict with them wait for it instead. The time to plan a
message is therefore about proportional to its size, and small messages still run as concurrently as the rule allows."""


class Footprint(Struct, frozen=True):
    """The known effects of a call before it runs."""

    reads_only: bool
    touched: TouchedKeys | None
    """The declared resources; None: not declared."""


UNDECLARED_READ = Footprint(reads_only=True, touched=None)
UNDECLARED_EFFECT = Footprint(reads_only=False, touched=None)


def footprint_of(call: ValidatedCall) -> Footprint:
    """Return the resources that a call touches."""
    touched = call.tool.touched(call.arguments, call.scope)
    reads_only = call.tool.effect == "none"
    if touched is None:
        return UNDECLARED_READ if reads_only else UNDECLARED_EFFECT
    return Footprint(reads_only, touched)


def may_run_beside(one: Footprint, other: Footprint) -> bool:
    if one.reads_only and other.reads_only:
        return True
    return one.touched is not None and other.touched is not None and not conflict(one.touched, other.touched)


class CallOrder:
    """Takes calls in the order of their message and returns which earlier calls each has to wait for.

    Calls are found by the keys of the resources they touch. Waiting is transitive: a call that waits for all calls found under a key can
    replace them there. Calls that end without having waited must not be added, because they would end before the calls that they replaced.
    """

    def __init__(self) -> None:
        self._barrier: tuple[int, ...] = ()
        self._clear()

    def _clear(self) -> None:
        self._since: list[int] = []
        self._effects: list[int] = []
        self._free: list[int] = []
        """Reads that do not declare what they read; they conflict with every effect."""
        self._reads = KeyIndex()
        self._writes = KeyIndex()

    def add(self, index: int, call: Footprint) -> tuple[int, ...]:
        """Return the indexes of the calls that must have ended before this one starts.

        Args:
            index: The index of the call in the message; greater than those of the calls added before.
        """
        if not call.reads_only and call.touched is None:
            waits = tuple(self._since) or self._barrier
            self._barrier = (index,)
            self._clear()
            return waits
        self._since.append(index)
        if call.touched is None:
            self._free.append(index)
            if not self._effects:
                return self._barrier
            found = _waits_for(self._effects, index)
        else:
            found = self._meeting(call.touched, index)
        if not call.reads_only:
            found |= _waits_for(self._free, index)
            self._effects.append(index)
        found.discard(index)
        return (*self._barrier, *sorted(found))

    def _meeting(self, touched: TouchedKeys, index: int) -> set[int]:
        """Return the calls whose keys conflict with this call's, and add this call to the indexes."""
        found = set[int]()
        for key in touched.writes:
            found.update(self._reads.take_below(key), self._writes.take_below(key))
            for indexes in (*self._reads.above(key), *self._writes.above(key)):
                found |= _waits_for(indexes, index)
        for key in touched.reads:
            for indexes in self._writes.above(key):
                found |= _waits_for(indexes, index)
            below = self._writes.below(key)
            found.update(below)
            if len(below) > _MOST_NAMED:
                self._writes.take_below(key)
                self._writes.add(key, index)
        for key in touched.writes:
            self._writes.add(key, index)
        for key in touched.reads:
            self._reads.add(key, index)
        return found


def _waits_for(earlier: list[int], index: int) -> set[int]:
    """Return the calls in `earlier`; if they are many, replace them with `index` there."""
    found = set(earlier)
    if len(earlier) > _MOST_NAMED:
        earlier[:] = [index]
    return found
