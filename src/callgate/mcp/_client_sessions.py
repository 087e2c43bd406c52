"""The sessions of one server that belong to single clients.

A server of the handshake era is told once, at the beginning of a session, what its client can do, and may keep state in the session.
Clients that differ therefore have sessions of their own: made for their first call, closed when they are not used for a while, and bounded
in number. Knows nothing of the session that lists the server's tools for the engine.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import Context
from typing import Any

from callgate.mcp._connection import Message, NotSent
from callgate.mcp._revisions import Era
from callgate.mcp._server_requests import ClientRequests
from callgate.mcp._session import Session
from callgate.mcp._supervised_session import SessionParts, SupervisedSession
from callgate.mcp._tool_changes import Definition
from callgate.mcp.calling_client import CallingClient

__all__ = ["ClientSessions"]


class _ClientSession:
    """A session, and who uses it."""

    def __init__(self, supervised: SupervisedSession, requests: ClientRequests, began: float) -> None:
        self.supervised = supervised
        self.requests = requests
        self.users = 0
        self.idle_since = began


class _ComparedTools:
    """The tools as the server lists them in one session. A call is only sent if they are described there as they are to the engine."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._definitions: Mapping[str, Message] = {}

    async def refresh(self, session: Session) -> None:
        listed = await session.list_tools()
        self._definitions = {found["name"]: found for found in reversed(listed) if isinstance(found.get("name"), str)}

    def check(self, definition: Definition) -> None:
        found = self._definitions.get(definition["name"])
        if found != definition:
            does = "does not offer this tool to this client" if found is None else "describes this tool differently to this client"
            text = f"The MCP server '{self._server}' {does}, so the call was not sent. Use another tool."
            raise NotSent(text, code="tool_unavailable", retryable=False)

    def unavailable(self, why: str) -> None:
        """The session is used again when it runs."""


class ClientSessions:
    """The sessions of clients with one server. At most `max_sessions` of the server's configuration are open."""

    def __init__(self, parts: SessionParts) -> None:
        self._parts = parts
        self._sessions: dict[tuple[str, str], _ClientSession] = {}
        """The latest used last."""
        self._closing: set[asyncio.Task[None]] = set()
        self._sweeper: asyncio.Task[None] | None = None

    @contextmanager
    def used(self, client: CallingClient, era: Era) -> Iterator[SupervisedSession]:
        """Keep the client's session open during the block; make it if there is none.

        Raises:
            NotSent: Too many sessions are in use.
        """
        one = self._of(client, era)
        one.users += 1
        try:
            with one.requests.asked_of(client):
                yield one.supervised
        finally:
            one.users -= 1
            one.idle_since = self._parts.clock.monotonic()

    async def close(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
        for key in list(self._sessions):
            self._retire(key)
        if self._closing:
            await asyncio.wait(self._closing)

    def has(self, client: CallingClient, era: Era) -> bool:
        """Return whether the client has a session."""
        return _key(client, _offered(client, era)) in self._sessions

    def _of(self, client: CallingClient, era: Era) -> _ClientSession:
        offered = _offered(client, era)
        key = _key(client, offered)
        found = self._sessions.pop(key, None) or self._made(offered, era)
        self._sessions[key] = found
        return found

    def _made(self, offered: Mapping[str, Any], era: Era) -> _ClientSession:
        server = self._parts.server
        if len(self._sessions) >= server.max_sessions:
            self._make_room()
        requests = ClientRequests(server.name, offered, self._parts.log)
        supervised = SupervisedSession(self._parts, requests, _ComparedTools(server.name), era)
        supervised.begin()
        if self._sweeper is None or self._sweeper.done():
            self._sweeper = asyncio.get_running_loop().create_task(self._close_idle(), context=Context())
        return _ClientSession(supervised, requests, self._parts.clock.monotonic())

    def _make_room(self) -> None:
        server = self._parts.server
        idle = next((key for key, one in self._sessions.items() if not one.users), None)
        if idle is None:
            raise NotSent(
                f"The MCP server '{server.name}' has {server.max_sessions} sessions of clients, all in use, so the request was not"
                " sent. Try again later, or set a larger max_sessions for the server."
            )
        self._retire(idle)

    def _retire(self, key: tuple[str, str]) -> None:
        """Close a session in a task of its own; nobody can use it any more."""
        closing = asyncio.get_running_loop().create_task(self._sessions.pop(key).supervised.close(), context=Context())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def _close_idle(self) -> None:
        """Close sessions that nobody has used for a while, until there are none."""
        clock, idle_s = self._parts.clock, self._parts.server.session_idle_s
        while self._sessions:
            now = clock.monotonic()
            due = {key: now + idle_s if one.users else one.idle_since + idle_s for key, one in self._sessions.items()}
            for key in [key for key, at in due.items() if at <= now]:
                self._retire(key)
            await clock.sleep(max(0.001, min(due.values()) - now))


def _offered(client: CallingClient, era: Era) -> Mapping[str, Any]:
    """Return the capabilities that a server is told of when a session with it begins."""
    return {**client.capabilities} if era == "handshake" else {}


def _key(client: CallingClient, offered: Mapping[str, Any]) -> tuple[str, str]:
    return client.key, json.dumps(offered, sort_keys=True, separators=(",", ":"))
