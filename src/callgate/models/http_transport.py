"""The HTTP transport: send a request, return the response body in chunks, within deadlines and with retries.

httpx2 implements HTTP and is imported with the first request. This module implements the deadlines and the retries, and
releases the connection on every path. A request is retried only while no byte of its answer has been returned. Knows no
provider API and reads no body except that of an error response.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from callgate._clock import Clock, SystemClock
from callgate.errors import ModelTimeout, ModelUnreachable, UsageError
from callgate.models._connection_closing import close_without_waiting
from callgate.models._connection_reuse import check_before_reuse
from callgate.models._credential_redaction import SecretRedactor
from callgate.models._deadlines import Deadline, RequestDeadlines, RequestInterrupted, Timeouts
from callgate.models._http_clients import cause_chain, create_client, describe_cause, import_httpx2, tls_context
from callgate.models._http_retries import Retries, is_retryable_response, retry_after_s
from callgate.models._response_body import ResponseBody

if TYPE_CHECKING:
    import httpx2

__all__ = ["HttpStatusError", "OutgoingRequest", "ResponseBody", "Retries", "Timeouts", "Transport"]

_MAX_ERROR_BYTES = 65_536
_CAUSE_CHARS = 500
_KEEP_ALIVE_S = 30.0
_OPTION_NAMES: dict[Deadline, str] = {"connect": "connect_s", "headers": "headers_s", "idle": "idle_s", "total": "total_s"}


class OutgoingRequest(Struct, frozen=True, kw_only=True):
    """A complete HTTP request."""

    url: str
    body: bytes
    headers: Mapping[str, str]
    method: str = "POST"
    redactor: SecretRedactor
    """Removes the request's secrets from errors."""
    sign: Callable[[OutgoingRequest], Mapping[str, str]] | None = None
    """Returns headers that are computed for each attempt, because a signature is valid for a few minutes only."""

    def __repr__(self) -> str:
        return f"<{self.method} {self.origin}, {len(self.body)} bytes>"

    @property
    def origin(self) -> str:
        """Scheme and host, for error messages."""
        scheme, _, rest = self.url.partition("://")
        return f"{scheme}://{rest.partition('/')[0].partition('?')[0].rpartition('@')[2]}"


class HttpStatusError(Exception):
    """The provider responded with an HTTP error. `HttpModel` turns it into a `Fault`."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        super().__init__(f"status {status}")
        self.status = status
        self.headers = headers
        self.body = body
        """The first 64 KiB of the body, or less."""
        self.retryable = is_retryable_response(status, headers, body)


class Transport:
    """Sends the requests of one provider. Bound to one event loop; serves any number of requests at once, over at most `connections`
    connections.

    Args:
        provider: The provider's name, for errors.
        timeouts: The deadlines.
        retries: How often and how patiently a request is sent again.
        client: Your own client, with your own proxies, certificates or limits; it is not closed here. Without one, proxies come from the
            environment, certificates are verified, and redirects are never followed.
        connections: Maximum number of connections; further requests wait for one, within the deadline for the headers.
        clock: Source of waits and jitter.
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
        self._external_client = client
        self._client = client
        self._connections = connections
        self._clock = clock or SystemClock()

    async def open(self, request: OutgoingRequest, deadlines: RequestDeadlines, on_progress: Callable[[], None]) -> ResponseBody:
        """Send `request`, with retries, until a response body begins.

        Raises:
            HttpStatusError: The provider responded with an error, and no retry is left or useful.
            ModelUnreachable: There was no response, even after all retries.
            RequestInterrupted: A deadline passed, or the request was aborted.
        """
        retry = 0
        while True:
            retry += 1
            try:
                return await self._send_once(request, deadlines, on_progress)
            except HttpStatusError as error_response:
                requested_s = retry_after_s(error_response.headers, self._clock.wall_ns() / 1e9, error_response.body)
                wait_s = self._retries.wait_s(requested_s, retry, self._clock.jitter()) if error_response.retryable else None
                if wait_s is None:
                    raise
            except ModelUnreachable as error:
                wait_s = self._retries.wait_s(None, retry, self._clock.jitter()) if error.retryable else None
                if wait_s is None:
                    raise
            await deadlines.wait_retry(lambda wait_s=wait_s: self._clock.sleep(wait_s))  # type: ignore[misc]
            on_progress()

    def timeout_error(self, deadline: Deadline, limit_s: float | None, request: OutgoingRequest) -> ModelTimeout:
        """Return the error for a deadline of `limit_s` seconds that has passed."""
        name = _OPTION_NAMES[deadline]
        problem = {
            "connect": "no connection within",
            "headers": "no answer began within",
            "idle": "the answer was silent for",
            "total": "the request was not complete within",
        }[deadline]
        next_step = f"Check whether it is running and overloaded, or increase Timeouts.{name}."
        text = f"{self._provider} at {request.origin}: {problem} {limit_s:g} s. {next_step}"
        return ModelTimeout(text, provider=self._provider, deadline=deadline)

    async def close(self) -> None:
        """Close all connections, also those of answers that still arrive. Idempotent; leaves a client of your own open."""
        client, self._client = self._client, self._external_client
        if client is not None and client is not self._external_client:
            await client.aclose()

    async def _send_once(self, request: OutgoingRequest, deadlines: RequestDeadlines, on_progress: Callable[[], None]) -> ResponseBody:
        response = await self._send(request, deadlines)
        on_progress()
        body = ResponseBody(response, deadlines)
        try:
            if not response.is_success:
                raise HttpStatusError(response.status_code, dict(response.headers), await _read_error_body(body))
            await body.wait_first_bytes()
        except BaseException as error:
            await body.close()
            if isinstance(error, import_httpx2().TransportError):
                raise self._unreachable_error(request, error) from error
            raise
        return body

    async def _send(self, request: OutgoingRequest, deadlines: RequestDeadlines) -> httpx2.Response:
        """Send the request once; return the response as soon as its headers have arrived."""
        client = self._get_client()
        signature = request.sign(request) if request.sign is not None else {}
        try:
            outgoing = client.build_request(
                request.method,
                request.url,
                content=request.body,
                headers={"accept-encoding": "gzip", **request.headers, **signature},
                timeout=import_httpx2().Timeout(None, connect=self.timeouts.connect_s),
            )
            return await deadlines.wait_headers(lambda: client.send(outgoing, stream=True, follow_redirects=False))
        except (import_httpx2().UnsupportedProtocol, import_httpx2().InvalidURL, import_httpx2().LocalProtocolError) as error:
            said = request.redactor.redact(str(error))
            raise UsageError(f"{self._provider} cannot send a request to {request.origin}: {said}. Correct base_url or headers.") from None
        except import_httpx2().ConnectTimeout as error:
            raise self.timeout_error("connect", self.timeouts.connect_s, request) from error
        except (import_httpx2().HTTPError, RuntimeError) as error:  # RuntimeError: no thread could be started for the name lookup
            raise self._unreachable_error(request, error) from error

    def _get_client(self) -> httpx2.AsyncClient:
        if self._client is None:
            limits = import_httpx2().Limits(max_connections=self._connections, max_keepalive_connections=20, keepalive_expiry=_KEEP_ALIVE_S)
            self._client = create_client(lambda: import_httpx2().AsyncClient(limits=limits, verify=tls_context()))
            close_without_waiting(self._client)
            check_before_reuse(self._client)
        return self._client

    def _unreachable_error(self, request: OutgoingRequest, error: Exception) -> ModelUnreachable:
        said = request.redactor.redact_and_truncate(describe_cause(error), _CAUSE_CHARS)
        if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in cause_chain(error)):
            text = f"{self._provider} at {request.origin} has no trusted certificate ({said}). Check the address and the proxy."
            return ModelUnreachable(text, provider=self._provider, retryable=False)
        text = f"{self._provider} could not be reached at {request.origin} ({said}). Check the address, the network and the proxy."
        return ModelUnreachable(text, provider=self._provider)


async def _read_error_body(body: ResponseBody) -> bytes:
    """Read the body of an error response, at most 64 KiB and until it is silent for too long."""
    chunks: list[bytes] = []
    size = 0
    try:
        while size < _MAX_ERROR_BYTES and (chunk := await body.read()):
            chunks.append(chunk)
            size += len(chunk)
    except RequestInterrupted as interrupted:
        if interrupted.deadline != "idle":
            raise
    return b"".join(chunks)[:_MAX_ERROR_BYTES]
