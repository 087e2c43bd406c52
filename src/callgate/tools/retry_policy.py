"""Decide which failures are temporary, and how long to wait before a retry. Pure: the route waits."""

from __future__ import annotations

import re
from typing import Annotated

from msgspec import Meta

from callgate._backoff import backoff_s
from callgate._json import type_name
from callgate._option_checks import MOST, Count, Options, Pause
from callgate.errors import Retryable
from callgate.tools.effect_evidence import is_lost_reply

__all__ = ["NO_RETRY", "RetryPolicy", "is_retryable_error"]

_PASSING = re.compile(
    r"time[d\- ]?\s?out|connection|network|temporar|rate.?limit|too many requests|bad gateway|service unavailable|try again", re.IGNORECASE
)


class RetryPolicy(Options, frozen=True, kw_only=True):
    """The number of attempts and the waits between them. Applies only if the tool's effect makes a repeat safe.

    Raises:
        UsageError: A number has the wrong type or range.
    """

    attempts: Count = 4
    """The maximum number of attempts, including the first."""
    base_s: Pause = 1.0
    """Seconds to wait after the first failure."""
    max_s: Pause = 10.0
    multiplier: Annotated[float, Meta(ge=1, le=MOST)] = 2.0
    jitter: bool = True
    """Whether to wait a random time between half of the delay and the whole delay, so that many callers do not retry
    together.
    """

    def delay_s(self, failures: int, chance: float) -> float:
        """Return the seconds to wait after this number of failures in a row; `chance` in [0, 1) selects the jitter."""
        wait = backoff_s(failures, base_s=self.base_s, max_s=self.max_s, multiplier=self.multiplier)
        return wait * (0.5 + chance / 2) if self.jitter else wait


NO_RETRY = RetryPolicy(attempts=1)


def is_retryable_error(error: BaseException | str) -> bool:
    """Whether a failure is temporary: timeout, connection, network, temporary, rate limit, bad gateway, service unavailable, "try again".

    An exception is judged by its type first, then by its text; a plain string by its text.
    """
    if isinstance(error, Retryable) or (isinstance(error, BaseException) and is_lost_reply(error)):
        return True
    text = error if isinstance(error, str) else f"{type_name(error)}: {_safe_text(error)}"
    return _PASSING.search(text[:2000]) is not None


def _safe_text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:
        return ""
