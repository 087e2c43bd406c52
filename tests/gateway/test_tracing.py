"""The spans of calls, and what names them to upstream servers."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from callgate import Engine, Tool, tool
from callgate.gateway import LOCAL, Gateway, serve_stdio
from callgate.gateway._http import HttpApp, HttpServer
from callgate.gateway.tokens import Anonymous
from callgate.mcp.calling_client import calling_client
from mcp import Client
from tests.gateway.observed_gateway import client_of, observed, time_server

pytestmark = [pytest.mark.process]

_TRACE, _PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
_META = {"traceparent": f"00-{_TRACE}-{_PARENT}-01", "tracestate": "vendor=1", "baggage": "user=ada", "own": "kept"}


class Tracing:
    def __init__(self) -> None:
        self.provider = TracerProvider(shutdown_on_exit=False)
        self._exporter = InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    @property
    def span(self) -> ReadableSpan:
        (span,) = self._exporter.get_finished_spans()
        return span


async def test_a_call_has_a_span_below_that_of_its_client() -> None:
    tracing = Tracing()
    async with observed(time_server(), tracer_provider=tracing.provider) as (_, client):
        await client.call("get_current_time", {"timezone": "Europe/Vienna"}, _meta=_META)
    span = tracing.span
    assert span.parent is not None
    assert (f"{span.parent.trace_id:032x}", f"{span.parent.span_id:016x}") == (_TRACE, _PARENT)
    assert (span.name, span.kind) == ("tools/call get_current_time", SpanKind.SERVER)
    attributes = dict(span.attributes or {})
    assert attributes.pop("gen_ai.tool.call.id")
    assert str(attributes.pop("jsonrpc.request.id")).isdigit()
    assert attributes == {
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": "2025-11-25",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "get_current_time",
    }


@pytest.mark.parametrize(("name", "error_type"), [("get_current_time", "tool_error"), ("made-up", "-32602")])
async def test_a_failed_call_says_how_but_has_no_arguments(name: str, error_type: str) -> None:
    tracing = Tracing()
    async with observed(time_server(), tracer_provider=tracing.provider) as (_, client):
        await client.call(name, {"timezone": "Secret/Place"})
    span = tracing.span
    assert span.status.status_code is StatusCode.ERROR
    assert (span.attributes or {})["error.type"] == error_type
    assert (span.attributes or {}).get("rpc.response.status_code") == (error_type if error_type.startswith("-") else None)
    assert "Secret" not in span.to_json()
    assert "made-up" not in span.to_json()


def looking(seen: list[Mapping[str, Any]]) -> Tool:
    """Return a tool that adds what it sees of the calling client, which is what a server is sent."""

    @tool(effect="none")
    async def look() -> str:
        """Look at the calling client."""
        client = calling_client()
        assert client is not None
        seen.append(client.meta)
        return "seen"

    return look


async def test_upstream_servers_are_told_of_the_span() -> None:
    seen: list[Mapping[str, Any]] = []
    tracing = Tracing()
    async with Gateway(Engine([looking(seen)]), tracer_provider=tracing.provider) as gateway:
        client = await client_of(gateway)
        await client.call("look", {}, _meta=_META)
        await client.front.close()
    context = tracing.span.get_span_context()
    assert context is not None
    assert seen == [{**_META, "traceparent": f"00-{_TRACE}-{context.span_id:016x}-01"}]


@pytest.mark.parametrize("meta", [_META, {"own": "kept"}, {**_META, "traceparent": "no trace"}])
async def test_upstream_servers_are_told_of_the_trace_of_a_client_also_if_nobody_takes_spans(meta: Mapping[str, Any]) -> None:
    seen: list[Mapping[str, Any]] = []
    async with Gateway(Engine([looking(seen)])) as gateway:
        client = await client_of(gateway)
        await client.call("look", {}, _meta=meta)
        await client.front.close()
    assert seen == [meta]


@tool(effect="none")
async def wave() -> str:
    """Wave."""
    return "waved"


@pytest.mark.parametrize(("mode", "has_session"), [("legacy", True), ("auto", False)])
async def test_a_span_has_the_request_and_the_transport_of_a_client_over_http(mode: str, has_session: bool) -> None:
    tracing = Tracing()
    async with Gateway(Engine([wave]), tracer_provider=tracing.provider) as gateway:
        app = HttpApp(gateway, Anonymous(LOCAL))
        async with HttpServer(app, "127.0.0.1", 0) as server, Client(f"http://127.0.0.1:{server.port}/mcp", mode=mode) as client:
            await client.call_tool("wave", {})
    attributes = tracing.span.attributes or {}
    assert (attributes["network.transport"], attributes["network.protocol.name"]) == ("tcp", "http")
    assert attributes["jsonrpc.request.id"]
    assert ("mcp.session.id" in attributes) is has_session


async def test_a_span_has_the_request_and_the_transport_of_a_client_over_standard_input_and_output() -> None:
    tracing = Tracing()
    (ours_in, theirs_in), (theirs_out, ours_out) = os.pipe(), os.pipe()
    about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about},
        {"jsonrpc": "2.0", "id": "call-2", "method": "tools/call", "params": {"name": "wave"}},
    ]
    with os.fdopen(ours_in, "rb") as reading, os.fdopen(ours_out, "wb") as writing, os.fdopen(theirs_out, "rb") as answers:
        os.write(theirs_in, b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        os.close(theirs_in)
        async with Gateway(Engine([wave]), tracer_provider=tracing.provider) as gateway:
            await serve_stdio(gateway, streams=(reading, writing))
        assert b"waved" in answers.read()
    attributes = tracing.span.attributes or {}
    assert (attributes["network.transport"], attributes["jsonrpc.request.id"]) == ("pipe", "call-2")
    assert "network.protocol.name" not in attributes
    assert "mcp.session.id" not in attributes
