"""The sessions of the handshake era over HTTP: who has which, how many, and how long."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from callgate.gateway._exchange import SessionFront
from callgate.gateway._http.posted_request import PostedRequest
from callgate.gateway._http.request_checks import RefusedRequest
from callgate.gateway._http.streams import EventBuffer
from callgate.gateway._http_limits import HttpLimits
from callgate.gateway.principals import Principal
from callgate.mcp._connection import Message

__all__ = ["GatewaySession", "GatewaySessions", "StandingStreams"]


class StandingStreams:
    """The standing streams that the client of one session has open, as an `Exchange`: each message is sent on one of them.

    On the one that was opened last: a client often opens another because it has lost the one before, which the gateway sees later.

    Source: MCP 2025-11-25, Transports: "Multiple Connections".
    """

    def __init__(self) -> None:
        self._open: list[EventBuffer] = []
        """In the order in which they were opened."""

    def __len__(self) -> int:
        return len(self._open)

    def add(self, stream: EventBuffer) -> None:
        self._open.append(stream)

    def remove(self, stream: EventBuffer) -> None:
        self._open.remove(stream)

    def send(self, message: Message) -> bool:
        return any(stream.send(message) for stream in reversed(self._open))

    def close(self) -> None:
        """End all streams."""
        for stream in self._open:
            stream.close()


class GatewaySession:
    """One handshake session."""

    def __init__(self, session_id: str, principal: Principal, front: SessionFront, streams: StandingStreams) -> None:
        self.id = session_id
        self.principal = principal
        self.front = front
        self.streams = streams
        self.revision = ""
        """The revision that was negotiated; empty until it is."""
        self.running: set[PostedRequest] = set()
        self.used_at = asyncio.get_running_loop().time()
        self.idle_timer: asyncio.TimerHandle | None = None

    def use_principal(self, principal: Principal) -> None:
        """Give the following requests the rights of `principal`."""
        self.principal = principal
        self.front.use_principal(principal)


class GatewaySessions:
    """All open sessions.

    Args:
        limits: How many there may be, and how long an unused one is kept.
        new_id: Returns an id that nobody can guess.
        new_front: Returns the front for a new session, which sends on its standing streams what belongs to no request.
    """

    def __init__(
        self, limits: HttpLimits, new_id: Callable[[], str], new_front: Callable[[Principal, StandingStreams], SessionFront]
    ) -> None:
        self._limits = limits
        self._new_id = new_id
        self._new_front = new_front
        self._open: dict[str, GatewaySession] = {}
        self._of: Counter[str] = Counter()
        self._closing: set[asyncio.Task[None]] = set()

    def open(self, principal: Principal) -> GatewaySession:
        """Return a new session, which counts from now on. If there are too many, it replaces one that was not used for a while.

        Raises:
            RefusedRequest: The principal, or the server, can have no further session.
        """
        mine = self._of[principal.name]
        if mine >= self._limits.sessions_per_principal and not self._end_unused(principal.name):
            text = f"{principal.name} has {mine} open sessions, which is the limit. End one with DELETE."
            raise RefusedRequest(429, text, reason="too_many_sessions")
        if len(self._open) >= self._limits.sessions and not self._end_unused():
            text = f"The server has {len(self._open)} open sessions, which is its limit. Try again later."
            raise RefusedRequest(503, text, reason="too_many_sessions")
        streams = StandingStreams()
        session = GatewaySession(self._new_id(), principal, self._new_front(principal, streams), streams)
        self._open[session.id] = session
        self._of[principal.name] += 1
        self._expire(session)
        return session

    def find(self, session_id: bytes | None, revision: bytes | None, principal: Principal) -> GatewaySession:
        """Return a principal's session.

        Args:
            revision: What the client says was negotiated; None if it does not say.

        Raises:
            RefusedRequest: There is no id, no such session of this principal, or it has another revision.
        """
        if session_id is None:
            raise RefusedRequest(400, "The header Mcp-Session-Id is missing. Send initialize first, and then the id of its response.")
        session = self._open.get(session_id.decode("latin-1"))
        if session is None or not session.revision or session.principal.name != principal.name:
            raise RefusedRequest(404, "There is no such session. Send initialize to start another one.")
        if revision is not None and revision.decode("latin-1") != session.revision:
            raise RefusedRequest(400, f"The session uses {session.revision}. Send MCP-Protocol-Version: {session.revision}.")
        if session.principal != principal:  # its rights were changed meanwhile
            session.use_principal(principal)
        session.used_at = asyncio.get_running_loop().time()
        return session

    async def end_of(self, ended: Callable[[str], bool]) -> None:
        """Close the sessions of some principals, given by name."""
        sessions = [session for session in self._open.values() if ended(session.principal.name)]
        await asyncio.gather(*(self.end(session) for session in sessions), return_exceptions=True)

    async def end(self, session: GatewaySession) -> None:
        """Close a session and cancel what runs in it."""
        self._forget(session)
        if session.idle_timer is not None:
            session.idle_timer.cancel()
        session.streams.close()
        await session.front.close()

    def __len__(self) -> int:
        return len(self._open)

    def close_streams(self) -> None:
        """End the standing streams; the sessions stay open."""
        for session in self._open.values():
            session.streams.close()

    async def close(self) -> None:
        """End all sessions."""
        await asyncio.gather(*(self.end(session) for session in list(self._open.values())), return_exceptions=True)

    def _expire(self, session: GatewaySession) -> None:
        loop = asyncio.get_running_loop()
        if session.streams or session.running:
            session.used_at = loop.time()
        left_s = session.used_at + self._limits.session_idle_s - loop.time()
        if left_s > 0:
            session.idle_timer = loop.call_later(left_s, self._expire, session)
        else:
            self._end_soon(session)

    def _end_unused(self, name: str = "") -> bool:
        """End the session that was unused for longest, if it was for long enough; return whether there was one.

        Args:
            name: The principal whose session it must be; empty: anybody's.
        """
        unused = (one for one in self._open.values() if name in ("", one.principal.name) and not one.streams and not one.running)
        oldest = min(unused, key=lambda one: one.used_at, default=None)
        if oldest is None or asyncio.get_running_loop().time() - oldest.used_at < self._limits.session_spare_s:
            return False
        self._forget(oldest)
        self._end_soon(oldest)
        return True

    def _forget(self, session: GatewaySession) -> None:
        if self._open.pop(session.id, None) is not None:
            self._of -= Counter([session.principal.name])

    def _end_soon(self, session: GatewaySession) -> None:
        task = asyncio.create_task(self.end(session))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
