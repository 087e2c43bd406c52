"""Choose the era of MCP in which the requests of one client are sent to a server that supports both.

In the handshake era, a server asks its client by requests of its own; in the stateless era, within the result of a call. Tools often
support only the first. So a client that has begun with a handshake, and answers requests, gets a session of the handshake era. If the
server refuses that, the client's requests are sent in the stateless era, like those of all other clients. Knows no session.
"""

from __future__ import annotations

import math

from callgate._clock import Clock
from callgate.mcp._revisions import Era
from callgate.mcp.calling_client import CAPABILITY_OF, CallingClient
from callgate.mcp.server_config import McpServer

__all__ = ["ClientEra"]

_REFUSED_S = 300.0
"""Seconds after which a server on the network that takes no handshake is tried again, because it may have been replaced."""
_FAILED_S = 30.0
"""Seconds after which a server is tried again whose sessions could not be started for another reason."""


class ClientEra:
    """Chooses the era for each client of one server, and remembers whether the server refuses handshakes."""

    def __init__(self, server: McpServer, clock: Clock) -> None:
        self._chosen = server.era
        self._refused_s = _REFUSED_S if server.url else math.inf
        self._clock = clock
        self._refused_start = 0
        """The number of the server's start that refuses handshakes."""
        self._refused_until = -math.inf

    def choose(self, client: CallingClient, era: Era, starts: int) -> Era:
        """Return the era for the requests of a client.

        Args:
            era: The era that the server was found to have.
            starts: How often the server was started until now.
        """
        if era == "handshake" or self._chosen is not None or not _answers_requests(client):
            return era
        refused = starts == self._refused_start and self._clock.monotonic() < self._refused_until
        return era if refused else "handshake"

    def note_refusal(self, starts: int, *, lasting: bool) -> None:
        """Record that no session with a handshake can be started.

        Args:
            lasting: Whether the server has shown that it takes no handshake, or cannot be used after one.
        """
        self._refused_start = starts
        self._refused_until = self._clock.monotonic() + (self._refused_s if lasting else _FAILED_S)


def _answers_requests(client: CallingClient) -> bool:
    """Return whether the client has shaken hands and answers any request of a server."""
    return client.own_session is not None and not client.capabilities.keys().isdisjoint(CAPABILITY_OF.values())
