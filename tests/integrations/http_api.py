"""A small HTTP server on loopback that answers with what a test's function returns, and records the requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from msgspec import Struct

from tests.loopback_server import LoopbackServer

__all__ = ["Answer", "HttpApi", "Received", "json_answer"]


class Received(Struct, frozen=True):
    """A request as it arrived."""

    method: str
    target: str
    """Path and query, exactly as sent."""
    headers: dict[str, str]
    body: bytes


class Answer(Struct, frozen=True):
    status: int = 200
    body: bytes = b""
    media_type: str = "application/json"
    headers: dict[str, str] = {}


def json_answer(text: str, status: int = 200, **headers: str) -> Answer:
    return Answer(status, text.encode(), headers={name.replace("_", "-"): value for name, value in headers.items()})


Handler = Callable[[Received], Answer | Awaitable[Answer]]


class HttpApi(LoopbackServer):
    """Serves HTTP/1.1, one request per connection.

    Args:
        handler: Returns the answer to a request. If it returns an `Answer` with status 0, the connection is closed instead.
    """

    def __init__(self, handler: Handler) -> None:
        super().__init__()
        self._handler = handler
        self.received: list[Received] = []
        self.closed_early = asyncio.Event()
        """Set when a client closes its connection while it waits for an answer."""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await _read(reader)
        self.received.append(request)
        answer = await self._answered(request, reader)
        if answer is not None and answer.status:
            writer.write(_written(answer))
            await writer.drain()

    async def _answered(self, request: Received, reader: asyncio.StreamReader) -> Answer | None:
        found = self._handler(request)
        if isinstance(found, Answer):
            return found
        answering, closing = asyncio.ensure_future(found), asyncio.ensure_future(reader.read(1))
        done, waiting = await asyncio.wait((answering, closing), return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        if answering in done:
            return answering.result()
        self.closed_early.set()
        return None


async def _read(reader: asyncio.StreamReader) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    line, *rest = head.rstrip("\r\n").split("\r\n")
    method, target, _ = line.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (one.partition(":") for one in rest)}
    return Received(method, target, headers, await reader.readexactly(int(headers.get("content-length", 0))))


def _written(answer: Answer) -> bytes:
    headers = {"Content-Length": str(len(answer.body)), "Connection": "close", **answer.headers}
    if answer.media_type:
        headers["Content-Type"] = answer.media_type
    lines = [f"HTTP/1.1 {answer.status} X", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + answer.body
