"""Which calls of one message may run side by side. Pure.

Two calls may if neither has an effect, or if both declare what they touch and a write of neither meets the other. A call that has an
effect and does not declare what it touches is a barrier: it waits for everything before it, and everything after it waits for it.
"""

from __future__ import annotations

from msgspec import Struct

from callgate.tools.resources import KeyIndex, TouchedKeys, conflict

__all__ = ["Footprint", "Plan", "may_run_beside"]

_MOST_NAMED = 32
"""From so many calls that one has to wait for, that one stands for them: what meets them waits for it instead. So a message of any size
is planned in about the time that it takes to read it; a small one runs exactly as freely as the rule allows."""


class Footprint(Struct, frozen=True):
    """What is known of a call before it runs."""

    reads_only: bool
    touched: TouchedKeys | None
    """None: not declared."""


def may_run_beside(one: Footprint, other: Footprint) -> bool:
    if one.reads_only and other.reads_only:
        return True
    return one.touched is not None and other.touched is not None and not conflict(one.touched, other.touched)


class Plan:
    """Takes calls in emission order and says which earlier ones each has to wait for.

    Calls are found by the keys they touch. Waiting is transitive, so a call that waits for all that was found at some place can take
    their place there. A call that ends without having waited must not be added: it would end before those whose place it took.
    """

    def __init__(self) -> None:
        self._barrier: tuple[int, ...] = ()
        self._clear()

    def _clear(self) -> None:
        self._since: list[int] = []
        self._effects: list[int] = []
        self._free: list[int] = []
        """Reads that do not say what they read: they meet every effect."""
        self._reads = KeyIndex()
        self._writes = KeyIndex()

    def add(self, index: int, call: Footprint) -> tuple[int, ...]:
        """The indexes of the calls that must have ended before this one starts.

        Args:
            index: In the message; above those of the calls that were added before.
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
        """The calls with which this one's keys conflict; takes its place among them."""
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
    """What `earlier` holds; where that is much, `index` takes its place."""
    found = set(earlier)
    if len(earlier) > _MOST_NAMED:
        earlier[:] = [index]
    return found
