"""Servers that make tasks of calls: `callgate serve` itself, which does that when a call takes long."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from callgate import Engine, Scope
from callgate.events import Progress
from callgate.mcp import McpServer, mcp
from tests.cli.command_process import CommandProcess, start_command
from tests.cli.shell import shell
from tests.engine_calls import call, result_of, said
from tests.forked_programs import forked_program
from tests.waiting import COMMAND_S, until

pytestmark = pytest.mark.process

_ASKING = str(Path(__file__).parents[1] / "gateway" / "asking_server.py")


def server(folder: Path, after_s: float = 0.1, **options: Any) -> McpServer:
    """Return a gateway whose calls become tasks after a time, in front of a server that asks."""
    asking = [sys.executable, _ASKING, "stateless", str(folder / "log")]
    given = {"folder": str(folder), "servers": [asking], "journal": str(folder / "journal.db"), "after_s": after_s}
    return mcp(forked_program("-m", "tests.gateway.task_gateway", json.dumps(given)), name="shop", **options)


async def accept(question: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"action": "accept", "content": {"name": question["message"]}}


async def test_a_call_that_becomes_a_task_has_the_result_of_the_task(tmp_path: Path) -> None:
    async with Engine(servers=[server(tmp_path, effects={"look": "none"})]) as engine:
        running = asyncio.ensure_future(engine.call(call("look", name="a")))
        await until((tmp_path / "a.began").exists)
        (tmp_path / "a.go").touch()
        result = result_of(await running)
    assert (result.status, result.structured) == ("ok", {"seen": "a"})


async def test_a_failed_tool_of_a_task_is_an_error_with_its_text(tmp_path: Path) -> None:
    async with Engine(servers=[server(tmp_path)]) as engine:
        running = asyncio.ensure_future(engine.call(call("refuse", name="a")))
        await until((tmp_path / "a.began").exists)
        (tmp_path / "a.go").touch()
        result = result_of(await running)
    assert result.status == "error"
    assert "the shop is closed" in result.text


async def test_what_a_task_asks_is_answered_by_the_host(tmp_path: Path) -> None:
    async with Engine(servers=[server(tmp_path, elicitation=accept)]) as engine:
        running = asyncio.ensure_future(engine.call(call("ask_twice_later")))
        await until((tmp_path / "task").exists)
        (tmp_path / "log.go").touch()
        result = result_of(await running)
    assert [one["content"]["name"] for one in json.loads(result.text)] == ["Your name? (1)", "Your name? (2)"]


async def test_a_task_that_gets_no_answer_to_its_question_is_cancelled(tmp_path: Path) -> None:
    async def fail(params: Mapping[str, Any]) -> Mapping[str, Any]:
        raise ValueError("there is no model")

    async with Engine(servers=[server(tmp_path, after_s=0.001, sampling=fail)]) as engine:
        running = asyncio.ensure_future(engine.call(call("model_later")))
        await until((tmp_path / "task").exists)
        (tmp_path / "log.go").touch()
        result = result_of(await running)
        assert (result.status, result.code) == ("unknown", "input_refused")
        assert "tasks_left" not in result.text  # the request that cancels the task on the server is not the tool's
        await until(lambda: "outcome_unknown" in shell(tmp_path, "log", "list", "--journal", "journal.db").out)


async def test_what_a_task_waits_for_is_progress_of_the_call(tmp_path: Path) -> None:
    shown: list[str] = []
    async with Engine(servers=[server(tmp_path)]) as engine:
        engine.bus.subscribe(lambda _, item: shown.append(item.text) if isinstance(item, Progress) else None, "call.progress")
        running = asyncio.ensure_future(engine.call(call("order", article="tea"), Scope(conversation="c")))
        await until(lambda: shown)
        engine.control.kill("c")
        await running
    assert "A human has to approve the call first" in shown[0]


async def test_a_kill_cancels_the_task(tmp_path: Path) -> None:
    async with Engine(servers=[server(tmp_path)]) as engine:
        running = asyncio.ensure_future(engine.call(call("wait"), Scope(conversation="c")))
        await until(lambda: (tmp_path / "log").exists() and "call wait" in (tmp_path / "log").read_text(encoding="utf-8"))
        asked = asyncio.ensure_future(said(engine, call("look", name="b")))
        await until((tmp_path / "b.began").exists)
        (tmp_path / "b.go").touch()
        await asked  # it was begun later and lasted long enough to be a task, so the first one is a task, too
        engine.control.kill("c")
        await running
        await until(lambda: "cancelled" in (tmp_path / "log").read_text(encoding="utf-8"))


_TOOLS = '''
import asyncio
from pathlib import Path
from callgate import tool

@tool(effect="once")
async def pay(order: str) -> str:
    """Pay, and wait."""
    with open("paid", "a") as ledger:
        ledger.write(order + "\\n")
    while not Path("go").exists():
        await asyncio.sleep(0.01)
    return f"paid {order}"

@tool(effect="none")
async def look() -> str:
    """Wait, and look."""
    Path("looking").touch()
    while not Path("go").exists():
        await asyncio.sleep(0.01)
    return "seen"
'''


@asynccontextmanager
async def served(folder: Path, port: int) -> AsyncIterator[Process | CommandProcess]:
    (folder / "own.py").write_text(_TOOLS, encoding="utf-8")
    http = f'[http]\nlisten = "127.0.0.1:{port}"\nanonymous = true\n'
    (folder / "gate.toml").write_text(f'tools = ["own.py"]\n{http}[tasks]\nafter_s = 0.1\n', encoding="utf-8")
    process = await start_command(folder, "serve", "--http")
    assert process.stderr is not None
    try:
        while b"Journal:" not in (line := await asyncio.wait_for(process.stderr.readline(), COMMAND_S)):
            assert line, "the gateway has ended"
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await asyncio.wait_for(process.communicate(), COMMAND_S)


@pytest.mark.parametrize("tool", ["look", "pay"])
async def test_a_task_survives_the_death_of_its_server_on_the_network(tmp_path: Path, tool: str) -> None:
    """The call goes on as soon as the server is back: a read is made again there, and a payment that may have happened is not."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    async with served(tmp_path, port) as process, Engine(servers=[mcp(f"http://127.0.0.1:{port}/mcp", name="shop")]) as engine:
        arguments = {} if tool == "look" else {"order": "A7"}
        running = asyncio.ensure_future(engine.call(call(tool, **arguments)))
        await until_task(port)
        await until((tmp_path / ("looking" if tool == "look" else "paid")).exists)  # a task may begin before its tool does
        process.kill()
        await process.wait()
        (tmp_path / "go").touch()
        async with served(tmp_path, port):
            result = result_of(await running)
    if tool == "look":
        assert (result.status, result.text) == ("ok", "seen")
    else:
        assert result.status != "ok"
        assert "may have" in result.text
        assert (tmp_path / "paid").read_text(encoding="utf-8").split() == ["A7"]


async def until_task(port: int) -> None:
    """Wait until the gateway has made a task of its running call."""
    async with httpx2.AsyncClient() as client:
        while "callgate_tasks_running 1.0" not in (await client.get(f"http://127.0.0.1:{port}/metrics")).text:
            await asyncio.sleep(0.01)
