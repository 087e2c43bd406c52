"""Resource keys of calls, and whether two calls conflict. Pure.

A key is `scheme:path`, like `file:src/app.py` or `account:42`. Two keys meet if they are equal or one contains the other (`file:src`
contains `file:src/app.py`; a bare `file:` contains every file, and the empty key contains every key).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice

from msgspec import Struct

from callgate._abort_signals import is_own_failure
from callgate.calls import Scope

__all__ = ["ANYTHING", "Declared", "KeyIndex", "TouchedKeys", "conflict", "meet"]

_STEP = re.compile(r"/|[^:/]*:|[^:/]+")
_MOST_STEPS = 64
"""The maximum depth of a key. A deeper key counts as its ancestor, which conflicts with more, never with less."""

ANYTHING = frozenset({""})
"""The key that meets every key."""

Declared = str | tuple[str, ...] | Callable[[Mapping[str, object], Scope], str | Iterable[str]]
"""One or more keys with `{argument}` placeholders, or a function of the final arguments and the scope that returns them."""


class TouchedKeys(Struct, frozen=True):
    """The keys that one call reads and writes."""

    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()

    @classmethod
    def of(cls, arguments: Mapping[str, object], scope: Scope, reads: Declared | None, writes: Declared | None) -> TouchedKeys | None:
        """Return the keys for these arguments; None if nothing is declared or a declaration fails."""
        if reads is None and writes is None:
            return None
        try:
            return cls(_keys(reads, arguments, scope), _keys(writes, arguments, scope))
        except BaseException as error:
            if not is_own_failure(error):
                raise
            return None  # unknown resources conflict with everything


def _keys(declared: Declared | None, arguments: Mapping[str, object], scope: Scope) -> frozenset[str]:
    if declared is None:
        return frozenset()
    if callable(declared):
        return _as_key_set(declared(arguments, scope))
    patterns = (declared,) if isinstance(declared, str) else declared
    return frozenset(pattern.format_map(arguments) for pattern in patterns)


def _as_key_set(keys: str | Iterable[str]) -> frozenset[str]:
    """Return the keys as a set; a single text is one key.

    Raises:
        TypeError: A key is not text.
    """
    found = frozenset((keys,) if isinstance(keys, str) else keys)
    if not all(isinstance(key, str) for key in found):
        raise TypeError("a resource key is text")
    return found


def meet(one: str, other: str) -> bool:
    """Return whether two keys meet: they are equal, or one contains the other."""
    if one == other:
        return True
    return _contains(one, other) or _contains(other, one)


def _contains(outer: str, inner: str) -> bool:
    return not outer or (inner.startswith(outer) and (outer.endswith((":", "/")) or inner[len(outer)] == "/"))


def conflict(one: TouchedKeys, other: TouchedKeys) -> bool:
    """Return whether a write of one meets a read or write of the other."""
    return any(meet(w, k) for w in one.writes for k in other.reads | other.writes) or any(
        meet(w, k) for w in other.writes for k in one.reads
    )


class _KeyNode:
    __slots__ = ("below", "numbers")

    def __init__(self) -> None:
        self.below: dict[str, _KeyNode] = {}
        self.numbers: list[int] = []


class KeyIndex:
    """An index of numbers by key, to find all keys that meet another key without comparing each.

    The index is a tree of the keys' steps: `file:`, `src`, `/`, `app.py`. If two keys meet, the steps of one are a prefix of the other's.
    """

    def __init__(self) -> None:
        self._root = _KeyNode()

    def add(self, key: str, number: int) -> None:
        place = self._root
        for step in _steps(key):
            found = place.below.get(step)
            if found is None:
                found = place.below[step] = _KeyNode()
            place = found
        place.numbers.append(number)

    def remove(self, key: str, number: int) -> None:
        """Remove a number that was added under `key`."""
        path = [self._root]
        steps = _steps(key)
        for step in steps:
            path.append(path[-1].below[step])
        path[-1].numbers.remove(number)
        for place, step in zip(reversed(path[:-1]), reversed(steps), strict=True):
            child = place.below[step]
            if child.numbers or child.below:
                return
            del place.below[step]

    def above(self, key: str) -> Iterator[list[int]]:
        """Return the lists at `key` and the keys that contain it; the lists may be changed in place."""
        place: _KeyNode | None = self._root
        steps = iter(_steps(key))
        while place is not None:
            if place.numbers:
                yield place.numbers
            step = next(steps, None)
            place = None if step is None else place.below.get(step)

    def below(self, key: str) -> list[int]:
        """Return the numbers at the keys that `key` contains."""
        place = self._find_node(key)
        return [] if place is None else _all_below(place)

    def take_below(self, key: str) -> list[int]:
        """Remove and return the numbers at `key` and the keys that it contains."""
        place = self._find_node(key)
        if place is None:
            return []
        taken = place.numbers + _all_below(place)
        place.numbers, place.below = [], {}
        return taken

    def _find_node(self, key: str) -> _KeyNode | None:
        place: _KeyNode | None = self._root
        for step in _steps(key):
            place = place.below.get(step) if place is not None else None
        return place


def _steps(key: str) -> list[str]:
    if len(key) <= _MOST_STEPS:
        return _STEP.findall(key)
    return [found[0] for found in islice(_STEP.finditer(key), _MOST_STEPS)]


def _all_below(place: _KeyNode) -> list[int]:
    numbers, places = list[int](), list(place.below.values())
    while places:
        place = places.pop()
        numbers += place.numbers
        places += place.below.values()
    return numbers
