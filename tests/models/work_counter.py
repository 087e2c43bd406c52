"""Count the work of a function, so that a test can tell linear from quadratic cost without a clock."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

__all__ = ["is_linear", "steps"]


def steps(work: Callable[[], object]) -> int:
    """The bytecodes that `work` runs, and the characters of every text that one of its functions was given, held or returned.

    The characters stand for what C code does with them: joining, comparing and searching text are one bytecode each.
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
    """Whether twice as much more work costs at most twice as much more, with a margin; quadratic work costs four times as much."""
    cost(2)  # imports and caches
    one, two, four = cost(n), cost(2 * n), cost(4 * n)
    return four - two <= 2.35 * (two - one)
