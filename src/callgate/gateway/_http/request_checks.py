"""Decide from the head of a request whether it is let in. Pure except for the authenticator; knows no JSON-RPC method."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from urllib.parse import unquote

from callgate.gateway._http.resource_server import ResourceServer
from callgate.gateway.principals import EVERY, Principal
from callgate.gateway.tokens import Authenticator, IssuerUnavailable

__all__ = [
    "CLOSE",
    "MAX_HEADERS",
    "Headers",
    "RefusedRequest",
    "RequestChecks",
    "add_request_id",
    "check_post_headers",
    "in_origin_form",
    "read_headers",
]

Headers = Mapping[bytes, bytes]

_SINGLE = frozenset(
    {
        b"host",
        b"origin",
        b"authorization",
        b"content-type",
        b"content-length",
        b"mcp-session-id",
        b"mcp-protocol-version",
        b"mcp-method",
        b"mcp-name",
    }
)
MAX_HEADERS = 100
"""How many headers a request may have."""
CLOSE = ((b"connection", b"close"),)
"""The header of a response after which the connection is closed."""
_REASONS = {
    401: "authentication",
    403: "origin",
    404: "session",
    405: "path",
    408: "time",
    413: "size",
    421: "host",
    429: "too_many_requests",
    500: "unavailable",
    502: "unavailable",
    503: "unavailable",
    505: "http",
}
_LOCAL = ("127.0.0.1", "localhost", "[::1]")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_ABSOLUTE = re.compile(rb"https?://([^/#]+)(/[^#]*)?", re.IGNORECASE)


class RefusedRequest(Exception):
    """A request that is not served.

    Args:
        status: The HTTP status.
        message: What was refused, and what to do.
        code: The JSON-RPC code of the error body.
        data: The `data` of the error body; None if there is none.
        headers: Headers of the response.
        reason: Why, for the metrics. Default: what the status says.
        request_id: The id of the request; None if it is not known.
    """

    def __init__(
        self,
        status: int,
        message: str,
        code: int = -32600,
        data: object = None,
        headers: tuple[tuple[bytes, bytes], ...] = (),
        reason: str = "",
        request_id: object = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason or _REASONS.get(status, "headers")
        self.status, self.message, self.code, self.data, self.headers = status, message, code, data, headers
        self.request_id = request_id


@contextmanager
def add_request_id(request_id: object) -> Iterator[None]:
    """Give the id of a request to a `RefusedRequest` that is raised in the block."""
    try:
        yield
    except RefusedRequest as refused:
        refused.request_id = request_id
        raise


def read_headers(raw: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Return the headers by lower-case name; the values of one that is there more than once are a list.

    Raises:
        RefusedRequest: A header that decides something is there twice.
    """
    pairs = list(raw)
    if len(pairs) > MAX_HEADERS:
        raise RefusedRequest(431, f"The request has more than {MAX_HEADERS} headers. Send fewer.")
    headers = dict(pairs)
    if b"content-length" in headers and b"transfer-encoding" in headers:
        raise RefusedRequest(400, "Content-Length and Transfer-Encoding exclude each other. Send one.", headers=CLOSE)
    return headers if len(headers) == len(pairs) else _join(pairs)


def _join(pairs: Iterable[tuple[bytes, bytes]]) -> Headers:
    headers: dict[bytes, bytes] = {}
    for name, value in pairs:
        if name in headers and (name in _SINGLE or name.startswith(b"mcp-param-")):
            raise RefusedRequest(400, f"The header {name.decode('latin-1')} is there more than once. Send it once.")
        headers[name] = headers[name] + b", " + value if name in headers else value
    return headers


def in_origin_form(raw_path: bytes, headers: Headers) -> tuple[str, Headers]:
    """Return the path of a request whose target does not begin with a slash, and its headers.

    The host of a whole URL replaces that of the header, as RFC 9112, 3.2.2 says.
    """
    target = _ABSOLUTE.fullmatch(raw_path)
    if target is None:
        return unquote(raw_path.decode("ascii")), headers
    return unquote((target[2] or b"/").decode("ascii")), {**headers, b"host": target[1]}


class RequestChecks:
    """Host, Origin and token, in this order.

    Args:
        authenticator: Knows the tokens.
        hosts: Values of `Host` to allow besides the loopback names with the server's port.
        origins: Values of `Origin` to allow besides those of the allowed hosts.
        resource: What the gateway is for OAuth; its host is allowed. None: clients have to know their tokens.
        metrics_readers: The principals that may read the metrics, as glob patterns of their names.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        hosts: Iterable[str] = (),
        origins: Iterable[str] = (),
        resource: ResourceServer | None = None,
        metrics_readers: Iterable[str] = (EVERY,),
    ) -> None:
        self._metrics_readers = tuple(metrics_readers)
        self._authenticator = authenticator
        self._resource = resource
        own = (resource.host,) if resource is not None else ()
        given = [host.lower() for host in (*hosts, *own)]
        self._more_hosts = frozenset(same.encode() for host in given for same in _same_hosts(host))
        own_origins = {
            f"{scheme}://{same}" for host in given for scheme, port in _DEFAULT_PORTS.items() for same in _same_hosts(host, port)
        }
        self._more_origins = frozenset(origin.lower().encode() for origin in (*origins, *own_origins))
        self._local: dict[int | None, tuple[frozenset[bytes], frozenset[bytes]]] = {}

    def check_host_and_origin(self, headers: Headers, port: int | None) -> None:
        """Raise `RefusedRequest` if the request is for another host, or made by a page of another origin."""
        hosts, origins = self._local.get(port) or self._allow(port)
        if headers.get(b"host", b"").lower() not in hosts:
            raise RefusedRequest(
                421, "The Host header names no host of this server. Use its address, or add the name to its allowed hosts."
            )
        origin = headers.get(b"origin")
        if origin is not None and origin.lower() not in origins:
            raise RefusedRequest(403, "The Origin header is not allowed. Add the origin to the server's allowed origins.")

    async def principal(self, headers: Headers) -> Principal:
        """Return the principal of the request's bearer token, or raise `RefusedRequest`."""
        given = headers.get(b"authorization", b"")
        scheme, _, token = given.partition(b" ")
        principal = None
        if not given or (scheme.lower() == b"bearer" and token and token.isascii()):
            try:
                principal = await self._authenticator.principal_of(token.decode("ascii"))
            except IssuerUnavailable:
                raise RefusedRequest(503, "The token cannot be checked now. Try again later.", headers=((b"retry-after", b"30"),)) from None
        if principal is None:
            header = (b"www-authenticate", self._challenge("invalid_token" if given else ""))
            raise RefusedRequest(401, "The request has no valid token. Send Authorization: Bearer TOKEN.", headers=(header,))
        self.check_scopes(principal)
        return principal

    async def metrics_reader(self, headers: Headers) -> Principal:
        """Return the principal of a request for the metrics, or raise `RefusedRequest`."""
        principal = await self.principal(headers)
        if not any(fnmatchcase(principal.name, pattern) for pattern in self._metrics_readers):
            text = f"{principal.name} may not read the metrics. Add the name to `metrics` in [http]."
            raise RefusedRequest(403, text, reason="metrics")
        return principal

    async def is_from(self, name: str, headers: Headers) -> bool:
        """Return whether the request's bearer token stands for a principal, given by name; True if that cannot be told now."""
        try:
            return (await self.principal(headers)).name == name
        except RefusedRequest as refused:
            return refused.status == 503

    def check_scopes(self, principal: Principal, more: Iterable[str] = ()) -> None:
        """Raise `RefusedRequest` if a token lacks one of the scopes of every request, or one of these."""
        needed = () if self._resource is None else self._resource.needed_scopes(principal, more)
        if self._resource is not None and needed:
            header = (b"www-authenticate", self._resource.challenge("insufficient_scope", needed))
            raise RefusedRequest(
                403, f"The token lacks a scope. This request needs: {' '.join(needed)}.", headers=(header,), reason="scope"
            )

    def _challenge(self, error: str) -> bytes:
        if self._resource is not None:
            return self._resource.challenge(error)
        return f'Bearer error="{error}"'.encode() if error else b"Bearer"

    def _allow(self, port: int | None) -> tuple[frozenset[bytes], frozenset[bytes]]:
        end = "" if port is None else f":{port}"
        local = {f"{name}{end}".encode() for name in _LOCAL}
        if port == 80:
            local |= {name.encode() for name in _LOCAL}
        origins = self._more_origins | {scheme + host for host in local for scheme in (b"http://", b"https://")}
        self._local[port] = (self._more_hosts | local, origins)
        return self._local[port]


def _same_hosts(host: str, *ports: int) -> tuple[str, ...]:
    """Return a host as clients may write it: the default port of the scheme may be there or not.

    Args:
        ports: The default ports. Without one: those of both schemes, because a proxy may speak HTTPS for this server.
    """
    name, port = _name_and_port(host)
    defaults = ports or tuple(_DEFAULT_PORTS.values())
    if port is not None and port not in map(str, defaults):
        return (host,)
    return (host, name) if port is not None else (host, *(f"{name}:{default}" for default in defaults))


def _name_and_port(host: str) -> tuple[str, str | None]:
    at = host.rfind(":")
    return (host[:at], host[at + 1 :]) if at > host.rfind("]") else (host, None)


def check_post_headers(headers: Headers, body_bytes: int) -> None:
    """Raise `RefusedRequest` if the body is not plain JSON of a permitted size, or the client does not accept what is answered."""
    length = headers.get(b"content-length", b"0")
    if not length.isdigit():
        raise RefusedRequest(400, "Content-Length is not a number. Send the size of the body in bytes.")
    if len(length) > 18 or int(length) > body_bytes:
        raise RefusedRequest(413, f"The body is larger than {body_bytes} bytes. Send less at once.", headers=CLOSE)
    if headers.get(b"content-type", b"").partition(b";")[0].strip().lower() != b"application/json":
        raise RefusedRequest(415, "The body must be JSON. Send Content-Type: application/json.")
    if headers.get(b"content-encoding", b"identity").strip().lower() != b"identity":
        raise RefusedRequest(415, "Compressed bodies are not read. Send the body without Content-Encoding.")
    accept = headers.get(b"accept", b"").lower()
    if b"*/*" not in accept and not (b"application/json" in accept and b"text/event-stream" in accept):
        raise RefusedRequest(406, "The answer is JSON or an event stream. Send Accept: application/json, text/event-stream.")
