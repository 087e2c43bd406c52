"""Find the tool that a call names.

After `parse`, before any check against a tool. Exposure is checked first: in deliberate mode, a tool that this turn does not offer is
blocked without being looked up. An almost correct name is accepted if exactly one tool can be meant, and that is recorded; if several can
be meant, none is used and all are named. `docs/reference/malformed-calls.md` lists the rules. Letters are only compared without case:
a name with look-alike letters is a different name. Must not run or change anything.
"""

from __future__ import annotations

from collections.abc import Mapping

from callgate._json.malformed_text import clip
from callgate.argument_checks import closest_names, name_note, possible_names
from callgate.calls import Scope
from callgate.errors import ToolBlocked, ToolUnavailable, UnknownTool
from callgate.stage_types import ParsedCall, ResolvedCall
from callgate.tools.registry import BoundTool, ToolRegistry

__all__ = ["resolve"]

_MAX_NAME = 200
"""The number of characters of a blocked name that are repeated."""
_NAMES_BYTES = 2_500
_MAX_SUGGESTIONS = 5


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
    meant = _candidates(name, registry) if tool is None and name not in registry.withdrawn else []
    if len(meant) == 1:
        tool = meant[0]
        notes = (*notes, name_note(name, tool.name))
    if gate is not None and not (_is_allowed(tool, gate) if tool is not None else name in gate):
        raise _blocked_error(tool.name if tool is not None else name, gate)
    if tool is None:
        if name in registry.withdrawn:
            raise ToolUnavailable(f"{name} was not run. {registry.withdrawn[name]}")
        offered = [one for one in registry.names() if gate is None or one in gate]
        raise _unknown_error(name, offered, [one.name for one in meant if one.name in offered], registry.unavailable)
    return ResolvedCall(parsed=parsed, tool=tool, notes=notes)


def _is_allowed(tool: BoundTool, gate: frozenset[str]) -> bool:
    return tool.name in gate or any(alias in gate for alias in tool.tool.aliases)


def _candidates(name: str, registry: ToolRegistry) -> list[BoundTool]:
    """Return the tools that an almost correct name or alias can mean."""
    names = [known for tool in registry for known in (tool.name, *tool.tool.aliases)]
    found = (registry.get(one) for one in possible_names(name, names))
    return list({tool.name: tool for tool in found if tool is not None}.values())


def _blocked_error(name: str, gate: frozenset[str]) -> ToolBlocked:
    allowed = sorted(gate)
    offered = f"Use one of these instead: {_list_names(allowed)}." if allowed else "No tool is offered in this turn; answer without one."
    details: dict[str, object] = {
        "status": "blocked_by_deliberate_tool_mode",
        "function_name": name[:_MAX_NAME].encode("utf-8", "backslashreplace").decode(),
        "allowed_tools": allowed,
    }
    return ToolBlocked(f"{clip(name)} was not run: this turn does not offer it. {offered}", details=details)


def _unknown_error(name: str, names: list[str], meant: list[str], unavailable: Mapping[str, str]) -> UnknownTool:
    """Return the error for a name that means none of `names`, or several of them: those in `meant`.

    Args:
        unavailable: The servers whose tools are not known, with the reasons. The name may be that of one of their tools.
    """
    near = meant[:_MAX_SUGGESTIONS] or list(closest_names(name, names))
    hint = f" Did you mean {' or '.join(repr(one) for one in near)}?" if near else ""
    there = f" Available now: {_list_names(sorted(names))}." if names else " No tool is available now."
    details: dict[str, object] = {"suggestions": near}
    if unavailable:
        details["unavailable_servers"] = dict(unavailable)
        there += f" It may be a tool of a server that cannot be used now: {' '.join(unavailable.values())}"
    return UnknownTool(f"No tool is named {clip(name)}.{hint}{there}", details=details)


def _list_names(names: list[str]) -> str:
    """Return the names as a list for a sentence, limited in bytes; the number of the others is added."""
    shown: list[str] = []
    size = 0
    for name in names:
        size += len(name.encode("utf-8", "replace")) + 2
        if size > _NAMES_BYTES:
            return f"{', '.join(shown)} and {len(names) - len(shown)} more"
        shown.append(name)
    return ", ".join(shown)
