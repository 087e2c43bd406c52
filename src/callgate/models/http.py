"""The one transport: a request goes out, a body comes back in pieces, and nothing waits longer than it may.

httpx2 speaks HTTP; it is imported with the first request. Here are the deadlines, the retries (only while nobody has seen a byte of the
answer), and the end of the connection on every way out. Knows no provider API and reads no body but that of a refusal.
"""

from __future__ import annotations

import ssl
import zlib
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from callgate._clock import Clock, SystemClock
from callgate.errors import ModelTimeout, ModelUnreachable, UsageError
from callgate.models._deadlines import Deadline, Interrupted, Timeouts, Watch
from callgate.models._refusals import Hidden
from callgate.models._retrying import Retries, asked_wait_s, is_passing
from callgate.models._unpacking import unpacked

if TYPE_CHECKING:
    import httpx2

__all__ = ["Answer", "Outgoing", "Refused", "Retries", "Timeouts", "Transport"]

_BODY_BYTES = 268_435_456
"""The longest answer that is read: far above any real one, so that no server can fill the memory."""
_ERROR_BYTES = 65_536
_FIRST_BYTES = 4_096
_BLANK = b" \t\r\n\xef\xbb\xbf"
"""White space, and the byte order mark."""
_KEEP_ALIVE_S = 30.0
_NAMES: dict[Deadline, str] = {"connect": "connect_s", "headers": "headers_s", "idle": "idle_s", "total": "total_s"}


class Outgoing(Struct, frozen=True, kw_only=True):
    """A request, complete."""

    url: str
    body: bytes
    headers: Mapping[str, str]
    method: str = "POST"
    hidden: Hidden
    """What must not be shown of it."""
    sign: Callable[[Outgoing], Mapping[str, str]] | None = None
    """Headers that are made anew for each attempt: a signature is good for some minutes only."""

    def __repr__(self) -> str:
        return f"<{self.method} {self.shown}, {len(self.body)} bytes>"

    @property
    def shown(self) -> str:
        """Scheme and host, for people."""
        scheme, _, rest = self.url.partition("://")
        return f"{scheme}://{rest.partition('/')[0].partition('?')[0].rpartition('@')[2]}"


class Refused(Exception):
    """The provider answered, and not with a message. For whoever turns it into one."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        super().__init__(f"status {status}")
        self.status = status
        self.headers = headers
        self.body = body
        """At most 64 KiB of it."""
        self.passing = is_passing(status, headers)


class Answer:
    """A body that is coming in. Close it, whatever happens."""

    __slots__ = ("_chunks", "_next", "_raw", "_response", "_size", "_watch", "broken", "content_type", "first", "status", "unreadable")

    def __init__(self, response: httpx2.Response, watch: Watch) -> None:
        self.content_type = response.headers.get("content-type", "")
        self.status = response.status_code
        self.first = b""
        """How the body begins, without white space; empty as long as nothing else has come."""
        self.broken = False
        """Whether the body ended before its end."""
        self.unreadable = ""
        """Why nothing more of it is read, where that is the body's own fault."""
        self._size = 0
        self._response = response
        self._watch = watch
        encoding = response.headers.get("content-encoding", "").strip().lower()
        self._raw: AsyncGenerator[bytes, None] = response.aiter_raw()
        self._chunks = unpacked(self._raw) if encoding == "gzip" else self._raw
        self._next = self._chunks.__anext__
        if encoding not in ("", "identity", "gzip"):
            self._stop(f"its encoding is '{encoding[:80]}', and only gzip was asked for")

    async def read(self) -> bytes:
        """The next bytes; empty at the end, whichever end that is.

        Raises:
            Interrupted: A deadline has passed, or the request was aborted.
        """
        if self.broken:
            return b""
        try:
            data = await self._watch.idle(self._next)
        except StopAsyncIteration:
            return b""
        except zlib.error as error:
            return self._stop(str(error))
        except _httpx().HTTPError as error:
            return self._stop("" if isinstance(error, _httpx().TransportError) else _reason(error))
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
            with suppress(_httpx().HTTPError, Interrupted):
                await self._watch.rest(self._drained)
        with suppress(_httpx().HTTPError):
            await self._chunks.aclose()
        with suppress(_httpx().HTTPError):
            await self._response.aclose()

    async def _drained(self) -> None:
        async for _ in self._raw:
            pass


class Transport:
    """Sends requests of one provider. Belongs to one event loop; any number of requests at once, of which `connections` run.

    Args:
        provider: Its name, for errors.
        timeouts: The deadlines.
        retries: How patiently a request is sent again.
        client: A client of your own, with your own proxies, certificates or limits. It is not closed here. Without one, proxies are taken
            from the environment, certificates are verified, and redirects are never followed.
        connections: How many there may be at once; further requests wait for one, within the deadline of the headers.
        clock: Where waiting and chance come from.
    """

    def __init__(
        self,
        provider: str,
        *,
        timeouts: Timeouts | None = None,
        retries: Retries | None = None,
        client: httpx2.AsyncClient | None = None,
        connections: int = 100,
        clock: Clock | None = None,
    ) -> None:
        self.timeouts = timeouts or Timeouts()
        self._provider = provider
        self._retries = retries or Retries()
        self._given = client
        self._client = client
        self._connections = connections
        self._clock = clock or SystemClock()

    async def open(self, request: Outgoing, watch: Watch, beat: Callable[[], None]) -> Answer:
        """Send `request`, again where that may help, until an answer begins.

        Raises:
            Refused: The provider refused it, and sending it again does not help, or did not.
            ModelUnreachable: There was no answer, now and after all retries.
            Interrupted: A deadline has passed, or the request was aborted.
        """
        retry = 0
        while True:
            retry += 1
            try:
                return await self._attempt(request, watch, beat)
            except Refused as refused:
                asked_s = asked_wait_s(refused.headers, self._clock.wall_ns() / 1e9)
                wait_s = self._retries.wait_s(asked_s, retry, self._clock.jitter()) if refused.passing else None
                if wait_s is None:
                    raise
            except ModelUnreachable as error:
                wait_s = self._retries.wait_s(None, retry, self._clock.jitter()) if error.retryable else None
                if wait_s is None:
                    raise
            await watch.pause(lambda wait_s=wait_s: self._clock.sleep(wait_s))  # type: ignore[misc]
            beat()

    def late(self, deadline: Deadline, request: Outgoing) -> ModelTimeout:
        """The error of a deadline that has passed."""
        name = _NAMES[deadline]
        what = {
            "connect": "no connection within",
            "headers": "no answer began within",
            "idle": "the answer was silent for",
            "total": "the request was not done within",
        }[deadline]
        limit = f"{getattr(self.timeouts, name):g} s"
        text = f"{self._provider} at {request.shown}: {what} {limit}. See whether it is up and busy, or raise Timeouts.{name}."
        return ModelTimeout(text, provider=self._provider, deadline=deadline)

    async def close(self) -> None:
        """Close idle connections, and those of answers that are still coming in. Idempotent; a client of yours stays open."""
        client, self._client = self._client, self._given
        if client is not None and client is not self._given:
            await client.aclose()

    # Inside

    async def _attempt(self, request: Outgoing, watch: Watch, beat: Callable[[], None]) -> Answer:
        client = self._ready()
        signature = request.sign(request) if request.sign is not None else {}
        try:
            outgoing = client.build_request(
                request.method,
                request.url,
                content=request.body,
                headers={"accept-encoding": "gzip", **request.headers, **signature},
                timeout=_httpx().Timeout(None, connect=self.timeouts.connect_s),
            )
            response = await watch.headers(lambda: client.send(outgoing, stream=True, follow_redirects=False))
        except (_httpx().UnsupportedProtocol, _httpx().InvalidURL, _httpx().LocalProtocolError) as error:
            said = request.hidden.redact(str(error))
            raise UsageError(f"{self._provider} cannot be asked at {request.shown}: {said}. Correct base_url or headers.") from None
        except _httpx().ConnectTimeout as error:
            raise self.late("connect", request) from error
        except _httpx().HTTPError as error:
            raise self._unreachable(request, error) from error
        beat()
        answer = Answer(response, watch)
        if response.is_success:
            return answer
        try:
            raise Refused(response.status_code, dict(response.headers), await _error_body(answer))
        finally:
            await answer.close()

    def _ready(self) -> httpx2.AsyncClient:
        if self._client is None:
            httpx = _httpx()
            limits = httpx.Limits(max_connections=self._connections, max_keepalive_connections=20, keepalive_expiry=_KEEP_ALIVE_S)
            self._client = httpx.AsyncClient(limits=limits)
        return self._client

    def _unreachable(self, request: Outgoing, error: Exception) -> ModelUnreachable:
        said = request.hidden.redact(_reason(error))
        if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in _causes(error)):
            text = f"{self._provider} at {request.shown} has no certificate that can be trusted ({said}). Check the address and the proxy."
            return ModelUnreachable(text, provider=self._provider, retryable=False)
        text = f"{self._provider} could not be reached at {request.shown} ({said}). Check the address, the network and the proxy."
        return ModelUnreachable(text, provider=self._provider)


async def _error_body(answer: Answer) -> bytes:
    """What a refusal says, as far as it comes."""
    pieces: list[bytes] = []
    size = 0
    try:
        while size < _ERROR_BYTES and (piece := await answer.read()):
            pieces.append(piece)
            size += len(piece)
    except Interrupted as late:
        if late.deadline != "idle":
            raise
    return b"".join(pieces)[:_ERROR_BYTES]


def _reason(error: BaseException) -> str:
    """The innermost error that says something."""
    said = [str(cause) for cause in _causes(error) if str(cause)]
    return (said[-1] if said else type(error).__name__)[:500]


def _causes(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while error is not None and len(found) < 10:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


def _httpx() -> Any:
    try:
        import httpx2
    except ImportError as error:
        raise UsageError("Models need httpx2, which is not installed. Run: pip install 'callgate[models]'.") from error
    return httpx2
