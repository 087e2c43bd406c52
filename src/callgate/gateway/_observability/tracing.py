"""A span of OpenTelemetry for each call of a client. Imported only if opentelemetry-api is installed.

The parent is what the client names in `_meta`, and what upstream servers get in `_meta` names the span. Spans have no arguments, results or
texts of errors.

Source: OpenTelemetry semantic conventions, "Model Context Protocol"; W3C Trace Context; W3C Baggage.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import attach, detach, get_current
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.trace import (
    ProxyTracerProvider,
    Span,
    SpanKind,
    Status,
    StatusCode,
    TracerProvider,
    get_tracer,
    get_tracer_provider,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from callgate._version import __version__
from callgate.engine import Engine
from callgate.gateway._client_calls import ClientCall
from callgate.gateway._exchange import KnowsTransport
from callgate.gateway._tool_calls.result_outcomes import end_of
from callgate.mcp._connection import Message
from callgate.mcp._messages import RpcError

__all__ = ["CallTracing"]

_Call = Callable[[ClientCall, Mapping[str, Any]], Awaitable[Message]]

_W3C = CompositePropagator([TraceContextTextMapPropagator(), W3CBaggagePropagator()])
_FIELDS = frozenset(_W3C.fields)
_METHOD = "tools/call"


class CallTracing:
    """Traces the calls of one gateway.

    Args:
        provider: Where spans go; None: the provider of the process.
    """

    def __init__(self, engine: Engine, provider: TracerProvider | None) -> None:
        self._engine = engine
        self._own_provider = provider is not None
        self._tracer = get_tracer("callgate.gateway", __version__, provider)

    async def call(self, make: _Call, client_call: ClientCall, params: Mapping[str, Any]) -> Message:
        """Make a call in a span of its own."""
        if self._has_nothing_to_tell(client_call):
            return await make(client_call, params)
        name = params.get("name")
        bound = self._engine.tools.get(name) if isinstance(name, str) else None
        attributes = {
            "mcp.method.name": _METHOD,
            "mcp.protocol.version": client_call.client.revision,
            "gen_ai.operation.name": "execute_tool",
            **_of_request(client_call),
        }
        if bound is not None:
            attributes["gen_ai.tool.name"] = bound.name
        carrier = {key: value for key, value in client_call.meta.items() if key in _FIELDS and isinstance(value, str)}
        outside = attach(_W3C.extract(carrier, get_current()))  # with its baggage, which a span alone would not have
        try:
            return await self._in_span(_METHOD if bound is None else f"{_METHOD} {bound.name}", attributes, make, client_call, params)
        finally:
            detach(outside)

    def _has_nothing_to_tell(self, client_call: ClientCall) -> bool:
        """Return whether no provider takes spans, and neither the client nor the host has a trace to pass on."""
        unused = not self._own_provider and isinstance(get_tracer_provider(), ProxyTracerProvider)
        return unused and _FIELDS.isdisjoint(client_call.meta) and not get_current()

    async def _in_span(
        self, name: str, attributes: Mapping[str, str], make: _Call, client_call: ClientCall, params: Mapping[str, Any]
    ) -> Message:
        with self._tracer.start_as_current_span(
            name,
            kind=SpanKind.SERVER,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            _pass_on(client_call)
            return await _record_end(span, client_call, make(client_call, params))


async def _record_end(span: Span, client_call: ClientCall, work: Awaitable[Message]) -> Message:
    """Return the result of a call, and record in the span how it has ended."""
    try:
        result = await work
    except BaseException as error:
        if isinstance(error, RpcError):
            span.set_attribute("rpc.response.status_code", str(error.code))
        _fail(span, str(error.code) if isinstance(error, RpcError) else type(error).__qualname__)
        raise
    finally:
        if client_call.status.uid:
            span.set_attribute("gen_ai.tool.call.id", client_call.status.uid)
    status, failure = end_of(result)
    if status in ("error", "unknown"):
        _fail(span, "tool_error" if failure == "tool_declared" else failure or status)
    return result


def _of_request(client_call: ClientCall) -> dict[str, str]:
    """Return what is known of the request and of how it has come."""
    found = {} if client_call.request_id is None else {"jsonrpc.request.id": str(client_call.request_id)}
    exchange = client_call.exchange
    if isinstance(exchange, KnowsTransport):
        found["network.transport"] = exchange.transport
        if exchange.transport == "tcp":
            found["network.protocol.name"] = "http"
        if exchange.session_id:
            found["mcp.session.id"] = exchange.session_id
    return found


def _fail(span: Span, error_type: str) -> None:
    span.set_attribute("error.type", error_type)
    span.set_status(Status(StatusCode.ERROR))


def _pass_on(client_call: ClientCall) -> None:
    """Pass the current span to upstream servers as the parent of theirs."""
    carrier: dict[str, str] = {}
    _W3C.inject(carrier)
    if "traceparent" in carrier:
        client_call.meta = {key: value for key, value in client_call.meta.items() if key not in _FIELDS} | carrier
