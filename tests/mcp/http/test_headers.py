"""The headers that repeat parts of a stateless request, by which proxies route it."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.mcp.http.clients import Client, connected, handshaken
from tests.mcp.http.fake_server import FakeServer, Reply, Sent, result_of
from tests.mcp.http.session_server import TEXT, SessionServer


class Lists:
    """Answers `tools/list` with tools whose properties are given, and calls with a text."""

    def __init__(self, **tools: dict[str, Any]) -> None:
        self._tools = [{"name": name, "inputSchema": {"type": "object", **schema}} for name, schema in tools.items()]

    async def __call__(self, sent: Sent, reply: Reply) -> None:
        listing = sent.message["method"] == "tools/list"
        await reply.json(result_of(sent, **({"tools": self._tools} if listing else {"content": [TEXT]})))


def text_header(name: object, kind: object = "string") -> dict[str, Any]:
    return {"type": kind, "x-mcp-header": name}


async def listed(client: Client) -> list[str]:
    return [tool["name"] for tool in (await client.ask("tools/list"))["result"]["tools"]]


def parameters(sent: Sent) -> dict[str, str]:
    return {name: value for name, value in sent.headers.items() if name.startswith("mcp-param-")}


@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("tools/call", {"name": "pay", "arguments": {}}, "pay"),
        ("tools/call", {"name": "zahle-Müller"}, "=?base64?emFobGUtTcO8bGxlcg==?="),
        ("tools/call", {"name": " pay"}, "=?base64?IHBheQ==?="),
        ("tools/call", {"name": "=?base64?cGF5?="}, "=?base64?PT9iYXNlNjQ/Y0dGNT89?="),
        ("prompts/get", {"name": "greet"}, "greet"),
        ("resources/read", {"uri": "file:///a b"}, "file:///a b"),
        ("tools/list", {}, None),
    ],
)
async def test_method_and_name_are_headers(method: str, params: dict[str, Any], name: str | None) -> None:
    async with FakeServer(Lists()) as server, connected(server.url) as client:
        await client.ask(method, params)
    headers = server.sent[0].headers
    assert (headers["mcp-method"], headers.get("mcp-name"), headers["mcp-protocol-version"]) == (method, name, "2026-07-28")


async def test_annotated_arguments_are_headers() -> None:
    properties = {
        "region": text_header("Region"),
        "count": text_header("Count", "integer"),
        "dry": text_header("Dry", "boolean"),
        "absent": text_header("Absent"),
        "nested": {"type": "object", "properties": {"to": text_header("To")}},
        "plain": {"type": "string"},
    }
    arguments = {"region": "Zürich", "count": 3, "dry": True, "nested": {"to": "a b"}, "plain": "x", "absent": None}
    async with FakeServer(Lists(pay={"properties": properties})) as server, connected(server.url) as client:
        await client.call("pay", arguments)
        assert await listed(client) == ["pay"]
        await client.call("pay", arguments)
    assert parameters(server.sent[0]) == {}
    assert parameters(server.sent[2]) == {
        "mcp-param-region": "=?base64?WsO8cmljaA==?=",
        "mcp-param-count": "3",
        "mcp-param-dry": "true",
        "mcp-param-to": "a b",
    }


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": text_header("no header")}},
        {"properties": {"a": text_header("")}},
        {"properties": {"a": text_header(5)}},
        {"properties": {"a": text_header("A", "number")}},
        {"properties": {"a": text_header("A", ["string", "null"])}},
        {"properties": {"a": text_header("A"), "b": text_header("a")}},
        {"properties": {"a": {"type": "array", "items": text_header("A")}}},
        {"properties": {"a": {"anyOf": [text_header("A")]}}},
        {"$defs": {"a": text_header("A")}},
        {"x-mcp-header": "A"},
    ],
)
async def test_a_tool_with_an_invalid_annotation_is_left_out(schema: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "callgate")
    async with FakeServer(Lists(bad=schema, good={})) as server, connected(server.url) as client:
        assert await listed(client) == ["good"]
    assert "The MCP server 'fake': The tool 'bad' cannot be called: " in caplog.text


@pytest.mark.parametrize("word", ["default", "examples", "const", "enum"])
async def test_data_in_a_schema_is_no_annotation(word: str) -> None:
    async with FakeServer(Lists(pay={word: [{"x-mcp-header": 1}]})) as server, connected(server.url) as client:
        assert await listed(client) == ["pay"]


async def test_sessions_have_no_such_headers() -> None:
    lists = Lists(bad={"x-mcp-header": "A"})
    async with SessionServer(lists) as server, handshaken(server.url) as client:
        assert await listed(client) == ["bad"]
        await client.call("bad")
        assert not {"mcp-method", "mcp-name"} & server.sent("tools/call")[0].headers.keys()
