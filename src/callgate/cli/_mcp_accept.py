"""`callgate mcp diff` and `accept`: what servers changed, and the operator's decision about it.

`accept` accepts exactly the definitions that it has shown: it starts the server once and asks with what it got.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Sequence

from callgate._terminal_text import one_line, printable
from callgate._unusable_paths import displayed
from callgate.calls import Effect
from callgate.cli import _exit_codes as _exits
from callgate.cli._console import print_json, say, tool_count
from callgate.cli._mcp_config import accepted_tools_of, config_option, is_gateway, other_files, servers_in
from callgate.cli._mcp_effects import ask_yes, check_names, effects_of, person_is_here
from callgate.cli._mcp_look import ServerLook, look_at, look_at_all
from callgate.cli._mcp_screen import as_json_change, names_of, say_unaccepted, show_changes, show_instructions, show_tools
from callgate.errors import UsageError
from callgate.mcp import AcceptedTools, ConfiguredServer, ToolComparison

__all__ = ["accept_mcp_tools", "diff_mcp_tools", "server_named"]


def server_named(name: str, config: str) -> ConfiguredServer:
    """Return a server of the configuration file.

    Raises:
        UsageError: There is none with this name.
    """
    servers = servers_in(config)
    for one in servers:
        if name in (one.name, one.server.name):
            return one
    names = ", ".join(one_line(one.name, 80) for one in servers) or "none"
    raise UsageError(f"{displayed(config)} has no MCP server '{one_line(name, 80)}'. It has: {names}. {other_files(config)}".rstrip())


def diff_mcp_tools(name: str, config: str, *, as_json: bool) -> int:
    """Show how the tools of the servers differ from the accepted ones; return the exit code."""
    servers = [server_named(name, config)] if name else [one for one in servers_in(config) if one.enabled]
    accepted = accepted_tools_of(config)
    accepted.servers()  # a file that cannot be read is reported before anything is started
    looks = asyncio.run(look_at_all(servers))
    compared = [_compare(one, look, accepted) for one, look in zip(servers, looks, strict=True)]
    if as_json:
        print_json([_as_json(one, look, found) for one, look, found in zip(servers, looks, compared, strict=True)])
    else:
        for one, look, found in zip(servers, looks, compared, strict=True):
            _show(one, look, found, config)
    return _exits.FAILED if any(look.failure for look in looks) or any(_is_different(found) for found in compared) else _exits.OK


def accept_mcp_tools(name: str, tools: Sequence[str], effects: Sequence[str], config: str, *, yes: bool, as_json: bool) -> int:
    """Accept the tools of a server as they are now; return the exit code.

    Raises:
        UsageError: Nobody can be asked and `yes` is not given, or a file or a name cannot be used.
    """
    one = server_named(name, config)
    accepted = accepted_tools_of(config)
    accepted.servers()
    if not yes and not person_is_here(as_json=as_json):
        why = "with --json, no question is asked" if as_json else "nobody is at a terminal to be asked"
        look = f"callgate mcp diff {shlex.quote(one_line(name))}{config_option(config)}"
        raise UsageError(f"Nothing was accepted, because {why}. Look at the changes with `{look}`, then give --yes to accept them.")
    code = asyncio.run(_accept(one, accepted, tools, effects_of(effects), yes=yes, as_json=as_json))
    if code == _exits.OK and not as_json:
        say_unaccepted(config, accepted)
        if is_gateway(config):
            say("A gateway that runs takes this over on SIGHUP: kill -HUP PID", "cyan")
    return code


async def _accept(
    one: ConfiguredServer, accepted: AcceptedTools, tools: Sequence[str], chosen: dict[str, Effect], *, yes: bool, as_json: bool
) -> int:
    look = await look_at(one.server)
    if look.failure:
        say(printable(f"{look.failure} Nothing was accepted."), "red")
        return _exits.FAILED
    offered = names_of(look.definitions)
    check_names(tools, offered)
    check_names(chosen, tools or offered)
    compared = _compare(one, look, accepted)
    wanted = [definition for definition in look.definitions if not tools or definition.get("name") in tools]
    if not as_json:
        show_changes(one.name, [change for change in compared.changes if not tools or change.tool in tools])
        if compared.instructions is not None and not tools:
            show_instructions(one.name, compared.instructions)
        show_tools(wanted, dict(accepted.effects(one.server.name)) | chosen, unusable=look.unusable)
    if not yes and not await ask_yes(f"Accept {tool_count(len(wanted))} of '{one_line(one.name)}'?"):
        say("Nothing was accepted.")
        return _exits.FAILED
    accepted.accept(one.server.name, wanted, chosen, instructions=None if tools else look.instructions)
    gone = () if tools else [change.was or change.tool for change in compared.changes if _is_gone(change.kind)]
    if gone:
        accepted.remove(one.server.name, gone)
    if as_json:
        print_json({"server": one.name, "accepted": names_of(wanted), "file": str(accepted.path)})
    else:
        say(f"Accepted {tool_count(len(wanted))} of '{one_line(one.name)}' in {displayed(str(accepted.path))}.", "green")
    return _exits.OK


def _is_different(found: ToolComparison) -> bool:
    return bool(found.changes) or found.instructions is not None


def _is_gone(kind: str) -> bool:
    return kind in ("removed", "renamed")


def _compare(one: ConfiguredServer, look: ServerLook, accepted: AcceptedTools) -> ToolComparison:
    if look.failure:
        return ToolComparison(server=one.server.name, effects={})
    return accepted.compare(one.server.name, look.definitions, instructions=look.instructions)


def _show(one: ConfiguredServer, look: ServerLook, found: ToolComparison, config: str) -> None:
    if look.failure:
        say(printable(look.failure), "red")
        return
    show_changes(one.name, found.changes)
    if found.instructions is not None:
        show_instructions(one.name, found.instructions)
    if _is_different(found):
        command = f"callgate mcp accept {shlex.quote(one_line(one.name))}{config_option(config)}"
        say(f"Accept what is new or changed of '{one_line(one.name)}' with: {command}", "cyan")
    else:
        say(f"{tool_count(len(found.effects))} of '{one_line(one.name)}': all as accepted.", "green")


def _as_json(one: ConfiguredServer, look: ServerLook, found: ToolComparison) -> dict[str, object]:
    changes = [as_json_change(change) for change in found.changes]
    instructions = {"instructions": found.instructions.values} if found.instructions is not None else {}
    return {"server": one.name, "problem": look.failure or None, "changes": changes, **instructions}
