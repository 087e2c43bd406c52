"""One MCP server of an engine: it is started and closed, and its tools, calls and changes of resources go through it.

`_session_choice.py` decides in which of the server's sessions a request runs. Knows nothing of what a call is for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any, Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from callgate._server_processes.server_lifecycle import State
from callgate.errors import UsageError
from callgate.mcp._call_results import execution_of_error, execution_of_result
from callgate.mcp._client_era import ClientEra
from callgate.mcp._client_sessions import ClientSessions
from callgate.mcp._connection import ConnectionEvents, McpError, Message, NotSent, ServerConnection
from callgate.mcp._http_connection import HttpConnection
from callgate.mcp._messages import RpcError
from callgate.mcp._resource_subscriptions import ResourceSubscription, ResourceSubscriptions
from callgate.mcp._running_requests import Caller
from callgate.mcp._server_messages import RESOURCE_UPDATED, OnNotice
from callgate.mcp._server_requests import ServerRequests
from callgate.mcp._session import Connect, Session
from callgate.mcp._session_choice import SessionChoice
from callgate.mcp._stdio_connection import StdioConnection
from callgate.mcp._supervised_session import SessionParts, SupervisedSession
from callgate.mcp._tool_changes import Definition
from callgate.mcp._tool_list import ToolList
from callgate.mcp.calling_client import calling_client
from callgate.mcp.server_config import McpServer
from callgate.protocols import Execution, ServerStatus, ToolCatalogue

__all__ = ["SupervisedServer", "connection_of"]

T = TypeVar("T")


def connection_of(server: McpServer, events: ConnectionEvents) -> ServerConnection:
    """Return a new connection to a server, of the kind that its configuration needs."""
    return HttpConnection(server, events) if server.url else StdioConnection(server, events)


class _ServerParts(Struct, frozen=True, kw_only=True, eq=False):
    """The parts of a server that was started."""

    catalogue: ToolCatalogue
    sessions: SessionChoice
    tools: ToolList

    @property
    def first(self) -> SupervisedSession:
        return self.sessions.first


class SupervisedServer:
    """A server of one engine.

    Args:
        connect: Makes its connections.
    """

    layer: Literal["mcp"] = "mcp"

    def __init__(self, server: McpServer, connect: Connect = connection_of) -> None:
        self.name = server.name
        self.timeout_s = server.timeout_s
        self._server = server
        self._connect = connect
        self._parts: _ServerParts | None = None
        self._closing = False
        self._listeners: dict[object, OnNotice] = {}
        self._subscriptions = ResourceSubscriptions()

    @property
    def state(self) -> State:
        """The state of the first session."""
        return "idle" if self._parts is None else self._parts.first.lifecycle.state

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The capabilities that the server declares; empty while it does not run."""
        return {} if self._parts is None else self._parts.first.capabilities

    @property
    def instructions(self) -> str:
        """The server's instructions for models, if they are accepted; empty before the first start."""
        return "" if self._parts is None else self._parts.tools.instructions

    def status(self, tools: int) -> ServerStatus:
        if self._parts is None:
            return ServerStatus(name=self.name, state="idle", tools=tools)
        status = self._parts.first.lifecycle.status(self.name, tools, self._parts.first.revision)
        return replace(status, missing_gated_tools=self._parts.tools.missing_gated_tools)

    @property
    def _running(self) -> _ServerParts:
        """The parts.

        Raises:
            NotSent: The server was not started.
        """
        if self._parts is None:
            raise NotSent(f"The MCP server '{self.name}' was not started.")
        return self._parts

    # Called by the engine

    async def start(self, catalogue: ToolCatalogue) -> None:
        self._parts = running = self._make_parts(catalogue)
        first = running.first
        first.begin()
        await first.lifecycle.wait_for_first_attempt()
        if first.lifecycle.problem and self._server.required:
            raise UsageError(
                f"{first.lifecycle.full_problem}. It is required, so nothing starts without it. Correct that, or set `required` to false.",
                code="server_unavailable",
            )

    def _make_parts(self, catalogue: ToolCatalogue) -> _ServerParts:
        server = self._server
        client_era = ClientEra(server, catalogue.clock)
        parts = SessionParts(
            server=server,
            connect=self._connect,
            clock=catalogue.clock,
            log=catalogue.log,
            on_notice=partial(self._handle_notice, None),
            on_late=lambda uid, message: catalogue.late(uid, self._late_execution(message)),
            on_refused=lambda lasting: client_era.note_refusal(first.lifecycle.starts, lasting=lasting),
        )
        clients = ClientSessions(parts, self._list_clients, self._handle_notice)
        tools = ToolList(server, self, catalogue, clients.tools)
        first = SupervisedSession(parts, ServerRequests(server, catalogue.log), tools, retries_without_call=True)
        return _ServerParts(catalogue=catalogue, sessions=SessionChoice(server, first, client_era, clients), tools=tools)

    async def _list_clients(self) -> None:
        """Offer the tools that the server shows only in sessions of clients, if they are wanted."""
        if self._closing:
            return
        try:
            await self._running.tools.refresh_clients()
        except (McpError, UsageError) as error:
            self._running.catalogue.log.warning("MCP server %s: its tools for single clients cannot be offered: %s", self.name, error)

    async def retry(self) -> None:
        lifecycle = self._running.first.lifecycle
        lifecycle.restart()
        await lifecycle.wait_for_first_attempt()

    async def close(self) -> None:
        self._closing = True
        if self._parts is not None:
            await self._parts.sessions.clients.close()
            await self._parts.first.close()
            if self._server.auth is not None:
                await self._server.auth.close()

    # Tools

    async def call_tool(self, definition: Definition, arguments: Mapping[str, Any], caller: Caller) -> Message:
        running = self._running
        with ExitStack() as stack:
            try:
                supervised, session = await running.sessions.for_request(caller.client, stack, definition)
            except asyncio.CancelledError as error:  # the call's deadline or its kill
                raise NotSent(f"The MCP server '{self.name}' was not ready for the call in time{self._reason()}.") from error
            running.first.request_list_if_stale()
            supervised.request_list_if_stale()
            running.tools.check(definition)
            supervised.tools.check(definition)
            return await supervised.run(session, lambda on: on.call_tool(definition["name"], arguments, caller))

    def _reason(self) -> str:
        auth = self._server.auth
        return f": {auth.waits_for}" if auth is not None and auth.waits_for else ""

    async def refresh_tools(self) -> None:
        """List the tools again if their list no longer holds, and wait for that in bounded time. Starts nothing."""
        if self._parts is not None and not self._closing and self._parts.first.request_list_if_stale():
            await self._parts.first.refresh.wait_until_listed()

    # Sessions

    async def on_session(self, work: Callable[[Session, Caller], Awaitable[T]]) -> T:
        """Run requests on behalf of the calling client, if there is one, as soon as a session for it is ready.

        Raises:
            NotSent: The server cannot be started.
        """
        caller = Caller(client=calling_client())
        with ExitStack() as stack:
            supervised, session = await self._running.sessions.for_request(caller.client, stack)
            return await supervised.run(session, lambda on: work(on, caller))

    async def roots_changed(self) -> None:
        """Tell the server that the folders of the calling client have changed, if the client has a session of its own.

        Raises:
            McpError: The connection is lost.
        """
        client = calling_client()
        if client is None or self._parts is None:
            return
        with self._parts.sessions.keep_handshakes_open(client) as sessions:
            await asyncio.gather(*(session.roots_changed() for session in sessions))

    # Resources

    async def subscribe(self, uri: str, *, lasting: bool = False) -> None:
        """Subscribe the calling client, or the host if there is none, to changes of a resource.

        The subscription is made in the session in which the client's requests run, once for all subscribers of that session.

        Args:
            lasting: If the server cannot be asked now, it is asked when it starts again.

        Raises:
            McpError: The server cannot be started or does not answer.
            RpcError: The server refuses.
        """
        client, sessions = calling_client(), self._running.sessions
        with ExitStack() as stack:
            try:
                supervised = await sessions.for_subscription(client, stack)
            except BaseException:
                if lasting:
                    self._subscriptions.add(ResourceSubscription(uri=uri, client=client, session=sessions.first, of_client=False))
                raise
            subscription = ResourceSubscription(uri=uri, client=client, session=supervised, of_client=supervised is not sessions.first)
            if not self._subscriptions.add(subscription):
                return
            try:
                await supervised.run(await supervised.lifecycle.wait_until_ready(), lambda on: on.subscribe(uri))
            except BaseException as error:
                if isinstance(error, RpcError) or not lasting:
                    self._forget(subscription)
                raise

    async def unsubscribe(self, uri: str) -> None:
        """End a subscription of the calling client, or of the host if there is none.

        Raises:
            McpError: The server does not answer.
            RpcError: The server refuses.
        """
        subscription = self._subscriptions.find(uri, calling_client())
        if subscription is None or not self._forget(subscription):
            return
        supervised = subscription.session
        session = supervised.lifecycle.ready if subscription.of_client else await supervised.lifecycle.wait_until_ready()
        if session is not None:
            await supervised.run(session, lambda on: on.subscribe(uri, ends=True))

    def _forget(self, subscription: ResourceSubscription) -> bool:
        if subscription.of_client:
            self._running.sessions.clients.release_subscription(subscription.session)
        return self._subscriptions.remove(subscription)

    def on_change(self, listener: OnNotice) -> Callable[[], None]:
        """Call `listener` with the notices of changes from now on; return what ends that."""
        key = object()
        self._listeners[key] = listener

        def stop() -> None:
            self._listeners.pop(key, None)

        return stop

    def _handle_notice(self, key: str | None, method: str, params: Mapping[str, Any]) -> None:
        """Handle a notification of the server.

        Args:
            key: That of the clients of the session; None: the first session.
        """
        if method == RESOURCE_UPDATED:
            self._subscriptions.notify(params, key)
        for listener in list(self._listeners.values()):
            try:
                listener(method, params)
            except Exception as error:  # a broken listener must not end the session
                self._running.catalogue.log.error("MCP server %s: a listener of its changes has failed", self.name, error=error)

    def _late_execution(self, message: Message) -> Execution:
        error = message.get("error")
        try:
            if isinstance(error, dict):
                return execution_of_error(self.name, RpcError(int(error.get("code", 0)), str(error.get("message", ""))))
            return execution_of_result(self.name, message["result"])
        except (McpError, KeyError, TypeError, ValueError, AttributeError):
            return Execution(status="raised", error="its answer was not a result")
