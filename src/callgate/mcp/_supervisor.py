"""One MCP server of an engine, kept running.

Starts a session, offers the tools, lists them again when the server says that they have changed, and asks a silent server for a sign of
life. `_server_processes/server_life.py` has the states and the restarts. Knows nothing of what a call is for.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Literal, TypeVar

from callgate._backoff import backoff_s
from callgate._clock import Clock
from callgate._server_processes.server_life import ServerLife, ServerWork, State
from callgate.errors import UsageError
from callgate.mcp._call_results import executed, refused
from callgate.mcp._connection import ConnectionEvents, McpError, Message, NotSent, ServerConnection
from callgate.mcp._http_connection import HttpConnection
from callgate.mcp._messages import RpcError
from callgate.mcp._revisions import Era
from callgate.mcp._server_requests import ServerRequests
from callgate.mcp._session import Connect, OnProgress, Session
from callgate.mcp._stdio_connection import StdioConnection
from callgate.mcp._tool_changes import Definition
from callgate.mcp._tool_list import ToolList
from callgate.mcp.server_config import McpServer
from callgate.protocols import Execution, ToolCatalogue

__all__ = ["SupervisedServer", "connection_of"]

T = TypeVar("T")

_FIRST_WAIT_S = 0.1
_LONGEST_WAIT_S = 10.0
_MOST_FAILURES = 5
"""Failures in a row after which a server is quarantined."""
_QUARANTINE_S = 60.0
_SILENT_S = 5.0
_LONGEST_SILENCE_S = 120.0
"""A silent server is ended after this time, even if calls still wait for its answers."""
_SETTLE_S = 0.05
"""How long notices about changed tools are collected before the tools are listed again."""
_LIST_EVERY_S = 1.0
"""The least time between two of these lists."""


class _Backoff:
    """Waits longer after each failure, and tries a quarantined server again after a minute or more. Calls wait for every start."""

    patience_s = math.inf
    until = ""

    def wait_s(self, failures: int, clock: Clock) -> float | None:
        if failures >= _MOST_FAILURES:
            return None
        return backoff_s(failures, base_s=_FIRST_WAIT_S, max_s=_LONGEST_WAIT_S) * (0.5 + clock.jitter() / 2)

    def quarantine_s(self, failures: int) -> float:
        return backoff_s(failures - _MOST_FAILURES + 1, base_s=_QUARANTINE_S, max_s=10 * _QUARANTINE_S)


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
        self._life = ServerLife[Session](f"The MCP server '{server.name}'", _Backoff())
        self._server = server
        self._connect = connect
        self._session: Session | None = None
        self._era: Era | None = None
        self._changed = False
        self._listed_at = -_LIST_EVERY_S
        """When changed tools were listed last."""
        self._doubted = False
        self._running = 0
        self._places: asyncio.Semaphore | None = None if server.parallel is None else asyncio.Semaphore(server.parallel)

    @property
    def state(self) -> State:
        return self._life.state

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What the server says that it can do; empty while it does not run."""
        return self._session.capabilities if self._session is not None else {}

    # Of the engine

    async def start(self, catalogue: ToolCatalogue) -> None:
        self._catalogue = catalogue
        self._requests = ServerRequests(self._server, catalogue.log)
        self._list = ToolList(self._server, self, catalogue)
        work = ServerWork(
            serve=self._serve,
            end=self._end_session,
            problem_of=self._start_problem,
            last_words=self._last_words,
            on_problem=self._list.unavailable,
        )
        self._life.begin(work, catalogue.clock, catalogue.log)
        await self._life.first_attempt()
        if self._life.problem and self._server.required:
            raise UsageError(f"{self._life.full_problem}. The engine needs it, because it has required=True.", code="server_unavailable")

    async def close(self) -> None:
        await self._life.close()

    # Of its tools

    async def call_tool(self, definition: Definition, arguments: Mapping[str, Any], uid: str, on_progress: OnProgress) -> Message:
        try:
            session = await self._place()
        except asyncio.CancelledError as error:  # the call's deadline or its kill
            raise NotSent(f"The MCP server '{self.name}' was not ready for the call in time.") from error
        try:
            self._list.check(definition)
            return await self._call(session, definition["name"], arguments, uid, on_progress)
        finally:
            if self._places is not None:
                self._places.release()

    async def _place(self) -> Session:
        """Return the running session, with one of the server's places taken."""
        while True:
            session = await self._life.until_ready()
            if self._places is None:
                return session
            await self._places.acquire()
            if session is self._life.ready:
                return session
            self._places.release()

    async def _call(self, session: Session, name: str, arguments: Mapping[str, Any], uid: str, on_progress: OnProgress) -> Message:
        return await self._run(session, lambda on: on.call_tool(name, arguments, uid, on_progress))

    async def on_session(self, work: Callable[[Session], Awaitable[T]]) -> T:
        """Run requests on the session, as soon as one is ready.

        Raises:
            NotSent: The server cannot be started.
        """
        return await self._run(await self._life.until_ready(), work)

    async def _run(self, session: Session, work: Callable[[Session], Awaitable[T]]) -> T:
        self._running += 1
        try:
            result = await work(session)
        except (asyncio.CancelledError, NotSent):  # it has timed out or was stopped: perhaps the server answers nothing any more
            self._doubted = True
            self._life.wake.set()
            raise
        finally:
            self._running -= 1
        self._life.failures = 0
        return result

    # Of its life

    async def _serve(self) -> str:
        """Start a session and follow it to its end; return why it has ended."""
        self._changed = self._doubted = False
        session = Session(
            self._server, self._connect, self._requests, self._catalogue.log, on_changed=self._tools_changed, on_late=self._came_late
        )
        self._session = session
        session.connection.lost.add_done_callback(lambda _: self._life.stop_sending())
        async with asyncio.timeout(self._server.start_timeout_s):
            await session.start(self._era)
            await self._list.refresh(session)
        self._era = session.era
        if session.connection.lost.done():
            return session.connection.lost.result()
        self._life.started(session)
        while not session.connection.lost.done():
            await self._life.wake.wait()
            self._life.wake.clear()
            if self._changed:
                await self._list_again(session)
            if self._doubted:
                self._doubted = False
                if not await self._hears(session):
                    self._life.stop_sending()
                    return "it answers nothing any more, so it was ended"
        self._life.settle()
        return session.connection.lost.result()

    async def _list_again(self, session: Session) -> None:
        clock = self._catalogue.clock
        await clock.sleep(max(_SETTLE_S, self._listed_at + _LIST_EVERY_S - clock.monotonic()))
        self._changed, self._listed_at = False, clock.monotonic()
        try:
            async with asyncio.timeout(self._server.start_timeout_s):
                await self._list.refresh(session)
        except (McpError, TimeoutError, UsageError) as error:
            self._catalogue.log.warning("MCP server %s: its changed tools could not be listed: %s", self.name, error)

    async def _hears(self, session: Session) -> bool:
        """Return whether a server that left a call without an answer still answers anything.

        While it is silent, new calls wait. It is given up when no earlier call waits for it any more, so that none loses its answer, or
        when it has been silent for too long.
        """
        heard, clock = session.heard, self._catalogue.clock
        latest = clock.monotonic() + _LONGEST_SILENCE_S
        while True:
            with suppress(TimeoutError, McpError):
                async with asyncio.timeout(_SILENT_S):
                    await session.is_alive()
            if session.connection.lost.done():
                return True
            if session.heard != heard:
                self._life.resume(session)
                return True
            self._life.hold()
            if not self._running or clock.monotonic() >= latest:
                return False

    def _start_problem(self, error: Exception) -> str:
        if isinstance(error, TimeoutError):
            return f"it did not start within {self._server.start_timeout_s:g} s"
        lost = self._session.connection.lost if self._session is not None else None
        if lost is not None and lost.done():
            return lost.result()
        if not isinstance(error, (McpError, UsageError)):
            self._catalogue.log.error("MCP server %s: it could not be served", self.name, error=error)
            return f"an error in callgate ({type(error).__name__})"
        return str(error).removesuffix(".")

    def _last_words(self) -> str:
        return self._session.connection.last_words if self._session is not None else ""

    async def _end_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    # Of the session

    def _tools_changed(self) -> None:
        self._changed = True
        self._life.wake.set()

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
