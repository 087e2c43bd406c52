"""What a demonstration claims, and whether what was observed bears it out."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from callgate._terminal_text import one_line

__all__ = ["Finding", "finding"]

_MOST = 100


class Finding(Struct, frozen=True, kw_only=True):
    """One claim, held against evidence."""

    claim: str
    holds: bool
    observed: str
    """What was seen: numbers and names, whether the claim holds or not."""

    def __str__(self) -> str:
        return f"{self.claim}: {self.observed}"


def finding(claim: str, holds: bool, *observed: object) -> Finding:
    return Finding(claim=claim, holds=bool(holds), observed=", ".join(_told(part) for part in observed))


def _told(part: object) -> str:
    if isinstance(part, Iterable) and not isinstance(part, str):
        return "; ".join(one_line(str(item), _MOST) for item in part) or "none"
    return one_line(str(part), _MOST)
