"""The sessions of one server that belong to single clients.

In the handshake era, a client declares its capabilities once, when a session begins, and the server may keep state in the session.
Clients that differ therefore have sessions of their own: made for their first call, closed when they are not used for a while, and bounded
in number, together and for each key of clients. A server that asks something during calls without saying for which gets a session for each
call at a time, except that calls of one client that can be asked for the sake of any of them share one. Knows nothing of the session that
lists the server's tools for the engine.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import Context
from functools import partial
from itertools import count
from typing import Any

from msgspec import structs

from callgate.mcp._connection import ConnectionLost, Message, NotSent
from callgate.mcp._revisions import Era
from callgate.mcp._server_requests import ClientRequests
from callgate.mcp._session import Session
from callgate.mcp._supervised_session import SessionParts, SupervisedSession
from callgate.mcp._tool_changes import Definition
from callgate.mcp.calling_client import CallingClient

__all__ = ["ClientSessions"]


_Key = tuple[str, str, int]
"""The key of the client, what was offered to the server, and the number of the session among those of both."""


class _ClientSession:
    """A session, and who uses it."""

    def __init__(self, key: _Key, supervised: SupervisedSession, tools: _ComparedTools, requests: ClientRequests, began: float) -> None:
        self.key = key
        self.supervised = supervised
        self.tools = tools
        self.requests = requests
        self.users: list[CallingClient] = []
        """The clients of the running calls."""
        self.subscriptions = 0
        """How many subscriptions to resources keep it open."""
        self.abandoned = False
        """Whether the server may still work on the call of a client that no longer waits, and that has no session of its own."""
        self.idle_since = began

    @property
    def busy(self) -> bool:
        return bool(self.users or self.subscriptions)

    def cannot_confuse(self, client: CallingClient) -> bool:
        """Return whether a question during a call of this client cannot be one for another client."""
        own = client.own_session
        return not self.abandoned and all(own is not None and other.own_session is own for other in self.users)


class _ComparedTools:
    """The tools as the server lists them in one session. A call is only sent if they are described there as they are to the engine.

    Args:
        on_listed: Called when they were listed.
    """

    def __init__(self, server: str, on_listed: Callable[[], Awaitable[None]]) -> None:
        self._server = server
        self._on_listed = on_listed
        self.definitions: Mapping[str, Message] = {}

    async def refresh(self, session: Session) -> None:
        listed = await session.list_tools()
        self.definitions = {name: found for found in reversed(listed) if isinstance(name := found.get("name"), str) and name}
        await self._on_listed()

    def check(self, definition: Definition) -> None:
        found = self.definitions.get(definition["name"])
        if found != definition:
            does = "does not offer this tool to this client" if found is None else "describes this tool differently to this client"
            text = f"The MCP server '{self._server}' {does}, so the call was not sent. Use another tool."
            raise NotSent(text, code="tool_unavailable", retryable=False)

    def handle_problem(self, why: str) -> None:
        """The session is used again when it runs."""


class ClientSessions:
    """The sessions of clients with one server. At most `max_sessions` of the server's configuration are open.

    Args:
        on_tools: Called when the tools of a session were listed, and when a session has ended.
        on_notice: Called with the key of the clients of a session, and its notices of changes, except of tools.
    """

    def __init__(
        self,
        parts: SessionParts,
        on_tools: Callable[[], Awaitable[None]],
        on_notice: Callable[[str, str, Mapping[str, Any]], None],
    ) -> None:
        self._parts = parts
        self._on_notice = on_notice
        self._on_tools = on_tools
        self._sessions: dict[_Key, _ClientSession] = {}
        """The latest used last."""
        self._closing: set[asyncio.Task[None]] = set()
        self._sweeper: asyncio.Task[None] | None = None
        self._asks = parts.server.client_tools
        """Whether the server asks something during calls without saying for which, or probably does."""

    @contextmanager
    def use(self, client: CallingClient, era: Era, *, may_refuse: bool = False) -> Iterator[SupervisedSession]:
        """Keep the client's session open during the block; make it if there is none.

        Args:
            may_refuse: See `SupervisedSession`.

        Raises:
            NotSent: Too many sessions are in use, by all clients or by those with this key.
        """
        with self._hold(self._find_or_start(client, era, may_refuse=may_refuse), client) as supervised:
            yield supervised

    @contextmanager
    def use_all(self, client: CallingClient, era: Era) -> Iterator[list[SupervisedSession]]:
        """Keep the sessions that the client may use open during the block; none is made."""
        with ExitStack() as stack:
            own = _shared_key(client, _offered_capabilities(client, era))
            found = [one for key, one in self._sessions.items() if key[:2] == own]
            yield [stack.enter_context(self._hold(one, client)) for one in found]

    def keep_for_subscription(self, supervised: SupervisedSession) -> bool:
        """Keep a session open for a subscription until `release_subscription`, if fewer than half of all that may be open are kept so."""
        one = self._find(supervised)
        kept = sum(1 for other in self._sessions.values() if other.subscriptions and other is not one)
        if one is None or kept >= self._parts.server.max_sessions // 2:
            return False
        one.subscriptions += 1
        return True

    def release_subscription(self, supervised: SupervisedSession) -> None:
        one = self._find(supervised)
        if one is not None:
            one.subscriptions -= 1
            one.idle_since = self._parts.clock.monotonic()

    def _find(self, supervised: SupervisedSession) -> _ClientSession | None:
        return next((one for one in self._sessions.values() if one.supervised is supervised), None)

    @contextmanager
    def _hold(self, one: _ClientSession, client: CallingClient) -> Iterator[SupervisedSession]:
        one.users.append(client)
        try:
            with one.requests.asking(client):
                yield one.supervised
        except (asyncio.CancelledError, ConnectionLost):
            one.abandoned = one.abandoned or client.own_session is None
            raise
        finally:
            one.users.remove(client)
            one.idle_since = self._parts.clock.monotonic()
            useless = (self._asks and one.abandoned and not one.subscriptions) or one.supervised.refuses
            if useless and not one.users and self._sessions.get(one.key) is one:
                self._retire(one.key)  # because it takes no call any more

    async def close(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
        for key in list(self._sessions):
            self._retire(key)
        if self._closing:
            await asyncio.wait(self._closing)

    def tools(self) -> list[tuple[str, Mapping[str, Definition]]]:
        """Return what each session lists: the key of its client, and the definitions by name."""
        return [(one.key[0], one.tools.definitions) for one in self._sessions.values()]

    def _find_or_start(self, client: CallingClient, era: Era, *, may_refuse: bool) -> _ClientSession:
        offered = _offered_capabilities(client, era)
        for number in count():
            key = (*_shared_key(client, offered), number)
            found = self._sessions.get(key)
            if found is None or not self._asks or found.cannot_confuse(client):
                break
        if found is None or not found.busy:
            self._check_share(client)
        one = found or self._start(key, offered, era, may_refuse=may_refuse)
        self._sessions.pop(key, None)
        self._sessions[key] = one
        return one

    def _check_share(self, client: CallingClient) -> None:
        """Raise if the clients with this key use so many sessions that few are left for others.

        They may take one more while they use at most as many as are free: no key takes all, and none is reserved for absent clients.

        Raises:
            NotSent: They already use their share.
        """
        server = self._parts.server
        in_use = [key[0] for key, one in self._sessions.items() if one.busy]
        own, free = in_use.count(client.key), server.max_sessions - len(in_use)
        if own and own > free:
            raise NotSent(
                f"The MCP server '{server.name}' has {server.max_sessions} sessions of clients. {own} of them are in use by this client,"
                " and the rest is for others, so the request was not sent. Answer the questions of running calls or end them, then try"
                " again, or set a larger max_sessions for the server."
            )

    def _note_asking(self) -> None:
        self._asks = True

    def _start(self, key: _Key, offered: Mapping[str, Any], era: Era, *, may_refuse: bool) -> _ClientSession:
        server = self._parts.server
        if len(self._sessions) >= server.max_sessions:
            self._make_room()
        requests = ClientRequests(server.name, offered, self._parts.log, on_asked=self._note_asking)
        tools = _ComparedTools(server.name, self._on_tools)
        parts = structs.replace(self._parts, on_notice=partial(self._on_notice, key[0]))
        supervised = SupervisedSession(parts, requests, tools, era, may_refuse=may_refuse)
        supervised.begin()
        if self._sweeper is None or self._sweeper.done():
            self._sweeper = asyncio.get_running_loop().create_task(self._close_idle(), context=Context())
        return _ClientSession(key, supervised, tools, requests, self._parts.clock.monotonic())

    def _make_room(self) -> None:
        server = self._parts.server
        idle = next((key for key, one in self._sessions.items() if not one.busy), None)
        if idle is None:
            raise NotSent(
                f"The MCP server '{server.name}' has {server.max_sessions} sessions of clients, all in use, so the request was not"
                " sent. Try again later, or set a larger max_sessions for the server."
            )
        self._retire(idle)

    def _retire(self, key: _Key) -> None:
        """Remove a session and close it in a background task."""
        closing = asyncio.get_running_loop().create_task(self._close(self._sessions.pop(key)), context=Context())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def _close(self, one: _ClientSession) -> None:
        await one.supervised.close()
        await self._on_tools()

    async def _close_idle(self) -> None:
        """Close sessions that have been idle for `session_idle_s`, until none is left."""
        clock, idle_s = self._parts.clock, self._parts.server.session_idle_s
        while self._sessions:
            now = clock.monotonic()
            due = {key: now + idle_s if one.busy else one.idle_since + idle_s for key, one in self._sessions.items()}
            for key in [key for key, at in due.items() if at <= now]:
                self._retire(key)
            await clock.sleep(max(0.001, min(due.values()) - now))


def _offered_capabilities(client: CallingClient, era: Era) -> Mapping[str, Any]:
    """Return the capabilities that are declared to the server when a session begins."""
    return {**client.capabilities} if era == "handshake" else {}


def _shared_key(client: CallingClient, offered: Mapping[str, Any]) -> tuple[str, str]:
    return client.key, json.dumps(offered, sort_keys=True, separators=(",", ":"))
