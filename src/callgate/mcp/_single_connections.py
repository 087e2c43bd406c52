"""The HTTP connections to one server: a client of httpx2 for each, so that a request looks at one connection only.

A pool of httpx2 looks at all its connections at the beginning and at the end of each request, and asks the operating system about each
that is idle. With 64 requests at once, that was a third of the time of a call. The connection that was used last is used first. Knows
nothing of requests.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import httpx2

__all__ = ["KEEP_ALIVE_S", "SingleConnections"]

KEEP_ALIVE_S: Final = 4.0
"""Less than the 5 seconds after which common servers (uvicorn, Node) close an idle connection: a request that meets the end of its
connection may have been received, and is never sent again.
"""
_IDLE_CONNECTIONS: Final = 64


class SingleConnections:
    """Clients that send one request at a time, each on a connection of its own that it keeps.

    Args:
        make: Makes a client.
    """

    def __init__(self, make: Callable[[], httpx2.AsyncClient]) -> None:
        self._make = make
        self._clients: set[httpx2.AsyncClient] = set()
        self._idle: deque[tuple[httpx2.AsyncClient, float]] = deque()
        """With the time of their last use, the latest at the end."""
        self._closed = False

    def make_ready(self) -> None:
        """Make the first client, which shows whether that can be done; see `take`."""
        self._idle.append((self._made(), 0.0))

    def take(self) -> httpx2.AsyncClient:
        """Return a client that nobody uses, to be given back.

        Raises:
            UsageError: An environment variable for proxies or certificates cannot be used.
        """
        return self._idle.pop()[0] if self._idle else self._made()

    def _made(self) -> httpx2.AsyncClient:
        client = self._make()
        self._clients.add(client)
        return client

    async def give_back(self, client: httpx2.AsyncClient) -> None:
        """Keep a client for the next request, and close those that have been idle for too long or are too many."""
        if self._closed or client not in self._clients:
            return
        now = asyncio.get_running_loop().time()
        self._idle.append((client, now))
        while len(self._idle) > _IDLE_CONNECTIONS or self._idle[0][1] + KEEP_ALIVE_S < now:
            unused, _ = self._idle.popleft()
            self._clients.discard(unused)
            await unused.aclose()

    async def close(self) -> None:
        """Close all connections, those in use too. Idempotent."""
        self._closed = True
        self._idle.clear()
        while self._clients:
            await self._clients.pop().aclose()
