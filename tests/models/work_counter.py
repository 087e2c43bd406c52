"""Count the work of a function, so that a test can tell linear from quadratic cost without a clock."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

__all__ = ["is_linear", "steps"]

_LINE = 8
"""The bytecodes of a line, on average. To count them one by one takes twice the time."""


def steps(work: Callable[[], object]) -> int:
    """Return about how many bytecodes `work` runs, plus the lengths of all texts that its functions get, hold or return.

    A line counts again each time that a loop comes back to it. The lengths stand for the work of C code: joining, comparing and searching
    text are one bytecode each.
    """
    count = 0

    def inside(frame: FrameType, event: str, value: Any) -> Any:
        nonlocal count
        count += _LINE
        if event == "return":
            count += sum(len(held) for held in frame.f_locals.values() if type(held) in (str, bytes))
            count += len(value) if type(value) in (str, bytes, list, tuple) else 0
        return inside

    before = sys.gettrace()
    sys.settrace(inside)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def is_linear(cost: Callable[[int], int], n: int) -> bool:
    """Return whether the cost is linear: from 2n to 4n it grows at most 2.35 times as much as from n to 2n; quadratic cost, 4 times."""
    cost(2)  # the first call imports modules and fills caches
    one, two, four = cost(n), cost(2 * n), cost(4 * n)
    return four - two <= 2.35 * (two - one)
