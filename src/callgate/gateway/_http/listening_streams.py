"""The open streams for notifications. Each is closed when its token expires or is removed.

The streams of running calls are not included: a call was authorized when it started. Knows no method and no kind of token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from callgate.gateway._http.request_checks import Headers, RequestChecks
from callgate.gateway.principals import Principal

__all__ = ["ListeningStreams"]


class ListeningStreams:
    """The open streams, each with a function that checks again whose token its request had."""

    def __init__(self, checks: RequestChecks) -> None:
        self._checks = checks
        self._open: dict[object, tuple[Headers, Principal, Callable[[], Awaitable[None]]]] = {}

    @contextmanager
    def one(self, headers: Headers, principal: Principal, end: Callable[[], Awaitable[None]]) -> Iterator[None]:
        """Count a stream as open during the block.

        Args:
            end: Ends the stream.
        """
        key = object()
        self._open[key] = headers, principal, end
        try:
            yield
        finally:
            del self._open[key]

    async def end_revoked(self) -> None:
        """End the streams whose tokens no longer stand for their principals."""
        opened = list(self._open.values())
        valid = await asyncio.gather(*(self._checks.is_from(principal.name, headers) for headers, principal, _ in opened))
        ends = [end() for (_, _, end), still in zip(opened, valid, strict=True) if not still]
        await asyncio.gather(*ends, return_exceptions=True)
