"""Whether a request to a provider is sent again, and when: decided from what the answer says alone.

Only for requests of whose answer nobody has seen a byte. The provider's own words count most: `x-should-retry`, `retry-after-ms`,
`Retry-After`, the delay in Google's body. Must not know who waits, and how.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from callgate._options import Options, Pause, Whole

__all__ = ["Retries", "is_retryable_response", "retry_after_s"]


_SPENT = re.compile(rb'"(insufficient_quota|exceeded_current_quota_error|billing_hard_limit_reached)"')
"""What providers call it, with the status of too many requests, where no more will be taken before somebody pays."""
_DELAY = re.compile(rb'"retryDelay"\s*:\s*"(\d+(?:\.\d+)?)s"')


class Retries(Options, frozen=True, kw_only=True):
    """How patiently a request is sent again."""

    most: Whole = 2
    """Retries, not attempts; 0 for none."""
    base_s: Pause = 0.5
    """The wait before the first one; each further wait is twice as long."""
    max_s: Pause = 60.0
    """No wait is longer. A provider that asks for a longer one has refused the request."""

    def wait_s(self, asked_s: float | None, retry: int, jitter: float) -> float | None:
        """How long to wait before the retry of this number, from 1; None where there is none.

        Args:
            asked_s: What the provider asks for; nothing, where it is 0.
            retry: Its number.
            jitter: In [0, 1); shortens a wait of our own by a quarter at most, and stretches the provider's as much.
        """
        if retry > self.most or (asked_s is not None and asked_s > self.max_s):
            return None
        if asked_s:
            return min(self.max_s, asked_s * (1 + jitter / 4))
        return min(self.max_s, self.base_s * 2.0 ** (retry - 1)) * (1 - jitter / 4)


def is_retryable_response(status: int, headers: Mapping[str, str], body: bytes = b"") -> bool:
    """Whether the same request may succeed later: the provider says so, or the status does and the body does not deny it."""
    said = headers.get("x-should-retry", "").strip().lower()
    if said in ("true", "false"):
        return said == "true"
    return (status in (408, 409, 429) or status >= 500) and not _SPENT.search(body)


def retry_after_s(headers: Mapping[str, str], now_s: float, body: bytes = b"") -> float | None:
    """How long the provider asks to wait, in seconds; None where it does not say, or says nothing that can be read.

    Args:
        headers: Of the answer; looked up by lower-case names.
        now_s: UTC seconds since 1970, for the providers that give a date.
        body: What the headers do not say, it may.
    """
    wait_ms = _number(headers.get("retry-after-ms", ""))
    if wait_ms is not None:
        return wait_ms / 1000
    said = headers.get("retry-after", "")
    wait_s = _number(said)
    if wait_s is not None:
        return wait_s
    try:
        return max(0.0, parsedate_to_datetime(said).timestamp() - now_s)
    except (ValueError, TypeError, OverflowError):
        delay = _DELAY.search(body)
        return float(delay[1]) if delay else None


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < math.inf else None
