"""One session with an MCP server, kept running.

Starts it, has its tools listed by `_tool_refresh`, and checks whether a silent server still responds. `server_lifecycle.py` of
`_server_processes` has the states and the restarts. Knows nothing of what a call is for, and of no other session of the server.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from msgspec import Struct

from callgate._backoff import backoff_s
from callgate._clock import Clock
from callgate._secret_redaction import RedactedLog
from callgate._server_processes.server_lifecycle import ServerLifecycle, ServerWork
from callgate.errors import UsageError
from callgate.mcp._connection import LOOK_FIRST, ConnectionLost, McpError, Message, NotSent, ProtocolError
from callgate.mcp._messages import INVALID_PARAMS, METHOD_NOT_FOUND, RpcError
from callgate.mcp._negotiation import EraRefused
from callgate.mcp._revisions import Era
from callgate.mcp._server_messages import OnNotice
from callgate.mcp._server_requests import AnswersServer
from callgate.mcp._session import Connect, Session
from callgate.mcp._tool_refresh import SessionTools, ToolRefresh
from callgate.mcp.server_config import McpServer

__all__ = ["SessionParts", "SupervisedSession"]

T = TypeVar("T")

_FIRST_WAIT_S = 0.1
_LONGEST_WAIT_S = 10.0
_TRIES = 3
"""Failed starts in a row after which a session with `may_refuse` sets `refuses`, whatever the errors were."""
_REFUSING_STATUSES = frozenset({400, 404, 405, 406, 415, 422, 501})
"""HTTP statuses of a server that does not support the era. Others may be temporary."""
_MOST_FAILURES = 5
"""Failures in a row after which a server is quarantined."""
_QUARANTINE_S = 60.0
_NETWORK_QUARANTINE_S = 1.0
_LASTING_S = 60.0
"""The least time before a start without a call, if the last start failed for a reason that lasts."""
_SILENT_S = 5.0
_LONGEST_SILENCE_S = 120.0
"""A silent server is ended after this time, even if calls still wait for its answers."""
_TOOLS_CHANGED = "notifications/tools/list_changed"


class _Backoff:
    """Waits longer after each failure. Calls wait for every start, until the server is quarantined: at once if another start is useless.

    Args:
        server: A program that ends again and again is tried again after a minute or more. A server on the network may only be restarting,
            and to ask it costs little, so it is tried again after a second or more.
        retries_without_call: Whether it is started again after a quarantine if no call comes.
    """

    patience_s = math.inf
    until = ""

    def __init__(self, server: McpServer, *, retries_without_call: bool) -> None:
        self._on_network = bool(server.url)
        self._retries_without_call = retries_without_call
        self.useless = False
        """Whether another start fails in the same way, unless the configuration or this machine is changed. False for a server that
        has run before: its program may be missing only while it is replaced."""

    def wait_s(self, failures: int, clock: Clock) -> float | None:
        if self.useless or failures >= _MOST_FAILURES:
            return None
        return backoff_s(failures, base_s=_FIRST_WAIT_S, max_s=_LONGEST_WAIT_S) * (0.5 + clock.jitter() / 2)

    def quarantine_s(self, failures: int) -> float:
        first_s = _NETWORK_QUARANTINE_S if self._on_network else _QUARANTINE_S
        return backoff_s(max(1, failures - _MOST_FAILURES + 1), base_s=first_s, max_s=10 * first_s)

    def retry_without_call_s(self, failures: int) -> float:
        if not self._retries_without_call:
            return math.inf
        return max(self.quarantine_s(failures), _LASTING_S if self.useless else 0.0)


class SessionParts(Struct, frozen=True, kw_only=True, eq=False):
    """The parts that all sessions of one server share."""

    server: McpServer
    connect: Connect
    clock: Clock
    log: RedactedLog
    on_notice: OnNotice
    """Called with notices of changes, except of tools."""
    on_late: Callable[[str, Message], None]
    """Called with the uid of a call that has ended, and the answer that arrived after that."""
    on_refused: Callable[[bool], None]
    """Called when `SupervisedSession.refuses` is set, with whether the server has refused the era; False: its starts have failed."""


class SupervisedSession:
    """A session that is started again after it has ended.

    Args:
        requests: Answers the requests of the server.
        tools: Lists the tools at each start, and after each notice that they have changed.
        era: The era of the server; None if it is to be found out.
        may_refuse: Whether the server may refuse this era; then `refuses` is set.
        retries_without_call: Whether it is started again after a quarantine if no call comes. Nobody can call tools that it has not listed
            yet.
    """

    def __init__(
        self,
        parts: SessionParts,
        requests: AnswersServer,
        tools: SessionTools,
        era: Era | None = None,
        *,
        may_refuse: bool = False,
        retries_without_call: bool = False,
    ) -> None:
        self._backoff = _Backoff(parts.server, retries_without_call=retries_without_call)
        self.lifecycle = ServerLifecycle[Session](f"The MCP server '{parts.server.name}'", self._backoff)
        self.tools = tools
        self.subscribed: dict[str, int] = {}
        """The number of subscriptions to a resource, by its URI."""
        self.era = era
        """The era of the server; None until it is found out."""
        self.refuses = False
        """Whether the server has refused this era, or could not be started in it several times."""
        self._may_refuse = may_refuse
        self._negotiated = False
        """Whether the server has agreed on a revision in the current start."""
        self.revision = ""
        """The revision that the server spoke last."""
        self._parts = parts
        self._requests = requests
        self._session: Session | None = None
        self.refresh = ToolRefresh(parts.server, parts.clock, parts.log, tools, self.lifecycle.wake.set)
        self._may_be_silent = False
        """Whether a request was left without an answer, so that it is checked whether the server still answers."""
        self._running_requests = 0

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The capabilities that the server declares; empty while it does not run."""
        return self._session.capabilities if self._session is not None else {}

    def begin(self) -> None:
        """Start the session, and keep it running from now on."""
        work = ServerWork(
            serve=self._serve,
            end=self._end_session,
            problem_of=self._start_problem,
            last_words=self._last_words,
            on_problem=self.tools.handle_problem,
            is_expected=lambda error: self._may_refuse and self._is_refusal(error),
        )
        self.lifecycle.begin(work, self._parts.clock, self._parts.log)

    async def close(self) -> None:
        await self.lifecycle.close()

    async def run(self, session: Session, work: Callable[[Session], Awaitable[T]]) -> T:
        """Run requests on the session that `lifecycle.wait_until_ready` has returned, and note how they end."""
        self._running_requests += 1
        try:
            result = await work(session)
        except (asyncio.CancelledError, NotSent):  # it has timed out or was stopped: perhaps the server answers nothing any more
            self._may_be_silent = True
            self.lifecycle.wake.set()
            raise
        except RpcError as error:
            if error.code in (INVALID_PARAMS, METHOD_NOT_FOUND) and self.refresh.may_be_wrong:  # perhaps it has lost the tool
                self.refresh.request()
            raise
        finally:
            self._running_requests -= 1
        self.lifecycle.failures = 0
        return result

    def _note_failed_start(self, error: Exception) -> None:
        refused = self._is_refusal(error)
        self._backoff.useless = not self.lifecycle.starts and isinstance(error, NotSent) and not error.retryable
        if self._may_refuse and (refused or self._backoff.useless or self.lifecycle.failures + 1 >= _TRIES):
            self.refuses = True
            self._parts.on_refused(refused)

    def _is_refusal(self, error: Exception) -> bool:
        """Return whether the error of a start shows that the server does not support the era."""
        ends = isinstance(error, ConnectionLost) and not self._parts.server.url  # a program that ends will end each time
        status = (error.details or {}).get("http_status") if isinstance(error, McpError) else None
        lists_nothing = isinstance(error, ProtocolError) and status is None and self._negotiated
        return ends or lists_nothing or isinstance(error, EraRefused | TimeoutError) or status in _REFUSING_STATUSES

    def request_list_if_stale(self) -> bool:
        """Have the tools listed again if the session runs and their list no longer holds; return whether that is so."""
        return self.lifecycle.ready is not None and self.refresh.request_if_stale()

    async def _serve(self) -> str:
        """Start a session and follow it to its end; return why it has ended."""
        await self._wait_for_authorization()
        self._may_be_silent = self._backoff.useless = False
        session = self._session = self._make_session()
        session.connection.lost.add_done_callback(lambda _: self.lifecycle.stop_sending())
        await self._start(session)
        self.era, self.revision = session.era, session.revision
        if session.connection.lost.done():
            return session.connection.lost.result()
        self.lifecycle.mark_ready(session)
        return await self._follow(session)

    async def _wait_for_authorization(self) -> None:
        auth = self._parts.server.auth
        if auth is not None and auth.waits_for:
            self.lifecycle.problem = f"{self.lifecycle.label} cannot be used yet: {auth.waits_for}"
            self.tools.handle_problem(self.lifecycle.problem)
            await auth.wait_for_user()

    def _make_session(self) -> Session:
        parts = self._parts
        return Session(
            parts.server,
            parts.connect,
            self._requests,
            parts.log,
            subscribed=self.subscribed,
            on_notice=self._handle_notice,
            on_late=parts.on_late,
            is_restarted=bool(self.lifecycle.problem),
        )

    async def _start(self, session: Session) -> None:
        """Negotiate the revision and list the tools.

        Raises:
            McpError: The server cannot be started, or does not list its tools.
            TimeoutError: It takes too long.
        """
        try:
            async with asyncio.timeout(self._parts.server.start_timeout_s):
                self._negotiated = False
                await session.start(self.era)
                if self._may_refuse and not session.connection.can_ask:
                    raise EraRefused(f"{self.lifecycle.label} opens no session, so that it cannot ask its client after a handshake")
                self._negotiated = True
                self.refresh.requested = False
                await self.refresh.list_now(session)
        except (McpError, TimeoutError) as error:
            self._note_failed_start(error)
            if isinstance(error, McpError) and error.code != "cannot_start" and not isinstance(error, EraRefused):
                await session.wait_for_end()
            raise

    async def _follow(self, session: Session) -> str:
        """Follow a session that runs to its end; return why it has ended."""
        lost = session.connection.lost
        while not lost.done():
            await self._wait_for_wake()
            if self.refresh.requested:
                await self.refresh.list_again(session)
            if self._may_be_silent:
                self._may_be_silent = False
                if not await self._is_responsive(session):
                    self.lifecycle.stop_sending()
                    return "it answers nothing any more, so it was ended"
        self.lifecycle.settle()
        return lost.result()

    async def _wait_for_wake(self) -> None:
        """Wait until there is something to look at, or until the list of tools is due."""
        due_s = self.refresh.due_s
        due = None if due_s is None else asyncio.ensure_future(self._parts.clock.sleep(max(0.0, due_s)))
        if due is not None:
            due.add_done_callback(lambda ended: None if ended.cancelled() else self.lifecycle.wake.set())
        try:
            await self.lifecycle.wake.wait()
        finally:
            if due is not None:
                self.refresh.requested = self.refresh.requested or due.done()
                due.cancel()
        self.lifecycle.wake.clear()

    async def _is_responsive(self, session: Session) -> bool:
        """Return whether a server that left a call without an answer still responds.

        While it is silent, new calls wait. It is given up when no earlier call waits for it any more, so that none loses its answer, or
        when it has been silent for too long.
        """
        heard, clock = session.heard, self._parts.clock
        latest = clock.monotonic() + _LONGEST_SILENCE_S
        while True:
            try:
                async with asyncio.timeout(_SILENT_S):
                    await session.is_alive()
            except TimeoutError:
                pass
            except McpError:
                await session.wait_for_end()
            if session.connection.lost.done():
                return True
            if session.heard != heard:
                self.lifecycle.resume(session)
                return True
            self.lifecycle.hold()
            if not self._running_requests or clock.monotonic() >= latest:
                return False

    def _start_problem(self, error: Exception) -> str:
        auth = self._parts.server.auth
        if isinstance(error, TimeoutError) and auth is not None and auth.waits_for:
            return f"{self.lifecycle.label} cannot be used yet: {auth.waits_for}"
        if isinstance(error, TimeoutError):
            return f"it did not start within {self._parts.server.start_timeout_s:g} s"
        if self._session is not None and (why := self._session.why_lost):
            return why
        if not isinstance(error, (McpError, UsageError)):
            self._parts.log.error("MCP server %s: it could not be served", self._parts.server.name, error=error)
            return f"an error in callgate ({type(error).__name__})"
        return str(error).removesuffix(f" {LOOK_FIRST}").removesuffix(".")  # what was lost is part of the start, and no call

    def _last_words(self) -> str:
        return self._session.connection.last_words if self._session is not None else ""

    async def _end_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _handle_notice(self, method: str, params: Mapping[str, Any]) -> None:
        if method == _TOOLS_CHANGED:
            self.refresh.request()
        else:
            self._parts.on_notice(method, params)
