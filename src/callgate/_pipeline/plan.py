"""Which calls of one message may run side by side. Pure.

Two calls may if neither has an effect, or if both declare what they touch and a write of neither meets the other. A call that has an
effect and does not declare what it touches is a barrier: it waits for everything before it, and everything after it waits for it.
"""

from __future__ import annotations

from msgspec import Struct

from callgate.tools.resources import Touched, conflict

__all__ = ["Footprint", "Plan", "may_run_beside"]

_MOST_COMPARED = 256


class Footprint(Struct, frozen=True):
    """What is known of a call before it runs."""

    reads_only: bool
    touched: Touched | None
    """None: not declared."""


def may_run_beside(one: Footprint, other: Footprint) -> bool:
    if one.reads_only and other.reads_only:
        return True
    return one.touched is not None and other.touched is not None and not conflict(one.touched, other.touched)


class Plan:
    """Takes calls in emission order and says which earlier ones each has to wait for."""

    def __init__(self) -> None:
        self._barrier: int | None = None
        self._since: list[tuple[int, Footprint]] = []
        self._effects: list[tuple[int, Footprint]] = []
        self._count = 0

    def add(self, call: Footprint) -> tuple[int, ...]:
        """The indexes of the calls that must have ended before this one starts."""
        index, self._count = self._count, self._count + 1
        before = () if self._barrier is None else (self._barrier,)
        if not call.reads_only and (call.touched is None or len(self._effects) >= _MOST_COMPARED):
            waits = tuple(earlier for earlier, _ in self._since) or before
            self._barrier, self._since, self._effects = index, [], []
            return waits
        others = self._effects if call.reads_only else self._since
        waits = before + tuple(earlier for earlier, other in others if not may_run_beside(call, other))
        self._since.append((index, call))
        if not call.reads_only:
            self._effects.append((index, call))
        return waits
