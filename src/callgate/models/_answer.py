"""A body as it comes in, piece by piece, and what is said of HTTP's own errors. Reads no message, and knows no provider."""

from __future__ import annotations

import os
import re
import ssl
import zlib
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from callgate.errors import UsageError
from callgate.models._deadlines import Interrupted, Watch
from callgate.models._unpacking import in_pieces, unpacked

if TYPE_CHECKING:
    import httpx2

__all__ = ["Answer", "cause_in_words", "causes_of", "httpx"]

_BODY_BYTES = 268_435_456
"""The longest answer that is read: far above any real one, so that no server can fill the memory."""
_FIRST_BYTES = 4_096
_ERRNO = re.compile(r"\[Errno -?\d+\] ")
_BLANK = b" \t\r\n\xef\xbb\xbf"
"""White space, and the byte order mark."""


class Answer:
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

    def __init__(self, response: httpx2.Response, watch: Watch) -> None:
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
        self._chunks = unpacked(self._raw) if encoding == "gzip" else in_pieces(self._raw)
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
        except httpx().TransportError:
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
        except httpx().TransportError:
            return self._stop("")

    async def _pull(self) -> bytes:
        try:
            data = await self._watch.idle(self._next)
        except StopAsyncIteration:
            return b""
        except zlib.error as error:
            return self._stop(str(error))
        except httpx().TransportError:
            raise
        except httpx().HTTPError as error:
            return self._stop(cause_in_words(error))
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
            with suppress(httpx().HTTPError, Interrupted):
                await self._watch.rest(self._drained)
        with suppress(httpx().HTTPError):
            await self._chunks.aclose()
        with suppress(httpx().HTTPError):
            await self._response.aclose()

    async def _drained(self) -> None:
        async for _ in self._raw:
            pass


def cause_in_words(error: BaseException) -> str:
    """The innermost error that says something. Not cut: what must not be shown of it is to be removed first."""
    said = [text for cause in causes_of(error) if (text := _said_by(cause))]
    return said[-1] if said else type(error).__name__


def _said_by(error: BaseException) -> str:
    """The system's own words where it refused, without the numbers that Python puts before them."""
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return _ERRNO.sub("", str(error))


def causes_of(error: BaseException | None) -> list[BaseException]:
    """The error, what caused it, and so on inwards; at most ten of them."""
    found: list[BaseException] = []
    while error is not None and len(found) < 10:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


def httpx() -> Any:
    try:
        import httpx2
    except ImportError as error:
        raise UsageError("Models need httpx2, which is not installed. Run: pip install 'callgate[models]'.") from error
    return httpx2
