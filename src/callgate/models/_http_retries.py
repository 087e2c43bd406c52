"""Decide whether and when a request to a provider is sent again, from its response alone.

Applies only to requests of whose answer no byte has been returned to the caller. The provider's own instructions take
precedence: `x-should-retry`, `retry-after-ms`, `Retry-After`, the delay in Google's body. Does not wait itself.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from callgate._backoff import backoff_s
from callgate._option_checks import Options, Pause, Whole

__all__ = ["Retries", "is_retryable_response", "retry_after_s"]


_QUOTA_EXHAUSTED = re.compile(rb'"(insufficient_quota|exceeded_current_quota_error|billing_hard_limit_reached)"')
"""Codes that providers send with status 429 when the quota is used up: a retry cannot succeed."""
_RETRY_DELAY = re.compile(rb'"retryDelay"\s*:\s*"(\d+(?:\.\d+)?)s"')


class Retries(Options, frozen=True, kw_only=True):
    """How often a request is sent again, and how long to wait before each retry."""

    max_retries: Whole = 2
    """Retries after the first attempt; 0 for none."""
    base_s: Pause = 0.5
    """The wait before the first retry; each further wait is twice as long."""
    max_s: Pause = 60.0
    """The longest wait. If the provider asks for a longer one, the request fails."""

    def wait_s(self, requested_s: float | None, retry: int, jitter: float) -> float | None:
        """Return the wait in seconds before retry number `retry`, from 1; None for no retry.

        Args:
            requested_s: The wait that the provider asks for; 0 and None mean the default backoff.
            retry: The number of the retry.
            jitter: In [0, 1). Shortens the default backoff, or extends the provider's wait, by at most a quarter.
        """
        if retry > self.max_retries or (requested_s is not None and requested_s > self.max_s):
            return None
        if requested_s:
            return min(self.max_s, requested_s * (1 + jitter / 4))
        return backoff_s(retry, base_s=self.base_s, max_s=self.max_s) * (1 - jitter / 4)


def is_retryable_response(status: int, headers: Mapping[str, str], body: bytes = b"") -> bool:
    """Whether the same request may succeed later: the provider says so, or the status does and the body does not deny it."""
    value = headers.get("x-should-retry", "").strip().lower()
    if value in ("true", "false"):
        return value == "true"
    return (status in (408, 409, 429) or status >= 500) and not _QUOTA_EXHAUSTED.search(body)


def retry_after_s(headers: Mapping[str, str], now_s: float, body: bytes = b"") -> float | None:
    """Return the wait that the provider asks for, in seconds; None if there is none or it cannot be parsed.

    Args:
        headers: The response headers, with lower-case names.
        now_s: UTC seconds since 1970, for providers that send a date.
        body: The response body, which is searched if the headers specify no wait.
    """
    wait_ms = _parse_number(headers.get("retry-after-ms", ""))
    if wait_ms is not None:
        return wait_ms / 1000
    value = headers.get("retry-after", "")
    wait_s = _parse_number(value)
    if wait_s is not None:
        return wait_s
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now_s)
    except (ValueError, TypeError, OverflowError):
        match = _RETRY_DELAY.search(body)
        return float(match[1]) if match else None


def _parse_number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 <= number < math.inf else None
