"""Write responses: whole ones, and event streams of messages that wait in a bounded buffer. Knows no method."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from callgate.gateway._http_limits import HttpLimits
from callgate.mcp._connection import Message
from callgate.mcp._messages import encoded

__all__ = ["EventBuffer", "RawHeaders", "Receive", "Send", "event_of", "send_body", "send_events", "wait_for_disconnect"]

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
RawHeaders = tuple[tuple[bytes, bytes], ...]

_JSON = ((b"content-type", b"application/json"), (b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
_EVENTS = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
)
_COMMENT = b":\r\n\r\n"


class EventBuffer:
    """The messages that wait on one event stream. An `Exchange`.

    Args:
        limits: How many messages and bytes may wait.
    """

    def __init__(self, limits: HttpLimits) -> None:
        self._limits = limits
        self._events: deque[bytes] = deque()
        self._size_bytes = 0
        self._changed = asyncio.Event()
        self.closed = False

    def send(self, message: Message) -> bool:
        event = event_of(message)
        full = len(self._events) >= self._limits.stream_messages or self._size_bytes + len(event) > self._limits.stream_bytes
        if self.closed or full:
            return False
        self._append(event)
        return True

    def close(self, last: Message | None = None) -> None:
        """End the stream after a last message, which is accepted even if the buffer is full."""
        if not self.closed and last is not None:
            self._append(event_of(last))
        self.closed = True
        self._changed.set()

    def take(self) -> bytes:
        """Return what waits, and forget it."""
        taken = b"".join(self._events)
        self._events.clear()
        self._size_bytes = 0
        return taken

    async def wait(self, timeout_s: float) -> bool:
        """Wait for a message or the end. Return False after the timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return False
        self._changed.clear()
        return True

    def _append(self, event: bytes) -> None:
        self._events.append(event)
        self._size_bytes += len(event)
        self._changed.set()


async def send_events(send: Send, buffer: EventBuffer, limits: HttpLimits) -> None:
    """Send an event stream of what the buffer gets, until the buffer is closed."""
    await send({"type": "http.response.start", "status": 200, "headers": _EVENTS})
    await send({"type": "http.response.body", "body": _COMMENT, "more_body": True})
    while True:
        waiting = buffer.take()
        if buffer.closed:
            await send({"type": "http.response.body", "body": waiting})
            return
        if waiting:
            await send({"type": "http.response.body", "body": waiting, "more_body": True})
        elif not await buffer.wait(limits.keep_alive_s):
            await send({"type": "http.response.body", "body": _COMMENT, "more_body": True})


async def send_body(send: Send, status: int, body: bytes, headers: RawHeaders = (), kind: RawHeaders = _JSON) -> None:
    """Send a whole response."""
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": (*(kind if body else ()), length, *headers)})
    await send({"type": "http.response.body", "body": body})


async def wait_for_disconnect(receive: Receive) -> None:
    """Return when the client has gone away."""
    while (await receive())["type"] != "http.disconnect":
        pass


def event_of(message: Message) -> bytes:
    return b"event: message\r\ndata: " + encoded(message) + b"\r\n\r\n"
