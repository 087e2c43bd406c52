"""One client connection of the scripted server: read requests, write bytes, and detect that the client has closed it.

Reads consecutive HTTP/1.1 requests whose bodies have a length or are chunked, within limits. Knows no script.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from http import HTTPStatus

from msgspec import Struct

__all__ = ["Connection", "ReceivedRequest"]

_HEAD_BYTES = 65_536
_BODY_BYTES = 67_108_864


class ReceivedRequest(Struct, frozen=True, kw_only=True, eq=False):
    """A received request."""

    number: int
    """The number of the request, counted from 0 over all connections."""
    method: str
    path: str
    headers: Mapping[str, str]
    """Header values by lower-case name."""
    body: bytes
    gone: asyncio.Event
    """Set when the client has closed the request's connection."""

    @property
    def body_json(self) -> Mapping[str, object]:
        """The body as a JSON object; empty if it is not one."""
        try:
            value = json.loads(self.body)
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}


class Connection(asyncio.Protocol):
    """The server's end of the connection."""

    def __init__(self, connected: Callable[[Connection], None]) -> None:
        self.gone = asyncio.Event()
        self._connected = connected
        self._data = bytearray()
        self._more = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._transport: asyncio.Transport | None = None

    # Callbacks of the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._connected(self)

    def data_received(self, data: bytes) -> None:
        self._data += data
        if len(self._data) > _HEAD_BYTES + _BODY_BYTES:
            self.drop()
        self._more.set()

    def eof_received(self) -> bool:
        self._wake_all()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._wake_all()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _wake_all(self) -> None:
        for event in (self.gone, self._more, self._writable):
            event.set()

    # The server's interface

    async def request(self, number: Callable[[], int]) -> ReceivedRequest | None:
        """Return the next complete request. None at the end of the connection, or if the request is invalid."""
        head = await self._until(b"\r\n\r\n", _HEAD_BYTES)
        if head is None:
            return None
        first, *lines = head.decode("latin-1").split("\r\n")
        method, path, *_ = [*first.split(" "), ""]
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        body = await (self._chunks() if chunked else self._exactly(int(headers.get("content-length") or 0)))
        if body is None:
            return None
        return ReceivedRequest(number=number(), method=method, path=path, headers=headers, body=body, gone=self.gone)

    def head(self, status: int, headers: Mapping[str, str]) -> None:
        phrase = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else "Status"
        lines = [f"HTTP/1.1 {status} {phrase}", *(f"{name}: {value}" for name, value in headers.items())]
        self._write("\r\n".join([*lines, "", ""]).encode("latin-1"))

    async def send(self, data: bytes, *, chunked: bool = False) -> None:
        """Write the bytes, and wait until the buffer has room. Do nothing if the client has closed the connection."""
        if data:
            self._write(b"%x\r\n%b\r\n" % (len(data), data) if chunked else data)
            await self._writable.wait()

    def drop(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.close()

    # Internal

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self.gone.is_set():
            self._transport.write(data)

    async def _grow(self) -> bool:
        """Wait for more data; return whether there is any."""
        before = len(self._data)
        while len(self._data) == before and not self.gone.is_set():
            self._more.clear()
            await self._more.wait()
        return len(self._data) > before

    async def _until(self, mark: bytes, most: int) -> bytes | None:
        while (place := self._data.find(mark)) < 0:
            if len(self._data) > most or not await self._grow():
                return None
        found = bytes(self._data[:place])
        del self._data[: place + len(mark)]
        return found

    async def _exactly(self, size: int) -> bytes | None:
        if size > _BODY_BYTES:
            return None
        while len(self._data) < size:
            if not await self._grow():
                return None
        found = bytes(self._data[:size])
        del self._data[:size]
        return found

    async def _chunks(self) -> bytes | None:
        whole = b""
        while (line := await self._until(b"\r\n", _HEAD_BYTES)) is not None and len(whole) <= _BODY_BYTES:
            size = int(line.partition(b";")[0], 16)
            chunk = await self._exactly(size + 2)
            if chunk is None:
                return None
            if size == 0:
                return whole
            whole += chunk[:-2]
        return None
