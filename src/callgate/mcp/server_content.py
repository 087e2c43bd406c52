"""`ServerContent`: the resources and prompts of one MCP server, for the host.

Beside the tools, because a host and not a model decides which of them are used: no policy is asked, and nothing is recorded. What the
server sends is returned as it was parsed, with its unknown fields. Requests wait until the server runs, have a deadline, and are sent once.

Sources: MCP 2025-11-25 and 2026-07-28, Resources, Prompts, Utilities: "Completion".
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from callgate._option_checks import Seconds, by_name, check, shown
from callgate.errors import UsageError
from callgate.mcp._connection import McpError, Message, ProtocolError
from callgate.mcp._messages import RpcError

if TYPE_CHECKING:
    from callgate.mcp._running_requests import Caller
    from callgate.mcp._session import Session
    from callgate.mcp._supervisor import SupervisedServer

__all__ = ["RequestRejected", "ServerContent", "content_of"]

T = TypeVar("T")

_CAPABILITY_OF = {
    "resources/list": "resources",
    "resources/templates/list": "resources",
    "resources/read": "resources",
    "resources/subscribe": "resources",
    "resources/unsubscribe": "resources",
    "prompts/list": "prompts",
    "prompts/get": "prompts",
    "completion/complete": "completions",
}


class RequestRejected(McpError):
    """The server answered a request with an error.

    Args:
        rpc_code: The JSON-RPC code, such as -32602.
        server_message: The text of the error, as the server sent it.
        data: The `data` of the error, as the server sent it; None if there is none.
    """

    code = "request_rejected"

    def __init__(self, message: str, *, rpc_code: int, server_message: str = "", data: object = None) -> None:
        super().__init__(message)
        self.rpc_code = rpc_code
        self.server_message = server_message
        self.data = data


class ServerContent:
    """The resources and prompts of one server; `engine.server(name)` returns it.

    Each function starts the engine's servers if they do not run yet, and may be called while calls of tools run.

    Every function raises `UsageError` if the server says that it has no such thing, and `McpError` if there is no valid answer:
    `RequestRejected` with the server's code, `NotSent` with the reason if the server is down, `ConnectionLost`, `ProtocolError`, or
    `McpError` with the code `timeout`.

    Args:
        start: Starts the engine's servers.
        timeout_s: Seconds for a request without a timeout of its own.
    """

    def __init__(self, server: SupervisedServer, start: Callable[[], Awaitable[None]], timeout_s: float) -> None:
        self.name = server.name
        self._server = server
        self._start = start
        self._timeout_s = timeout_s

    async def refresh_tools(self) -> None:
        """List the tools of a running server again if their list no longer holds, for as long as the server has said (`ttlMs`).

        Returns when the engine has the new list, or after two seconds. Does nothing if the server announces changes of its tools.
        """
        await self._server.refresh_tools()

    @by_name
    async def list_resources(self, *, timeout_s: float | None = None) -> list[Message]:
        """Return the resources of all pages, as the server sent them.

        Args:
            timeout_s: Seconds for all pages; None: the timeout of the server's tools.
        """
        return await self._list("resources/list", "resources", "resources", timeout_s)

    @by_name
    async def list_resource_templates(self, *, timeout_s: float | None = None) -> list[Message]:
        """Return the templates of resources' addresses of all pages, as the server sent them."""
        return await self._list("resources/templates/list", "resourceTemplates", "resources", timeout_s)

    @by_name
    async def read_resource(self, uri: str, *, timeout_s: float | None = None) -> Message:
        """Return the result as the server sent it: `contents` is a list of `uri`, `mimeType`, and `text` or `blob` in Base64."""
        _check_text("read_resource", "uri", uri)
        return await self._get("resources/read", {"uri": uri}, "resources", ("contents", list), timeout_s)

    @by_name
    async def list_prompts(self, *, timeout_s: float | None = None) -> list[Message]:
        """Return the prompts of all pages, as the server sent them."""
        return await self._list("prompts/list", "prompts", "prompts", timeout_s)

    @by_name
    async def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None, *, timeout_s: float | None = None) -> Message:
        """Return the result as the server sent it: `messages` is a list of `role` and `content`."""
        _check_text("get_prompt", "name", name)
        params: dict[str, Any] = {"name": name}
        if arguments is not None:
            params["arguments"] = _check_texts("get_prompt", "arguments", arguments)
        return await self._get("prompts/get", params, "prompts", ("messages", list), timeout_s)

    @by_name
    async def complete(
        self, ref: Mapping[str, Any], argument: str, value: str, *, known: Mapping[str, str] | None = None, timeout_s: float | None = None
    ) -> Message:
        """Return the server's proposals for the value of an argument: `completion` has the list `values`.

        Args:
            ref: What has the argument: `{"type": "ref/prompt", "name": ...}` or `{"type": "ref/resource", "uri": ...}`.
            argument: The name of the argument.
            value: The beginning of its value.
            known: The values of other arguments.
        """
        params: dict[str, Any] = {"ref": ref, "argument": {"name": argument, "value": value}}
        if known is not None:
            params["context"] = {"arguments": _check_texts("complete", "known", known)}
        return await self._get("completion/complete", params, "completions", ("completion", dict), timeout_s)

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The capabilities that the server declares; empty while it does not run."""
        return self._server.capabilities

    @property
    def instructions(self) -> str:
        """The server's instructions for models. Empty before the first start, and if they are not accepted."""
        return self._server.instructions

    @by_name
    async def request(self, method: str, params: Mapping[str, Any], *, timeout_s: float | None = None) -> Message:
        """Send a request of the protocol, and return its result as the server sent it.

        Args:
            method: For example `resources/list`; the capability that it needs is checked.
        """
        return await self._run_requests(
            method, _CAPABILITY_OF[method], lambda session, caller: session.ask(method, params, caller), timeout_s
        )

    def on_change(self, listener: Callable[[str, Mapping[str, Any]], None]) -> Callable[[], None]:
        """Call `listener` with each notice of the server that something has changed, from now on. Return a function that ends that.

        Args:
            listener: Called in the engine's event loop with the method of the notification, such as `notifications/prompts/list_changed` or
                `notifications/resources/updated`, and its params. Must return at once. Changes that may have been missed are told, too.
        """
        return self._server.on_change(listener)

    @by_name
    async def subscribe(self, uri: str, *, lasting: bool = False, timeout_s: float | None = None) -> None:
        """Ask the server to tell of changes of a resource, as notices to `on_change`. Each needs an `unsubscribe`.

        Args:
            lasting: If the server cannot be asked now, which raises `McpError`, it is asked when it starts again. It still needs an
                `unsubscribe` then.
        """
        _check_text("subscribe", "uri", uri)
        await self._run_within_deadline("resources/subscribe", lambda: self._server.subscribe(uri, lasting=lasting), timeout_s)

    @by_name
    async def unsubscribe(self, uri: str, *, timeout_s: float | None = None) -> None:
        """End one `subscribe` of a resource."""
        _check_text("unsubscribe", "uri", uri)
        await self._run_within_deadline("resources/unsubscribe", lambda: self._server.unsubscribe(uri), timeout_s)

    async def roots_changed(self) -> None:
        """Tell the server that the folders of the calling client have changed, and let it ask for them. Do nothing if the client has no
        session of its own with the server, which then asks for the folders when they are needed.

        Raises:
            McpError: The connection is lost, or the server or the client does not answer in time.
        """
        await self._run_within_deadline("notifications/roots/list_changed", self._server.roots_changed, None)

    async def _list(self, method: str, key: str, capability: str, timeout_s: float | None) -> list[Message]:
        return await self._run_requests(method, capability, lambda session, caller: session.list_all(method, key, caller), timeout_s)

    async def _get(
        self, method: str, params: Mapping[str, Any], capability: str, wanted: tuple[str, type], timeout_s: float | None
    ) -> Message:
        result = await self._run_requests(method, capability, lambda session, caller: session.ask(method, params, caller), timeout_s)
        key, kind = wanted
        if not isinstance(result.get(key), kind):
            raise ProtocolError(f"The MCP server '{self.name}' answered {method} without valid {key}.")
        return result

    async def _run_requests(
        self, method: str, capability: str, work: Callable[[Session, Caller], Awaitable[T]], timeout_s: float | None
    ) -> T:
        """Run requests on the server's session, within a deadline."""
        run = partial(self._server.on_session, lambda session, caller: self._check_capability(session, caller, capability, work))
        return await self._run_within_deadline(method, run, timeout_s)

    async def _run_within_deadline(self, method: str, run: Callable[[], Awaitable[T]], timeout_s: float | None) -> T:
        """Run requests within a deadline, once the engine's servers are started; turn a refusal into `RequestRejected`."""
        check("ServerContent", "timeout_s", timeout_s, Seconds | None)
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        waiting = asyncio.timeout(limit_s)
        try:
            async with waiting:
                await self._start()
                return await run()
        except RpcError as error:
            said = error.message[:1_000] or "without a text"
            text = f"The MCP server '{self.name}' answered {method} with an error: {said} ({error.code})"
            raise RequestRejected(text, rpc_code=error.code, server_message=error.message, data=error.data) from error
        except TimeoutError as error:
            if not waiting.expired():
                raise
            text = f"The MCP server '{self.name}' did not answer {method} within {limit_s:g} s. Try again, or give a longer timeout_s."
            raise McpError(text, code="timeout") from error

    def _check_capability(
        self, session: Session, caller: Caller, capability: str, work: Callable[[Session, Caller], Awaitable[T]]
    ) -> Awaitable[T]:
        if isinstance(session.capabilities.get(capability), dict):
            return work(session, caller)
        has = ", ".join(session.capabilities) or "nothing"
        raise UsageError(f"The MCP server '{self.name}' has no {capability}. Its capabilities are: {has}.")


def content_of(server: object, start: Callable[[], Awaitable[None]], timeout_s: float) -> ServerContent:
    """Return the content of a tool server of an engine.

    Raises:
        UsageError: It is not an MCP server.
    """
    from callgate.mcp._supervisor import SupervisedServer

    if not isinstance(server, SupervisedServer):
        raise UsageError(f"{shown(getattr(server, 'name', server))} is not an MCP server, so it has no resources and prompts.")
    return ServerContent(server, start, server.timeout_s or timeout_s)


def _check_text(function: str, name: str, value: object) -> None:
    if not isinstance(value, str) or not value:
        raise UsageError(f"{function}({name}={shown(value)}): it must be a text that is not empty.")


def _check_texts(function: str, name: str, given: object) -> Mapping[str, str]:
    if not isinstance(given, Mapping) or not all(isinstance(key, str) and isinstance(value, str) for key, value in given.items()):
        raise UsageError(f"{function}({name}={shown(given)}): it must be a dict of texts, because MCP has no other values there.")
    return given
