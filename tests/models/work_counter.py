"""Count the work of a function, so that a test can tell linear from quadratic cost without a clock."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

__all__ = ["is_linear", "steps"]


def steps(work: Callable[[], object]) -> int:
    """Return the bytecodes that `work` runs, plus the lengths of all texts that its functions get, hold or return.

    The lengths stand for the work of C code: joining, comparing and searching text are one bytecode each.
    """
    count = 0

    def inside(frame: FrameType, event: str, value: Any) -> Any:
        nonlocal count
        count += 1
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
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
