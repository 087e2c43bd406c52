"""A server of the official TypeScript SDK, which speaks revisions up to 2025-11-25."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from callgate import Engine
from callgate.mcp import mcp
from tests.engine_calls import call, said
from tests.mcp.npm_servers import npm_server
from tests.waiting import PATIENCE_S

EVERYTHING = "@modelcontextprotocol/server-everything@2026.8.31"


@contextmanager
def running(program: Path, port: int) -> Iterator[None]:
    """Run the server until the end of the block, on this port."""
    environment = {"PATH": os.environ["PATH"], "PORT": str(port)}
    process = subprocess.Popen(
        ["node", str(program), "streamableHttp"], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        while "listening" not in (line := process.stderr.readline()):
            assert line, "the server ended before it listened"
        yield
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE_S)
        process.stderr.close()


@pytest.fixture(scope="module")
def program() -> Path:
    return npm_server(EVERYTHING)


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


async def test_a_call_returns_the_result_of_the_tool(program: Path, port: int) -> None:
    with running(program, port):
        async with Engine(servers=[mcp(f"http://127.0.0.1:{port}/mcp")]) as engine:
            assert (await said(engine, call("echo", message="hello"))).text == "Echo: hello"
            assert (await said(engine, call("get-structured-content", location="Chicago"))).status == "ok"


async def test_calls_go_on_after_the_server_was_killed_and_started_again(program: Path, port: int) -> None:
    """It answers requests of a forgotten session with 400 and not with 404."""
    with running(program, port):
        engine = Engine(servers=[mcp(f"http://127.0.0.1:{port}/mcp")])
        assert (await said(engine, call("echo", message="before"))).text == "Echo: before"
    with running(program, port):
        assert (await said(engine, call("echo", message="after"))).text == "Echo: after"
    await engine.close()


async def test_a_call_in_a_server_that_is_killed_has_an_unknown_outcome(program: Path, port: int) -> None:
    progress = asyncio.Event()
    with running(program, port):
        engine = Engine(servers=[mcp(f"http://127.0.0.1:{port}/mcp")])
        engine.bus.subscribe(lambda *_: progress.set(), "call.progress")
        long = asyncio.create_task(said(engine, call("trigger-long-running-operation", duration=600, steps=6_000)))
        await progress.wait()
    assert (await long).status == "unknown"
    await engine.close()
