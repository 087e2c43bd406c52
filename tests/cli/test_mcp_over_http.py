"""`callgate mcp` with a server on the network."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from tests.cli.mcp_server_programs import LOOK
from tests.cli.shell import shell
from tests.mcp.http.fake_server import FakeServer, Reply, Sent, result_of
from tests.mcp.http.session_server import SessionServer

SECRET = "hunter2-very-secret"


async def list_tools(sent: Sent, reply: Reply) -> None:
    await reply.json(result_of(sent, tools=[LOOK]))


async def test_a_header_is_read_from_the_environment_at_each_start_and_is_in_no_file(tmp_path: Path) -> None:
    async with SessionServer(list_tools) as server:
        words = ("mcp", "add", "far", server.url, "--header", "Authorization: Bearer ${FAR_TOKEN}")
        added = await asyncio.to_thread(shell, tmp_path, *words, FAR_TOKEN=SECRET)
        assert added.code == 0, added.err
        tested = await asyncio.to_thread(shell, tmp_path, "mcp", "test", "far", "--json", FAR_TOKEN="another")
        assert (tested.json["era"], tested.json["revision"]) == ("handshake", "2025-11-25")
        without = await asyncio.to_thread(shell, tmp_path, "mcp", "test", "far")
        sent = {one.headers.get("authorization") for one in server.http.sent}
    assert sent == {f"Bearer {SECRET}", "Bearer another"}
    assert without.code == 1
    assert "FAR_TOKEN, which is not set" in without.err
    entry = {"type": "http", "url": server.url, "headers": {"Authorization": "Bearer ${FAR_TOKEN}"}}
    assert written(tmp_path) == {"mcpServers": {"far": entry}}


async def test_a_server_that_answers_with_a_page_is_not_said_to_have_done_something(tmp_path: Path) -> None:
    async def page(sent: Sent, reply: Reply) -> None:
        await reply.send(503, "text/html", b"<h1>Come back later</h1>")

    async with FakeServer(page) as server:
        (tmp_path / "gate.toml").write_text(f'[servers.far]\nurl = "{server.url}"\n', encoding="utf-8")
        tested = await asyncio.to_thread(shell, tmp_path, "mcp", "test", "far", "--config", "gate.toml")
    assert tested.code == 1
    assert "answered 503 Service Unavailable with text/html" in tested.err + tested.out
    assert "may have done" not in tested.err + tested.out


def written(folder: Path) -> object:
    return json.loads((folder / ".mcp.json").read_text(encoding="utf-8"))
