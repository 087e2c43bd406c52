"""Read a response body chunk by chunk, within the request's deadlines. Knows no provider and does not interpret the content."""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import TYPE_CHECKING

from callgate.models._deadlines import RequestDeadlines, RequestInterrupted
from callgate.models._decompression import decompress_gzip, split_chunks
from callgate.models._http_clients import describe_cause, import_httpx2

if TYPE_CHECKING:
    import httpx2

__all__ = [
    "ResponseBody",
]

_MAX_BODY_BYTES = 268_435_456
"""Maximum size of a body: far above any real answer, so that no server can fill the memory."""
_PEEKED_BYTES = 4_096
_WHITE_SPACE = b" \t\r\n\xef\xbb\xbf"
"""White space and the byte order mark."""


class ResponseBody:
    """A response body while it arrives. Must be closed."""

    __slots__ = (
        "_chunks",
        "_deadlines",
        "_next",
        "_peeked",
        "_raw",
        "_response",
        "_size",
        "broken",
        "content_type",
        "error",
        "first",
        "status",
    )

    def __init__(self, response: httpx2.Response, deadlines: RequestDeadlines) -> None:
        self.content_type = response.headers.get("content-type", "")
        self.status = response.status_code
        self.first = b""
        """The beginning of the body, without leading white space. Empty while only white space has arrived."""
        self.broken = False
        """Whether reading stopped before the body was complete."""
        self.error = ""
        """Why reading stopped, if the cause is the body itself and not the connection; else empty."""
        self._peeked = b""
        self._size = 0
        self._response = response
        self._deadlines = deadlines
        encoding = response.headers.get("content-encoding", "").strip().lower()
        self._raw: AsyncGenerator[bytes, None] = response.aiter_raw()
        self._chunks = decompress_gzip(self._raw) if encoding == "gzip" else split_chunks(self._raw)
        self._next = self._chunks.__anext__
        if encoding not in ("", "identity", "gzip"):
            self._stop(f"its encoding is '{encoding}', and only gzip was asked for")

    async def wait_first_bytes(self) -> None:
        """Wait for the first bytes and keep them for `read`.

        Raises:
            httpx2.TransportError: The connection broke before any byte arrived.
            RequestInterrupted: As in `read`.
        """
        try:
            self._peeked = b"" if self.broken else await self._read_chunk()
        except import_httpx2().TransportError:
            if not self._response.num_bytes_downloaded:
                raise
            self._stop("")

    async def read(self) -> bytes:
        """Return the next bytes; empty at the end of the body, whether or not it is complete.

        Raises:
            RequestInterrupted: A deadline passed, or the request was aborted.
        """
        if self._peeked:
            data, self._peeked = self._peeked, b""
            return data
        try:
            return b"" if self.broken else await self._read_chunk()
        except import_httpx2().TransportError:
            return self._stop("")

    async def _read_chunk(self) -> bytes:
        try:
            data = await self._deadlines.wait_bytes(self._next)
        except StopAsyncIteration:
            return b""
        except zlib.error as failure:
            return self._stop(str(failure))
        except import_httpx2().TransportError:
            raise
        except import_httpx2().HTTPError as failure:
            return self._stop(describe_cause(failure))
        self._size += len(data)
        if not self.first:
            self.first = data[:_PEEKED_BYTES].lstrip(_WHITE_SPACE)
        return data if self._size <= _MAX_BODY_BYTES else self._stop(f"it is larger than {_MAX_BODY_BYTES} bytes")

    def _stop(self, error_text: str) -> bytes:
        self.broken, self.error = True, error_text
        return b""

    async def close(self, *, drain: bool = False) -> None:
        """Release the connection.

        It returns to the pool if the body was read to its end. Otherwise it is closed, which the server notices.

        Args:
            drain: Wait briefly for the end of the body, so that the connection can be used again. For a caller that
                needs no more of the body.
        """
        if drain and not self.broken:
            with suppress(import_httpx2().HTTPError, RequestInterrupted):
                await self._deadlines.wait_drain(self._drain)
        with suppress(import_httpx2().HTTPError):
            await self._chunks.aclose()
        with suppress(import_httpx2().HTTPError):
            await self._response.aclose()

    async def _drain(self) -> None:
        async for _ in self._raw:
            pass
