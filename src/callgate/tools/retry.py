"""Which failures pass, and how long to wait for that. Pure: the route does the waiting."""

from __future__ import annotations

import math
import re

from msgspec import Struct

from callgate._json import type_name
from callgate.errors import Retryable, UsageError

__all__ = ["NO_RETRY", "RetryPolicy", "is_retryable_error"]

_PASSING = re.compile(r"time[d\- ]?\s?out|connection|network|temporar|rate.?limit|too many requests|try again", re.IGNORECASE)


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """How often and how patiently a tool is attempted. Applies only where the tool's effect makes a repeat safe.

    Raises:
        UsageError: A number is of the wrong kind, or makes no sense.
    """

    attempts: int = 4
    """At most, the first included."""
    base_s: float = 1.0
    """The wait after the first failure."""
    max_s: float = 10.0
    multiplier: float = 2.0
    jitter: bool = True
    """Wait a random share between half and the whole, so that many callers do not return together."""

    def __post_init__(self) -> None:
        if not isinstance(self.attempts, int) or isinstance(self.attempts, bool) or self.attempts < 1:
            raise UsageError(f"RetryPolicy(attempts={self.attempts!r}): it must be a whole number from 1, which is no second attempt.")
        for name in ("base_s", "max_s"):
            if not _is_number(value := getattr(self, name)) or value < 0:
                raise UsageError(f"RetryPolicy({name}={value!r}): it must be a finite number of seconds from 0.")
        if not _is_number(self.multiplier) or self.multiplier < 1:
            raise UsageError(f"RetryPolicy(multiplier={self.multiplier!r}): it must be a finite number from 1.")
        if not isinstance(self.jitter, bool):
            raise UsageError(f"RetryPolicy(jitter={self.jitter!r}): it must be True or False.")

    def delay_s(self, failures: int, chance: float) -> float:
        """How long to wait after so many failures in a row; `chance` in [0, 1) is where in the jitter's range."""
        try:
            wait = min(self.max_s, self.base_s * self.multiplier ** (failures - 1))
        except OverflowError:
            wait = self.max_s
        return wait * (0.5 + chance / 2) if self.jitter else wait


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


NO_RETRY = RetryPolicy(attempts=1)


def is_retryable_error(error: BaseException | str) -> bool:
    """Whether a failure is of a kind that passes: timeout, connection, network, temporary, rate limit, "try again".

    An exception is judged by its type first, then by its text; a plain string by its text.
    """
    if isinstance(error, (Retryable, TimeoutError, ConnectionError)):
        return True
    text = error if isinstance(error, str) else f"{type_name(error)}: {_safe_text(error)}"
    return _PASSING.search(text[:2000]) is not None


def _safe_text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:
        return ""
