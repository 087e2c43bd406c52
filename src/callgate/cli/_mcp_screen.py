"""Show tools of MCP servers, the hints that their servers give, and what differs from the accepted ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from rich.text import Text

from callgate._terminal_text import one_line, printable
from callgate.calls import Effect
from callgate.cli._console import grid, output, say
from callgate.cli._mcp_config import config_option, servers_in
from callgate.mcp import AcceptedTools, Definition, FieldChange, ToolChange

__all__ = ["as_json_change", "hints_of", "names_of", "say_problems", "say_unaccepted", "show_changes", "show_instructions", "show_tools"]

_HINTS: Final = (
    ("readOnlyHint", "read-only", "writes"),
    ("destructiveHint", "destructive", "not destructive"),
    ("idempotentHint", "idempotent", "not idempotent"),
    ("openWorldHint", "open world", "closed world"),
)
_SIGNS: Final = {"new": ("+", "green"), "changed": ("~", "yellow"), "renamed": ("~", "yellow"), "removed": ("-", "red")}


def hints_of(definition: Definition) -> tuple[str, ...]:
    """Return the hints in the tool's annotations, which are the server's unverified claims."""
    given = definition.get("annotations")
    given = given if isinstance(given, Mapping) else {}
    return tuple(yes if given[key] is True else no for key, yes, no in _HINTS if isinstance(given.get(key), bool))


def names_of(definitions: Sequence[Definition]) -> list[str]:
    """Return the names of the tools, each once."""
    return list(dict.fromkeys(name for one in definitions if isinstance(name := one.get("name"), str)))


def show_tools(
    definitions: Sequence[Definition],
    effects: Mapping[str, Effect],
    *,
    quarantined: Collection[str] = (),
    unusable: Collection[str] = (),
    chosen: Collection[str] | None = None,
) -> None:
    """Print the tools with the server's hints, and with the accepted effects, or why they do not run.

    Args:
        chosen: The only tools that the configuration asks for; None for all.
    """
    table = grid("tool", "effect", "the server says", "")
    for one in definitions:
        name = str(one.get("name"))
        effect, style = str(effects.get(name, "once")), ""
        if name in unusable or name in quarantined:
            effect, style = ("unusable", "red") if name in unusable else ("quarantine", "yellow")
        if chosen is not None and name not in chosen:
            effect, style = "not chosen", "dim"
        about = one_line(str(one.get("description") or "").split("\n", 1)[0], 70)
        table.add_row(Text(one_line(name, 128), style="bold"), Text(effect, style=style), ", ".join(hints_of(one)) or "-", about)
    output().print(table, soft_wrap=False)


def say_problems(unusable: Mapping[str, str], remarks: Sequence[str]) -> None:
    """Print why tools cannot be used."""
    for name, problem in unusable.items():
        say(f"{one_line(name, 128)} cannot be registered: {printable(problem)}", "red")
    for remark in remarks:
        say(printable(remark), "yellow")


def show_changes(server: str, changes: Sequence[ToolChange]) -> None:
    """Print what differs from the accepted tools, each field with both values."""
    screen = output()
    for change in changes:
        sign, style = _SIGNS[change.kind]
        was = f" (was {one_line(change.was, 128)})" if change.was else ""
        screen.print(Text(f"{sign} {one_line(server)}: {one_line(change.tool, 128)}  {change.kind}{was}", style=style))
        for line in (line for field in change.fields for line in field.lines()):
            screen.print(Text(f"    {line}"))


def show_instructions(server: str, change: FieldChange) -> None:
    """Print what differs from the accepted instructions of a server."""
    kind = "changed" if "before" in change.values else "new"
    sign, style = _SIGNS[kind]
    screen = output()
    screen.print(Text(f"{sign} {one_line(server)}: instructions for models  {kind}", style=style))
    for line in change.lines()[1:]:
        screen.print(Text(f"    {line}"))


def say_unaccepted(config: str, accepted: AcceptedTools) -> None:
    """Print the servers of the file that have no accepted tools: since the file of accepted tools exists, theirs are in quarantine."""
    known = accepted.servers()
    names = [one.name for one in servers_in(config) if one.enabled and one.server.name not in known]
    if names:
        look = f"callgate mcp diff{config_option(config)}"
        say(f"No tools are accepted yet of {one_line(', '.join(names), 500)}, so none of them runs. Look: {look}", "yellow")


def as_json_change(change: ToolChange) -> dict[str, Any]:
    """Return a change as JSON values."""
    return {
        "tool": change.tool,
        "kind": change.kind,
        "was": change.was,
        "fields": [{"path": field.path, **field.values} for field in change.fields],
        "definition": change.definition,
    }
