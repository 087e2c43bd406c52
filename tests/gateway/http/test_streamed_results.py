"""A result that follows messages on its event stream is the same as one that is sent alone."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from callgate import Engine, ToolContext, tool
from callgate.gateway import Gateway, Principal
from callgate.gateway._http import HttpApp, HttpServer
from callgate.gateway.tokens import StaticTokens

_PREFIX = "io.modelcontextprotocol/"


@tool(effect="none")
async def report(ctx: ToolContext) -> str:
    """Report progress from the tool's own task."""
    ctx.progress("half")
    return "reported"


@pytest.mark.parametrize("asked", [{}, {"progressToken": "p"}], ids=["alone", "after its progress"])
async def test_a_result_on_an_event_stream_has_no_note_about_the_stream(asked: dict[str, Any]) -> None:
    meta = {f"{_PREFIX}protocolVersion": "2026-07-28", f"{_PREFIX}clientCapabilities": {}, **asked}
    headers = {
        "Authorization": "Bearer token-of-ann",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": "report",
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "report", "arguments": {}, "_meta": meta}}
    async with Gateway(Engine([report])) as gateway:
        tokens = StaticTokens({"token-of-ann": Principal(name="ann")})
        app = HttpApp(gateway, tokens)
        async with HttpServer(app) as server, httpx2.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", headers=headers) as client:
            answer = await client.post("/mcp", json=body)
    lines = answer.text.splitlines() if asked else [f"data: {answer.text}"]
    sent = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    assert [message.get("method") for message in sent] == (["notifications/progress", None] if asked else [None])
    assert sent[-1]["result"]["content"] == [{"type": "text", "text": "reported"}]
