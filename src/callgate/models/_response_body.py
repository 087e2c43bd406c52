"""A body as it comes in, piece by piece, and what is said of HTTP's own errors. Reads no message, and knows no provider."""

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

_BODY_BYTES = 268_435_456
"""The longest answer that is read: far above any real one, so that no server can fill the memory."""
_FIRST_BYTES = 4_096
_BLANK = b" \t\r\n\xef\xbb\xbf"
"""White space, and the byte order mark."""


class ResponseBody:
    """A body that is coming in. Close it, whatever happens."""

    __slots__ = (
        "_ahead",
        "_chunks",
        "_next",
        "_raw",
        "_response",
        "_size",
        "_watch",
        "broken",
        "content_type",
        "first",
        "status",
        "unreadable",
    )

    def __init__(self, response: httpx2.Response, watch: RequestDeadlines) -> None:
        self.content_type = response.headers.get("content-type", "")
        self.status = response.status_code
        self.first = b""
        """How the body begins, without white space; empty as long as nothing else has come."""
        self.broken = False
        """Whether the body ended before its end."""
        self.unreadable = ""
        """Why nothing more of it is read, where that is the body's own fault."""
        self._ahead = b""
        self._size = 0
        self._response = response
        self._watch = watch
        encoding = response.headers.get("content-encoding", "").strip().lower()
        self._raw: AsyncGenerator[bytes, None] = response.aiter_raw()
        self._chunks = decompress_gzip(self._raw) if encoding == "gzip" else split_chunks(self._raw)
        self._next = self._chunks.__anext__
        if encoding not in ("", "identity", "gzip"):
            self._stop(f"its encoding is '{encoding}', and only gzip was asked for")

    async def begin(self) -> None:
        """Wait for the first bytes; they are kept for `read`.

        Raises:
            httpx2.TransportError: The connection broke before any came, also of those that only stand for others.
            Interrupted: As in `read`.
        """
        try:
            self._ahead = b"" if self.broken else await self._pull()
        except import_httpx2().TransportError:
            if not self._response.num_bytes_downloaded:
                raise
            self._stop("")

    async def read(self) -> bytes:
        """The next bytes; empty at the end, whichever end that is.

        Raises:
            Interrupted: A deadline has passed, or the request was aborted.
        """
        if self._ahead:
            data, self._ahead = self._ahead, b""
            return data
        try:
            return b"" if self.broken else await self._pull()
        except import_httpx2().TransportError:
            return self._stop("")

    async def _pull(self) -> bytes:
        try:
            data = await self._watch.idle(self._next)
        except StopAsyncIteration:
            return b""
        except zlib.error as error:
            return self._stop(str(error))
        except import_httpx2().TransportError:
            raise
        except import_httpx2().HTTPError as error:
            return self._stop(describe_cause(error))
        self._size += len(data)
        if not self.first:
            self.first = data[:_FIRST_BYTES].lstrip(_BLANK)
        return data if self._size <= _BODY_BYTES else self._stop(f"it is larger than {_BODY_BYTES} bytes")

    def _stop(self, why: str) -> bytes:
        self.broken, self.unreadable = True, why
        return b""

    async def close(self, *, whole: bool = False) -> None:
        """Let go of the connection: to its pool where the body has come to its end, else closed, which the server sees.

        Args:
            whole: Nothing more is wanted, and the body's end may be a moment away: worth a short wait, to keep the connection.
        """
        if whole and not self.broken:
            with suppress(import_httpx2().HTTPError, RequestInterrupted):
                await self._watch.rest(self._drained)
        with suppress(import_httpx2().HTTPError):
            await self._chunks.aclose()
        with suppress(import_httpx2().HTTPError):
            await self._response.aclose()

    async def _drained(self) -> None:
        async for _ in self._raw:
            pass
