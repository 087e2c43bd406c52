"""The one transport: a request goes out, a body comes back in pieces, and nothing waits longer than it may.

httpx2 speaks HTTP; it is imported with the first request. Here are the deadlines, the retries (only while nobody has seen a byte of the
answer), and the end of the connection on every way out. Knows no provider API and reads no body but that of a refusal.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from callgate._clock import Clock, SystemClock
from callgate.errors import ModelTimeout, ModelUnreachable, UsageError
from callgate.models._connection_reuse import check_before_reuse
from callgate.models._deadlines import Deadline, RequestDeadlines, RequestInterrupted, Timeouts
from callgate.models._http_clients import cause_chain, create_client, describe_cause, import_httpx2
from callgate.models._response_body import ResponseBody
from callgate.models._retries import Retries, is_retryable_response, retry_after_s
from callgate.models._secrets import SecretRedactor

if TYPE_CHECKING:
    import httpx2

__all__ = ["HttpStatusError", "OutgoingRequest", "ResponseBody", "Retries", "Timeouts", "Transport"]

_ERROR_BYTES = 65_536
_CAUSE_CHARS = 500
_KEEP_ALIVE_S = 30.0
_NAMES: dict[Deadline, str] = {"connect": "connect_s", "headers": "headers_s", "idle": "idle_s", "total": "total_s"}


class OutgoingRequest(Struct, frozen=True, kw_only=True):
    """A request, complete."""

    url: str
    body: bytes
    headers: Mapping[str, str]
    method: str = "POST"
    hidden: SecretRedactor
    """What must not be shown of it."""
    sign: Callable[[OutgoingRequest], Mapping[str, str]] | None = None
    """Headers that are made anew for each attempt: a signature is good for some minutes only."""

    def __repr__(self) -> str:
        return f"<{self.method} {self.shown}, {len(self.body)} bytes>"

    @property
    def shown(self) -> str:
        """Scheme and host, for people."""
        scheme, _, rest = self.url.partition("://")
        return f"{scheme}://{rest.partition('/')[0].partition('?')[0].rpartition('@')[2]}"


class HttpStatusError(Exception):
    """The provider answered, and not with a message. For whoever turns it into one."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        super().__init__(f"status {status}")
        self.status = status
        self.headers = headers
        self.body = body
        """At most 64 KiB of it."""
        self.passing = is_retryable_response(status, headers, body)


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

    async def open(self, request: OutgoingRequest, watch: RequestDeadlines, beat: Callable[[], None]) -> ResponseBody:
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
            except HttpStatusError as refused:
                asked_s = retry_after_s(refused.headers, self._clock.wall_ns() / 1e9, refused.body)
                wait_s = self._retries.wait_s(asked_s, retry, self._clock.jitter()) if refused.passing else None
                if wait_s is None:
                    raise
            except ModelUnreachable as error:
                wait_s = self._retries.wait_s(None, retry, self._clock.jitter()) if error.retryable else None
                if wait_s is None:
                    raise
            await watch.pause(lambda wait_s=wait_s: self._clock.sleep(wait_s))  # type: ignore[misc]
            beat()

    def late(self, deadline: Deadline, limit_s: float | None, request: OutgoingRequest) -> ModelTimeout:
        """The error of a deadline of so many seconds that has passed."""
        name = _NAMES[deadline]
        what = {
            "connect": "no connection within",
            "headers": "no answer began within",
            "idle": "the answer was silent for",
            "total": "the request was not done within",
        }[deadline]
        text = f"{self._provider} at {request.shown}: {what} {limit_s:g} s. See whether it is up and busy, or raise Timeouts.{name}."
        return ModelTimeout(text, provider=self._provider, deadline=deadline)

    async def close(self) -> None:
        """Close idle connections, and those of answers that are still coming in. Idempotent; a client of yours stays open."""
        client, self._client = self._client, self._given
        if client is not None and client is not self._given:
            await client.aclose()

    # Inside

    async def _attempt(self, request: OutgoingRequest, watch: RequestDeadlines, beat: Callable[[], None]) -> ResponseBody:
        response = await self._sent(request, watch)
        beat()
        answer = ResponseBody(response, watch)
        try:
            if not response.is_success:
                raise HttpStatusError(response.status_code, dict(response.headers), await _error_body(answer))
            await answer.begin()
        except BaseException as error:
            await answer.close()
            if isinstance(error, import_httpx2().TransportError):
                raise self._unreachable(request, error) from error
            raise
        return answer

    async def _sent(self, request: OutgoingRequest, watch: RequestDeadlines) -> httpx2.Response:
        """What came back, of which the headers have come."""
        client = self._ready()
        signature = request.sign(request) if request.sign is not None else {}
        try:
            outgoing = client.build_request(
                request.method,
                request.url,
                content=request.body,
                headers={"accept-encoding": "gzip", **request.headers, **signature},
                timeout=import_httpx2().Timeout(None, connect=self.timeouts.connect_s),
            )
            return await watch.headers(lambda: client.send(outgoing, stream=True, follow_redirects=False))
        except (import_httpx2().UnsupportedProtocol, import_httpx2().InvalidURL, import_httpx2().LocalProtocolError) as error:
            said = request.hidden.redact(str(error))
            raise UsageError(f"{self._provider} cannot be asked at {request.shown}: {said}. Correct base_url or headers.") from None
        except import_httpx2().ConnectTimeout as error:
            raise self.late("connect", self.timeouts.connect_s, request) from error
        except (import_httpx2().HTTPError, RuntimeError) as error:  # the latter where no thread can be started to look the name up
            raise self._unreachable(request, error) from error

    def _ready(self) -> httpx2.AsyncClient:
        if self._client is None:
            limits = import_httpx2().Limits(max_connections=self._connections, max_keepalive_connections=20, keepalive_expiry=_KEEP_ALIVE_S)
            self._client = create_client(lambda: import_httpx2().AsyncClient(limits=limits))
            check_before_reuse(self._client)
        return self._client

    def _unreachable(self, request: OutgoingRequest, error: Exception) -> ModelUnreachable:
        said = request.hidden.cut(describe_cause(error), _CAUSE_CHARS)
        if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in cause_chain(error)):
            text = f"{self._provider} at {request.shown} has no certificate that can be trusted ({said}). Check the address and the proxy."
            return ModelUnreachable(text, provider=self._provider, retryable=False)
        text = f"{self._provider} could not be reached at {request.shown} ({said}). Check the address, the network and the proxy."
        return ModelUnreachable(text, provider=self._provider)


async def _error_body(answer: ResponseBody) -> bytes:
    """What a refusal says, as far as it comes."""
    pieces: list[bytes] = []
    size = 0
    try:
        while size < _ERROR_BYTES and (piece := await answer.read()):
            pieces.append(piece)
            size += len(piece)
    except RequestInterrupted as late:
        if late.deadline != "idle":
            raise
    return b"".join(pieces)[:_ERROR_BYTES]
