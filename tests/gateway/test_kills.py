"""Tests that kill the gateway or a server behind it while calls run: each call is answered, or recorded as what may have happened."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.cli.shell import shell
from tests.gateway.ledger_gateway import gateway_command, ledger_gateway, mark_of, upstream
from tests.gateway.raw_client import Era, RawClient
from tests.recovery.ledger_server import noted
from tests.recovery.mcp_kills import http_server
from tests.runners.runner_requests import marked
from tests.waiting import soon, until

pytestmark = [pytest.mark.process, pytest.mark.skipif(sys.platform != "linux", reason="kills, and looks in /proc")]
OUTCOME = "callgate/outcome"
NEVER = Path("/nonexistent/release")
ERAS: tuple[Era, ...] = ("handshake", "stateless")


def text_of(response: dict[str, Any]) -> str:
    return str(response["result"]["content"][0]["text"])


def outcome_of(response: dict[str, Any]) -> dict[str, Any]:
    assert response["result"]["isError"]
    outcome: dict[str, Any] = response["result"]["_meta"][OUTCOME]
    return outcome


def unsettled(folder: Path) -> list[str]:
    """Return the ids of the calls that `callgate settle` lists."""
    listed = shell(folder, "settle", "--json", "--journal", str(folder / "journal.db"))
    return [json.loads(line)["uid"] for line in listed.out.splitlines()]


def begun(client: RawClient, server: str, what: str, release: Path) -> asyncio.Future[dict[str, Any]]:
    """Begin a call that is answered when a file exists."""
    return client.begin("tools/call", {"name": f"{server}.act", "arguments": {"what": what, "until": str(release)}})[1]


async def begun_then_killed(client: RawClient, server: Path, what: str) -> None:
    """Kill the gateway after the effect of a call and before its answer; the client must see the closed connection."""
    calling = begun(client, "paper", what, NEVER)
    await until(lambda: what in noted(server, "ledger.txt"))
    os.kill(client.process.pid, signal.SIGKILL)
    with pytest.raises(ConnectionError):
        await calling
    await client.process.wait()


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_whose_gateway_was_killed_is_listed_as_unknown_and_a_new_request_is_a_new_call(tmp_path: Path, era: Era) -> None:
    """MCP requests have no identity, so only a key of the effect tells that two requests are one call."""
    servers = {"paper": upstream(tmp_path / "paper")}
    async with ledger_gateway(tmp_path, servers, era) as client:
        await begun_then_killed(client, tmp_path / "paper", "a")
    async with ledger_gateway(tmp_path, servers, era) as client:
        (lost,) = unsettled(tmp_path)
        assert text_of(await client.call("paper.act", {"what": "a"})) == "did a"
        assert unsettled(tmp_path) == [lost]
    assert noted(tmp_path / "paper", "ledger.txt") == ["a", "a"]


async def test_a_call_that_finishes_after_a_stop_gives_its_result(tmp_path: Path) -> None:
    server, release = tmp_path / "paper", tmp_path / "release"
    async with ledger_gateway(tmp_path, {"paper": upstream(server)}) as client:
        calling = begun(client, "paper", "a", release)
        await until(lambda: "a" in noted(server, "ledger.txt"))
        stopped = await asyncio.to_thread(shell, tmp_path, "stop", "last", "--journal", str(tmp_path / "journal.db"))
        assert stopped.code == 0, stopped.err
        release.touch()
        assert text_of(await calling) == "did a"


@pytest.mark.parametrize("happened", [True, False])
async def test_a_killed_call_with_a_key_is_unknown_in_a_new_gateway_until_it_is_settled(tmp_path: Path, happened: bool) -> None:
    servers = {"paper": upstream(tmp_path / "paper")}
    async with ledger_gateway(tmp_path, servers, keyed=True) as client:
        await begun_then_killed(client, tmp_path / "paper", "a")
    (lost,) = unsettled(tmp_path)
    async with ledger_gateway(tmp_path, servers, keyed=True) as client:
        refused = await client.call("paper.act", {"what": "a"})
        assert (outcome_of(refused)["status"], outcome_of(refused)["code"]) == ("unknown", "outcome_unknown")
        assert lost in text_of(refused)
        assert noted(tmp_path / "paper", "ledger.txt") == ["a"]
        said = "--happened" if happened else "--not-happened"
        assert shell(tmp_path, "settle", lost, said, "--journal", str(tmp_path / "journal.db")).code == 0
        settled = await client.call("paper.act", {"what": "a"})
    assert "isError" not in settled["result"]
    assert noted(tmp_path / "paper", "ledger.txt") == (["a"] if happened else ["a", "a"])


async def test_a_call_with_a_key_that_was_answered_before_the_kill_returns_its_stored_result(tmp_path: Path) -> None:
    servers = {"paper": upstream(tmp_path / "paper")}
    async with ledger_gateway(tmp_path, servers, keyed=True) as client:
        assert text_of(await client.call("paper.act", {"what": "a"})) == "did a"
        await begun_then_killed(client, tmp_path / "paper", "b")
    async with ledger_gateway(tmp_path, servers, keyed=True) as client:
        assert text_of(await client.call("paper.act", {"what": "a"})) == "did a"
    assert noted(tmp_path / "paper", "ledger.txt") == ["a", "b"]


async def test_no_server_outlives_a_killed_gateway(tmp_path: Path) -> None:
    servers = {name: upstream(tmp_path / name) for name in ("paper", "other")}
    async with ledger_gateway(tmp_path, servers) as client:
        assert len(marked(mark_of(tmp_path))) >= 2
        await begun_then_killed(client, tmp_path / "paper", "a")
    assert await soon(lambda: not marked(mark_of(tmp_path)))


async def test_an_http_client_sees_the_closed_connection_of_a_killed_gateway(tmp_path: Path) -> None:
    servers = {"paper": upstream(tmp_path / "paper")}
    command = gateway_command(tmp_path, servers, "--http", "127.0.0.1:0")
    process = await asyncio.create_subprocess_exec(*command, stderr=PIPE)
    url = await address_of(process)
    calling = asyncio.ensure_future(posted_call(url, "paper.act", {"what": "a", "until": str(NEVER)}))
    await until(lambda: noted(tmp_path / "paper", "ledger.txt") or calling.done())
    process.kill()
    with pytest.raises(httpx2.TransportError):
        await calling
    await process.wait()
    assert len(unsettled(tmp_path)) == 1


async def address_of(process: Process) -> str:
    """Return the address that a gateway prints."""
    assert process.stderr is not None
    while line := (await process.stderr.readline()).decode():
        if found := [word.rstrip(".,") for word in line.split() if word.startswith("http://")]:
            return found[0]
    raise AssertionError("the gateway has ended")


async def posted_call(url: str, name: str, arguments: dict[str, Any]) -> str:
    """Call a tool with a request of the stateless era, and return what the server has answered."""
    prefix = "io.modelcontextprotocol/"
    meta = {f"{prefix}protocolVersion": "2026-07-28", f"{prefix}clientCapabilities": {}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments, "_meta": meta}}
    routing = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": name}
    async with httpx2.AsyncClient(timeout=None, trust_env=False, verify=False) as client:
        response = await client.post(url, json=message, headers={"accept": "application/json, text/event-stream", **routing})
        return response.text


@pytest.fixture(params=["stdio", "http"])
def servers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, object]]:
    """Two servers, `paper` and `other`, that are started again after they were killed."""
    with ExitStack() as running:
        found: dict[str, object] = {}
        for name in ("paper", "other"):
            command = upstream(tmp_path / name)
            found[name] = command if request.param == "stdio" else running.enter_context(http_server(tmp_path / name, {}))
        yield found


@pytest.mark.parametrize("era", ERAS)
async def test_the_calls_of_a_killed_server_are_unknown_and_those_of_others_go_on(
    tmp_path: Path, servers: dict[str, object], era: Era
) -> None:
    release = tmp_path / "release"
    async with ledger_gateway(tmp_path, servers, era) as client:
        running = {name: [begun(client, name, str(n), release) for n in range(3)] for name in servers}
        await until(lambda: all(len(noted(tmp_path / name, "ledger.txt")) == 3 for name in servers))
        os.kill(int(noted(tmp_path / "paper", "server.pids")[-1]), signal.SIGKILL)
        for lost in await asyncio.gather(*running["paper"]):
            assert (outcome_of(lost)["status"], outcome_of(lost)["code"]) == ("unknown", "tool_crashed")
            assert "may have" in text_of(lost)
            assert "look at the server" in text_of(lost) or "Check first whether it did" in text_of(lost)
        release.touch()
        assert sorted(text_of(answer) for answer in await asyncio.gather(*running["other"])) == ["did 0", "did 1", "did 2"]
        assert text_of(await client.call("paper.act", {"what": "again"})) == "did again"
        assert len(unsettled(tmp_path)) == 3
    assert sorted(noted(tmp_path / "paper", "ledger.txt")) == ["0", "1", "2", "again"]


async def test_a_reading_call_of_a_killed_server_is_made_again_for_the_client(tmp_path: Path, servers: dict[str, object]) -> None:
    release = tmp_path / "release"
    async with ledger_gateway(tmp_path, servers, effect="none") as client:
        reading = begun(client, "paper", "a", release)
        await until(lambda: noted(tmp_path / "paper", "ledger.txt"))
        os.kill(int(noted(tmp_path / "paper", "server.pids")[-1]), signal.SIGKILL)
        await until(lambda: len(noted(tmp_path / "paper", "ledger.txt")) == 2)
        release.touch()
        assert text_of(await reading) == "did a"
        assert unsettled(tmp_path) == []
