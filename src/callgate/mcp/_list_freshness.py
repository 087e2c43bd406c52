"""How long a list of tools counts as current, for a server that does not tell when its tools change.

In the stateless era, a server says with each list for how long it holds (`ttlMs`). A list that no longer holds is asked for again when it
is needed, and at the latest after a few minutes. Sends nothing.

Source: MCP 2026-07-28, Utilities: "Caching".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from callgate._clock import Clock

__all__ = ["ListFreshness", "shortest_ttl_s"]

_LEAST_S = 10.0
"""A list holds for at least this time, whatever the server says: it must not make its client ask all the time."""
_DEFAULT_S = 300.0
"""How long a list holds if the server does not say it, and how often an unused list is asked for again."""
_LONGEST_S = 86_400.0


def shortest_ttl_s(pages: Iterable[Any]) -> float | None:
    """Return for how many seconds the results of all pages hold; None if none of them says it. A negative time is as good as none."""
    given = [page.get("ttlMs") for page in pages]
    return min((ms / 1000 for ms in given if isinstance(ms, (int, float)) and not isinstance(ms, bool)), default=None)


class ListFreshness:
    """Whether the latest list of one session still holds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._listed_at = 0.0
        self._holds_s: float | None = None
        """None: until the server says that it has changed."""

    def note(self, ttl_s: float | None, *, told_of_changes: bool) -> None:
        """Record that the list was requested, with or without success.

        Args:
            told_of_changes: Whether the server tells when the list changes, or is of an era in which lists do not age.
        """
        self._listed_at = self._clock.monotonic()
        self._holds_s = None if told_of_changes else _DEFAULT_S if ttl_s is None else min(max(ttl_s, _LEAST_S), _LONGEST_S)

    @property
    def is_stale(self) -> bool:
        """Whether the list is to be asked for again before it is used."""
        return self._holds_s is not None and self._age_s >= self._holds_s

    @property
    def may_be_wrong(self) -> bool:
        """Whether the list is to be asked for again because the server does not know one of its tools."""
        return self._holds_s is not None and self._age_s >= _LEAST_S

    @property
    def due_s(self) -> float | None:
        """Seconds until the list is requested again even if it is not used; None if it never is."""
        return None if self._holds_s is None else max(self._holds_s, _DEFAULT_S) - self._age_s

    @property
    def _age_s(self) -> float:
        return self._clock.monotonic() - self._listed_at
