"""`callgate serve check`: read the configuration, start everything once, and show what clients would get.

The servers are started with a journal in memory, and each is also checked on its own, for its protocol. Of the configured journal, it is
checked whether it can be written; it is not created. Nothing is called.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace
from rich.text import Text

from callgate._journal import refuse_unusable_location
from callgate._server_processes.unknown_tool_names import describe_unknown_tools
from callgate._terminal_text import one_line, printable
from callgate.cli import _exit_codes as _exits
from callgate.cli._command_options import ServeOptions
from callgate.cli._console import grid, output, print_json, say
from callgate.cli._error_advice import at_terminal
from callgate.cli._gateway_setup import OpenedGateway, config_of, describe_accepted, exposed_key, notes_of_files, open_gateway
from callgate.cli._journal_location import MEMORY
from callgate.cli._mcp_look import ServerLook, known_effects, look_at_all
from callgate.cli._plugin_look import PluginLook, look_at_plugin
from callgate.cli._serve_http import checked_issuer
from callgate.errors import UsageError
from callgate.gateway._config.unmatched_patterns import unmatched_tool_patterns
from callgate.gateway.config import GatewayConfig, JwtConfig
from callgate.mcp import ConfiguredServer

__all__ = ["check_gateway"]


class _Row(Struct, frozen=True, kw_only=True):
    """The result of the check for one source of tools."""

    name: str
    state: str
    protocol: str = ""
    tools: tuple[str, ...] = ()
    effects: Mapping[str, int] = {}
    problems: tuple[str, ...] = ()


def check_gateway(options: ServeOptions, *, as_json: bool) -> int:
    """Check what `callgate serve` would serve with these options; return the exit code."""
    return asyncio.run(_check(config_of(options), as_json=as_json))


async def _check(config: GatewayConfig, *, as_json: bool) -> int:
    enabled = [one for one in config.servers if one.enabled]
    journal_problem, notes = _journal_problem(config.journal), list(filter(None, (*notes_of_files(config), exposed_key(config))))
    opened = open_gateway(replace(config, journal=MEMORY))
    try:
        starting = asyncio.gather(*(look_at_plugin(one, start=True) for one in config.plugins))
        looks, plugins, *problems = await asyncio.gather(look_at_all(enabled), starting, _start_problem(opened), _key_problem(config.jwt))
        by_name = dict(zip((one.name for one in enabled), looks, strict=True))
        rows = [_row_of_server(one, by_name.get(one.name)) for one in config.servers]
        rows += [_row_of_plugin(look) for look in plugins] + _python_rows(opened)
    finally:
        await opened.gateway.close()
    tools = opened.engine.tools
    of_rows = tuple(problem for row in rows for problem in row.problems)
    unavailable = [why for name, why in tools.unavailable.items() if name not in (row.name for row in rows if row.problems)]
    withdrawn = [why for why in tools.withdrawn.values() if not any(problem.endswith(why) for problem in of_rows)]
    useless = unmatched_tool_patterns(config, tools.names()) if all(row.state == "ready" for row in rows) else []
    others = [problem for problem in (journal_problem, *problems) if problem and problem not in of_rows]
    general = list(dict.fromkeys(map(at_terminal, (*others, *unavailable, *withdrawn, *useless))))
    if as_json:
        print_json({"name": config.name, "servers": rows, "tools": tools.names(), "problems": general, "notes": notes})
    else:
        _show(rows, general, notes, describe_accepted(config), len(tools.names()))
    return _exits.FAILED if general or of_rows else _exits.OK


def _journal_problem(place: str) -> str:
    """Return why the journal could not be written, or an empty text."""
    try:
        if place != MEMORY:
            refuse_unusable_location(place)
    except UsageError as error:
        return str(error)
    return ""


async def _start_problem(opened: OpenedGateway) -> str:
    """Start the gateway; return why it could not be started, or an empty text."""
    try:
        await opened.gateway.start()
    except UsageError as error:
        return str(error)
    return ""


async def _key_problem(jwt: JwtConfig | None) -> str:
    """Return why the tokens of the issuer cannot be checked, or an empty text."""
    problem = await checked_issuer(jwt).key_problem() if jwt is not None else ""
    return f"[jwt]: the keys of {one_line(jwt.issuer, 200)} cannot be fetched: {problem}." if jwt is not None and problem else ""


def _row_of_server(one: ConfiguredServer, look: ServerLook | None) -> _Row:
    if look is None:
        return _Row(name=one.name, state="disabled")
    if look.failure:
        return _Row(name=one.name, state="cannot start", problems=(look.failure,))
    effects = known_effects(one.server)
    names = tuple(str(tool["name"]) for tool in look.definitions)
    chosen = [name for name in names if one.server.tools is None or name in one.server.tools]
    usable = [name for name in chosen if name not in look.unusable]
    unknown = describe_unknown_tools(one.name, one.server.named_tools, names)
    return _Row(
        name=one.name,
        state="ready",
        protocol=f"{look.revision} ({look.era})",
        tools=tuple(usable),
        effects=Counter(effects.get(name, "once") for name in usable),
        problems=(
            *(f"{one_line(name, 128)} cannot be registered: {why}" for name, why in look.unusable.items() if name in chosen),
            *([unknown] if unknown else []),
            *look.remarks,
        ),
    )


def _row_of_plugin(look: PluginLook) -> _Row:
    usable = [tool for tool in look.tools if tool.name not in look.problems]
    problems = ([look.failure] if look.failure else []) + [f"{name} cannot be used: {why}" for name, why in look.problems.items()]
    unknown = describe_unknown_tools(look.plugin.name, look.plugin.named_tools, [tool.name for tool in look.tools])
    if unknown and not look.failure:
        problems.append(unknown)
    return _Row(
        name=look.plugin.name,
        state="cannot start" if look.failure else "ready",
        protocol="plugin",
        tools=tuple(tool.name for tool in usable),
        effects=Counter(str(tool.effect or "once") for tool in usable),
        problems=tuple(problems),
    )


def _python_rows(opened: OpenedGateway) -> list[_Row]:
    tools = [tool for tool in opened.engine.tools if tool.layer == "builtin"]
    effects = Counter(str(tool.effect) for tool in tools)
    return [_Row(name="Python", state="ready", tools=tuple(tool.name for tool in tools), effects=effects)] if tools else []


def _show(rows: Sequence[_Row], general: Sequence[str], notes: Sequence[str], accepted: Sequence[str], count: int) -> None:
    screen = output()
    table = grid("server", "state", "protocol", "tools", "effects", "problems", right=("tools", "problems"))
    for row in rows:
        style = {"ready": "green", "disabled": "dim"}.get(row.state, "red")
        effects = ", ".join(f"{number} {effect}" for effect, number in sorted(row.effects.items()))
        table.add_row(
            Text(one_line(row.name), style="bold"),
            Text(row.state, style=style),
            row.protocol or "-",
            str(len(row.tools)),
            effects or "-",
            str(len(row.problems)),
        )
    screen.print(table, soft_wrap=False)
    for problem in (*(problem for row in rows for problem in row.problems), *general):
        say(printable(problem), "red")
    for note in notes:
        say(note, "yellow")
    for line in accepted:
        say(line, "dim")
    say(f"{count} tool{'' if count == 1 else 's'} in all.", "dim")
