"""Arguments that arrive value by value, each with the place that it belongs to: `$.items[2].name`.

A string may come in pieces; every other value comes whole. Knows nothing of calls.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["PartialArguments"]

_STEP = re.compile(r"\.(?P<key>[^.\[\]]+)|\[(?P<index>\d{1,7})\]|\[(?P<quote>['\"])(?P<quoted>(?:[^\\]|\\.)*?)(?P=quote)\]")
_ESCAPED = re.compile(r"\\(.)")
_LONGEST_GAP = 100
_VALUES = ("stringValue", "numberValue", "boolValue")

_Path = tuple[str | int, ...]


class PartialArguments:
    """One call's arguments while they arrive."""

    def __init__(self) -> None:
        self._value: dict[str, Any] = {}
        self._path: _Path | None = None
        self._pieces: list[str] = []

    def add(self, item: Mapping[str, object]) -> None:
        """Take one value, or a piece of one.

        Raises:
            ValueError: Its place cannot be read, or contradicts what came before.
        """
        path = _path(str(item.get("jsonPath", "")))
        value = next((item[key] for key in _VALUES if key in item), None)
        if path != self._path:
            self._flush()
        if not isinstance(value, str):
            self._put(path, value)
            return
        self._path = path
        self._pieces.append(value)
        if not item.get("willContinue"):
            self._flush()

    def value(self) -> dict[str, object]:
        self._flush()
        return self._value

    def _flush(self) -> None:
        if self._path is not None:
            path, self._path = self._path, None
            text, self._pieces = "".join(self._pieces), []
            self._put(path, text)

    def _put(self, path: _Path, value: object) -> None:
        here: Any = self._value
        for step, following in zip(path, (*path[1:], None), strict=True):
            if isinstance(step, int):
                _reach(here, step)
            elif not isinstance(here, dict):
                raise ValueError(f"{path} is no place in the arguments so far")
            if following is None:
                here[step] = value
            else:
                here = _inside(here, step, [] if isinstance(following, int) else {})


def _inside(here: Any, step: str | int, fresh: object) -> Any:
    if (here[step] if isinstance(step, int) else here.get(step)) is None:
        here[step] = fresh
    return here[step]


def _reach(here: object, index: int) -> None:
    """Make a list long enough for its item `index`."""
    if not isinstance(here, list) or index > len(here) + _LONGEST_GAP:
        raise ValueError(f"there is no item {index} in the arguments so far")
    here.extend([None] * (index + 1 - len(here)))


def _path(text: str) -> _Path:
    steps: list[str | int] = []
    at = 1
    while at < len(text) and text[0] == "$":
        step = _STEP.match(text, at)
        if step is None:
            break
        at = step.end()
        steps.append(int(step["index"]) if step["index"] else step["key"] or _ESCAPED.sub(r"\1", step["quoted"]))
    if at != len(text) or not steps:
        raise ValueError(f"{text[:100]!r} is no path")
    return tuple(steps)
