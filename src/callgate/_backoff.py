"""How long to wait before something is tried again: exponential backoff. Pure; jitter and the waiting are the caller's."""

from __future__ import annotations

__all__ = ["backoff_s"]


def backoff_s(failures: int, *, base_s: float, max_s: float, multiplier: float = 2.0) -> float:
    """Return the seconds to wait after so many failures in a row, from 1: `base_s` first, then `multiplier` times as long each time.

    Args:
        max_s: No wait is longer.
    """
    try:
        return min(max_s, base_s * multiplier ** (failures - 1))
    except OverflowError:
        return max_s
