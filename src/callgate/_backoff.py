"""Exponential backoff: how long to wait before a retry. Pure; the caller adds jitter and does the waiting."""

from __future__ import annotations

__all__ = ["backoff_s"]


def backoff_s(failures: int, *, base_s: float, max_s: float, multiplier: float = 2.0) -> float:
    """Return the seconds to wait after this number of failures in a row, which is at least 1.

    The wait is `base_s` after the first failure, and `multiplier` times as long after each further one.

    Args:
        max_s: The longest wait.
    """
    try:
        return min(max_s, base_s * multiplier ** (failures - 1))
    except OverflowError:
        return max_s
