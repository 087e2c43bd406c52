"""One MCP server of an engine, kept running: started once, restarted after it has ended, and given up for a while if that does not help.

A task owns the server. It starts a session, offers the tools, lists them again when the server says that they have changed, and starts the
server again when the connection is lost. Calls wait for it, and never start a server themselves, so that a configuration has one process at
most. `TRANSITIONS` is the whole state machine. Knows nothing of what a call is for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from contextvars import Context
from typing import Any, Literal, TypeVar

from callgate._backoff import backoff_s
from callgate.errors import UsageError
from callgate.mcp._call_results import executed, refused
from callgate.mcp._connection import ConnectionEvents, McpError, Message, NotSent, ServerConnection
from callgate.mcp._http_connection import HttpConnection
from callgate.mcp._messages import RpcError
from callgate.mcp._revisions import Era
from callgate.mcp._server_requests import ServerRequests
from callgate.mcp._session import Connect, OnProgress, Session
from callgate.mcp._stdio_connection import StdioConnection
from callgate.mcp._tool_list import ToolList
from callgate.mcp.server_config import McpServer
from callgate.protocols import Execution, ToolCatalogue

__all__ = ["TRANSITIONS", "Event", "State", "SupervisedServer", "connection_of"]

T = TypeVar("T")
State = Literal["idle", "starting", "ready", "degraded", "backoff", "quarantined", "closed"]
Event = Literal["start", "started", "silent", "heard", "lost", "failed_too_often", "due", "close"]

TRANSITIONS: Mapping[tuple[State, Event], State] = {
    ("idle", "start"): "starting",
    ("starting", "started"): "ready",
    ("starting", "lost"): "backoff",
    ("starting", "failed_too_often"): "quarantined",
    ("ready", "silent"): "degraded",
    ("ready", "lost"): "backoff",
    ("ready", "failed_too_often"): "quarantined",
    ("degraded", "heard"): "ready",
    ("degraded", "lost"): "backoff",
    ("degraded", "failed_too_often"): "quarantined",
    ("backoff", "due"): "starting",
    ("quarantined", "due"): "starting",
    **{(state, "close"): "closed" for state in ("idle", "starting", "ready", "degraded", "backoff", "quarantined", "closed")},
}
"""The states of a server, and what changes them.

ready: calls are sent. degraded: a call has timed out and the server is silent. backoff: it starts again soon, and calls wait. quarantined:
it has failed too often, and calls are refused until the quarantine is over; the next call then starts it.
"""

_FIRST_WAIT_S = 0.1
_LONGEST_WAIT_S = 10.0
_MOST_FAILURES = 5
"""Failures in a row after which a server is quarantined."""
_QUARANTINE_S = 60.0
_STABLE_S = 30.0
"""A server that has run for this long, or has answered a call, is no longer counted as failing."""
_SILENT_S = 5.0
_SETTLE_S = 0.05
"""How long notices about changed tools are collected before the tools are listed again."""
_LIST_EVERY_S = 1.0
"""The least time between two of these lists."""


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
        self.state: State = "idle"
        self._server = server
        self._connect = connect
        self._session: Session | None = None
        self._ready: Session | None = None
        """The session, while calls can be sent on it; None means that `_attempt` is not done, or that the server is in quarantine or
        closed."""
        self._era: Era | None = None
        self._failures = 0
        self._problem = ""
        """Why the server does not run, as a sentence; empty if it runs."""
        self._owner: asyncio.Task[None] | None = None
        self._attempt: asyncio.Future[None] | None = None
        """Done when the next start has succeeded or failed; calls wait for it."""
        self._wake = asyncio.Event()
        self._changed = False
        self._listed_at = -_LIST_EVERY_S
        """When changed tools were listed last."""
        self._doubted = False
        self._retry_at = 0.0
        self._running = 0
        self._places: asyncio.Semaphore | None = None if server.parallel is None else asyncio.Semaphore(server.parallel)

    # Of the engine

    async def start(self, catalogue: ToolCatalogue) -> None:
        if self._owner is None:
            loop = asyncio.get_running_loop()
            self._catalogue = catalogue
            self._requests = ServerRequests(self._server, catalogue.log)
            self._list = ToolList(self._server, self, catalogue)
            self._attempt = loop.create_future()
            self._owner = loop.create_task(self._own(), context=Context(), name=f"callgate MCP server {self.name}")
        await self._first_attempt()
        if self._problem and self._server.required:
            raise UsageError(f"{self._problem}. The engine needs it, because it has required=True.", code="server_unavailable")

    async def _first_attempt(self) -> None:
        with suppress(NotSent):
            await self._attempted()

    async def close(self) -> None:
        self._enter("close")
        if self._owner is not None:
            self._owner.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.shield(self._owner)
        self._fail_attempt(self._unavailable("the engine is closed"))

    # Of its tools

    async def until_ready(self) -> None:
        while self._ready is None:
            if self.state == "closed":
                raise self._unavailable("the engine is closed")
            if self.state == "quarantined":
                self._leave_quarantine()
            await self._attempted()

    def check(self, name: str, definition: Mapping[str, Any]) -> None:
        self._list.check(name, definition)

    async def call_tool(self, name: str, arguments: Mapping[str, Any], uid: str, on_progress: OnProgress) -> Message:
        if self._places is None:
            return await self._call(name, arguments, uid, on_progress)
        async with self._places:
            return await self._call(name, arguments, uid, on_progress)

    async def _call(self, name: str, arguments: Mapping[str, Any], uid: str, on_progress: OnProgress) -> Message:
        return await self.on_session(lambda session: session.call_tool(name, arguments, uid, on_progress))

    async def on_session(self, work: Callable[[Session], Awaitable[T]]) -> T:
        """Run requests on the session that runs now.

        Raises:
            NotSent: None runs; `until_ready` waits for one.
        """
        session = self._ready
        if session is None:
            raise self._unavailable(self._problem or "it is not running")
        self._running += 1
        try:
            result = await work(session)
        except asyncio.CancelledError:  # the request has timed out or was stopped: perhaps the server answers nothing any more
            self._doubted = True
            self._wake.set()
            raise
        finally:
            self._running -= 1
        self._failures = 0
        return result

    def _leave_quarantine(self) -> None:
        """Let the owner start the server again if the quarantine is over.

        Raises:
            NotSent: It is not over.
        """
        left_s = self._retry_at - self._catalogue.clock.monotonic()
        if left_s > 0:
            raise self._unavailable(f"{self._problem}. It has failed {self._failures} times, and is not tried again for {left_s:.0f} s")
        self._renew_attempt()
        self._wake.set()

    async def _attempted(self) -> None:
        """Wait for the end of the current start.

        Raises:
            NotSent: It has failed.
        """
        assert self._attempt is not None
        await asyncio.shield(self._attempt)

    # The owner

    async def _own(self) -> None:
        self._enter("start")
        try:
            while True:
                try:
                    problem = await self._serve()
                except Exception as error:  # whatever it is, calls must not wait for a server that nobody starts
                    problem = self._start_problem(error)
                await self._end_session()
                await self._wait_for_next(problem)
        finally:
            await self._end_session()

    async def _serve(self) -> str:
        """Start a session and follow it to its end; return why it has ended."""
        session = Session(
            self._server, self._connect, self._requests, self._catalogue.log, on_changed=self._tools_changed, on_late=self._came_late
        )
        self._session = session
        session.connection.lost.add_done_callback(lambda _: self._stop_sending())
        async with asyncio.timeout(self._server.start_timeout_s):
            await session.start(self._era)
            await self._list.refresh(session)
        self._era = session.era
        if session.connection.lost.done():
            return session.connection.lost.result()
        self._enter("started")
        self._ready, self._problem = session, ""
        self._end_attempt()
        began = self._catalogue.clock.monotonic()
        while not session.connection.lost.done():
            await self._wake.wait()
            self._wake.clear()
            if self._changed:
                await self._list_again(session)
            if self._doubted:
                self._doubted = False
                if not await self._hears(session):
                    self._stop_sending()
                    return "it answers nothing any more, so it was ended"
        if self._catalogue.clock.monotonic() - began > _STABLE_S:
            self._failures = 0
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

        A silent server is given up only when no call waits for it any more, so that no call loses its answer.
        """
        heard = session.heard
        while True:
            with suppress(TimeoutError, McpError):
                async with asyncio.timeout(_SILENT_S):
                    await session.is_alive()
            if session.heard != heard or session.connection.lost.done():
                self._enter("heard")
                return True
            self._enter("silent")
            if not self._running:
                return False

    def _stop_sending(self) -> None:
        """Let calls wait for the next start, as soon as the connection is lost."""
        if self._ready is not None:
            self._ready = None
            self._renew_attempt()
        self._wake.set()

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

    async def _end_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            closing = asyncio.ensure_future(session.close())
            try:
                await asyncio.shield(closing)
            except asyncio.CancelledError:
                await closing
                raise

    async def _wait_for_next(self, problem: str) -> None:
        """Wait until the server is to be started again."""
        ran, self._failures = self.state != "starting", self._failures + 1
        self._problem = problem if problem.startswith("The MCP server") else f"The MCP server '{self.name}' has ended: {problem}"
        self._catalogue.log.warning("%s", self._problem)
        self._list.unavailable(self._problem)
        if self._failures < _MOST_FAILURES:
            self._enter("lost")
            wait_s = backoff_s(self._failures, base_s=_FIRST_WAIT_S, max_s=_LONGEST_WAIT_S) * (0.5 + self._catalogue.clock.jitter() / 2)
            if not ran:  # a start has failed; calls that wait after the end of a server that ran wait for its next start
                self._fail_attempt(self._unavailable(self._problem))
                self._renew_attempt()
            await self._catalogue.clock.sleep(wait_s)
        else:
            self._enter("failed_too_often")
            rounds = self._failures - _MOST_FAILURES + 1
            self._retry_at = self._catalogue.clock.monotonic() + backoff_s(rounds, base_s=_QUARANTINE_S, max_s=10 * _QUARANTINE_S)
            self._fail_attempt(self._unavailable(self._problem))
            while True:
                self._wake.clear()
                await self._wake.wait()
                if self._catalogue.clock.monotonic() >= self._retry_at:
                    break
        self._wake.clear()
        self._changed = self._doubted = False
        self._enter("due")

    def _enter(self, event: Event) -> None:
        self.state = TRANSITIONS.get((self.state, event), self.state)

    def _renew_attempt(self) -> None:
        if self._attempt is None or self._attempt.done():
            self._attempt = asyncio.get_running_loop().create_future()

    def _end_attempt(self) -> None:
        if self._attempt is not None and not self._attempt.done():
            self._attempt.set_result(None)

    def _fail_attempt(self, error: NotSent) -> None:
        if self._attempt is not None and not self._attempt.done():
            self._attempt.set_exception(error)
            self._attempt.exception()  # nobody has to wait for it

    def _unavailable(self, why: str) -> NotSent:
        text = why.removesuffix(".")
        return NotSent(f"{text if text.startswith('The MCP server') else f'The MCP server {self.name!r} cannot be used: {text}'}.")

    # Of the session

    def _tools_changed(self) -> None:
        self._changed = True
        self._wake.set()

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
