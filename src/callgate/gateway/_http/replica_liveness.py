"""Find out whether another gateway is alive while its answer to a request is awaited.

A call may take as long as it likes, so the silence of a request proves nothing. A process that is stopped or hangs keeps its connections
open and does not answer `/health` either. Any answer counts, also a refusal.
"""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urljoin

from callgate.models._connection_closing import close_without_waiting

__all__ = ["ReplicaLiveness"]

_PAUSE_S = 2.0
_CHECK_S = 3.0
_SILENCE_S = 10.0
"""Longer than `HttpLimits.stop_timeout_s`: a gateway that stops takes no connections, but still ends its calls."""
_MISSED_CHECKS = 2
"""How many checks must have failed. After one alone, this process may have been the one that was stopped."""


class ReplicaLiveness:
    """Checks other gateways, each once in a while, however many requests wait for it."""

    def __init__(self) -> None:
        import httpx2  # only several gateways need it

        self._failed: type[Exception] = httpx2.HTTPError
        self._client: Any = httpx2.AsyncClient(timeout=_CHECK_S, trust_env=False)
        close_without_waiting(self._client)
        self._checks: dict[str, asyncio.Task[bool]] = {}
        self._answered_s: dict[str, float] = {}

    async def wait_until_silent(self, address: str) -> None:
        """Return when the gateway at `address` has not answered for `_SILENCE_S`."""
        loop, url = asyncio.get_running_loop(), urljoin(address, "/health")
        answered_s, missed = loop.time(), 0
        while missed < _MISSED_CHECKS or loop.time() - answered_s < _SILENCE_S:
            await asyncio.sleep(_PAUSE_S)
            if await self._answers(url):
                answered_s, missed = loop.time(), 0
            else:
                missed += 1

    async def close(self) -> None:
        checks = list(self._checks.values())
        for check in checks:
            check.cancel()
        await asyncio.gather(*checks, return_exceptions=True)
        await self._client.aclose()

    async def _answers(self, url: str) -> bool:
        loop = asyncio.get_running_loop()
        if loop.time() - self._answered_s.get(url, -_PAUSE_S) < _PAUSE_S:
            return True
        if url not in self._checks:
            self._checks[url] = loop.create_task(self._check(url))
            self._checks[url].add_done_callback(lambda _: self._checks.pop(url))
        return await asyncio.shield(self._checks[url])

    async def _check(self, url: str) -> bool:
        try:
            await self._client.get(url)
        except self._failed:
            return False
        self._answered_s[url] = asyncio.get_running_loop().time()
        return True
