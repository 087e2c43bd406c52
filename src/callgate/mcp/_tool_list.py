"""The tools of one server as the engine sees them: listed, chosen, checked against what the operator has accepted, and offered.

A name that the server no longer lists, or that is not accepted, is kept with the reason why it cannot be called, so that a model that
calls it gets that reason. Tools that the server shows only in the sessions of clients come last, and are listed for these clients. Knows no
connection.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from msgspec import Struct

from callgate._run_in_thread import in_thread
from callgate._server_processes.unknown_tool_names import describe_unknown_tools
from callgate._terminal_text import one_line
from callgate._unusable_paths import displayed
from callgate.calls import Effect
from callgate.mcp._connection import Message, NotSent
from callgate.mcp._tool_changes import Definition
from callgate.mcp.accepted_tools import AcceptedTools
from callgate.mcp.config_files import config_beside
from callgate.mcp.mcp_tool import CallsTools, McpTool
from callgate.mcp.server_config import ChecksDefinitions, ChecksInstructions, McpServer
from callgate.protocols import ToolCatalogue
from callgate.tools.prefixed_names import prefixed_name

__all__ = ["ToolList"]

_KEPT_NAMES = 1_000
"""How many names that a server no longer lists are remembered."""


_LONGEST_INSTRUCTIONS = 16_384


class ListsTools(Protocol):
    instructions: str

    async def list_tools(self) -> list[Message]: ...


ToolsOfClients = Callable[[], Iterable[tuple[str, Mapping[str, Definition]]]]
"""Returns the tools as sessions of clients list them: the key of the client, and the definitions by name."""


class _ClientTool(Struct, frozen=True):
    definition: Definition
    keys: frozenset[str]


class ToolList:
    """The offered and the withdrawn tools of one server.

    Args:
        of_clients: What the sessions of clients list.
    """

    def __init__(self, server: McpServer, caller: CallsTools, catalogue: ToolCatalogue, of_clients: ToolsOfClients) -> None:
        self._server = server
        self._caller = caller
        self._catalogue = catalogue
        self._offered: dict[str, McpTool] = {}
        """The tools that can be called, by the name on the server."""
        self._gone: dict[str, str] = {}
        self._refused: Mapping[str, str] = {}
        """Why tools cannot be called, by the name on the server."""
        self._refusals: Mapping[str, str] = {}
        """Those of them that the server lists."""
        self._listed = False
        self._of_clients = of_clients
        self._first: Sequence[Message] = ()
        """The definitions of the first session."""
        self._only_clients: Mapping[str, _ClientTool] = {}
        """The tools that only sessions of clients have, by the name on the server."""
        self._told_of_client_tools = False
        self._offering = asyncio.Lock()
        self.missing_gated_tools = ""
        """A sentence that names the tools with `requires_approval` that the server does not list; empty if there are none, or if
        sessions of clients may have them."""
        self.instructions = ""
        """The server's instructions for models, if they are accepted."""
        given = server.accepted
        self._accepted: ChecksDefinitions = AcceptedTools(given) if given is None or isinstance(given, (str, os.PathLike)) else given

    async def refresh(self, session: ListsTools) -> None:
        """List the tools again, and offer those that may be called.

        Raises:
            McpError: The server does not list its tools.
        """
        listed = await session.list_tools()
        async with self._offering:
            self._first = listed
            await self._offer(self._client_only_tools() if self._server.client_tools else {})
        self.instructions = await in_thread(partial(self._accepted_instructions, session.instructions))

    async def refresh_clients(self) -> None:
        """Offer the tools that the sessions of clients list now. Without `client_tools`, log once that they are not offered.

        Raises:
            NotSent: It cannot be found out what is accepted.
            UsageError: A tool cannot be offered under its name.
        """
        if not self._server.client_tools:
            self._log_client_tools()
            return
        async with self._offering:
            found = self._client_only_tools()
            if self._listed and found != self._only_clients:
                await self._offer(found)

    def _client_only_tools(self) -> Mapping[str, _ClientTool]:
        """Return the tools that only sessions of clients have. Of two that are described differently, the first counts."""
        known = {definition.get("name") for definition in self._first}
        found: dict[str, _ClientTool] = {}
        for key, definitions in self._of_clients():
            for name, definition in definitions.items():
                other = found.setdefault(name, _ClientTool(definition, frozenset((key,))))
                if other.definition == definition:
                    found[name] = _ClientTool(other.definition, other.keys | {key})
        return {name: tool for name, tool in found.items() if name not in known}

    def _log_client_tools(self) -> None:
        chosen = self._server.tools
        names = [name for name in self._client_only_tools() if chosen is None or name in chosen]
        if names and self._listed and not self._told_of_client_tools:
            self._told_of_client_tools = True
            self._catalogue.log.warning(
                "The MCP server %s has tools in sessions of clients that it does not list otherwise, so they are not offered: %s. To offer"
                " them, set client_tools to true for the server",
                self._server.name,
                one_line(", ".join(names), 500),
            )

    async def _offer(self, only_clients: Mapping[str, _ClientTool]) -> None:
        self._only_clients = only_clients
        definitions = self._choose([*self._first, *(dict(tool.definition) for tool in only_clients.values())])
        refusals, effects = await self._check(definitions)
        now = {definition["name"]: definition for definition in definitions if definition["name"] not in refusals}
        offered = {name: self._build_tool(name, definition, effects) for name, definition in now.items()}
        fresh = [tool for name, tool in offered.items() if self._offered.get(name) is not tool]
        if self._listed and not fresh and list(offered) == list(self._offered) and dict(refusals) == self._refusals:
            return
        await in_thread(partial(self._catalogue.prepare, self._server.name, fresh))
        self._log_quarantine({name: why for name, why in refusals.items() if self._refusals.get(name) != why})
        self._note_missing(offered, refusals)
        self._offered, self._refusals, self._listed = offered, dict(refusals), True
        self._refused = self._gone | self._refusals
        self._catalogue.withdraw(self._server.name, {self._offered_name(name): why for name, why in self._refused.items()})
        self._catalogue.offer(self._server.name, list(offered.values()))

    def check(self, definition: Definition) -> None:
        """Raise if a tool may no longer be called as it was described when its call was judged.

        Raises:
            NotSent: The server has been listed again, and describes the tool differently or no longer has it.
        """
        name = definition["name"]
        offered = self._offered.get(name)
        if offered is None or (offered.definition is not definition and offered.definition != definition):
            why = self._refused.get(name) or f"The MCP server '{self._server.name}' now describes this tool differently."
            raise NotSent(why, code="tool_unavailable")

    async def _check(self, definitions: Sequence[Message]) -> tuple[Mapping[str, str], Mapping[str, Effect]]:
        """Return why tools are refused, and the accepted effects. If that cannot be found out, all tools are refused.

        Raises:
            NotSent: It cannot be found out.
        """
        try:
            return await in_thread(partial(_ask, self._accepted, self._server.name, definitions))
        except Exception as error:
            why = f"The MCP server '{self._server.name}' cannot be used, because its accepted tools cannot be read: {error}"
            self._refusals = {definition["name"]: why for definition in definitions}
            self._offered, self._refused = {}, self._refusals
            self._catalogue.withdraw(self._server.name, {self._offered_name(name): why for name in self._refused})
            self._catalogue.offer(self._server.name, [])
            raise NotSent(why, code="cannot_start") from error

    def _log_quarantine(self, refusals: Mapping[str, str]) -> None:
        """Log which tools are refused now. `AcceptedTools` without a file logs that itself."""
        if isinstance(self._accepted, AcceptedTools) and self._accepted.path is None:
            return
        for why in refusals.values():
            self._catalogue.log.warning("%s%s", why, self._how_to_begin())

    def _how_to_begin(self) -> str:
        """Return the command that shows what differs from the accepted tools, as a sentence; empty if they are not in a file."""
        if not isinstance(self._accepted, AcceptedTools) or self._accepted.path is None:
            return ""
        config = config_beside(self._accepted.path)
        named = "FILE" if config is None else shlex.quote(displayed(config))
        return f" Begin with `callgate mcp diff {shlex.quote(self._server.name)} --config {named}`."

    def _accepted_instructions(self, offered: str) -> str:
        """Return the instructions if clients may get them, and else an empty text."""
        if not offered:
            return ""
        name, log = self._server.name, self._catalogue.log
        if len(offered) > _LONGEST_INSTRUCTIONS:
            log.warning(
                "The instructions of the MCP server %s have more than %d characters; they are left out", name, _LONGEST_INSTRUCTIONS
            )
            return ""
        if isinstance(self._accepted, ChecksInstructions) and self._accepted.allows_instructions(name, offered):
            return offered
        log.warning(
            "The instructions of the MCP server %s are not the accepted ones, so clients do not get them.%s", name, self._how_to_begin()
        )
        return ""

    def handle_problem(self, why: str) -> None:
        """Withdraw the configured tools with this reason, if the server has never listed any."""
        if not self._listed:
            names = self._server.tools or ("",)
            self._catalogue.withdraw(self._server.name, {self._offered_name(name): f"{why}." for name in names})

    def _choose(self, definitions: Sequence[Message]) -> list[Message]:
        """Return the definitions that the configuration asks for; the first one if two have the same name."""
        found: dict[str, Message] = {}
        for definition in definitions:
            name = definition.get("name")
            if not isinstance(name, str) or not name:
                self._catalogue.log.warning("MCP server %s lists a tool without a name; it is left out", self._server.name)
            elif name in found:
                self._catalogue.log.warning("MCP server %s lists the tool %s twice; the first counts", self._server.name, name)
            else:
                found[name] = definition
        server, offered = self._server, list(found)
        if unknown := describe_unknown_tools(server.name, server.named_tools, offered):
            self._catalogue.log.warning("%s", unknown)
        self.missing_gated_tools = "" if server.client_tools else describe_unknown_tools(server.name, server.gated_tools, offered)
        chosen = server.tools
        return [definition for name, definition in found.items() if chosen is None or name in chosen]

    def _build_tool(self, name: str, definition: Message, effects: Mapping[str, Effect]) -> McpTool:
        known, of_client = self._offered.get(name), self._only_clients.get(name)
        effect, keys = self._server.effects.get(name) or effects.get(name), None if of_client is None else of_client.keys
        if known is not None and known.definition == definition and known.effect == (effect or "once") and known.keys == keys:
            return known
        return McpTool(self._server, definition, self._caller, effect=effect, keys=keys)

    def _note_missing(self, offered: Mapping[str, McpTool], refusals: Mapping[str, str]) -> None:
        for name in self._offered:
            if name not in offered and name not in refusals:
                self._gone[name] = f"The MCP server '{self._server.name}' no longer has this tool. Use another one."
        for name in [name for name in self._gone if name in offered or name in refusals]:
            del self._gone[name]
        while len(self._gone) > _KEPT_NAMES:
            del self._gone[next(iter(self._gone))]

    def _offered_name(self, name: str) -> str:
        return prefixed_name(self._server.name, name) if self._server.prefix and name else name


def _ask(
    accepted: ChecksDefinitions, server: str, definitions: Sequence[Mapping[str, Any]]
) -> tuple[Mapping[str, str], Mapping[str, Effect]]:
    return accepted.refusals(server, definitions), accepted.effects(server)
