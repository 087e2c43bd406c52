"""Assemble arguments that arrive value by value, each with its JSON path: `$.items[2].name`.

A string may arrive in pieces; every other value arrives whole. Knows nothing of calls.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["PartialArguments"]

_PATH_STEP = re.compile(r"\.(?P<key>[^.\[\]]+)|\[(?P<index>\d{1,7})\]|\[(?P<quote>['\"])(?P<quoted>(?:[^\\]|\\.)*?)(?P=quote)\]")
_ESCAPED = re.compile(r"\\(.)")
_MAX_GAP = 100
_VALUE_KEYS = ("stringValue", "numberValue", "boolValue")

_Path = tuple[str | int, ...]


class PartialArguments:
    """One call's arguments while they arrive."""

    def __init__(self) -> None:
        self._value: dict[str, Any] = {}
        self._path: _Path | None = None
        self._pieces: list[str] = []

    def add(self, item: Mapping[str, object]) -> None:
        """Add one value, or a piece of a string.

        Raises:
            ValueError: The path cannot be parsed, or contradicts the values before.
        """
        path = _path(str(item.get("jsonPath", "")))
        value = next((item[key] for key in _VALUE_KEYS if key in item), None)
        if path != self._path:
            self._flush()
        if not isinstance(value, str):
            self._set(path, value)
            return
        self._path = path
        self._pieces.append(value)
        if not item.get("willContinue"):
            self._flush()

    @property
    def lacks_end_of_string(self) -> bool:
        """Whether the last value is a string of which a piece was announced and has not come."""
        return self._path is not None

    def value(self) -> dict[str, object]:
        self._flush()
        return self._value

    def _flush(self) -> None:
        if self._path is not None:
            path, self._path = self._path, None
            text, self._pieces = "".join(self._pieces), []
            self._set(path, text)

    def _set(self, path: _Path, value: object) -> None:
        node: Any = self._value
        for step, following in zip(path, (*path[1:], None), strict=True):
            if isinstance(step, int):
                _extend_list(node, step)
            elif not isinstance(node, dict):
                raise ValueError(f"{path} is not a path in the arguments so far")
            if following is None:
                node[step] = value
            else:
                node = _child(node, step, [] if isinstance(following, int) else {})


def _child(node: Any, step: str | int, default: object) -> Any:
    if (node[step] if isinstance(step, int) else node.get(step)) is None:
        node[step] = default
    return node[step]


def _extend_list(node: object, index: int) -> None:
    """Extend a list so that it has an item `index`."""
    if not isinstance(node, list) or index > len(node) + _MAX_GAP:
        raise ValueError(f"there is no item {index} in the arguments so far")
    node.extend([None] * (index + 1 - len(node)))


def _path(text: str) -> _Path:
    steps: list[str | int] = []
    at = 1
    while at < len(text) and text[0] == "$":
        step = _PATH_STEP.match(text, at)
        if step is None:
            break
        at = step.end()
        steps.append(int(step["index"]) if step["index"] else step["key"] or _ESCAPED.sub(r"\1", step["quoted"]))
    if at != len(text) or not steps:
        raise ValueError(f"{text[:100]!r} is not a JSON path")
    return tuple(steps)
