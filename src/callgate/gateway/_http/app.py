"""The ASGI application: routes, checks, and which era a message belongs to.

Looks into a message only for its kind and version, and for `initialize`, which makes a session. Only the fronts know what methods mean.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Any, Protocol

from callgate.errors import UsageError
from callgate.gateway._access.token_expiry import end_at_expiry
from callgate.gateway._client_messages import RefusedMessage, kind_of, read_client_message, read_request_id
from callgate.gateway._exchange import Exchange, Front, SessionFront
from callgate.gateway._http.incoming_request import IncomingRequest, read_body
from callgate.gateway._http.listening_streams import ListeningStreams
from callgate.gateway._http.open_requests import OpenRequests
from callgate.gateway._http.posted_request import PostedRequest
from callgate.gateway._http.replica_forwarding import FORWARDED, ReplicaForwarding
from callgate.gateway._http.request_checks import (
    CLOSE,
    Headers,
    RefusedRequest,
    RequestChecks,
    add_request_id,
    check_post_headers,
    in_origin_form,
    read_headers,
)
from callgate.gateway._http.resource_server import ResourceServer
from callgate.gateway._http.routing_headers import HANDSHAKE_VERSIONS, check_routing_headers, meta_version
from callgate.gateway._http.sessions import GatewaySession, GatewaySessions
from callgate.gateway._http.streams import EventBuffer, RawHeaders, Receive, Send, send_body, send_events, wait_for_disconnect
from callgate.gateway._http_limits import HttpLimits
from callgate.gateway._requests.replicas import Replicas, is_about_task
from callgate.gateway.principals import EVERY, Principal
from callgate.gateway.tokens import Authenticator
from callgate.mcp._connection import Message
from callgate.mcp._messages import INTERNAL_ERROR, INVALID_REQUEST, RpcError, encoded, error_answer

__all__ = ["HttpApp", "ServedGateway"]

Scope = MutableMapping[str, Any]
_LOG = logging.getLogger("callgate.gateway")
_TASK_SILENCE_S = 5.0
"""Seconds that another gateway may take to answer a request about one of its tasks."""
_PARAM_HEADER = re.compile("mcp-param-[a-z0-9_-]{1,100}")
_TEXT = (
    (b"content-type", b"text/plain; version=0.0.4; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
)
_CORS_HEADERS = frozenset(
    {"authorization", "content-type", "accept", "last-event-id", "mcp-session-id", "mcp-protocol-version", "mcp-method", "mcp-name"}
)


class ServedGateway(Protocol):
    """Makes the fronts of both eras, and knows its tools and its own state."""

    def handshake(self, principal: Principal, events: Exchange | None = None) -> SessionFront: ...

    def stateless(self, principal: Principal) -> Front: ...

    @property
    def replicas(self) -> Replicas: ...

    def end_tasks(self, ended: Callable[[str], bool]) -> None:
        """Cancel the tasks of some principals, given by name."""
        ...

    def end_subscriptions(self) -> None:
        """End all `subscriptions/listen` requests with their results."""
        ...

    async def start(self) -> None:
        """Wait until the tools are known."""
        ...

    def header_params(self, tool: str) -> Mapping[str, Sequence[str]]:
        """Return the `x-mcp-header` annotations of a tool."""
        ...

    def health(self) -> Mapping[str, Any]:
        """Return what `GET /health` answers."""
        ...

    def metrics(self) -> bytes:
        """Return what `GET /metrics` answers."""
        ...

    async def refresh_metrics(self) -> None:
        """Prepare `metrics`."""
        ...


class HttpApp:
    """Serves a gateway over streamable HTTP.

    Args:
        gateway: Its fronts answer the messages.
        authenticator: Knows the tokens.
        metrics_readers: The principals that may get the metrics, as glob patterns of their names.
        path: Where MCP is served.
        hosts: Values of `Host` to allow besides the loopback names.
        origins: Values of `Origin` to allow besides those of the allowed hosts.
        limits: Bounds of clients.
        on_refused: Called for each request that is refused, with the reason.
        resource: What the gateway is for clients that get their tokens with OAuth.
        tool_scopes: Returns the scopes that a call of a tool needs in addition to those of every request.
    """

    def __init__(
        self,
        gateway: ServedGateway,
        authenticator: Authenticator,
        *,
        metrics_readers: Iterable[str] = (EVERY,),
        path: str = "/mcp",
        hosts: Iterable[str] = (),
        origins: Iterable[str] = (),
        limits: HttpLimits | None = None,
        on_refused: Callable[[str], None] = lambda reason: None,
        resource: ResourceServer | None = None,
        tool_scopes: Callable[[str], Iterable[str]] = lambda tool: (),
    ) -> None:
        self.limits = limits or HttpLimits()
        self.on_refused = on_refused
        self._gateway, self._path = gateway, path
        self._checks = RequestChecks(authenticator, hosts, origins, resource, metrics_readers)
        self._listening = ListeningStreams(self._checks)
        self._resource, self._tool_scopes = resource, tool_scopes
        self._documents = frozenset(("/health", "/metrics")) | (resource.paths if resource is not None else frozenset())
        self._replicas = gateway.replicas
        self._sessions = GatewaySessions(self.limits, self._replicas.new_session_id, gateway.handshake)
        self._open = OpenRequests(self.limits.requests_per_principal)
        self._forwarding = ReplicaForwarding() if self._replicas.url else None
        self._running: set[PostedRequest] = set()
        self._ended = asyncio.Event()
        self._stopping = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            if self._stopping:
                raise RefusedRequest(503, "The server stops. Send the request again later.", headers=CLOSE)
            if scope["http_version"] not in ("1.0", "1.1"):
                raise RefusedRequest(505, "The version of HTTP is not served. Use HTTP/1.1.", headers=CLOSE)
            headers, path = read_headers(scope["headers"]), scope["path"]
            if path[:1] != "/":
                path, headers = in_origin_form(scope["raw_path"], headers)
            self._checks.check_host_and_origin(headers, scope["server"][1])
            if b"origin" in headers:
                send = _with_headers(send, _cors(headers[b"origin"]))
            await self._route(scope["method"], path, headers, receive, send)
        except RefusedRequest as refused:
            response = error_answer(refused.request_id, RpcError(refused.code, refused.message, refused.data))
            _LOG.info("refused %s: %s", refused.status, refused.message)
            self.on_refused(refused.reason)
            await send_body(send, refused.status, encoded(response), refused.headers)

    def connection_counts(self) -> dict[str, int]:
        """Return the numbers of open `sessions` and of open requests and streams, which are `connections` in the metrics."""
        return {"sessions": len(self._sessions), "connections": len(self._open)}

    async def end_principals(self, ended: Callable[[str], bool]) -> None:
        """Cancel the requests and tasks and close the sessions of principals, given by name, who may no longer use the gateway.

        Streams that a client listens on also end if only its token is no longer valid.
        """
        requests = [request.cancel() for request in list(self._running) if ended(request.principal.name)]
        await asyncio.gather(*requests, return_exceptions=True)
        await self._sessions.end_of(ended)
        self._gateway.end_tasks(ended)
        await self._listening.end_revoked()

    async def close(self) -> None:
        """Refuse new requests, end subscriptions and sessions, and cancel what still runs after `stop_timeout_s`."""
        self._stopping = True
        self._gateway.end_subscriptions()
        self._sessions.close_streams()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.limits.stop_timeout_s):
                while self._running:
                    self._ended.clear()
                    await self._ended.wait()
        await asyncio.gather(*(request.cancel() for request in list(self._running)), return_exceptions=True)
        await self._sessions.close()
        if self._forwarding is not None:
            await self._forwarding.close()

    async def _route(self, method: str, path: str, headers: Headers, receive: Receive, send: Send) -> None:
        if method == "OPTIONS" and b"origin" in headers:
            await _preflight(headers, send)
        elif path == self._path:
            principal = await self._checks.principal(headers)
            self._open.add(principal)
            try:
                await self._mcp(IncomingRequest(method, headers, principal, receive, send))
            finally:
                self._open.remove(principal)
        elif path not in self._documents:
            raise RefusedRequest(404, f"There is nothing at this path. MCP is served at {self._path}.", reason="path")
        elif method not in ("GET", "HEAD"):
            raise RefusedRequest(405, "Only GET and HEAD are served here.", headers=((b"allow", b"GET, HEAD"),))
        elif path == "/health":
            found = self._gateway.health()
            await send_body(send, 503 if found.get("status") == "failed" else 200, encoded(found))
        elif path != "/metrics" and self._resource is not None:
            await send_body(send, 200, encoded(self._resource.metadata))
        else:
            await self._checks.metrics_reader(headers)
            await self._gateway.refresh_metrics()
            await send_body(send, 200, self._gateway.metrics(), kind=_TEXT)

    async def _mcp(self, request: IncomingRequest) -> None:
        if self._forwarding is not None and await self._is_forwarded(self._forwarding, request):
            return
        method, headers = request.method, request.headers
        if method == "POST":
            check_post_headers(headers, self.limits.body_bytes)
            body = await read_body(request.receive, self.limits)
            message = _read_message(body)
            if self._forwarding is None or not await self._is_passed_on(self._forwarding, request, message, body):
                await self._post(request, message)
        elif method not in ("GET", "DELETE") or b"mcp-session-id" not in headers:
            raise RefusedRequest(405, f"{method} is not served without a session. Send messages with POST.", headers=((b"allow", b"POST"),))
        elif method == "GET":
            await self._standing_stream(request, self._session(request))
        else:
            await self._sessions.end(self._session(request))
            await send_body(request.send, 200, b"")

    async def _is_passed_on(self, forwarding: ReplicaForwarding, request: IncomingRequest, message: Message, body: bytes) -> bool:
        """Pass a message on if another gateway has the request or task that it is about, and return whether that was done."""
        holder = self._replicas.of_request(message) if FORWARDED not in request.headers else ""
        if not holder:
            return False
        address = holder + self._path
        if not is_about_task(message):
            await forwarding.forward(address, request, body)
            return True
        try:
            await forwarding.forward(address, request, body, _TASK_SILENCE_S)
        except RefusedRequest:  # the task can go on here
            return False
        return True

    async def _is_forwarded(self, forwarding: ReplicaForwarding, request: IncomingRequest) -> bool:
        """Pass a request of a session on if another gateway has the session, and return whether that was done."""
        session = request.text(b"mcp-session-id")
        holder = self._replicas.of_session(session) if session and FORWARDED not in request.headers else ""
        if not holder:
            return False
        body = b""
        if request.method == "POST":
            check_post_headers(request.headers, self.limits.body_bytes)
            body = await read_body(request.receive, self.limits)
        await forwarding.forward(holder + self._path, request, body)
        return True

    def _session(self, request: IncomingRequest) -> GatewaySession:
        headers = request.headers
        return self._sessions.find(headers.get(b"mcp-session-id"), headers.get(b"mcp-protocol-version"), request.principal)

    async def _post(self, request: IncomingRequest, message: Message) -> None:
        header, version = request.text(b"mcp-protocol-version"), meta_version(message)
        if version is not None or (header and header not in HANDSHAKE_VERSIONS):
            with add_request_id(message.get("id")):
                await self._post_stateless(request, message)
        elif message.get("method") == "initialize" and "id" in message and b"mcp-session-id" not in request.headers:
            await self._initialize(request, message)
        else:
            session = self._session(request)
            with add_request_id(message.get("id")):
                self._check_scopes(request.principal, message)
                await self._post_to_session(request, message, session)

    def _check_scopes(self, principal: Principal, message: Message) -> None:
        """Raise `RefusedRequest` if a request calls a tool that needs a scope which the token does not have."""
        params = message.get("params")
        name = params.get("name") if isinstance(params, dict) and message.get("method") == "tools/call" else None
        self._checks.check_scopes(principal, self._tool_scopes(name) if isinstance(name, str) else ())

    async def _post_stateless(self, request: IncomingRequest, message: Message) -> None:
        if "method" not in message:
            raise RefusedRequest(400, "The body must be a request or a notification.", reason="body")
        if "id" not in message:
            await send_body(request.send, 202, b"")
            return
        if message["method"] == "tools/call":
            await self._wait_for_tools()
        principal, headers = request.principal, request.headers
        self._check_scopes(principal, message)
        check_routing_headers(headers, message, self._gateway.header_params)
        posted = PostedRequest(
            self._gateway.stateless(principal), principal, message, request.receive, request.send, self.limits, stateless=True
        )
        if message["method"] != "subscriptions/listen":
            await self._answer(posted, self._running)
            return
        with self._listening.one(headers, principal, posted.cancel):
            await self._answer(posted, self._running)

    async def _wait_for_tools(self) -> None:
        try:
            await self._gateway.start()
        except UsageError:
            raise RefusedRequest(503, "The gateway cannot start its servers. Its log says why.", INTERNAL_ERROR) from None

    async def _answer(self, request: PostedRequest, *running: set[PostedRequest]) -> None:
        for requests in running:
            requests.add(request)
        try:
            await request.answer()
        finally:
            for requests in running:
                requests.discard(request)
            self._ended.set()

    async def _initialize(self, request: IncomingRequest, message: Message) -> None:
        session = self._sessions.open(request.principal)
        try:
            response = await session.front.request(message, session.streams)
            if response is not None and "result" in response:
                session.revision = response["result"]["protocolVersion"]
        except Exception:
            _LOG.exception("a session could not be started")
            raise RefusedRequest(500, "The gateway failed to start a session. Its log says why.", INTERNAL_ERROR) from None
        finally:
            if not session.revision:
                await self._sessions.end(session)
        made = ((b"mcp-session-id", session.id.encode()),) if session.revision else ()
        await send_body(request.send, 200, b"" if response is None else encoded(response), made)

    async def _post_to_session(self, request: IncomingRequest, message: Message, session: GatewaySession) -> None:
        receive, send = request.receive, request.send
        if "method" in message and "id" in message:
            posted = PostedRequest(
                session.front, session.principal, message, receive, send, self.limits, stateless=False, session_id=session.id
            )
            await self._answer(posted, session.running, self._running)
            return
        if "method" in message:
            session.front.notification(message)
        else:
            session.front.response(message)
        await send_body(send, 202, b"")

    async def _standing_stream(self, request: IncomingRequest, session: GatewaySession) -> None:
        accept, principal = request.headers.get(b"accept", b"").lower(), request.principal
        if b"text/event-stream" not in accept and b"*/*" not in accept:
            raise RefusedRequest(406, "The answer is an event stream. Send Accept: text/event-stream.")
        stream = EventBuffer(self.limits)
        session.streams.add(stream)
        gone = asyncio.create_task(wait_for_disconnect(request.receive))
        gone.add_done_callback(lambda _: stream.close())

        async def close() -> None:
            stream.close()

        try:
            with end_at_expiry(principal, stream.close), self._listening.one(request.headers, principal, close):
                await send_events(request.send, stream, self.limits)
        finally:
            gone.cancel()
            session.streams.remove(stream)


async def _preflight(headers: Headers, send: Send) -> None:
    asked = headers.get(b"access-control-request-headers", b"").decode("latin-1").lower().split(",")
    named = (name.strip() for name in asked)
    allowed = sorted(name for name in named if name in _CORS_HEADERS or _PARAM_HEADER.fullmatch(name))
    response_headers = (
        (b"access-control-allow-methods", b"GET, POST, DELETE"),
        (b"access-control-allow-headers", ", ".join(allowed).encode()),
        (b"access-control-max-age", b"600"),
    )
    await send_body(send, 204, b"", response_headers)


def _cors(origin: bytes) -> RawHeaders:
    """Return the headers by which a page of an allowed origin may read a response."""
    return (
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", b"mcp-session-id, www-authenticate"),
        (b"vary", b"origin"),
    )


def _with_headers(send: Send, more: RawHeaders) -> Send:
    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = (*message["headers"], *more)
        await send(message)

    return sending


def _read_message(body: bytes) -> Message:
    try:
        message = read_client_message(body)
    except RefusedMessage as error:
        raise RefusedRequest(400, f"The body is refused: {error}.", error.code, reason="body", request_id=error.request_id) from None
    if not kind_of(message):
        text = "The body is not a JSON-RPC 2.0 message with a valid id."
        raise RefusedRequest(400, text, INVALID_REQUEST, reason="body", request_id=read_request_id(message))
    return message
