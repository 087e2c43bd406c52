"""The sessions of the handshake era over HTTP: who has which, how many, and how long."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Coroutine
from typing import Any

from callgate.gateway._exchange import Front
from callgate.gateway._http.limits import HttpLimits
from callgate.gateway._http.request_checks import Refused
from callgate.gateway._http.streams import EventBuffer
from callgate.gateway.principals import Principal
from callgate.mcp._connection import Message

__all__ = ["HttpSession", "HttpSessions"]


class HttpSession:
    """One handshake session. As an `Exchange`, it sends on the standing stream, if the client has one open."""

    def __init__(self, principal: Principal) -> None:
        self.id = secrets.token_urlsafe(32)
        self.principal = principal
        self.front: Front | None = None
        self.stream: EventBuffer | None = None
        self.tasks: set[asyncio.Task[Any]] = set()
        self.used_at = 0.0

    def send(self, message: Message) -> bool:
        return self.stream is not None and self.stream.send(message)

    @property
    def busy(self) -> bool:
        return self.stream is not None or bool(self.tasks)


class HttpSessions:
    """All open sessions.

    Args:
        limits: How many there may be, and how long an unused one is kept.
    """

    def __init__(self, limits: HttpLimits) -> None:
        self._limits = limits
        self._open: dict[str, HttpSession] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def check_room(self, principal: Principal) -> None:
        """Raise `Refused` if this principal can have no further session."""
        mine = sum(session.principal.name == principal.name for session in self._open.values())
        if mine >= self._limits.sessions_per_principal:
            raise Refused(429, f"{principal.name} has {mine} open sessions, which is the limit. End one with DELETE.")
        if len(self._open) >= self._limits.sessions:
            raise Refused(503, f"The server has {len(self._open)} open sessions, which is its limit. Try again later.")

    def add(self, session: HttpSession) -> None:
        """Keep a session until it is ended or unused for too long."""
        self._open[session.id] = session
        session.used_at = asyncio.get_running_loop().time()
        self._watch(session)

    def find(self, session_id: bytes | None, principal: Principal) -> HttpSession:
        """Return a principal's session.

        Raises:
            Refused: There is no id, or no such session of this principal.
        """
        if session_id is None:
            raise Refused(400, "The header Mcp-Session-Id is missing. Send initialize first, and then the id of its response.")
        session = self._open.get(session_id.decode("latin-1"))
        if session is None or session.principal.name != principal.name:
            raise Refused(404, "There is no such session. Send initialize to start another one.")
        session.used_at = asyncio.get_running_loop().time()
        return session

    async def end(self, session: HttpSession) -> None:
        """Close a session and cancel what runs in it."""
        self._open.pop(session.id, None)
        if session.stream is not None:
            session.stream.closed = True
            session.stream.wake()
        if session.front is not None:
            await session.front.close()

    async def close(self) -> None:
        """End all sessions."""
        await asyncio.gather(*(self.end(session) for session in list(self._open.values())), return_exceptions=True)

    def _watch(self, session: HttpSession) -> None:
        if session.id not in self._open:
            return
        loop = asyncio.get_running_loop()
        if session.busy:
            session.used_at = loop.time()
        left_s = session.used_at + self._limits.session_idle_s - loop.time()
        if left_s > 0:
            loop.call_later(left_s, self._watch, session)
        else:
            self._start(self.end(session))

    def _start(self, ending: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(ending)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
