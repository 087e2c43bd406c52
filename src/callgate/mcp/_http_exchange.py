"""Send HTTP requests to one server, and return each response as soon as its headers have arrived.

Connections are our own over h11, or through the proxy that the environment names, made by httpx2. Every error says whether the server may
have got the request. Nothing is sent twice, except to the place on the same origin to which the server redirects. Knows nothing of JSON-RPC
and MCP.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextvars import Context
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urljoin, urlsplit

from callgate._version import __version__
from callgate.errors import UsageError
from callgate.mcp._connection import LOOK_FIRST, ConnectionLost, NotSent, ProtocolError
from callgate.mcp._connection_pool import ConnectionPool, PooledConnection, PooledResponse
from callgate.mcp._http1_connection import Http1Connection
from callgate.mcp._proxied_connection import ProxiedConnection, needs_proxy
from callgate.models._credential_redaction import SecretRedactor, redact_url, secrets_in_url
from callgate.models._http_clients import cause_chain, describe_cause, import_httpx2

if TYPE_CHECKING:
    from callgate.mcp.oauth import OAuth

__all__ = ["HttpExchange", "StreamedResponse", "status_text"]

Released = Callable[[], Awaitable[None]]
"""Called when a response has been released."""

_CONNECT_S = 10.0
_REDIRECTS = 3
_AUTHORIZATIONS = 2
"""How often the user may be asked during one request: for a token, and for more scopes."""
_CAUSE_CHARS = 300
_PROXIES = "HTTP_PROXY, HTTPS_PROXY or ALL_PROXY"
_DRAIN_S = 1.0
_ENDED = ("disconnected", "peer closed")
"""Parts of the messages of `RemoteProtocolError` for a connection that ended; its other messages are about bytes that are not HTTP."""


def status_text(status: int) -> str:
    """Return a status code with its name, as in `404 Not Found`."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


class HttpExchange:
    """The HTTP connections to one server. Bound to one event loop; any number of requests may run at the same time.

    Args:
        server: The server's name, for errors.
        url: The server's address, with an optional user part, query and fragment.
        headers: Headers of every request. Their values are shown in no error.
        auth: Gets access tokens when the server wants them; None: a request without valid credentials fails.
    """

    def __init__(self, server: str, url: str, headers: Mapping[str, str], auth: OAuth | None = None) -> None:
        self.label = f"The MCP server '{server}'"
        self.shown_url = redact_url(url)
        """The address without secrets, for errors."""
        self.given_headers = tuple(headers)
        """The names of the headers that the operator configured."""
        self._url = url.partition("#")[0]
        self._auth = auth
        self.uses_oauth = auth is not None
        self._headers = {**_standard_headers(url), **{name.lower(): value for name, value in headers.items()}}
        self._redactor = SecretRedactor.from_headers(self._headers, [*headers.values(), *secrets_in_url(url)])
        self._connections: ConnectionPool | None = None
        self._proxied = False
        self._address: Any = None
        self._drains: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        """Create what sends the requests, through the proxy that the environment names for the address. Connects to nothing.

        Raises:
            NotSent: httpx2 is not installed, or the address or the environment cannot be used.
        """
        try:
            httpx2 = import_httpx2()
        except UsageError as error:
            raise self._unreachable_error("it needs httpx2, which is not installed. Run: pip install 'callgate[models]'.") from error
        try:
            self._address = address = httpx2.URL(self._url)  # parsed once, because that is slow
            self._proxied = needs_proxy(address)
            self._connections = ConnectionPool(partial(ProxiedConnection if self._proxied else Http1Connection, _CONNECT_S))
        except (httpx2.InvalidURL, UsageError) as error:
            raise self._unreachable_error(self._redactor.redact(str(error))) from None

    async def send(self, method: str, headers: Mapping[str, str], body: bytes = b"") -> StreamedResponse:
        """Send a request, authorized if the server wants that, and return its response, which the caller releases.

        Raises:
            NotSent: The server certainly did not get the request, or has refused it because it was not authorized.
            ConnectionLost: The connection ended before the response began.
            ProtocolError: The bytes of the response are not HTTP.
        """
        if self._auth is None:
            return await self._send(method, headers, body)
        for _ in range(_AUTHORIZATIONS):
            token = await self._auth.access_token(self.label)
            response = await self._send(method, _with_token(headers, token), body)
            challenge = self._auth.challenge_to_answer(response.status, response.header("www-authenticate"), token)
            if challenge is None:
                return response
            await response.release()
            await self._auth.authorize(self.label, challenge, token)
        return await self._send(method, _with_token(headers, await self._auth.access_token(self.label)), body)

    async def _send(self, method: str, headers: Mapping[str, str], body: bytes) -> StreamedResponse:
        url = self._url
        for _ in range(_REDIRECTS):
            response = await self._send_to(url, method, headers, body)
            if not 300 <= response.status < 400:
                await self._check_encoding(response)
                return response
            await response.release()
            url = self._redirect_target(url, method, response)
        raise NotSent(f"{self.label} redirects again and again at {self.shown_url}. Check the address.", retryable=False)

    async def close(self) -> None:
        """Close all connections, also those of responses that still arrive. Idempotent."""
        for drain in self._drains:
            drain.cancel()
        await asyncio.gather(*self._drains, return_exceptions=True)
        connections, self._connections = self._connections, None
        if connections is not None:
            await connections.close()

    def drain(self, response: StreamedResponse) -> None:
        """Read the rest of a response in a task of its own, so that its connection can be used again."""
        task = asyncio.get_running_loop().create_task(response.drain(), context=Context())
        self._drains.add(task)
        task.add_done_callback(self._drains.discard)

    async def _send_to(self, url: str, method: str, headers: Mapping[str, str], body: bytes) -> StreamedResponse:
        connections = self._connections
        if connections is None:
            raise NotSent(f"{self.label} cannot be asked any more: the connection is closed.")
        try:
            connection = await connections.take()
        except UsageError as error:
            raise self._unreachable_error(self._redactor.redact(str(error))) from None
        released = partial(connections.give_back, connection)
        try:
            return StreamedResponse(await self._send_on(connection, url, method, {**self._headers, **headers}, body), self, released)
        except BaseException:
            await released()
            raise

    async def _send_on(
        self, connection: PooledConnection, url: str, method: str, headers: Mapping[str, str], body: bytes
    ) -> PooledResponse:
        httpx2 = import_httpx2()
        try:
            return await connection.send(method, self._address if url is self._url else httpx2.URL(url), headers, body)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError) as error:
            raise self._connection_error(error) from error
        except (httpx2.UnsupportedProtocol, httpx2.InvalidURL, httpx2.LocalProtocolError) as error:
            raise self._unreachable_error(f"{self._cause(error)}. Correct the address or the headers.") from None
        except _failures() as error:
            raise self.broken(error) from error

    def _unreachable_error(self, why: str) -> NotSent:
        return NotSent(f"{self.label} cannot be asked: {why}", code="cannot_start", retryable=False)

    async def _check_encoding(self, response: StreamedResponse) -> None:
        """Refuse a compressed response: none is asked for, and a few compressed bytes can fill the memory."""
        encoding = response.header("content-encoding")
        if encoding not in ("", "identity"):
            await response.release()
            raise ProtocolError(
                f"{self.label} answered in the encoding {encoding[:50]!r}, which was not asked for. Turn it off at the server."
            )

    def _redirect_target(self, url: str, method: str, response: StreamedResponse) -> str:
        """Return the address to which a response redirects.

        Raises:
            NotSent: It is on another origin, or would lose the request's body.
            ProtocolError: The server may have acted on the request.
        """
        target, same_origin = _resolve_redirect(url, response.header("location"))
        shown = f"{self.label} answered {status_text(response.status)} and redirects to {redact_url(target)[:_CAUSE_CHARS]}."
        if response.status in (307, 308) or (method == "GET" and response.status in (301, 302)):
            if same_origin:
                return target
            fact = "That is another origin, which the headers are not meant for."
            raise NotSent(f"{shown} {fact} If it is right, give its address as the url.", retryable=False)
        if response.status in (301, 302):
            raise NotSent(f"{shown} If that is right, give it as the url.", retryable=False)
        raise ProtocolError(f"{shown} It must answer itself. Check the address.", details={"http_status": response.status})

    def _connection_error(self, error: Exception) -> NotSent:
        cause = self._cause(error)
        if any(isinstance(one, ssl.SSLCertVerificationError) for one in cause_chain(error)):
            return NotSent(f"{self.label} at {self.shown_url} has no trusted certificate ({cause}). Check the address.", retryable=False)
        through, proxy = (f" through the proxy that {_PROXIES} names", "the proxy, ") if self._proxied else ("", "")
        where = f"{self.label} cannot be reached at {self.shown_url}{through} ({cause})"
        return NotSent(f"{where}. Check {proxy}the address{',' if proxy else ''} and whether the server runs.")

    def broken(self, error: Exception) -> ConnectionLost | ProtocolError:
        """Return the error for a response that broke off or is not HTTP."""
        if isinstance(error, import_httpx2().RemoteProtocolError) and not any(text in str(error) for text in _ENDED):
            cause = self._cause(error)
            return ProtocolError(f"{self.label} answered at {self.shown_url} with what is not HTTP ({cause}). Check the address.")
        return ConnectionLost(f"{self.label} ended the connection before its answer was complete ({self._cause(error)}). {LOOK_FIRST}")

    def _cause(self, error: Exception) -> str:
        if isinstance(error, import_httpx2().ConnectTimeout):
            return f"no connection within {_CONNECT_S:g} s"
        return self.redact(describe_cause(error))

    def redact(self, text: str) -> str:
        """Return the beginning of a text without the values of headers and the secrets of the address."""
        return self._redactor.redact_and_truncate(text if self._auth is None else self._auth.redact(text), _CAUSE_CHARS)

    def __repr__(self) -> str:
        return f"<HTTP connections to {self.shown_url}>"


class StreamedResponse:
    """A response whose body still arrives. Must be released."""

    __slots__ = ("_complete", "_exchange", "_released", "_response", "content_type", "status")

    def __init__(self, response: PooledResponse, exchange: HttpExchange, released: Released) -> None:
        self.status = response.status
        self.content_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        self._response = response
        self._exchange = exchange
        self._released: Released | None = released
        self._complete = False

    def header(self, name: str) -> str:
        """Return the value of a header, or an empty text.

        Args:
            name: In lower case.
        """
        return self._response.headers.get(name, "")

    async def read_chunk(self) -> bytes:
        """Return the next bytes of the body; empty at its end.

        Raises:
            ConnectionLost: The connection ended before the body was complete.
            ProtocolError: The body is not HTTP.
        """
        try:
            chunk = await self._response.read_chunk()
        except _failures() as error:
            raise self._exchange.broken(error) from error
        self._complete = not chunk
        return chunk

    async def read(self, max_bytes: int) -> bytes:
        """Return the whole body.

        Raises:
            ConnectionLost: The connection ended before the body was complete.
            ProtocolError: The body is larger than `max_bytes`, or is not HTTP.
        """
        length = self.header("content-length")
        size = int(length) if length.isdecimal() and int(length[:20]) > max_bytes else 0
        pieces: list[bytes] = []
        while size <= max_bytes and (chunk := await self.read_chunk()):
            pieces.append(chunk)
            size += len(chunk)
        if size <= max_bytes:
            return b"".join(pieces)
        raise ProtocolError(f"{self._exchange.label} answered more than {max_bytes} bytes. The rest was not read.", code="output_too_large")

    async def release(self) -> None:
        """Release the connection: to be used again if the body was read to its end; else it is closed, which the server notices."""
        released, self._released = self._released, None
        if released is None:
            return
        try:
            await self._response.release()
        except _failures():
            pass
        finally:
            await released()

    async def release_after_end(self) -> None:
        """Release the connection after the end of the body, which is read and dropped without delaying the caller."""
        if self._complete:
            await self.release()
        else:
            self._exchange.drain(self)

    async def drain(self) -> None:
        """Read the rest of the body, for a short time, and release the connection."""
        try:
            async with asyncio.timeout(_DRAIN_S):
                while await self.read_chunk():
                    pass
        except (ConnectionLost, ProtocolError, TimeoutError):
            pass
        finally:
            await self.release()


def _failures() -> tuple[type[Exception], ...]:
    """Return the errors of a connection that has failed or was closed."""
    httpx2 = import_httpx2()
    return (httpx2.HTTPError, httpx2.StreamError, OSError, RuntimeError)


def _standard_headers(url: str) -> dict[str, str]:
    """Return the headers of every request, with the credentials that the address contains."""
    headers = {"user-agent": f"callgate/{__version__}", "accept-encoding": "identity"}
    user, separator, _ = urlsplit(url).netloc.rpartition("@")
    if separator:
        headers["authorization"] = f"Basic {base64.b64encode(unquote(user).encode()).decode()}"
    return headers


def _with_token(headers: Mapping[str, str], token: str) -> Mapping[str, str]:
    return {**headers, "authorization": f"Bearer {token}"} if token else headers


def _resolve_redirect(url: str, location: str) -> tuple[str, bool]:
    """Return the address that a redirect names, and whether it is on the same origin."""
    try:
        target = urljoin(url, location)
        return target, _origin(target) == _origin(url)
    except ValueError:
        return location, False


def _origin(url: str) -> tuple[str, str | None, int | None]:
    """Return scheme, host and port of an address."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)
