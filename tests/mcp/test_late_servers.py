"""A server that can only be used some time after the engine has started offers its tools then, without a call of them."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from callgate import Engine
from callgate.mcp import McpServer, mcp
from tests.engine_calls import call, said
from tests.mcp.fakes import ANSWER, Fake
from tests.mcp.http.fake_server import FakeServer, Reply, Sent, result_of
from tests.waiting import HANGS_S, until

pytestmark = pytest.mark.process
WAITS = "callgate.mcp._supervised_session"


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_FIRST_WAIT_S", "_QUARANTINE_S", "_NETWORK_QUARANTINE_S", "_LASTING_S"):
        monkeypatch.setattr(f"{WAITS}.{name}", 0.001)


async def test_a_server_on_the_network_that_starts_after_the_engine_offers_its_tools() -> None:
    async with FakeServer(_refused) as earlier:
        pass
    async with Engine(servers=[mcp(earlier.url, name="late")]) as engine:
        await until(lambda: engine.servers_status()[0].state == "quarantined")
        async with FakeServer(_answered, port=urlsplit(earlier.url).port or 0):
            await until(lambda: engine.tools.get("work") is not None)
            assert (await said(engine, call("work"))).success


async def test_a_server_that_stops_refusing_offers_its_tools() -> None:
    async with FakeServer(_refused) as server, Engine(servers=[mcp(server.url, name="late")]) as engine:
        await until(lambda: engine.servers_status()[0].state == "quarantined")
        server.answer = _answered
        await until(lambda: engine.tools.get("work") is not None)
        assert (await said(engine, call("work"))).success


async def test_a_program_that_is_installed_after_the_engine_has_started_offers_its_tools(tmp_path: Path) -> None:
    fake, python = Fake(tmp_path, ANSWER), tmp_path / "python"
    async with Engine(servers=[McpServer(name="fake", command=(str(python), *fake.server().command[1:]))]) as engine:
        await until(lambda: engine.servers_status()[0].state == "quarantined")
        python.symlink_to(sys.executable)
        await until(lambda: engine.tools.get("work") is not None)
        assert (await said(engine, call("work"))).success


async def test_a_change_of_other_servers_tries_it_again_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{WAITS}._LASTING_S", HANGS_S)
    fake, python = Fake(tmp_path, ANSWER), tmp_path / "python"
    async with Engine(servers=[McpServer(name="fake", command=(str(python), *fake.server().command[1:]))]) as engine:
        await until(lambda: engine.servers_status()[0].state == "quarantined")
        python.symlink_to(sys.executable)
        await engine.change_servers()
        await until(lambda: engine.tools.get("work") is not None)


async def test_a_refusal_that_does_not_change_is_warned_of_once_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "callgate"):
        async with FakeServer(_refused) as server, Engine(servers=[mcp(server.url, name="late")]):
            await until(lambda: len(server.sent) >= 10)
    assert caplog.text.count("answered 404") == 1


async def _refused(sent: Sent, reply: Reply) -> None:
    await reply.send(404, "text/html")


async def _answered(sent: Sent, reply: Reply) -> None:
    """Answer as a server of 2026-07-28 with one tool."""
    caching = {"ttlMs": 0, "cacheScope": "private"}
    match sent.message["method"]:
        case "server/discover":
            await reply.json(result_of(sent, supportedVersions=["2026-07-28"], capabilities={"tools": {}}, **caching))
        case "tools/list":
            await reply.json(result_of(sent, tools=[{"name": "work", "inputSchema": {"type": "object"}}], **caching))
        case _:
            await reply.json(result_of(sent, content=[{"type": "text", "text": "done"}]))
