"""The claims of a demonstration, and whether the evidence supports them."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from callgate._terminal_text import one_line

__all__ = ["Finding", "finding"]

_MOST = 100


class Finding(Struct, frozen=True, kw_only=True):
    """One claim, checked against evidence."""

    claim: str
    holds: bool
    observed: str
    """The observed numbers and names, whether or not the claim holds."""

    def __str__(self) -> str:
        return f"{self.claim}: {self.observed}"


def finding(claim: str, holds: bool, *observed: object) -> Finding:
    return Finding(claim=claim, holds=bool(holds), observed=", ".join(_describe(part) for part in observed))


def _describe(part: object) -> str:
    if isinstance(part, Iterable) and not isinstance(part, str):
        return "; ".join(one_line(str(item), _MOST) for item in part) or "none"
    return one_line(str(part), _MOST)
