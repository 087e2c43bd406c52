"""`callgate serve` answers its clients while its servers start."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.cli.command_process import CommandProcess, start_command
from tests.cli.mcp_server_programs import write_servers
from tests.cli.served_gateway import LISTEN, server, serving
from tests.gateway.raw_client import Era, RawClient, raw_session
from tests.waiting import COMMAND_S

pytestmark = pytest.mark.process

_SLOW = str(Path(__file__).parents[1] / "gateway" / "slow_start_server.py")
_WAIT_FOR_SERVERS = "callgate.gateway._server_features.offered_content._START_S"
"""How long a client that asks what the gateway is waits for servers that still start. Here they start only afterwards."""
ERAS = pytest.mark.parametrize("era", ["handshake", "stateless"])


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Return the configuration of a gateway whose server starts when the file `go` is there."""
    path = tmp_path / "gate.toml"
    words = json.dumps([sys.executable, _SLOW, str(tmp_path / "go")])
    path.write_text(f'journal = ":memory:"\n[servers.slow]\ncommand = {words}\n', encoding="utf-8")
    return path


async def serve(config: Path, *words: str, stdout: int = PIPE) -> Process | CommandProcess:
    return await start_command(
        config.parent, "serve", "--config", str(config), *words, stdin=PIPE, stdout=stdout, constants={_WAIT_FOR_SERVERS: 0.2}
    )


@asynccontextmanager
async def served(config: Path, era: Era) -> AsyncIterator[RawClient]:
    """Start the command, and yield a client whose first request it has answered."""
    async with raw_session(await serve(config), era) as client:
        yield client


@ERAS
async def test_a_client_is_answered_while_the_servers_start_and_its_lists_and_calls_wait(config: Path, era: Era) -> None:
    async with served(config, era) as client:  # its first request is answered
        _, listed = client.begin("tools/list", {})
        _, called = client.begin("tools/call", {"name": "ready", "arguments": {}})
        if era == "handshake":
            assert (await client.request("ping", {}))["result"] == {}
        else:
            assert "resources" in (await client.request("server/discover", {}))["result"]["capabilities"]
        assert not listed.done()
        assert not called.done()
        (config.parent / "go").touch()
        assert [tool["name"] for tool in (await listed)["result"]["tools"]] == ["ready"]
        assert (await called)["result"]["content"][0]["text"] == "done"


async def test_what_servers_may_have_is_announced_until_it_is_known_what_they_have(config: Path) -> None:
    async with served(config, "stateless") as client:
        early = (await client.request("server/discover", {}))["result"]["capabilities"]
        (config.parent / "go").touch()
        await client.request("tools/list", {})
        late = (await client.request("server/discover", {}))["result"]["capabilities"]
        nothing = (await client.request("prompts/list", {}))["result"]["prompts"]
    flags = {"listChanged": True}
    assert set(early.pop("extensions")) == {f"io.modelcontextprotocol/{name}" for name in ("tasks", "ui", "skills")}
    assert late.pop("extensions") == {"io.modelcontextprotocol/tasks": {}}
    assert early == {"tools": flags, "resources": {"subscribe": True, **flags}, "prompts": flags, "completions": {}, "logging": {}}
    assert late == {"tools": flags, "resources": {}, "logging": {}}
    assert nothing == []


async def test_a_gateway_without_its_required_server_ends_with_2_also_if_its_client_has_gone(tmp_path: Path) -> None:
    (tmp_path / "gate.toml").write_text('[servers.dead]\ncommand = "no-such-program-here"\nrequired = true\n', encoding="utf-8")
    process = await serve(tmp_path / "gate.toml")
    _, told = await asyncio.wait_for(process.communicate(), COMMAND_S)
    assert process.returncode == 2
    assert b"Traceback" not in told
    assert b"It is required, so nothing starts without it." in told.splitlines()[-1]


async def test_a_client_that_closes_its_end_while_the_servers_start_gets_its_answers(config: Path) -> None:
    async with served(config, "handshake") as client:
        _, listed = client.begin("tools/list", {})
        await client.request("ping", {})
        assert client.process.stdin is not None
        client.process.stdin.close()
        (config.parent / "go").touch()
        assert len((await listed)["result"]["tools"]) == 1
        assert await asyncio.wait_for(client.process.wait(), COMMAND_S) == 0


async def test_a_client_that_reads_no_more_ends_the_command(config: Path) -> None:
    """Even if it keeps its other end open, as a client may whose reader has failed."""
    (config.parent / "go").touch()
    reading, writing = os.pipe()
    process = await serve(config, stdout=writing)
    os.close(writing)
    os.close(reading)
    await asyncio.wait_for(process.wait(), COMMAND_S)
    assert process.returncode == 0


async def test_a_required_server_that_cannot_start_ends_the_command_with_a_sentence(config: Path) -> None:
    with config.open("a", encoding="utf-8") as file:
        file.write('[servers.dead]\ncommand = ["python3", "-c", "raise SystemExit(\'no licence found\')"]\nrequired = true\n')
    (config.parent / "go").touch()
    for words in ((), ("--http", "127.0.0.1:0")):
        process = await serve(config, *words)
        assert process.stderr is not None
        told = (await asyncio.wait_for(process.stderr.read(), COMMAND_S)).decode()
        assert await asyncio.wait_for(process.wait(), COMMAND_S) == 2
        assert "no licence found" in told
        assert "Traceback" not in told


@asynccontextmanager
async def over_http(config: Path) -> AsyncIterator[Callable[..., Coroutine[Any, Any, Any]]]:
    """Start the command, and yield what sends it requests. End it with SIGTERM."""
    process = await serve(config, "--http", "127.0.0.1:0")
    assert process.stderr is not None
    url = token = ""
    while not (url and token):
        line = (await asyncio.wait_for(process.stderr.readline(), COMMAND_S)).decode()
        assert line, "the command has ended"
        url = url or next((word for word in line.split() if word.startswith("http://")), "")
        token = token or next((word for word in line.split() if word.startswith("cg_")), "")
    try:
        async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=COMMAND_S) as client:
            yield partial(client.post, url)
    finally:
        process.terminate()
        await asyncio.wait_for(process.communicate(), COMMAND_S)


def posted(number: int, method: str, **params: Any) -> dict[str, Any]:
    prefix = "io.modelcontextprotocol/"
    meta = {f"{prefix}protocolVersion": "2026-07-28", f"{prefix}clientCapabilities": {}}
    headers = {"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": method, "Accept": "application/json, text/event-stream"}
    if "name" in params:
        headers["Mcp-Name"] = params["name"]
    return {"json": {"jsonrpc": "2.0", "id": number, "method": method, "params": {**params, "_meta": meta}}, "headers": headers}


async def test_over_http_clients_are_answered_while_the_servers_start(config: Path) -> None:
    async with over_http(config) as post:
        discovered = await post(**posted(1, "server/discover"))
        assert "prompts" in discovered.json()["result"]["capabilities"]
        listed = asyncio.create_task(post(**posted(2, "tools/list")))
        called = asyncio.create_task(post(**posted(3, "tools/call", name="ready", arguments={})))
        await post(**posted(4, "server/discover"))
        assert not listed.done()
        assert not called.done()
        (config.parent / "go").touch()
        assert [tool["name"] for tool in (await listed).json()["result"]["tools"]] == ["ready"]
        assert (await called).json()["result"]["content"][0]["text"] == "done"


async def test_what_is_wrong_with_a_tool_is_said_once(tmp_path: Path) -> None:
    write_servers(tmp_path)
    options = '[servers.shop.options.look]\nkey = "look:{nope}"\n'
    async with serving(tmp_path, LISTEN, server("shop"), options) as gateway:
        assert gateway.start.count("'nope' is none of its parameters") == 1
