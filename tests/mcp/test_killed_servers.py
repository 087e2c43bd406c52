"""A server that is killed while calls run: its calls end at once, those of other servers go on, and it serves again."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from callgate import Engine, Scope
from callgate.mcp import McpServer, mcp
from callgate.tools.retry_policy import NO_RETRY
from tests.engine_calls import call, said
from tests.recovery.ledger_server import noted
from tests.recovery.mcp_kills import http_server, server_command
from tests.waiting import HANGS_S, PATIENCE_S, until

pytestmark = [pytest.mark.process, pytest.mark.skipif(sys.platform != "linux", reason="the server forks")]
NAMES = ("killed", "other")
CALLS = 4


@pytest.fixture(params=["stdio", "http, stateless", "http, handshake"])
def servers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[McpServer]]:
    transport, _, era = str(request.param).partition(", ")
    with ExitStack() as running:
        found: list[McpServer] = []
        for name in NAMES:
            folder = tmp_path / name
            folder.mkdir()
            settings = {"era": era or "stateless"}
            stdio = transport == "stdio"
            target = server_command(folder, settings) if stdio else running.enter_context(http_server(folder, settings))
            found.append(mcp(target, name=name, prefix=True))
        yield found


async def test_the_calls_of_a_killed_server_end_and_those_of_another_server_go_on(tmp_path: Path, servers: list[McpServer]) -> None:
    release = tmp_path / "release"
    async with Engine(servers=servers) as engine:
        calling = {
            name: [
                asyncio.ensure_future(said(engine, call(f"{name}.act", what=str(number), until=str(release)), Scope(run=f"{name}{number}")))
                for number in range(CALLS)
            ]
            for name in NAMES
        }
        await until(lambda: all(len(noted(tmp_path / name, "ledger.txt")) == CALLS for name in NAMES))
        os.kill(int(noted(tmp_path / "killed", "server.pids")[-1]), signal.SIGKILL)
        for lost in await asyncio.gather(*calling["killed"]):
            assert (lost.status, lost.code) == ("unknown", "tool_crashed")
        assert not any(one.done() for one in calling["other"])
        release.touch()
        assert [one.text for one in await asyncio.gather(*calling["other"])] == [f"did {number}" for number in range(CALLS)]
        assert (await said(engine, call("killed.act", what="again"))).text == "did again"
    assert len(noted(tmp_path / "killed", "ledger.txt")) == CALLS + 1
    assert len(noted(tmp_path / "other", "server.pids")) == 1


@pytest.mark.parametrize("era", ["stateless", "handshake"])
async def test_a_server_on_the_network_is_used_again_soon_after_it_was_down(
    tmp_path: Path, era: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A server that is being restarted refuses connections for a while; programs that end again and again wait for longer."""
    monkeypatch.setattr("callgate.mcp._supervised_session._FIRST_WAIT_S", 0.001)
    monkeypatch.setattr("callgate.mcp._supervised_session._NETWORK_QUARANTINE_S", 0.001)
    monkeypatch.setattr("callgate.mcp._supervised_session._QUARANTINE_S", HANGS_S)
    with ExitStack() as running:
        url = running.enter_context(http_server(tmp_path, {"era": era}))
        async with Engine(servers=[mcp(url, name="up", options={"act": {"retry": NO_RETRY}})]) as engine:
            assert (await said(engine, call("act", what="a"))).success
            running.close()
            others = (f"b{number}" for number in count())  # the outcome of the first may be unknown, and its repeats would be, too
            while (await said(engine, call("act", what=next(others)))).code != "not_started":
                await asyncio.sleep(0)
            await until(lambda: caplog.text.count("cannot be reached") >= 4)  # after the end of the session, the fifth failure
            running.enter_context(http_server(tmp_path, {"era": era, "port": urlsplit(url).port}))
            async with asyncio.timeout(PATIENCE_S):
                while not (await said(engine, call("act", what="c"))).success:
                    await asyncio.sleep(0)


async def test_the_signal_that_ended_a_server_is_named_when_a_call_meets_its_closed_pipe(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Engine(servers=[mcp(server_command(tmp_path, {}), name="killed", effects={"act": "none"})]) as engine:
        for number in range(3):
            os.kill(int(noted(tmp_path, "server.pids")[-1]), signal.SIGKILL)
            assert (await said(engine, call("act", what=str(number)))).success
    assert caplog.text.count("it was killed by SIGKILL") == 3
    assert "answers nothing any more" not in caplog.text
