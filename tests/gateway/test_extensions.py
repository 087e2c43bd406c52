"""Extensions that consist of tools and resources pass the gateway in both directions; those of one hop do not."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.forked_programs import forked_program
from tests.gateway.raw_client import Era, raw_client, served

pytestmark = [pytest.mark.process]

ASKING = str(Path(__file__).with_name("asking_server.py"))
UI, SKILLS, TASKS = (f"io.modelcontextprotocol/{name}" for name in ("ui", "skills", "tasks"))
SHOWS_APPS: dict[str, Any] = {"extensions": {UI: {"mimeTypes": ["text/html;profile=mcp-app"]}}}
fronts = pytest.mark.parametrize("front", get_args(Era))


@fronts
async def test_a_client_that_shows_apps_gets_the_app_of_a_server(front: Era) -> None:
    async with raw_client(served(servers=[forked_program("-m", "tests.gateway.app_server")]), front, SHOWS_APPS) as client:
        (tool,) = [one for one in (await client.request("tools/list", {}))["result"]["tools"] if one["name"] == "clock"]
        assert (await client.call("clock", {}))["result"]["content"][0]["text"] == "in the app"
        (page,) = (await client.request("resources/read", {"uri": tool["_meta"]["ui"]["resourceUri"]}))["result"]["contents"]
    assert (page["mimeType"], page["text"]) == ("text/html;profile=mcp-app", "<p>12:00</p>")
    assert UI in client.about["capabilities"]["extensions"]


@fronts
async def test_a_client_without_apps_gets_text(front: Era) -> None:
    async with raw_client(served(servers=[forked_program("-m", "tests.gateway.app_server")]), front) as client:
        assert (await client.call("clock", {}))["result"]["content"][0]["text"] == "12:00"


@fronts
@pytest.mark.parametrize("upstream", get_args(Era))
async def test_a_server_is_told_of_no_extension_that_the_gateway_does_not_pass(front: Era, upstream: Era, tmp_path: Path) -> None:
    declared = {"extensions": {UI: {"a": 1}, SKILLS: {}, "com.example/x": {}, TASKS: {}}, "experimental": {"y": {}}}
    command = served(servers=[[sys.executable, ASKING, upstream, str(tmp_path / "log")]])
    async with raw_client(command, front, declared) as client:
        assert (await client.call("work", {}))["result"]["content"][0]["text"] == "done"
    lines = (tmp_path / "log").read_text().splitlines()
    told = [line for line in lines if line.startswith("call work" if upstream == "stateless" else "initialize")]
    assert json.loads(told[-1][told[-1].index("{") :]) == {"extensions": {UI: {"a": 1}, SKILLS: {}}}
