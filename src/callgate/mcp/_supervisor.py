"""One MCP server of an engine: its tools, and the sessions that their calls are sent on.

The first session lists the tools, and takes the calls of the host itself. Which calls of clients it takes as well is decided here, by
`McpServer.isolation` and by the era of the server. Knows nothing of what a call is for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any, Literal, TypeVar

from callgate._server_processes.server_life import State
from callgate.errors import UsageError
from callgate.mcp._call_results import executed, refused
from callgate.mcp._client_era import ClientEra
from callgate.mcp._client_sessions import ClientSessions
from callgate.mcp._connection import ConnectionEvents, McpError, Message, NotSent, ServerConnection
from callgate.mcp._http_connection import HttpConnection
from callgate.mcp._messages import RpcError
from callgate.mcp._resource_watches import RESOURCE_UPDATED, ResourceWatches, Watch
from callgate.mcp._revisions import Era
from callgate.mcp._running_requests import Caller
from callgate.mcp._server_messages import OnNotice
from callgate.mcp._server_requests import ServerRequests
from callgate.mcp._session import Connect, Session
from callgate.mcp._stdio_connection import StdioConnection
from callgate.mcp._supervised_session import SessionParts, SupervisedSession
from callgate.mcp._tool_changes import Definition
from callgate.mcp._tool_list import ToolList
from callgate.mcp.calling_client import CallingClient, calling_client
from callgate.mcp.server_config import McpServer
from callgate.protocols import Execution, ServerStatus, ToolCatalogue

__all__ = ["SupervisedServer", "connection_of"]

T = TypeVar("T")


def connection_of(server: McpServer, events: ConnectionEvents) -> ServerConnection:
    """Return a new connection to a server, of the kind that its configuration needs."""
    return HttpConnection(server, events) if server.url else StdioConnection(server, events)


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
        self._started = self._closing = False
        self._listeners: dict[object, OnNotice] = {}
        self._watches = ResourceWatches()
        self._places: asyncio.Semaphore | None = None if server.parallel is None else asyncio.Semaphore(server.parallel)

    @property
    def state(self) -> State:
        """The state of the first session."""
        return self._first.life.state if self._started else "idle"

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What the server says that it can do; empty while it does not run."""
        return self._first.capabilities if self._started else {}

    @property
    def instructions(self) -> str:
        """What the server says about its use, for models, if that is accepted; empty before the first start."""
        return self._tools.instructions if self._started else ""

    def status(self, tools: int) -> ServerStatus:
        if not self._started:
            return ServerStatus(name=self.name, state="idle", tools=tools)
        return self._first.life.status(self.name, tools, self._first.revision)

    # Of the engine

    async def start(self, catalogue: ToolCatalogue) -> None:
        self._catalogue = catalogue
        parts = SessionParts(
            server=self._server,
            connect=self._connect,
            clock=catalogue.clock,
            log=catalogue.log,
            on_notice=partial(self._noticed, None),
            on_late=self._came_late,
            on_refused=lambda lasting: self._client_era.refused(self._first.life.starts, lasting=lasting),
        )
        self._client_era = ClientEra(self._server, catalogue.clock)
        self._clients = ClientSessions(parts, self._list_clients, self._noticed)
        self._tools = ToolList(self._server, self, catalogue, self._clients.tools if self._server.client_tools else tuple)
        first = self._first = SupervisedSession(parts, ServerRequests(self._server, catalogue.log), self._tools, retries_without_call=True)
        self._started = True
        first.begin()
        await first.life.first_attempt()
        if first.life.problem and self._server.required:
            raise UsageError(
                f"{first.life.full_problem}. It is required, so nothing starts without it. Correct that, or set `required` to false.",
                code="server_unavailable",
            )

    async def _list_clients(self) -> None:
        """Offer the tools that the server shows only in sessions of clients, if they are wanted."""
        if not self._server.client_tools or self._closing:
            return
        try:
            await self._tools.refresh_clients()
        except (McpError, UsageError) as error:
            self._catalogue.log.warning("MCP server %s: its tools for single clients cannot be offered: %s", self.name, error)

    async def retry(self) -> None:
        self._first.life.restart()
        await self._first.life.first_attempt()

    async def close(self) -> None:
        self._closing = True
        if self._started:
            await self._clients.close()
            await self._first.close()
            if self._server.auth is not None:
                await self._server.auth.close()

    # Of its tools

    async def call_tool(self, definition: Definition, arguments: Mapping[str, Any], caller: Caller) -> Message:
        with ExitStack() as used:
            try:
                supervised, session = await self._session_for(caller.client, used, definition)
                await self._settle(supervised, session)
            except asyncio.CancelledError as error:  # the call's deadline or its kill
                raise NotSent(f"The MCP server '{self.name}' was not ready for the call in time{self._reason()}.") from error
            self._first.list_if_stale()
            supervised.list_if_stale()
            self._tools.check(definition)
            supervised.tools.check(definition)
            return await supervised.run(session, lambda on: on.call_tool(definition["name"], arguments, caller))

    def _reason(self) -> str:
        auth = self._server.auth
        return f": {auth.waits_for}" if auth is not None and auth.waits_for else ""

    async def _place(self, supervised: SupervisedSession, used: ExitStack) -> Session:
        """Return the running session, with one of the server's places taken until the end of `used`."""
        while True:
            session = await supervised.life.until_ready()
            if self._places is None:
                return session
            await self._places.acquire()
            if session is supervised.life.ready:
                used.callback(self._places.release)
                return session
            self._places.release()

    # Of its sessions

    async def on_session(self, work: Callable[[Session, Caller], Awaitable[T]]) -> T:
        """Run requests on behalf of the calling client, if there is one, as soon as a session for it is ready.

        Raises:
            NotSent: The server cannot be started.
        """
        caller = Caller(client=calling_client())
        with ExitStack() as used:
            supervised, session = await self._session_for(caller.client, used)
            await self._settle(supervised, session)
            return await supervised.run(session, lambda on: work(on, caller))

    async def refresh_tools(self) -> None:
        """List the tools again if their list no longer holds, and wait for that in bounded time. Starts nothing."""
        if self._started and not self._closing and self._first.list_if_stale():
            await self._first.until_listed()

    async def _settle(self, supervised: SupervisedSession, session: Session) -> None:
        """Wait until the server of a client's session has what it has asked this client for, which it may need for the request."""
        if supervised is not self._first:
            await session.settle()

    async def roots_changed(self) -> None:
        """Tell the server that the folders of the calling client have changed, if the client has a session of its own.

        Raises:
            McpError: The connection is lost.
        """
        client = calling_client()
        if client is None or not self._started or self._first.era is None:
            return
        era = self._client_era.of(client, self._first.era, self._first.life.starts)
        if era != "handshake":
            return
        with self._clients.all_used(client, era) as sessions:
            ready = [one.life.ready for one in sessions if one.life.ready is not None]
            await asyncio.gather(*(session.roots_changed() for session in ready))

    async def subscribe(self, uri: str, *, lasting: bool = False) -> None:
        """Ask the server to tell the calling client, or the host if there is none, of changes of a resource.

        It is asked in the session in which the client's requests run, once for all that want to be told there.

        Args:
            lasting: If the server cannot be asked now, it is asked when it starts again.

        Raises:
            McpError: The server cannot be started or does not answer.
            RpcError: The server refuses.
        """
        client = calling_client()
        with ExitStack() as used:
            try:
                supervised = await self._watching_session(client, used)
            except BaseException:
                if lasting:
                    self._watches.add(Watch(uri=uri, client=client, session=self._first, of_client=False))
                raise
            watch = Watch(uri=uri, client=client, session=supervised, of_client=supervised is not self._first)
            if not self._watches.add(watch):
                return
            try:
                await supervised.run(await supervised.life.until_ready(), lambda on: on.subscribe(uri))
            except BaseException as error:
                if isinstance(error, RpcError) or not lasting:
                    self._forget(watch)
                raise

    async def unsubscribe(self, uri: str) -> None:
        """End a subscription of the calling client, or of the host if there is none.

        Raises:
            McpError: The server does not answer.
            RpcError: The server refuses.
        """
        watch = self._watches.of(uri, calling_client())
        if watch is None or not self._forget(watch):
            return
        supervised = watch.session
        session = supervised.life.ready if watch.of_client else await supervised.life.until_ready()
        if session is not None:
            await supervised.run(session, lambda on: on.subscribe(uri, ends=True))

    def _forget(self, watch: Watch) -> bool:
        if watch.of_client:
            self._clients.unwatch(watch.session)
        return self._watches.remove(watch)

    async def _watching_session(self, client: CallingClient | None, used: ExitStack) -> SupervisedSession:
        """Return the running session that tells a client of changes: its own one, if that can be kept open, and otherwise the first.

        Raises:
            NotSent: The server cannot be started.
        """
        first = self._first
        begins_unanswered = client is not None and client.own_session is None and "roots" in client.capabilities
        if client is not None and not begins_unanswered:
            try:
                supervised, session = await self._session_for(client, used)
            except NotSent:
                supervised = first
            else:
                await self._settle(supervised, session)
            if supervised is not first and self._clients.watch(supervised):
                return supervised
        await first.life.until_ready()
        return first

    def on_change(self, listener: OnNotice) -> Callable[[], None]:
        """Call `listener` with the notices of changes from now on; return what ends that."""
        key = object()
        self._listeners[key] = listener

        def stop() -> None:
            self._listeners.pop(key, None)

        return stop

    def _noticed(self, key: str | None, method: str, params: Mapping[str, Any]) -> None:
        """Take a notice.

        Args:
            key: That of the clients of the session; None: the first session.
        """
        if method == RESOURCE_UPDATED:
            self._watches.tell(params, key)
        for listener in list(self._listeners.values()):
            try:
                listener(method, params)
            except Exception as error:  # a broken listener must not end the session
                self._catalogue.log.error("MCP server %s: a listener of its changes has failed", self.name, error=error)

    async def _session_for(
        self, client: CallingClient | None, used: ExitStack, definition: Definition | None = None
    ) -> tuple[SupervisedSession, Session]:
        """Return the running session for a request of a client. It is kept open until the end of `used`.

        Args:
            definition: The tool that is called; None if the request is no call.

        Raises:
            NotSent: The server cannot be started, or its sessions are all in use.
        """
        first = self._first
        if client is None or self._server.isolation == "shared":
            return first, await self._running(first, used, definition)
        if first.era is None or first.life.state == "quarantined":
            await first.life.until_ready()
        found = first.era or "stateless"
        era = self._client_era.of(client, found, first.life.starts)
        if era != found and (chosen := await self._session_in(era, client, used, definition)) is not None:
            return chosen
        supervised = used.enter_context(self._clients.used(client, found)) if self._has_own(client, found) else first
        return supervised, await self._running(supervised, used, definition)

    async def _session_in(
        self, era: Era, client: CallingClient, used: ExitStack, definition: Definition | None
    ) -> tuple[SupervisedSession, Session] | None:
        """Return a client's session in an era that the server may refuse; None if it does, or describes the tool differently there.

        Raises:
            NotSent: The session cannot be started for another reason, or all are in use.
        """
        with ExitStack() as tried:
            supervised = tried.enter_context(self._clients.used(client, era, may_refuse=True))
            try:
                session = await self._running(supervised, tried, definition)
            except NotSent:
                if not supervised.refuses:
                    raise
                return None
            if definition is not None and not await supervised.offers(definition):
                return None
            used.enter_context(tried.pop_all())
            return supervised, session

    async def _running(self, supervised: SupervisedSession, used: ExitStack, definition: Definition | None) -> Session:
        """Return the session as soon as it runs; for a call, with one of the server's places."""
        return await supervised.life.until_ready() if definition is None else await self._place(supervised, used)

    def _has_own(self, client: CallingClient, era: Era) -> bool:
        """Return whether a client has a session of its own."""
        if era == "handshake":
            return bool(client.key or client.capabilities) or self._server.client_tools
        return bool(client.key) and self._server.isolation == "principal"

    def _came_late(self, uid: str, message: Message) -> None:
        self._catalogue.late(uid, self._late_execution(message))

    def _late_execution(self, message: Message) -> Execution:
        error = message.get("error")
        try:
            if isinstance(error, dict):
                return refused(self.name, RpcError(int(error.get("code", 0)), str(error.get("message", ""))))
            return executed(self.name, message["result"])
        except (McpError, KeyError, TypeError, ValueError, AttributeError):
            return Execution(status="raised", error="its answer was no result")
