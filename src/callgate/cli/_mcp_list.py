"""`callgate mcp list`: the servers of a configuration file, whether they start, and their tools."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from rich.text import Text

from callgate._terminal_text import one_line, printable
from callgate._unusable_paths import displayed
from callgate.cli import _exit_codes as _exits
from callgate.cli._console import output, print_json, say
from callgate.cli._mcp_config import accepted_tools_of, config_option, other_files, servers_in
from callgate.cli._mcp_look import ServerLook, look_at_all
from callgate.cli._mcp_screen import hints_of, show_tools
from callgate.mcp import AcceptedTools, ConfiguredServer

__all__ = ["list_mcp_servers", "quarantined_tools"]


def list_mcp_servers(config: str, *, start: bool, as_json: bool) -> int:
    """List the servers; return the exit code."""
    servers = servers_in(config)
    accepted = accepted_tools_of(config)
    accepted.servers()  # a file that cannot be read is reported before anything is started
    started = [one for one in servers if one.enabled] if start else []
    looks = dict(zip((one.name for one in started), asyncio.run(look_at_all(started)), strict=True))
    if as_json:
        print_json([_as_json(one, looks.get(one.name), accepted) for one in servers])
        return _exits.OK
    if not servers:
        say(f"{displayed(config)} has no MCP servers. Add one: callgate mcp add NAME{config_option(config)} -- COMMAND")
    for one in servers:
        _show(one, looks.get(one.name), accepted)
    if others := other_files(config):
        say(others, "dim")
    return _exits.OK


def _show(one: ConfiguredServer, look: ServerLook | None, accepted: AcceptedTools) -> None:
    screen = output()
    state, style = _state(one, look)
    screen.print(Text(f"{one_line(one.name)}  ", style="bold") + Text(state, style=style) + Text(f"  {one_line(one.target)}", style="dim"))
    if look is not None and look.failure:
        screen.print(Text(f"  {printable(look.failure)}", style="red"))
    for note in one.notes:
        screen.print(Text(f"  {printable(note)}", style="dim"))
    if look is not None and look.definitions:
        quarantined = quarantined_tools(one, look, accepted)
        effects, chosen = accepted.effects(one.server.name), one.server.tools
        show_tools(look.definitions, effects, quarantined=quarantined, unusable=look.unusable, chosen=chosen)
    elif look is None and (known := accepted.tools(one.server.name)):
        show_tools([tool.definition for tool in known.values()], accepted.effects(one.server.name), chosen=one.server.tools)
    screen.print()


def _state(one: ConfiguredServer, look: ServerLook | None) -> tuple[str, str]:
    if not one.enabled:
        return "disabled", "dim"
    if look is None:
        return "not started", "dim"
    return ("cannot start", "red") if look.failure else ("ready", "green")


def quarantined_tools(one: ConfiguredServer, look: ServerLook, accepted: AcceptedTools) -> dict[str, str]:
    """Return the tools that would not run. Without a file of accepted tools, none is in quarantine."""
    if accepted.path is None or not accepted.path.exists():
        return {}
    return dict(accepted.refusals(one.server.name, look.definitions))


def _as_json(one: ConfiguredServer, look: ServerLook | None, accepted: AcceptedTools) -> dict[str, Any]:
    effects = accepted.effects(one.server.name)
    quarantined = {} if look is None else quarantined_tools(one, look, accepted)
    definitions: Sequence[Any] = (
        [tool.definition for tool in accepted.tools(one.server.name).values()] if look is None else look.definitions
    )
    return {
        "name": one.name,
        "state": _state(one, look)[0],
        "problem": (look.failure if look is not None else "") or None,
        "target": one.target,
        "variables": one.variables,
        "notes": one.notes,
        "tools": [
            {
                "name": tool.get("name"),
                "effect": effects.get(str(tool.get("name")), "once"),
                "hints": hints_of(tool),
                "quarantined": quarantined.get(str(tool.get("name"))),
                "chosen": one.server.tools is None or tool.get("name") in one.server.tools,
            }
            for tool in definitions
        ],
    }
