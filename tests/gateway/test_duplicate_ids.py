"""A request with the id of one that runs is refused, and its answer cannot be taken for the answer of the one that runs."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.gateway.http.gateway_process import gateway_process, session
from tests.gateway.raw_client import Era, raw_client, served
from tests.waiting import soon

pytestmark = pytest.mark.process

_META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}


@pytest.mark.parametrize("second", get_args(Era))
@pytest.mark.parametrize("first", get_args(Era))
async def test_the_first_request_has_one_answer_and_the_second_is_refused_without_its_id(first: Era, second: Era, tmp_path: Path) -> None:
    asking = [sys.executable, str(Path(__file__).with_name("asking_server.py")), "handshake", str(tmp_path / "log")]
    price: dict[str, Any] = {"name": "price", "arguments": {"item": "tea"}, **({"_meta": _META} if second == "stateless" else {})}
    async with raw_client(served(servers=[asking]), first) as client:
        number, running = client.begin("tools/call", {"name": "ask_later", "arguments": {}})
        client.send({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": price})
        refused = await client.next_message()
        assert (refused["id"], refused["error"]["code"]) == (None, -32600)
        assert f"the id {number}" in refused["error"]["message"]
        (tmp_path / "log.go").touch()
        assert "result" in await running
        client.send({"jsonrpc": "2.0", "id": number, "method": "tools/list", "params": {"_meta": _META}})
        later = await client.next_message()
        assert later["id"] == number
        assert "tools" in later["result"], "an id may be used again after its answer"


async def test_a_session_over_http_refuses_it_with_the_status_400(tmp_path: Path) -> None:
    body = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "listen", "arguments": {"text": "a"}}}
    with gateway_process(tmp_path, stop_timeout_s=0.05) as gateway:
        async with gateway.client() as client:
            headers = {"Mcp-Session-Id": await session(client), "MCP-Protocol-Version": "2025-11-25"}
            running = asyncio.create_task(client.post("/mcp", json=body, headers=headers))
            assert await soon(lambda: gateway.runs() == ["listen"])
            refused = await client.post("/mcp", json=body, headers=headers)
            gateway.stop()
            first = json.loads((await running).content)
    assert (refused.status_code, refused.json()["id"], refused.json()["error"]["code"]) == (400, None, -32600)
    assert (first["id"], gateway.runs()) == (7, ["listen"])
