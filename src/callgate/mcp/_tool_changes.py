"""Compare the tools that a server offers with those that an operator accepted, as pure functions.

A tool is identified by its whole definition: a changed description or schema can make a model do something else with it.
Everything here is untrusted, so whatever is shown has its invisible and control characters escaped. Knows
nothing of files, connections or engines.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from callgate._option_checks import NamedStruct
from callgate._terminal_text import one_line, printable
from callgate.calls import Effect

__all__ = [
    "AcceptedTool",
    "Definition",
    "FieldChange",
    "ToolChange",
    "ToolComparison",
    "compare_instructions",
    "compare_tools",
    "definition_hash",
]

Definition = Mapping[str, Any]
"""A tool as its server describes it, in the form of the protocol."""
_LONGEST_LINE: Final = 4_000
_MOST_LINES: Final = 2_000
_MISSING: Final = object()
_PLAIN_KEY: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_$-")


def definition_hash(definition: Definition) -> str:
    """Return the SHA-256 of the definition; the order of keys makes no difference."""
    text = json.dumps(definition, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


class AcceptedTool(NamedStruct, frozen=True, kw_only=True):
    """A tool as an operator accepted it."""

    definition: Definition
    hash: str
    effect: Effect = "once"
    accepted_at: str = ""
    """The time in UTC, such as `2026-11-23T15:30:00Z`."""


class FieldChange(NamedStruct, frozen=True, kw_only=True):
    """One field of a definition that differs. A field that only one of the two has is in one of the two values only."""

    path: str
    """Such as `description` or `inputSchema.properties.path.type`."""
    values: Mapping[str, Any]
    """`before` and `after`."""

    def lines(self) -> tuple[str, ...]:
        """Return the change as lines for a person: the path, then what is gone (`-`) and what is new (`+`)."""
        before, after = (_as_lines(self.values.get(side, _MISSING)) for side in ("before", "after"))
        changed = list(_changed_lines(before, after))
        return printable(self.path), *(f"  {_around_change(line, changed)}" for line in changed)


class ToolChange(NamedStruct, frozen=True, kw_only=True):
    """A tool that differs from what was accepted."""

    kind: Literal["new", "changed", "renamed", "removed"]
    tool: str
    was: str = ""
    """The accepted name of a renamed tool."""
    fields: tuple[FieldChange, ...] = ()
    """The changed fields of a changed tool; the whole definition of a new one."""
    definition: Definition | None = None
    """The definition that the server offers now; None for a removed tool."""

    def sentence(self) -> str:
        """Return what happened to the tool, for a person or a model."""
        match self.kind:
            case "changed":
                places = ", ".join(one_line(field.path, 80) for field in self.fields[:5])
                more = f" and {len(self.fields) - 5} more" if len(self.fields) > 5 else ""
                return f"its definition is not the accepted one ({places}{more} changed)"
            case "renamed":
                return f"it is the accepted tool '{one_line(self.was, 128)}' under another name"
            case "removed":
                return "the server does not offer it any more"
        return "it is not among the accepted tools"


class ToolComparison(NamedStruct, frozen=True, kw_only=True):
    """The tools of one server, compared with the accepted ones."""

    server: str
    effects: Mapping[str, Effect]
    """The tools that are as accepted, each with its accepted effect. Only these may run."""
    changes: tuple[ToolChange, ...] = ()
    """All others, in the order of the server's list; removed ones last."""
    instructions: FieldChange | None = None
    """The change of the server's instructions for models. Clients do not get them until they are accepted."""

    @property
    def quarantined(self) -> Mapping[str, str]:
        """The tools that may not run until they are accepted, each with the reason that a model is given."""
        return {change.tool: self._reason(change) for change in self.changes if change.kind != "removed"}

    def _reason(self, change: ToolChange) -> str:
        name, server = one_line(change.tool, 128), one_line(self.server, 128)
        option = f"{shlex.quote(server)} --config FILE"
        return (
            f"'{name}' of the MCP server '{server}' is in quarantine: {change.sentence()}. Nothing ran, and repeating the"
            f" call does not help. An operator can look at it with `callgate mcp diff {option}` and accept it with `callgate mcp accept"
            f" {option}`, where FILE is the configuration."
        )


def compare_tools(server: str, accepted: Mapping[str, AcceptedTool], definitions: Iterable[Definition]) -> ToolComparison:
    """Compare what a server offers with what was accepted.

    A name that is offered more than once is as accepted only if all its definitions are.
    """
    offered = _group_by_name(definitions)
    gone = {_nameless_hash(tool.definition): name for name, tool in accepted.items() if name not in offered}
    effects, changes = dict[str, Effect](), list[ToolChange]()
    for name, found in offered.items():
        known = accepted.get(name)
        different = next((one for one in found if known is None or definition_hash(one) != known.hash), None)
        if different is not None:
            changes.append(_change(name, known, different, gone.get(_nameless_hash(different), "")))
        elif known is not None:
            effects[name] = known.effect
    renamed = {change.was for change in changes}
    changes += [ToolChange(kind="removed", tool=name) for name in accepted if name not in offered and name not in renamed]
    return ToolComparison(server=server, effects=effects, changes=tuple(changes))


def compare_instructions(accepted: str, offered: str) -> FieldChange | None:
    """Return how the instructions of a server differ from the accepted ones; None if they do not, or if the server has none any more."""
    if not offered or offered == accepted:
        return None
    sides = {"before": accepted, "after": offered} if accepted else {"after": offered}
    return FieldChange(path="instructions", values=sides)


def _group_by_name(definitions: Iterable[Definition]) -> dict[str, list[Definition]]:
    found = dict[str, list[Definition]]()
    for definition in definitions:
        if isinstance(name := definition.get("name"), str):
            found.setdefault(name, []).append(definition)
    return found


def _nameless_hash(definition: Definition) -> str:
    return definition_hash({**definition, "name": ""})


def _change(name: str, known: AcceptedTool | None, offered: Definition, was: str) -> ToolChange:
    if known is not None:
        return ToolChange(kind="changed", tool=name, fields=tuple(_compare_fields(known.definition, offered)), definition=offered)
    if was:
        return ToolChange(kind="renamed", tool=name, was=was, definition=offered)
    return ToolChange(kind="new", tool=name, fields=tuple(_compare_fields({"name": name}, offered)), definition=offered)


def _compare_fields(before: object, after: object, path: str = "") -> Iterator[FieldChange]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in dict.fromkeys((*before, *after)):
            yield from _compare_fields(before.get(key, _MISSING), after.get(key, _MISSING), _join_path(path, str(key)))
    elif _are_lists(before, after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):  # type: ignore[call-overload]
            yield from _compare_fields(old, new, f"{path}[{index}]")
    elif _encode(before) != _encode(after):
        sides = (("before", before), ("after", after))
        yield FieldChange(path=path, values={side: value for side, value in sides if value is not _MISSING})


def _are_lists(before: object, after: object) -> bool:
    """Return whether the two are lists to compare item by item; of lists of names, the whole says more."""
    if not (isinstance(before, list) and isinstance(after, list) and len(before) == len(after)):
        return False
    return any(isinstance(item, (dict, list)) for item in (*before, *after))


def _join_path(path: str, key: str) -> str:
    key = key if key and _PLAIN_KEY.issuperset(key) else json.dumps(key, ensure_ascii=False)
    return f"{path}.{key}" if path else key


def _encode(value: object) -> str:
    return "" if value is _MISSING else json.dumps(value, sort_keys=True)


def _as_lines(value: object) -> list[str]:
    """Return a value as lines of printable JSON, one for each line of a text."""
    if value is _MISSING:
        return []
    lines = value.splitlines(keepends=True) if isinstance(value, str) else []
    return [printable(json.dumps(line, ensure_ascii=False)) for line in (lines if 1 < len(lines) < _MOST_LINES else [value])]


def _changed_lines(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    for line in list(difflib.unified_diff(before, after, n=0, lineterm=""))[2:]:
        if line[0] in "-+":
            yield f"{line[0]} {line[1:]}"


def _around_change(line: str, lines: Sequence[str]) -> str:
    """Return a line, cut to the part around the difference from the other lines if it is very long."""
    if len(line) <= _LONGEST_LINE:
        return line
    others = [other[2:] for other in lines if other[0] != line[0]]
    same = max((_common_prefix_length(line[2:], other) for other in others), default=0)
    begin = max(0, same - _LONGEST_LINE // 4)
    shown = line[2:][begin : begin + _LONGEST_LINE]
    left, right = begin, len(line) - 2 - begin - len(shown)
    return f"{line[:2]}{f'({left:,} characters) …' if left else ''}{shown}{f'… ({right:,} more characters)' if right else ''}"


def _common_prefix_length(one: str, other: str) -> int:
    """Return how many characters two texts have in common at their beginnings."""
    return next((index for index, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
