"""Answer one request: as JSON, or as an event stream if the front sends something before its response. Knows no era."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from callgate.gateway._exchange import Front
from callgate.gateway._http.limits import HttpLimits
from callgate.mcp._connection import Message
from callgate.mcp._messages import INTERNAL_ERROR, RpcError, encoded, error_answer

__all__ = ["EventBuffer", "Receive", "Send", "answer_request", "send_body", "send_events", "status_of", "wait_for_disconnect"]

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
RawHeaders = tuple[tuple[bytes, bytes], ...]

_LOG = logging.getLogger("callgate.gateway")
_JSON = ((b"content-type", b"application/json"), (b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
_EVENTS = ((b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache, no-transform"), (b"x-accel-buffering", b"no"))
_STATUS = {-32700: 400, -32600: 400, -32602: 400, -32601: 404, -32020: 400, -32021: 400, -32022: 400}


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
        event = _event(message)
        full = len(self._events) >= self._limits.stream_messages or self._size_bytes + len(event) > self._limits.stream_bytes
        if self.closed or full:
            return False
        self._events.append(event)
        self._size_bytes += len(event)
        self._changed.set()
        return True

    def wake(self, _: object = None) -> None:
        """Let `wait` return."""
        self._changed.set()

    async def wait(self, timeout_s: float) -> bool:
        """Wait for a message or `wake`. Return False after the timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return False
        self._changed.clear()
        return True

    def take(self) -> bytes:
        """Return what waits, and forget it."""
        taken = b"".join(self._events)
        self._events.clear()
        self._size_bytes = 0
        return taken

    def __bool__(self) -> bool:
        return bool(self._events)


async def answer_request(
    front: Front,
    message: Mapping[str, Any],
    receive: Receive,
    send: Send,
    limits: HttpLimits,
    *,
    stateless: bool,
    keep: set[asyncio.Task[Any]],
) -> None:
    """Let the front answer a request, and send what it says.

    Args:
        stateless: Whether the client cancels by closing the stream, and errors have their own status.
        keep: Holds the request while it runs.
    """
    buffer = EventBuffer(limits)
    work = asyncio.create_task(_response(front, message, buffer))
    keep.add(work)
    work.add_done_callback(keep.discard)
    work.add_done_callback(buffer.wake)
    gone = asyncio.create_task(wait_for_disconnect(receive))
    gone.add_done_callback(buffer.wake)
    try:
        await _send_answer(work, gone, buffer, send, limits, stateless=stateless, at_once=message["method"] == "subscriptions/listen")
    finally:
        buffer.closed = True
        gone.cancel()
        if stateless:
            work.cancel()


async def _send_answer(
    work: asyncio.Task[Message | None],
    gone: asyncio.Task[None],
    buffer: EventBuffer,
    send: Send,
    limits: HttpLimits,
    *,
    stateless: bool,
    at_once: bool,
) -> None:
    while not (work.done() or gone.done() or buffer or at_once):
        await buffer.wait(limits.keep_alive_s)
    if work.done() and not buffer:
        response = work.result()
        await send_body(send, status_of(response, stateless=stateless), b"" if response is None else encoded(response))
    elif not gone.done():
        await send_events(send, buffer, limits, until=(work, gone))
        last = _event(response) if work.done() and (response := work.result()) is not None else b""
        await send({"type": "http.response.body", "body": last})


async def _response(front: Front, message: Mapping[str, Any], buffer: EventBuffer) -> Message | None:
    try:
        return await front.request(message, buffer)
    except Exception:
        _LOG.exception("a request failed inside of the gateway")
        return error_answer(message["id"], RpcError(INTERNAL_ERROR, "The gateway failed to answer. Its log says why."))


async def send_events(send: Send, buffer: EventBuffer, limits: HttpLimits, until: tuple[asyncio.Task[Any], ...]) -> None:
    """Start an event stream and send what the buffer gets, until one of the tasks is done or the buffer is closed."""
    await send({"type": "http.response.start", "status": 200, "headers": _EVENTS})
    await send({"type": "http.response.body", "body": b":\r\n\r\n", "more_body": True})
    while True:
        if buffer:
            await send({"type": "http.response.body", "body": buffer.take(), "more_body": True})
        elif buffer.closed or any(task.done() for task in until):
            return
        elif not await buffer.wait(limits.keep_alive_s):
            await send({"type": "http.response.body", "body": b":\r\n\r\n", "more_body": True})


async def send_body(send: Send, status: int, body: bytes, headers: RawHeaders = (), kind: RawHeaders = _JSON) -> None:
    """Send a whole response."""
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": (*kind, length, *headers)})
    await send({"type": "http.response.body", "body": body})


def status_of(response: Message | None, *, stateless: bool) -> int:
    """Return the HTTP status of a response."""
    if response is None:
        return 202
    error = response.get("error")
    return _STATUS.get(error["code"], 200) if stateless and error is not None else 200


async def wait_for_disconnect(receive: Receive) -> None:
    """Return when the client has gone away."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _event(message: Message) -> bytes:
    return b"event: message\r\ndata: " + encoded(message) + b"\r\n\r\n"
