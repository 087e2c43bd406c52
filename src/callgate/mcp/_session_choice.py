"""Choose the session of a server in which a request runs: the first one, or one of the calling client.

`McpServer.isolation` and the era of the server decide. A session is returned when it runs; for a call, with one of the slots that the
server has for concurrent calls. Knows nothing of what a request is for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from callgate.mcp._client_era import ClientEra
from callgate.mcp._client_sessions import ClientSessions
from callgate.mcp._connection import NotSent
from callgate.mcp._revisions import Era
from callgate.mcp._session import Session
from callgate.mcp._supervised_session import SupervisedSession
from callgate.mcp._tool_changes import Definition
from callgate.mcp.calling_client import CallingClient
from callgate.mcp.server_config import McpServer

__all__ = ["SessionChoice"]


class SessionChoice:
    """The sessions of one running server.

    Args:
        first: The session that lists the tools, and takes the calls of the host itself.
        client_era: The era in which each client gets its session.
        clients: The sessions of single clients.
    """

    def __init__(self, server: McpServer, first: SupervisedSession, client_era: ClientEra, clients: ClientSessions) -> None:
        self.first = first
        self.clients = clients
        self._server = server
        self._client_era = client_era
        self._slots: asyncio.Semaphore | None = None if server.parallel is None else asyncio.Semaphore(server.parallel)

    async def for_request(
        self, client: CallingClient | None, stack: ExitStack, definition: Definition | None = None
    ) -> tuple[SupervisedSession, Session]:
        """Return the running session for a request of a client. It is kept open until the end of `stack`.

        The server has got its answers from this client, such as its roots, which it may need for the request.

        Args:
            definition: The tool that is called; None if the request is not a call.

        Raises:
            NotSent: The server cannot be started, or its sessions are all in use.
        """
        supervised, session = await self._choose(client, stack, definition)
        if supervised is not self.first:
            await session.settle()
        return supervised, session

    async def for_subscription(self, client: CallingClient | None, stack: ExitStack) -> SupervisedSession:
        """Return the running session that reports changes to a client: its own one, if that can be kept open, and otherwise the first.

        Raises:
            NotSent: The server cannot be started.
        """
        begins_unanswered = client is not None and client.own_session is None and "roots" in client.capabilities
        if client is not None and not begins_unanswered:
            try:
                supervised, _ = await self.for_request(client, stack)
            except NotSent:
                supervised = self.first
            if supervised is not self.first and self.clients.keep_for_subscription(supervised):
                return supervised
        await self.first.lifecycle.wait_until_ready()
        return self.first

    @contextmanager
    def keep_handshakes_open(self, client: CallingClient) -> Iterator[list[Session]]:
        """Yield a client's own running sessions of the handshake era, which are kept open until the block ends."""
        era = None if self.first.era is None else self._client_era.choose(client, self.first.era, self.first.lifecycle.starts)
        if era != "handshake":
            yield []
            return
        with self.clients.use_all(client, era) as sessions:
            yield [one.lifecycle.ready for one in sessions if one.lifecycle.ready is not None]

    async def _choose(
        self, client: CallingClient | None, stack: ExitStack, definition: Definition | None
    ) -> tuple[SupervisedSession, Session]:
        first = self.first
        if client is None or self._server.isolation == "shared":
            return first, await self._wait_until_running(first, stack, definition)
        if first.era is None or first.lifecycle.state == "quarantined":
            await first.lifecycle.wait_until_ready()
        found = first.era or "stateless"
        era = self._client_era.choose(client, found, first.lifecycle.starts)
        if era != found and (chosen := await self._session_in_other_era(era, client, stack, definition)) is not None:
            return chosen
        supervised = stack.enter_context(self.clients.use(client, found)) if self._has_own(client, found) else first
        return supervised, await self._wait_until_running(supervised, stack, definition)

    async def _session_in_other_era(
        self, era: Era, client: CallingClient, stack: ExitStack, definition: Definition | None
    ) -> tuple[SupervisedSession, Session] | None:
        """Return a client's session in an era that the server may refuse; None if it does, or describes the tool differently there.

        Raises:
            NotSent: The session cannot be started for another reason, or all are in use.
        """
        with ExitStack() as tried:
            supervised = tried.enter_context(self.clients.use(client, era, may_refuse=True))
            try:
                session = await self._wait_until_running(supervised, tried, definition)
            except NotSent:
                if not supervised.refuses:
                    raise
                return None
            if definition is not None and not await supervised.refresh.offers(definition):
                return None
            stack.enter_context(tried.pop_all())
            return supervised, session

    async def _wait_until_running(self, supervised: SupervisedSession, stack: ExitStack, definition: Definition | None) -> Session:
        """Return the session as soon as it runs; for a call, with one of the server's slots until the end of `stack`."""
        while True:
            session = await supervised.lifecycle.wait_until_ready()
            if definition is None or self._slots is None:
                return session
            await self._slots.acquire()
            if session is supervised.lifecycle.ready:
                stack.callback(self._slots.release)
                return session
            self._slots.release()

    def _has_own(self, client: CallingClient, era: Era) -> bool:
        """Return whether a client has a session of its own."""
        if era == "handshake":
            return bool(client.key or client.capabilities) or self._server.client_tools
        return bool(client.key) and self._server.isolation == "principal"
