"""Raw requests that should not get in, against a real server on a real socket."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from callgate.gateway._http import HttpServer
from tests.gateway.http.conftest import TOKEN

_FILE = Path(__file__).parents[4] / "shared" / "data" / "hostile" / "http.jsonl"
_ROWS = [json.loads(line) for line in _FILE.read_text().splitlines()] if _FILE.exists() else []
_PATHS = {"{API_RUNS}": "/metrics", "{MCP}": "/mcp", "{SSE}": "/mcp", "{STATIC}": "/static", "{TOKEN}": TOKEN, "{ID}": "1"}
_PATHS |= {"{OLD_TOKEN}": "old", "{COOKIE}": "x", "{TMP}": "/nowhere", "{API_EVENTS}": "/events", "{API_APPROVE}": "/approve"}
_PATHS |= {"{API_CONFIG}": "/config", "{MCP_TEST}": "/test"}

_ABSENT = ("{API_EVENTS}", "{API_APPROVE}", "{API_CONFIG}", "{MCP_TEST}")


def made(node: Any) -> bytes:
    if isinstance(node, str):
        return node.encode()
    if "gen" in node:
        return b"\x1f\x8b" + bytes(1000)
    if "rep" in node:
        return made(node["rep"][0]) * int(node["rep"][1])
    if "range" in node:
        text, count, between = node["range"]
        return between.join(text.replace("%d", str(i)) for i in range(count)).encode()  # type: ignore[no-any-return]
    if "cat" in node:
        return b"".join(made(part) for part in node["cat"])
    if "json" in node:
        return json.dumps(node["json"], ensure_ascii=False, separators=(",", ":")).encode()
    return base64.b64decode(node["b64"])


def filled(data: bytes, port: int, length: int) -> bytes:
    for name, value in {**_PATHS, "{PORT}": str(port), "{CL}": str(length)}.items():
        data = data.replace(name.encode(), value.encode())
    return data


async def status_of(port: int, request: bytes) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        line = await asyncio.wait_for(reader.readline(), 10)
    except ConnectionError:
        return 400
    finally:
        writer.close()
    return int(line.split()[1]) if line else 400


@pytest.mark.skipif(not _ROWS, reason="the rows of hostile requests are not here")
@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in _ROWS])
async def test_a_hostile_request_is_refused(row: dict[str, Any], server: HttpServer, client: httpx2.AsyncClient) -> None:
    if row["kind"] != "http" or row["class"] == "inspector":
        pytest.skip(f"{row['kind']} of {row['class']}: not one raw request to the gateway")
    body = filled(made(row.get("body", "")), server.port, 0)
    head = filled(b"\r\n".join(made(line) for line in row["head"]), server.port, len(body))
    if "{SSE}" in row["head"][0]:
        started = await client.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "initialize"})
        head += b"\r\nAccept: text/event-stream\r\nMcp-Session-Id: " + started.headers["mcp-session-id"].encode()
    status = await status_of(server.port, head + b"\r\n\r\n" + body)
    if "status" in row["expect"]:
        absent = any(name in row["head"][0] for name in _ABSENT)
        assert status in row["expect"]["status"] or (absent and status == 404), row["why"]
