"""Send one GET request to one checked address, with limits on time and size.

Uses asyncio streams, so that a deadline or a kill ends it at once. Connects only to the given address: the host name is used for the
Host header and for verifying the certificate. No proxy, no cookies, no keep-alive, no retries.
"""

from __future__ import annotations

import asyncio
import io
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from email.message import Message
from http.client import HTTPException, parse_headers

from msgspec import Struct

from callgate.builtins._tool_failures import CannotDo
from callgate.builtins._urls import FetchTarget
from callgate.errors import Retryable

__all__ = ["Connect", "HttpResponse", "connect_tcp", "get"]

Connect = Callable[[str, FetchTarget], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
"""Opens a connection to an address for a URL; replaced in tests and by hosts with their own network."""

_HEAD_BYTES = 65_536
_MEMBER = 0x1F
"""The first byte of each member of a gzip body."""
_CHUNK = 65_536


class HttpResponse(Struct, frozen=True, kw_only=True):
    """A response: the headers unchanged, the body decompressed and cut at the limit."""

    status: int
    headers: Message
    body: bytes
    truncated: bool


async def connect_tcp(address: str, target: FetchTarget) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect, with TLS for https; the certificate must be valid for the host name."""
    context = ssl.create_default_context() if target.scheme == "https" else None
    return await asyncio.open_connection(
        address, target.port, limit=_HEAD_BYTES, ssl=context, server_hostname=target.host if context is not None else None
    )


async def get(target: FetchTarget, address: str, *, connect: Connect, max_bytes: int) -> HttpResponse:
    """Send a GET request for `target` to the server at `address`.

    Raises:
        Retryable: The connection failed or broke, or the response is not HTTP.
        CannotDo: The server's certificate is not valid.
    """
    try:
        reader, writer = await connect(address, target)
    except ssl.SSLCertVerificationError as error:
        raise CannotDo(f"{target.host} has no certificate that can be trusted ({error.verify_message}). Use another source.") from error
    except OSError as error:
        raise Retryable(f"{target.host} cannot be connected to ({type(error).__name__}).", not_started=True) from error
    try:
        return await _exchange(reader, writer, target, max_bytes)
    except (OSError, EOFError, ValueError, HTTPException, zlib.error, asyncio.LimitOverrunError) as error:
        raise Retryable(f"{target.host} broke the connection or did not answer in HTTP ({type(error).__name__}).") from error
    finally:
        writer.transport.abort()
        with suppress(OSError, ssl.SSLError):
            await writer.wait_closed()


async def _exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: FetchTarget, max_bytes: int) -> HttpResponse:
    lines = (
        f"GET {target.path} HTTP/1.1",
        f"Host: {target.authority}",
        "User-Agent: callgate",
        "Accept: */*",
        "Accept-Encoding: gzip, identity",
        "Connection: close",
    )
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("ascii"))
    await writer.drain()
    status, headers = await _head(reader)
    while 100 <= status < 200:
        status, headers = await _head(reader)
    body, truncated = (b"", False) if status in (204, 304) else await _body(reader, headers, max_bytes)
    return HttpResponse(status=status, headers=headers, body=body, truncated=truncated)


async def _head(reader: asyncio.StreamReader) -> tuple[int, Message]:
    raw = await reader.readuntil(b"\r\n\r\n")
    line, _, rest = raw.partition(b"\r\n")
    version, _, after = line.partition(b" ")
    if not version.startswith(b"HTTP/1.") or not after[:3].isdigit():
        raise ValueError("no status line")
    return int(after[:3]), parse_headers(io.BytesIO(rest))


async def _body(reader: asyncio.StreamReader, headers: Message, max_bytes: int) -> tuple[bytes, bool]:
    encoding = (headers.get("Content-Encoding") or "identity").strip().lower()
    if encoding not in ("identity", "gzip", "x-gzip"):
        raise ValueError(f"an encoding that was not asked for: {encoding}")
    body = _Plain() if encoding == "identity" else _Gzip()
    async for piece in _pieces(reader, headers):
        body.add(piece, max_bytes + 1)
        if len(body.data) > max_bytes:
            return bytes(body.data[:max_bytes]), True
    body.end()
    return bytes(body.data), False


class _Plain:
    """Collects a body that is not compressed."""

    def __init__(self) -> None:
        self.data = bytearray()

    def add(self, piece: bytes, limit: int) -> None:
        """Add the next piece; stop at `limit` bytes in total."""
        self.data += piece

    def end(self) -> None:
        """Handle the end of the body. Raise EOFError if the body is incomplete."""


class _Gzip(_Plain):
    """Collects a body of gzip members; anything after the last one is padding (RFC 1952, 2.2)."""

    def __init__(self) -> None:
        super().__init__()
        self._member = zlib.decompressobj(wbits=31)
        self._begun = self._over = False

    def add(self, piece: bytes, limit: int) -> None:
        rest = piece
        while rest and not self._over and len(self.data) < limit:
            if self._member.eof:
                if rest[0] != _MEMBER:
                    self._over = True
                    return
                self._member = zlib.decompressobj(wbits=31)
            self._begun = True
            self.data += self._member.decompress(rest, limit - len(self.data))
            rest = self._member.unused_data if self._member.eof else self._member.unconsumed_tail

    def end(self) -> None:
        if self._begun and not self._member.eof:
            raise EOFError("the packed body ended early")


async def _pieces(reader: asyncio.StreamReader, headers: Message) -> AsyncIterator[bytes]:
    if "chunked" in (headers.get("Transfer-Encoding") or "").lower():
        async for piece in _chunks(reader):
            yield piece
        return
    length = headers.get("Content-Length")
    left = int(length) if length is not None and length.strip().isdigit() else None
    while left is None or left > 0:
        piece = await reader.read(_CHUNK if left is None else min(_CHUNK, left))
        if not piece:
            if left:
                raise EOFError("the body ended early")
            return
        if left is not None:
            left -= len(piece)
        yield piece


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while True:
        line = await reader.readuntil(b"\n")
        left = int(line.split(b";")[0].strip(), 16)
        if left <= 0:
            return
        while left:
            piece = await reader.read(min(_CHUNK, left))
            if not piece:
                raise EOFError("the body ended early")
            left -= len(piece)
            yield piece
        await reader.readuntil(b"\n")
