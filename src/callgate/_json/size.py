"""Measure plain JSON data without writing it out, and without looking at more of it than it takes to know."""

from __future__ import annotations

__all__ = ["exceeds"]


def exceeds(value: object, budget: int) -> bool:
    """Whether `value` is certainly longer than that as JSON; looks at no more of it than it takes to know."""
    stack = [value]
    while stack and budget >= 0:
        part = stack.pop()
        if isinstance(part, (list, dict, tuple)):
            budget -= len(part) + 1
            if budget < 0:
                return True
            stack += part
            if isinstance(part, dict):
                stack += part.values()
        else:
            budget -= len(part) + 2 if isinstance(part, str) else 1
    return budget < 0
