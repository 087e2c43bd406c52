"""`callgate mcp test`: start one server, show what it offers and everything that is wrong with it, and make one call if asked."""

from __future__ import annotations

import asyncio
from typing import Any

from rich.text import Text

from callgate._terminal_text import one_line, printable
from callgate.cli import _exit_codes as _exits
from callgate.cli._call_arguments import call_timeout, read_arguments, refuse_odd_text, refuse_unused_arguments
from callgate.cli._console import grid, output, print_json, say
from callgate.cli._mcp_accept import server_named
from callgate.cli._mcp_config import accepted_tools_of
from callgate.cli._mcp_list import quarantined_tools
from callgate.cli._mcp_look import ServerLook, look_at
from callgate.cli._mcp_screen import hints_of, say_problems, show_tools
from callgate.cli._result_output import exit_code
from callgate.cli._unrecorded_call import call_unrecorded, show_unrecorded
from callgate.mcp import ConfiguredServer

__all__ = ["check_mcp_server"]


def check_mcp_server(name: str, tool: str, arguments: str, timeout: float | None, config: str, *, as_json: bool) -> int:
    """Start a server and show its problems; return the exit code."""
    one = server_named(name, config)
    refuse_unused_arguments(tool, arguments)
    given, timeout_s = read_arguments((arguments,)), call_timeout(timeout)
    refuse_odd_text(tool=tool)
    known = accepted_tools_of(config)
    effects = known.effects(one.server.name)
    look = asyncio.run(look_at(one.server))
    quarantined = quarantined_tools(one, look, known)
    if not as_json:
        _show(one, look, dict(effects), quarantined)
    outcome = asyncio.run(call_unrecorded(one.server, tool, given, timeout_s, quiet=as_json)) if tool and not look.failure else None
    if as_json:
        print_json(_as_json(one, look, quarantined) | ({"call": outcome} if outcome is not None else {}))
    else:
        show_unrecorded(outcome, "a test")
    if look.failure or look.unusable:
        return _exits.FAILED
    return _exits.OK if outcome is None else exit_code(outcome)


def _show(one: ConfiguredServer, look: ServerLook, effects: dict[str, Any], quarantined: dict[str, str]) -> None:
    screen = output()
    if look.failure:
        say(printable(look.failure), "red")
        return
    table = grid("", "")
    facts = {
        "server": one.name,
        "started in": f"{look.seconds * 1_000:,.0f} ms",
        "protocol": f"{look.revision} ({look.era})",
        "tools": str(len(look.definitions)),
    }
    for key, value in facts.items():
        table.add_row(Text(key, style="dim"), one_line(value))
    screen.print(table)
    show_tools(look.definitions, effects, quarantined=quarantined, unusable=look.unusable, chosen=one.server.tools)
    say_problems(look.unusable, look.remarks)
    for reason in quarantined.values():
        say(printable(reason), "yellow")
    if not one.enabled:
        say("It is disabled in the file, so no engine that reads the file starts it.", "yellow")
    for note in one.notes:
        say(printable(note), "dim")


def _as_json(one: ConfiguredServer, look: ServerLook, quarantined: dict[str, str]) -> dict[str, Any]:
    return {
        "server": one.name,
        "enabled": one.enabled,
        "problem": look.failure or None,
        "seconds": round(look.seconds, 3),
        "revision": look.revision,
        "era": look.era,
        "tools": [{"name": tool.get("name"), "hints": hints_of(tool)} for tool in look.definitions],
        "unusable": look.unusable,
        "remarks": look.remarks,
        "quarantined": quarantined,
        "notes": one.notes,
    }
