"""Compare the size of plain JSON data with a limit without encoding it."""

from __future__ import annotations

__all__ = ["exceeds"]


def exceeds(value: object, budget: int) -> bool:
    """Return whether `value` certainly takes more than `budget` bytes as JSON.

    Stops reading the value as soon as this is known.
    """
    stack = [value]
    while stack and budget >= 0:
        part = stack.pop()
        if type(part) is str:
            budget -= len(part) + 2
        elif isinstance(part, (list, dict, tuple)):
            budget -= len(part) + 1
            if budget < 0:
                return True
            stack += part
            if isinstance(part, dict):
                stack += part.values()
        else:
            budget -= len(part) + 2 if isinstance(part, str) else 1
    return budget < 0
