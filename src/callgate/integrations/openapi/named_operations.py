"""Name the tools of a document's operations, and find the operations that an option names.

Knows nothing of servers and requests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, get_args

from callgate._globs import glob_regex
from callgate._option_checks import refuse_unknown
from callgate.calls import Effect
from callgate.errors import UsageError
from callgate.integrations.openapi.operations import Listed
from callgate.tools import ToolOptions
from callgate.tools.attribute_options import ATTRIBUTE_OPTIONS

__all__ = ["NamedOperations"]

_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_MAX_NAME = 64


class NamedOperations:
    """All operations of a document, each with the unique name of its tool.

    An option names an operation by its id, by the tool's name, or as `GET /pets/{petId}`; `*` and `?` match any characters.
    """

    def __init__(self, listed: Sequence[Listed]) -> None:
        self.listed = listed
        self.names = _tool_names(listed)
        self._words = [_words_of(one, name) for one, name in zip(listed, self.names, strict=True)]
        """The words that may name each operation."""

    def choose(self, include: Iterable[str] | None, exclude: Iterable[str]) -> list[int]:
        """Return the numbers of the operations to use.

        Raises:
            UsageError: An option is not a list of names, or names no operation.
        """
        for option, given in (("include", include), ("exclude", exclude)):
            if isinstance(given, str):
                raise UsageError(f"openapi_tools({option}={given!r:.80}): it must be a list of names, such as [{given!r:.80}].")
        chosen = set(range(len(self.listed))) if include is None else self._find(include, "include")
        return sorted(chosen - self._find(exclude, "exclude"))

    def declared_effects(self, effects: Mapping[str, Effect]) -> dict[int, Effect]:
        """Return the declared effects by the operation's number.

        A name takes precedence over a pattern, and a later entry over an earlier one.

        Raises:
            UsageError: An effect does not exist, or an entry names no operation.
        """
        found: dict[int, Effect] = {}
        for pattern in sorted(effects, key=_is_pattern, reverse=True):
            effect: Any = effects[pattern]
            if effect not in get_args(Effect):
                known = ", ".join(get_args(Effect))
                raise UsageError(f"openapi_tools(effects={{{pattern!r:.80}: {effect!r:.40}}}): the effect must be one of {known}.")
            found |= dict.fromkeys(self._find((pattern,), "effects"), effect)
        return found

    def declared_options(self, options: Mapping[str, ToolOptions]) -> dict[int, dict[str, Any]]:
        """Return the declared options by the operation's number, with the same precedence for each option.

        Raises:
            UsageError: An option does not exist, or an entry names no operation.
        """
        found: dict[int, dict[str, Any]] = {}
        for pattern in sorted(options, key=_is_pattern, reverse=True):
            given: Any = options[pattern]
            place = f"openapi_tools(options={{{pattern!r:.80}: ...}})"
            if not isinstance(given, Mapping):
                raise UsageError(f"{place} has {given!r:.80}; it must be a mapping of options, such as {{'timeout_s': 20}}.")
            if "effect" in given:
                raise UsageError(f"{place} sets an effect. Write effects={{{pattern!r:.80}: {given['effect']!r:.40}}}.")
            refuse_unknown(place, given, ATTRIBUTE_OPTIONS)
            for index in self._find((pattern,), "options"):
                found[index] = {**found.get(index, {}), **given}
        return found

    def _find(self, patterns: Iterable[str], option: str) -> set[int]:
        """Return the numbers of the operations that these names or patterns match.

        Raises:
            UsageError: One of them matches none.
        """
        found = set[int]()
        for pattern in patterns:
            regex = re.compile(glob_regex(pattern) if _is_pattern(pattern) else re.escape(pattern) + r"\Z")
            matched = {index for index, words in enumerate(self._words) if any(regex.match(word) for word in words)}
            if not matched:
                near = get_close_matches(pattern, [word for words in self._words for word in words], n=1, cutoff=0.5)
                meant = f"; did you mean {near[0]!r}?" if near else "."
                raise UsageError(f"openapi_tools({option}=...) names {pattern!r:.100}, which no operation of the document has{meant}")
            found |= matched
        return found


def _tool_names(listed: Sequence[Listed]) -> list[str]:
    """Return a unique tool name for each operation. A name that is given twice gets a number."""
    names, taken = list[str](), set[str]()
    for one in listed:
        given = one.node.get("operationId")
        plain = _as_tool_name(given if isinstance(given, str) else "") or _as_tool_name(f"{one.method.lower()}_{one.path}")
        name, number = plain[:_MAX_NAME].rstrip("_-"), 2
        while name in taken:
            suffix = f"_{number}"
            name, number = plain[: _MAX_NAME - len(suffix)] + suffix, number + 1
        taken.add(name)
        names.append(name)
    return names


def _as_tool_name(text: str) -> str:
    return _NOT_IN_NAME.sub("_", text).strip("_-")


def _is_pattern(name: str) -> bool:
    return "*" in name or "?" in name


def _words_of(listed: Listed, name: str) -> tuple[str, ...]:
    given = listed.node.get("operationId")
    return (name, f"{listed.method} {listed.path}", *((given,) if isinstance(given, str) else ()))
