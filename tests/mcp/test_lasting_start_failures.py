"""A server whose start fails for a reason that lasts is not started again and again, but when it is asked after a while."""

from __future__ import annotations

import errno
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from callgate import Engine
from callgate.errors import UsageError
from callgate.mcp import McpServer, NotSent, mcp
from tests.engine_calls import call, said
from tests.mcp.fakes import ANSWER, Fake
from tests.mcp.http.fake_server import FakeServer, Reply, Sent
from tests.waiting import until

pytestmark = pytest.mark.process


def not_executable(folder: Path) -> McpServer:
    (folder / "program").write_bytes(b"\1\2")
    (folder / "program").chmod(0o755)
    return mcp([str(folder / "program")], name="shop")


LASTING: dict[str, tuple[Callable[[Path], McpServer], str]] = {
    "no program": (lambda folder: mcp("no-such-program", name="shop"), "there is no program 'no-such-program'"),
    "no folder": (lambda folder: mcp("cat", name="shop", cwd=str(folder / "none")), "does not exist"),
    "no format that can be run": (not_executable, os.strerror(errno.ENOEXEC)),
    "a null character": (lambda folder: mcp(["cat", "a\0b"], name="shop"), "cannot be passed on (embedded null byte)"),
    "half a surrogate pair": (lambda folder: mcp(["cat", "\ud800"], name="shop"), "cannot be passed on ("),
    "an odd variable": (
        lambda folder: mcp("cat", name="shop", env={"A=B": "c"}),
        "cannot be passed on (illegal environment variable name)",
    ),
    "a problem of its file": (
        lambda folder: McpServer(name="shop", command=("cat",), problem="The variable KEY is not set."),
        "KEY is not set",
    ),
}


@pytest.mark.parametrize("name", LASTING)
async def test_it_is_tried_and_told_once(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make, why = LASTING[name]
    with caplog.at_level(logging.WARNING, "callgate"):
        async with Engine(servers=[make(tmp_path)]) as engine:
            (status,) = engine.servers_status()
    assert (status.state, why in status.problem) == ("quarantined", True)
    assert caplog.text.count(why) == 1
    assert "Traceback" not in caplog.text


async def test_a_server_on_the_network_that_redirects_to_another_one_is_tried_once() -> None:
    async def elsewhere(sent: Sent, reply: Reply) -> None:
        await reply.send(307, "text/html", location="http://127.0.0.1:9/mcp")

    async with FakeServer(elsewhere) as server, Engine(servers=[mcp(server.url, name="shop")]) as engine:
        (status,) = engine.servers_status()
        assert len(server.sent) == 1
    assert (status.state, "That is another origin" in status.problem) == ("quarantined", True)


async def test_a_later_request_tries_again_and_finds_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callgate.mcp._supervised_session._QUARANTINE_S", 0.0)
    fake = Fake(tmp_path, ANSWER, capabilities={"resources": {}}, answers={"resources/list": {"result": {"resources": []}}})
    python = tmp_path / "python"
    server = McpServer(name="fake", command=(str(python), *fake.server().command[1:]), tools=("work",))
    async with Engine(servers=[server]) as engine:
        assert engine.servers_status()[0].state == "quarantined"
        python.symlink_to(sys.executable)
        assert await engine.server("fake").list_resources() == []
        assert (await said(engine, call("work"))).success


async def test_a_refused_request_says_that_the_server_has_failed_once() -> None:
    async with Engine(servers=[mcp("no-such-program", name="shop")]) as engine:
        with pytest.raises(NotSent, match="It has failed once, and is not tried again for 60 s"):
            await engine.server("shop").list_resources()


def test_a_path_in_the_command_is_refused_where_it_is_given() -> None:
    with pytest.raises(UsageError, match="a tuple of texts"):
        McpServer(name="shop", command=(Path("shop"),))  # type: ignore[arg-type]


async def test_a_server_that_has_run_is_started_again_when_its_program_is_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callgate.mcp._supervised_session._LONGEST_WAIT_S", 0.01)
    monkeypatch.setattr("callgate.mcp._supervised_session._MOST_FAILURES", 100_000)
    fake, python = Fake(tmp_path, ANSWER), tmp_path / "python"
    python.symlink_to(sys.executable)
    async with Engine(servers=[McpServer(name="fake", command=(str(python), *fake.server().command[1:]))]) as engine:
        python.unlink()
        os.kill(fake.pids[0], signal.SIGKILL)
        await until(lambda: "there is no program" in engine.servers_status()[0].problem)
        python.symlink_to(sys.executable)
        assert (await said(engine, call("work"))).success
