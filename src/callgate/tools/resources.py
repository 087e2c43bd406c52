"""What a call touches, as keys, and when two calls may not run side by side. Pure.

A key is `scheme:path`, like `file:src/app.py` or `account:42`. Two keys meet if they are equal or one contains the other
(`file:src` contains `file:src/app.py`; a bare `file:` contains every file).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from callgate.calls import Scope

__all__ = ["Declared", "Touched", "conflict", "meet"]

Declared = str | tuple[str, ...] | Callable[[Mapping[str, object], Scope], Iterable[str]]
"""A key or several, each with `{argument}` places; or a function of the final arguments and the scope."""


class Touched(Struct, frozen=True):
    """The keys one call reads and writes."""

    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()

    @classmethod
    def of(cls, arguments: Mapping[str, object], scope: Scope, reads: Declared | None, writes: Declared | None) -> Touched | None:
        """The keys for these arguments, or None where nothing is declared or a declaration cannot be computed."""
        if reads is None and writes is None:
            return None
        try:
            return cls(_keys(reads, arguments, scope), _keys(writes, arguments, scope))
        except Exception:
            return None  # unknown is treated as touching everything


def _keys(declared: Declared | None, arguments: Mapping[str, object], scope: Scope) -> frozenset[str]:
    if declared is None:
        return frozenset()
    if callable(declared):
        return frozenset(declared(arguments, scope))
    patterns = (declared,) if isinstance(declared, str) else declared
    return frozenset(pattern.format_map(arguments) for pattern in patterns)


def meet(one: str, other: str) -> bool:
    """Whether two keys name the same thing or one contains the other."""
    if one == other:
        return True
    return _contains(one, other) or _contains(other, one)


def _contains(outer: str, inner: str) -> bool:
    return inner.startswith(outer) and (outer.endswith((":", "/")) or inner[len(outer)] == "/")


def conflict(one: Touched, other: Touched) -> bool:
    """Whether a write of either meets anything the other touches."""
    return any(meet(w, k) for w in one.writes for k in other.reads | other.writes) or any(
        meet(w, k) for w in other.writes for k in one.reads
    )
