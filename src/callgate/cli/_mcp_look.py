"""Start MCP servers once, and look at the tools that they offer.

With the same connection and session as an engine, but nothing is restarted, nothing can be called, and tools that are not accepted are
shown, too.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from callgate._secret_redaction import RedactedLog
from callgate._server_processes.server_lifecycle import with_last_words
from callgate._terminal_text import one_line
from callgate.calls import Effect
from callgate.cli._error_advice import at_terminal
from callgate.errors import UsageError
from callgate.mcp import AcceptedTools, ConfiguredServer, Definition, McpError, McpServer
from callgate.mcp._connection import LOOK_FIRST
from callgate.mcp._server_requests import ServerRequests
from callgate.mcp._session import Session
from callgate.mcp._supervisor import connection_of
from callgate.mcp.mcp_tool import McpTool
from callgate.tools import ToolRegistry

__all__ = ["ServerLook", "known_effects", "look_at", "look_at_all"]


class ServerLook(Struct, frozen=True, kw_only=True):
    """The tools and texts of a server that was started once."""

    definitions: tuple[Definition, ...] = ()
    """Its tools as it describes them, each name once."""
    unusable: Mapping[str, str] = {}
    """Tools that cannot be registered, each with the reason."""
    remarks: tuple[str, ...] = ()
    """The problems of the list itself, as sentences."""
    failure: str = ""
    """Why it could not be started; empty if it could."""
    seconds: float = 0.0
    revision: str = ""
    """The revision of the protocol that was agreed on."""
    era: str = ""
    instructions: str = ""
    """The server's instructions for models."""


class _NoCalls:
    """Carries no calls, because a look makes none."""

    async def call_tool(self, *_: Any) -> Any:
        raise AssertionError("a look makes no call")


async def look_at_all(servers: Iterable[ConfiguredServer]) -> list[ServerLook]:
    """Inspect several servers at the same time."""
    return await asyncio.gather(*(look_at(one.server) for one in servers))


async def look_at(server: McpServer) -> ServerLook:
    """Start the server, get its tools, and end it."""
    begun = time.monotonic()
    session = _session(server)
    try:
        async with asyncio.timeout(server.start_timeout_s):
            await session.start(None)
            listed = await session.list_tools()
        seconds = time.monotonic() - begun
    except McpError as error:
        if error.code != "cannot_start":
            await session.wait_for_end()
        return ServerLook(failure=_failure(server, session, error))
    except TimeoutError:
        return ServerLook(failure=f"The MCP server '{server.name}' did not start and list its tools within {server.start_timeout_s:g} s.")
    finally:
        await session.close()
    definitions, remarks = _by_name(listed)
    effects = known_effects(server)
    problems = ((str(one["name"]), _problem(server, one, effects)) for one in definitions)
    unusable = {name: problem for name, problem in problems if problem}
    return ServerLook(
        definitions=definitions,
        unusable=unusable,
        remarks=(
            *remarks,
            *_unknown_names(server, definitions),
            *([one_line(f"The server {session.tools_gap}.", 300)] if session.tools_gap else []),
        ),
        seconds=seconds,
        revision=session.revision,
        era=session.era,
        instructions=session.instructions,
    )


def known_effects(server: McpServer) -> dict[str, Effect]:
    """Return the effects of a server's tools that were accepted or that its configuration gives, by the server's names of the tools."""
    given = server.accepted
    accepted = AcceptedTools(given) if isinstance(given, (str, os.PathLike)) else given
    return {**(accepted.effects(server.name) if accepted is not None else {}), **server.effects}


def _session(server: McpServer) -> Session:
    log = RedactedLog(None)
    return Session(server, connection_of, ServerRequests(server, log), log, on_notice=lambda *_: None, on_late=lambda *_: None)


def _failure(server: McpServer, session: Session, error: McpError) -> str:
    """Return why the server could not be inspected, with the last lines of its standard error if its process has ended."""
    why = session.why_lost
    if not why:
        return at_terminal(str(error).removesuffix(f" {LOOK_FIRST}"))  # nothing was asked of it but to start
    text = with_last_words(why, session.connection.last_words)
    return f"The MCP server '{server.name}' ended before it listed its tools: {text.removesuffix('.')}."


def _by_name(listed: Sequence[Definition]) -> tuple[tuple[Definition, ...], tuple[str, ...]]:
    """Return the definitions that an engine would use, each name once, and remarks on those that are left out."""
    found, remarks = dict[str, Definition](), list[str]()
    for definition in listed:
        name = definition.get("name")
        if not isinstance(name, str) or not name:
            remarks.append("A tool without a name is left out.")
        elif name in found:
            remarks.append(f"'{one_line(name, 128)}' is listed twice; the first one counts.")
        else:
            found[name] = definition
    return tuple(found.values()), tuple(dict.fromkeys(remarks))


def _unknown_names(server: McpServer, definitions: Sequence[Definition]) -> list[str]:
    listed = {one["name"] for one in definitions}
    return [
        f"The configuration chooses the tool '{one_line(name, 128)}', which the server does not have."
        for name in server.tools or ()
        if name not in listed
    ]


def _problem(server: McpServer, definition: Definition, effects: Mapping[str, Effect]) -> str:
    try:
        ToolRegistry([McpTool(server, definition, _NoCalls(), effect=effects.get(str(definition["name"])))])
    except UsageError as error:
        return one_line(at_terminal(str(error)), 1_000)
    return ""
