"""Resources, prompts and completions of MCP servers of an engine, as one server's.

If one server has them, its answers are passed on as they are. With several, lists are joined, in the order of the servers: a prompt whose
name is taken is named `SERVER.NAME`, and a resource belongs to the first server that lists its URI. A server that does not answer is left
out of a list, and a list that no server has is empty. No policy is asked, because a user and not a model decides which of them are used.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from callgate._terminal_text import one_line
from callgate.engine import Engine
from callgate.gateway._client_calls import ClientCall
from callgate.gateway._redaction import ClientRedaction
from callgate.gateway._server_features.startup import Startup
from callgate.mcp import McpError, RequestRejected, ServerContent
from callgate.mcp._connection import Message
from callgate.mcp._extensions import PASSED_EXTENSIONS, passed_extensions
from callgate.mcp._messages import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, RESOURCE_NOT_FOUND, RpcError
from callgate.mcp.calling_client import on_behalf_of
from callgate.tools.prefixed_names import prefixed_name

__all__ = ["Content"]

log = logging.getLogger("callgate")
T = TypeVar("T")

_MOST_KNOWN = 100_000
_PARAMS_OF_HOP = frozenset({"_meta", "inputResponses", "requestState"})
_LISTS = {
    "resources/list": ("resources", "resources"),
    "resources/templates/list": ("resourceTemplates", "resources"),
    "prompts/list": ("prompts", "prompts"),
}
"""The key of the items of each list, and the capability that it needs."""
_POSSIBLE: Mapping[str, Any] = {
    "resources": {"subscribe": True, "listChanged": True},
    "prompts": {"listChanged": True},
    "completions": {},
    "extensions": {name: {} for name in PASSED_EXTENSIONS},
}


class Content:
    """The resources, prompts and completions of some of a gateway's servers.

    Args:
        servers: The names of the servers.
    """

    def __init__(self, engine: Engine, startup: Startup, redaction: ClientRedaction, servers: Collection[str]) -> None:
        self._redaction = redaction
        self._names = servers
        self._engine = engine
        self._startup = startup
        self._server_of_uri: dict[str, str] = {}
        self._server_of_template: dict[str, str] | None = None
        """The name of the server of each template; None until they have been listed."""
        self._hidden: set[tuple[str, str]] = set()
        """Pairs of servers whose resources have the same URI, the one that is asked first."""
        self._prompts: dict[str, tuple[str, str]] = {}
        """The server of each prompt and its name there, by the name for clients."""

    def capabilities(self) -> dict[str, Any]:
        """Return the capabilities of the servers, joined; until they have started, those that servers may have."""
        servers = self._servers()
        if servers and not self._startup.ended:
            return {name: dict(flags) for name, flags in _POSSIBLE.items()}
        found: dict[str, Any] = {}
        for server in servers:
            for name in ("resources", "prompts", "completions"):
                given = server.capabilities.get(name)
                if isinstance(given, dict):
                    flags = {key: True for key, value in given.items() if value is True}
                    found[name] = {**found.get(name, {}), **flags}
            if extensions := passed_extensions(server.capabilities):
                found["extensions"] = {**extensions, **found.get("extensions", {})}
        return found

    async def answer(self, method: str, call: ClientCall, params: Mapping[str, Any]) -> Message:
        """Return the result of a request about resources, prompts or completions.

        Raises:
            RpcError: No server has this, or the server has answered with an error.
        """
        try:
            return dict(self._redaction.clean(await self._result(method, call, params)))
        except RpcError as error:
            raise self._redaction.clean_error(error) from error

    async def _result(self, method: str, call: ClientCall, params: Mapping[str, Any]) -> Message:
        given = {key: value for key, value in params.items() if key not in _PARAMS_OF_HOP}
        with on_behalf_of(call):
            if method in _LISTS:
                return await self._list(method, given)
            if method.startswith("resources/"):
                return await self._resource(method, given)
            if method == "prompts/get":
                server, name = await self._prompt(given.get("name"))
                return await _forward(server, method, {**given, "name": name})
            return await self._complete(given)

    # Lists

    async def _list(self, method: str, params: Mapping[str, Any]) -> Message:
        key, capability = _LISTS[method]
        servers = self._with(capability)
        if len(servers) == 1:
            return await _forward(servers[0], method, params)
        if params.get("cursor") is not None:
            raise RpcError(INVALID_PARAMS, "Unknown cursor. All items of the servers are in one page: list them without a cursor.")
        lists = await asyncio.gather(*(_all_items(server, key) for server in servers))
        if key == "prompts":
            return {key: self._named_prompts(servers, lists)}
        if key == "resources":
            self._remember(servers, lists)
        else:
            known = [(server.name, item) for server, items in zip(servers, lists, strict=True) for item in items[:_MOST_KNOWN]]
            self._server_of_template = {str(item.get("uriTemplate")): name for name, item in reversed(known)}
        seen: dict[str, Message] = {}
        for item in (item for items in lists for item in items):
            seen.setdefault(str(item.get("uri") or item.get("uriTemplate")), item)
        return {key: list(seen.values())}

    def _named_prompts(self, servers: Sequence[ServerContent], lists: Sequence[list[Message]]) -> list[Message]:
        found: list[Message] = []
        self._prompts = {}
        for server, items in zip(servers, lists, strict=True):
            for item in items:
                remote = str(item.get("name", ""))
                name = prefixed_name(server.name, remote) if remote in self._prompts else remote
                self._prompts.setdefault(name, (server.name, remote))
                found.append({**item, "name": name})
        return found

    def _remember(self, servers: Sequence[ServerContent], lists: Sequence[list[Message]]) -> None:
        self._server_of_uri = {}
        for server, items in zip(servers, lists, strict=True):
            for item in items[:_MOST_KNOWN]:
                uri = str(item.get("uri"))
                self._warn_of_hidden(uri, self._server_of_uri.setdefault(uri, server.name), server.name)

    def _warn_of_hidden(self, uri: str, first: str, other: str) -> None:
        """Tell the operator, once for each two servers, that clients cannot reach a resource because an earlier server has the same URI."""
        if first == other or (first, other) in self._hidden:
            return
        self._hidden.add((first, other))
        log.warning(
            "The MCP servers %s and %s both have the resource %s, and perhaps others: clients get that of %s, which comes first."
            " Change their order, or let principals have only one of them with `servers`.",
            first,
            other,
            one_line(uri, 200),
            first,
        )

    # Subscriptions

    async def subscribe(self, uri: str) -> ServerContent:
        """Ask the server of a resource to tell its changes; return that server, from which each subscription has to be ended.

        Raises:
            RpcError: No server takes the subscription.
        """
        refusal: RpcError | None = None
        for server in self._servers_of(uri):
            try:
                await _await_answer(server.subscribe(uri))
            except RpcError as error:
                refusal = refusal or error
            else:
                return server
        assert refusal is not None
        raise refusal

    # Folders

    async def roots_changed(self, call: ClientCall) -> None:
        """Tell the servers that the folders of a client have changed. What they ask then is answered through `call`."""
        with on_behalf_of(call):
            results = await asyncio.gather(*(server.roots_changed() for server in self._servers()), return_exceptions=True)
        for error in results:
            if isinstance(error, McpError):
                log.warning("A server was not told that the folders of a client have changed: %s", error)

    # Single resources and prompts

    async def _resource(self, method: str, params: Mapping[str, Any]) -> Message:
        """Send a request about one resource to the server that has it; if that is not known, to each until one has it."""
        uri = params.get("uri")
        if not isinstance(uri, str):
            raise RpcError(INVALID_PARAMS, f"{method} needs a uri.")
        refusal: RpcError | None = None
        for server in self._servers_of(uri):
            try:
                return await _forward(server, method, params)
            except RpcError as error:
                refusal = refusal or error
                if error.code not in (RESOURCE_NOT_FOUND, INVALID_PARAMS):
                    raise
        assert refusal is not None
        raise refusal

    def _servers_of(self, uri: str) -> list[ServerContent]:
        """Return the servers that have resources, the one that has listed this one first.

        If that one does not run, return it alone: another server may have a different resource with the same URI.
        """
        known = self._server_of_uri.get(uri)
        stopped = [server for server in self._servers() if server.name == known and not server.capabilities]
        return stopped or sorted(self._having("resources"), key=lambda server: server.name != known)

    async def _prompt(self, name: object) -> tuple[ServerContent, str]:
        """Return the server that has a prompt, and its name there."""
        if not isinstance(name, str):
            raise RpcError(INVALID_PARAMS, "The name of a prompt must be a text.")
        servers = self._having("prompts")
        if len(servers) == 1:
            return servers[0], name
        if name not in self._prompts:
            await self._list("prompts/list", {})
        if name not in self._prompts:
            raise RpcError(INVALID_PARAMS, f"Unknown prompt: {name[:200]}")
        server, remote = self._prompts[name]
        return self._engine.server(server), remote

    async def _complete(self, params: Mapping[str, Any]) -> Message:
        ref = params.get("ref")
        if not isinstance(ref, dict):
            raise RpcError(INVALID_PARAMS, "completion/complete needs a ref, an object.")
        if ref.get("type") == "ref/prompt":
            server, name = await self._prompt(ref.get("name"))
            return await _forward(server, "completion/complete", {**params, "ref": {**ref, "name": name}})
        refusal: RpcError | None = None
        for server in await self._completing(str(ref.get("uri"))):
            try:
                return await _forward(server, "completion/complete", params)
            except RpcError as error:
                refusal = refusal or error
        assert refusal is not None
        raise refusal

    async def _completing(self, uri: str) -> list[ServerContent]:
        """Return the servers that have completions, the one first that has this template or resource."""
        servers = self._having("completions")
        if len(servers) == 1:
            return servers
        if self._server_of_template is None and self._with("resources"):
            await self._list("resources/templates/list", {})
        known = (self._server_of_template or {}).get(uri) or self._server_of_uri.get(uri)
        return sorted(servers, key=lambda server: (server.name != known, "resources" not in server.capabilities))

    def _having(self, capability: str) -> list[ServerContent]:
        """Return the servers with a capability.

        Raises:
            RpcError: There is none, or it does not run.
        """
        found = self._with(capability)
        if not found:
            problems = [one.problem for one in self._engine.servers_status() if one.name in self._names and one.problem]
            if problems:
                raise RpcError(INTERNAL_ERROR, f"No server that runs here has {capability}. {' '.join(problems)}")
            raise RpcError(METHOD_NOT_FOUND, f"No server here has {capability}.")
        return found

    def _with(self, capability: str) -> list[ServerContent]:
        return [server for server in self._servers() if isinstance(server.capabilities.get(capability), dict)]

    def _servers(self) -> list[ServerContent]:
        return [server for server in self._engine.mcp_servers() if server.name in self._names]


async def _forward(server: ServerContent, method: str, params: Mapping[str, Any]) -> Message:
    return await _await_answer(server.request(method, params))


async def _await_answer(request: Awaitable[T]) -> T:
    try:
        return await request
    except RequestRejected as error:
        sent = error.__cause__
        raise (sent if isinstance(sent, RpcError) else RpcError(error.rpc_code, error.server_message, error.data)) from error
    except McpError as error:
        raise RpcError(INTERNAL_ERROR, str(error)) from error


async def _all_items(server: ServerContent, key: str) -> list[Message]:
    """Return the items of all pages of a server's list; none if it does not answer."""
    listing = {"resources": server.list_resources, "resourceTemplates": server.list_resource_templates, "prompts": server.list_prompts}
    try:
        return await listing[key]()
    except McpError as error:
        log.warning("The %s of the MCP server %s are left out: %s", key, server.name, error)
        return []
