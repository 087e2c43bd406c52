"""`callgate mcp add` and `remove`: write servers to the configuration file that other clients read too.

The server is started before anything is written, so that a command that does not work is noticed at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from callgate._terminal_text import one_line, printable
from callgate._unusable_paths import displayed
from callgate.calls import Effect
from callgate.cli import _exit_codes as _exits
from callgate.cli._console import print_json, say, tool_count
from callgate.cli._mcp_effects import ask_effects, ask_yes, check_names, effects_of, person_is_here
from callgate.cli._mcp_look import ServerLook, look_at
from callgate.cli._mcp_screen import hints_of, names_of, say_problems, say_unaccepted, show_instructions, show_tools
from callgate.errors import UsageError
from callgate.mcp import AcceptedTools, FieldChange, McpServer
from callgate.mcp.config_files import accepted_file, add_server, check_addition, configured_server, configured_servers, remove_server

__all__ = ["add_mcp_server", "remove_mcp_server"]


def add_mcp_server(
    name: str,
    target: Sequence[str],
    *,
    headers: Sequence[str],
    env: Sequence[str],
    effects: Sequence[str],
    config: str,
    as_json: bool,
) -> int:
    """Start a server once, and add it with its tools; return the exit code."""
    entry = _entry(target, headers, env)
    server = configured_server(config, name, entry).server
    check_addition(config, name, entry)
    accepted = AcceptedTools(accepted_file(config))
    accepted.servers()  # a file that cannot be read is reported before anything is started
    look, chosen = asyncio.run(_look_at(server, effects_of(effects), as_json=as_json))
    if look.failure:
        say(printable(f"{look.failure} Nothing was written."), "red")
        return _exits.FAILED
    if chosen is None:
        say("Nothing was written.")
        return _exits.FAILED
    add_server(config, name, entry)
    accepted.remove(name)
    accepted.accept(name, look.definitions, chosen, instructions=look.instructions)
    if as_json:
        print_json(_as_json(name, config, accepted, look, chosen))
    else:
        say(
            f"Added '{name}' to {displayed(config)}; its tools are accepted as they are now in {displayed(accepted_file(config))}.", "green"
        )
        _say_values_in_file(entry, config)
        say_unaccepted(config, accepted)
    return _exits.OK


def _say_values_in_file(entry: dict[str, Any], config: str) -> None:
    """Name the variables and headers whose values the file contains, because they may be secrets."""
    given = {**entry.get("env", {}), **entry.get("headers", {})}
    if names := [one_line(name, 80) for name, value in given.items() if "${" not in value]:
        instead = "--env NAME" if "env" in entry else "--header 'Name: ${VARIABLE}'"
        say(
            f"{displayed(config)} contains the value of {', '.join(names)}. If it is secret, add the server again with {instead}:"
            " the value is then read from the environment at each start.",
            "yellow",
        )


def remove_mcp_server(name: str, config: str) -> int:
    """Remove a server and its accepted tools; return the exit code."""
    server = next((one.server.name for one in configured_servers(config) if one.name == name), name)
    remove_server(config, name)
    AcceptedTools(accepted_file(config)).remove(server)
    say(f"Removed '{one_line(name)}' from {displayed(config)}, with its accepted tools.", "green")
    return _exits.OK


async def _look_at(server: McpServer, effects: dict[str, Effect], *, as_json: bool) -> tuple[ServerLook, dict[str, Effect] | None]:
    """Return what the server shows, and the effects that the operator accepts; None if it is not to be added.

    Args:
        effects: The effects that the operator has given on the command line.
    """
    if not as_json:
        say(f"Starting '{server.name}' …", "dim")
    look = await look_at(server)
    if look.failure:
        return look, None
    tools = names_of(look.definitions)
    check_names(effects, tools)
    if not as_json:
        show_tools(look.definitions, effects, unusable=look.unusable)
        say_problems(look.unusable, look.remarks)
        if look.instructions:
            show_instructions(server.name, FieldChange(path="", values={"after": look.instructions}))
    chosen = effects
    if person_is_here(as_json=as_json):
        chosen = effects if effects or not tools else await ask_effects(tools)
        if not await ask_yes(f"Add '{server.name}' with {tool_count(len(tools))}?"):
            return look, None
    return look, chosen


def _entry(target: Sequence[str], headers: Sequence[str], env: Sequence[str]) -> dict[str, Any]:
    """Return the entry for the configuration file, in the form that clients share."""
    if not target:
        raise UsageError(
            "No server is given. Write its command after --, as in: callgate mcp add git -- uvx mcp-server-git, or its address."
        )
    if "://" in target[0]:
        if len(target) > 1:
            raise UsageError(f"After the address, '{one_line(target[1], 80)}' is too much. Give headers with --header 'Name: value'.")
        if env:
            raise UsageError("--env is for a command; a server on the network has no environment. Use --header.")
        return {"type": "http", "url": target[0]} | ({"headers": dict(_pairs(headers, "--header", ":"))} if headers else {})
    if headers:
        raise UsageError("--header is for a server on the network; a command has no headers. Use --env.")
    variables = (word if "=" in word else f"{word}=${{{word}}}" for word in env)
    return {"command": target[0], "args": list(target[1:])} | ({"env": dict(_pairs(variables, "--env", "="))} if env else {})


def _pairs(words: Iterable[str], option: str, sign: str) -> Iterable[tuple[str, str]]:
    """Yield names and values. The errors show no value, because it may be a secret."""
    for number, word in enumerate(words, 1):
        name, found, value = word.partition(sign)
        if not found or not name.strip():
            form = "'Name: value'" if sign == ":" else "NAME=value, or NAME"
            raise UsageError(f"{option} number {number} is not of the form {form}. Its text is not shown here. Correct it.")
        yield name.strip(), value.strip() if sign == ":" else value


def _as_json(name: str, config: str, accepted: AcceptedTools, look: ServerLook, effects: dict[str, Effect]) -> dict[str, Any]:
    return {
        "server": name,
        "config": config,
        "accepted": str(accepted.path),
        "tools": [
            {
                "name": one.get("name"),
                "effect": effects.get(str(one.get("name")), "once"),
                "hints": hints_of(one),
                "problem": look.unusable.get(str(one.get("name"))),
            }
            for one in look.definitions
        ],
    }
