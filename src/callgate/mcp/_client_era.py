"""The era in which a server that speaks both is spoken to on behalf of one client.

A server asks its client by requests of its own in the handshake era, and within the result of a call in the stateless one. Many servers
that speak both have tools that can only do the first. So the calls of a client that has shaken hands, and can be asked, are sent in its own
era: what works without a gateway works behind one. Knows no call.
"""

from __future__ import annotations

import asyncio
from contextvars import Context

from callgate.mcp._connection import ConnectionLost, McpError, NotSent
from callgate.mcp._revisions import Era
from callgate.mcp._server_requests import ServerRequests
from callgate.mcp._session import Session
from callgate.mcp._supervised_session import SessionParts, SupervisedSession
from callgate.mcp.calling_client import CallingClient

__all__ = ["ClientEra"]

_LONGEST_TRIAL_S = 10.0
"""Seconds after which a server that leaves a handshake without an answer is taken for one that has none."""


class ClientEra:
    """Finds out whether a server of the stateless era also takes handshakes: once for each start of the server, when a client needs it.

    Args:
        first: The session that has found out the era of the server.
    """

    def __init__(self, parts: SessionParts, first: SupervisedSession) -> None:
        self._parts = parts
        self._first = first
        self._trial: asyncio.Task[bool | None] | None = None
        """Returns whether the server takes handshakes; None if it could not be asked."""
        self._tried_at = 0
        """The number of the start of the server that was tried."""

    async def of(self, client: CallingClient) -> Era:
        """Return the era for the requests of a client of a server that has been started."""
        era = self._first.era or "stateless"
        if era == "handshake" or self._parts.server.era is not None or not _can_be_asked(client):
            return era
        return "handshake" if await self._takes_handshakes() else era

    def forget(self) -> None:
        """Try again for the next client, because no session can be started in the era that was found out."""
        self._tried_at = -1

    async def close(self) -> None:
        if self._trial is not None:
            self._trial.cancel()
            await asyncio.wait([self._trial])

    async def _takes_handshakes(self) -> bool:
        starts = self._first.life.starts
        if self._trial is None or (self._trial.done() and self._tried_at != starts):
            self._tried_at = starts
            self._trial = asyncio.get_running_loop().create_task(self._try(), context=Context())
        takes = await asyncio.shield(self._trial)
        if takes is None:
            self.forget()
        return takes is True

    async def _try(self) -> bool | None:
        parts = self._parts
        session = Session(
            parts.server,
            parts.connect,
            ServerRequests(parts.server, parts.log),
            parts.log,
            on_notice=lambda *_: None,
            on_late=lambda *_: None,
        )
        try:
            async with asyncio.timeout(min(_LONGEST_TRIAL_S, parts.server.start_timeout_s)):
                await session.start("handshake")
        except NotSent as error:
            return None if error.retryable else False
        except ConnectionLost:
            return None if parts.server.url else False  # a program that ends will end each time
        except (McpError, TimeoutError):
            return False
        finally:
            await session.close()
        return True


def _can_be_asked(client: CallingClient) -> bool:
    """Return whether the client has shaken hands and answers any request of a server."""
    return client.own_session is not None and not client.capabilities.keys() <= {"extensions"}
