"""Find the tool that a call names.

After `parse`, before any check against a tool. Exposure is checked first: in deliberate mode, a tool that this turn does not offer is
blocked without being looked up. An almost correct name is accepted if exactly one tool can be meant, and that is recorded; if several can
be meant, none is used and all are named. `docs/reference/malformed-calls.md` lists the rules. Letters are only compared without case:
a name with look-alike letters is a different name. Must not run or change anything.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from callgate._json.malformed_text import clip
from callgate.calls import Note, Scope
from callgate.errors import ToolBlocked, UnknownTool
from callgate.stage_types import ParsedCall, ResolvedCall
from callgate.tools.registry import BoundTool, ToolRegistry

__all__ = ["almost", "resolve"]

_MAX_NAME = 200
"""More than the length of any tool's name with a prefix and quotes; a longer name is not looked up."""
_NAMES_BYTES = 2_500
_MAX_SUGGESTIONS = 5
_QUOTES = "\"'`"
_WHITE = " \t\r\n"
_PREFIXES = tuple(f"{space}{mark}" for space in ("functions", "function", "default_api", "tools", "tool") for mark in ".:")
_SUFFIX = re.compile(r"(?:\(\s*\)?|:[0-9]{0,4})$")
"""Empty parentheses, or a colon with the index of the call. A tool's name cannot contain these characters."""


def resolve(parsed: ParsedCall, registry: ToolRegistry, scope: Scope) -> ResolvedCall:
    """Return the call with its tool.

    Raises:
        ToolBlocked: Deliberate mode does not offer this tool in this turn.
        UnknownTool: No tool has this name; the message lists similar names and the available ones.
    """
    name = parsed.raw.name
    tool = registry.visible.get(name) or registry.get(name)
    gate = scope.allowed_tools if scope.deliberate else None
    if tool is not None and gate is None:
        return ResolvedCall(parsed=parsed, tool=tool, notes=parsed.notes)
    notes = parsed.notes
    meant = _meant(name, registry) if tool is None else []
    if len(meant) == 1:
        tool = meant[0]
        notes = (*notes, Note(kind="name", text=f"The name came as {clip(name)} and was taken for {tool.name!r}."))
    if gate is not None and not (_is_allowed(tool, gate) if tool is not None else name in gate):
        raise _blocked(tool.name if tool is not None else name, gate)
    if tool is None:
        offered = [one for one in registry.names() if gate is None or one in gate]
        raise _unknown(name, offered, [one.name for one in meant if one.name in offered])
    return ResolvedCall(parsed=parsed, tool=tool, notes=notes)


def _is_allowed(tool: BoundTool, gate: frozenset[str]) -> bool:
    return tool.name in gate or any(alias in gate for alias in tool.tool.aliases)


def _meant(name: str, registry: ToolRegistry) -> list[BoundTool]:
    """Return the tools that an almost correct name or alias can mean."""
    names = [known for tool in registry for known in (tool.name, *tool.tool.aliases)]
    found = (registry.get(one) for one in possible_names(name, names))
    return list({tool.name: tool for tool in found if tool is not None}.values())


def almost(name: str, names: Iterable[str]) -> str | None:
    """Return the one of `names` that `name` means, or None if it means none or several."""
    found = possible_names(name, names)
    return found[0] if len(found) == 1 else None


def possible_names(name: str, names: Iterable[str]) -> list[str]:
    """Return all of `names` that `name` can mean.

    An equal name is the only one, also after white space and quotes around `name` are removed. Otherwise, a prefix such as `functions.` and
    a suffix such as `()` are ignored, then case and the difference between `-` and `_`.
    """
    if len(name) > _MAX_NAME:
        return []
    known = list(dict.fromkeys(names))
    bare = _bare(name)
    for exact in (name, bare):
        if exact in known:
            return [exact]
    found: dict[str, None] = {}
    for form in _forms(bare):
        folded = _folded(form)
        found |= dict.fromkeys([form] if form in known else [one for one in known if form and _folded(one) == folded])
    return list(found)


def _bare(name: str) -> str:
    name = name.strip(_WHITE)
    if len(name) > 1 and name[0] in _QUOTES and name[-1] == name[0]:
        name = name[1:-1].strip(_WHITE)
    return name


def _forms(bare: str) -> list[str]:
    """Return the name as written, and without a prefix or suffix that models add."""
    whole = _SUFFIX.sub("", bare).rstrip(_WHITE)
    prefix = next((one for one in _PREFIXES if whole.lower().startswith(one)), "")
    return list(dict.fromkeys((whole, whole[len(prefix) :])))


def _folded(name: str) -> str:
    return "".join(letter.lower() if letter.isascii() else letter for letter in name).replace("-", "_")


def _blocked(name: str, gate: frozenset[str]) -> ToolBlocked:
    allowed = sorted(gate)
    offered = f"Use one of these instead: {_listed(allowed)}." if allowed else "No tool is offered in this turn; answer without one."
    details: dict[str, object] = {
        "status": "blocked_by_deliberate_tool_mode",
        "function_name": name[:_MAX_NAME].encode("utf-8", "backslashreplace").decode(),
        "allowed_tools": allowed,
    }
    return ToolBlocked(f"{clip(name)} was not run: this turn does not offer it. {offered}", details=details)


def _unknown(name: str, names: list[str], meant: list[str]) -> UnknownTool:
    """Return the error for a name that means none of `names`, or several of them: those in `meant`."""
    near = meant[:_MAX_SUGGESTIONS] or _closest(name, names)
    hint = f" Did you mean {' or '.join(repr(one) for one in near)}?" if near else ""
    there = f" Available now: {_listed(sorted(names))}." if names else " No tool is available now."
    details: dict[str, object] = {"suggestions": near}
    return UnknownTool(f"No tool is named {clip(name)}.{hint}{there}", details=details)


def _closest(name: str, names: list[str]) -> list[str]:
    by_fold = {_folded(one): one for one in names[:2_000]}
    near = difflib.get_close_matches(_folded(_forms(_bare(name[:_MAX_NAME]))[-1]), by_fold, n=3, cutoff=0.6)
    return [by_fold[one] for one in near]


def _listed(names: list[str]) -> str:
    """Return the names as a list for a sentence, limited in bytes; the number of the others is added."""
    shown: list[str] = []
    size = 0
    for name in names:
        size += len(name.encode("utf-8", "replace")) + 2
        if size > _NAMES_BYTES:
            return f"{', '.join(shown)} and {len(names) - len(shown)} more"
        shown.append(name)
    return ", ".join(shown)
