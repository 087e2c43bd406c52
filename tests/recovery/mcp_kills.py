"""Kill the engine, the MCP server or both at one step of a call, go on in a new process as a user would, and report what happened.

Reads cells from standard input and writes their outcomes as lines of JSON. Each process of an engine is forked from this one, which never
starts a thread or an event loop.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import apsw  # noqa: F401 - what a process needs is imported once, before it is forked
import httpx2  # noqa: F401
import jsonschema_rs  # noqa: F401

import callgate.mcp._http_connection
import callgate.mcp._stdio_connection
import callgate.mcp._supervisor  # noqa: F401
from callgate import Agent, Answered, Engine, RawCall, Scope, SqliteJournal, ToolResult
from callgate.agent.recorded_run import load_run
from callgate.errors import UsageError
from callgate.events import Draft
from callgate.mcp import McpServer, mcp
from callgate.messages import ToolMessage
from callgate.models.model_events import ModelEvent
from callgate.models.model_protocol import StreamingContext
from callgate.models.wire.request import ModelRequest
from tests.agent.scripted_model import call, says
from tests.recovery import ledger_server
from tests.recovery.ledger_server import kill_once, note, noted
from tests.runners.runner_requests import marked
from tests.waiting import PATIENCE_S

__all__ = ["ENGINE_STEPS", "SERVER_STEPS", "Cell", "http_server", "main"]

Cell = dict[str, Any]
RUN: Final = "the-run"
ENGINE_STEPS: Final = ("received", "started", "answer arrived", "recorded")
"""The steps at which the engine's process kills: before and after events of its journal."""
SERVER_STEPS: Final = ("read", "acted", "answered")
"""The steps at which the server's process kills."""
_AT_ONCE: Final = 3
_TEXT_CHARS: Final = 800
"""Outcomes must be shorter than what a pipe takes in one piece."""
_KILLS_AFTER: Final = {"received": "call.received", "started": "call.started", "recorded": "call.completed"}


class KillingJournal:
    """A journal that kills at one step of the first call.

    Args:
        journal: The journal that stores the events.
    """

    def __init__(self, journal: SqliteJournal, cell: Cell, folder: Path) -> None:
        self._journal = journal
        self._cell = cell
        self._folder = folder
        self.writer = journal.writer

    def has_ended(self, writer: str) -> bool:
        return self._journal.has_ended(writer)

    def append(self, draft: Draft) -> int:
        step = self._cell["step"]
        if step == "answer arrived" and draft.kind == "call.completed":
            self._kill()
        position = self._journal.append(draft)
        if draft.kind == _KILLS_AFTER.get(step):
            waiting = threading.Thread(target=asyncio.run, args=(self._journal.durable(position),))
            waiting.start()
            waiting.join()
            self._kill()
        return position

    def _kill(self) -> None:
        kill_once(self._folder, self._cell["victims"])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)


class OneCall:
    """A model that makes one call and ends its turn when it has the result."""

    provider, name, native_tools = "scripted", "one-call", True

    async def stream(self, request: ModelRequest, context: StreamingContext) -> AsyncIterator[ModelEvent]:
        done = any(isinstance(message, ToolMessage) for message in request.messages)
        for step in says("Done.") if done else says(call("act", {"what": "a"}, id="a", position=0)):
            yield step  # type: ignore[misc]


class Case:
    """One cell, and what its processes are told."""

    def __init__(self, cell: Cell, folder: Path, url: str) -> None:
        self._cell = cell
        self._folder = folder
        self._url = url

    def outcome(self) -> dict[str, Any]:
        """Make the call in one process, and again in another one. The first may be killed."""
        killed = _was_killed(_forked(lambda: self._told("first")))
        _was_killed(_forked(lambda: self._told("last")))
        return {
            "cell": self._cell,
            "engine_killed": killed,
            "killed": (self._folder / "killed").exists(),
            "first": self._read("first"),
            "last": self._read("last"),
            "received": noted(self._folder, "received.txt"),
            "ledger": noted(self._folder, "ledger.txt"),
            "left": _left_processes(self._folder),
        }

    def _read(self, name: str) -> dict[str, Any]:
        path = self._folder / f"{name}.json"
        facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        return facts

    def _told(self, name: str) -> None:
        note(self._folder, "engine.pids", str(os.getpid()))
        result, status = asyncio.run(self._made())
        killed = self._folder / "killed"
        reported_s = time.time() - killed.stat().st_mtime if killed.exists() else 0.0
        facts = {"status": result.status, "code": result.code, "text": result.text[:_TEXT_CHARS], "run": status, "reported_s": reported_s}
        (self._folder / f"{name}.json").write_text(json.dumps(facts), encoding="utf-8")

    async def _made(self) -> tuple[ToolResult, str]:
        journal: Any = KillingJournal(SqliteJournal(self._folder / "journal.db"), self._cell, self._folder)
        async with Engine(servers=[self._server()], journal=journal) as engine:
            if self._cell["user"] == "agent":
                return await self._by_agent(engine)
            return await self._by_library(engine), ""

    async def _by_library(self, engine: Engine) -> ToolResult:
        """Make the same call. If its effect has a key, any call with this key is the same, here one of another run."""
        run = RUN if self._cell["effect"] != "keyed" else f"run-{os.getpid()}"
        outcome = await engine.call(RawCall(id="a", name="act", arguments={"what": "a"}), Scope(run=run))
        assert isinstance(outcome, Answered), outcome
        return outcome.result

    async def _by_agent(self, engine: Engine) -> tuple[ToolResult, str]:
        """Resume the run, or start it if there is none, or read it if it is over."""
        agent = Agent(OneCall(), engine)
        try:
            result = await agent.resume(RUN)
        except UsageError as error:
            if "is over" in str(error):
                run = load_run(engine.journal, engine.blobs, RUN)
                return run.results[-1], run.ended
            result = await agent.run("Do it.", scope=Scope(run=RUN))
        return result.results[-1], str(result.status)

    def _server(self) -> McpServer:
        options: dict[str, Any] = {"effects": {"act": self._cell["effect"]}} if self._cell["effect"] != "keyed" else {}
        if self._cell["effect"] == "keyed":
            options["options"] = {"act": {"key": "act:{what}"}}
        if self._url:
            return mcp(self._url, name="ledger", **options)
        return mcp(server_command(self._folder, self._cell), name="ledger", env={"LEDGER_FOLDER": str(self._folder)}, **options)


def server_command(folder: Path, settings: dict[str, Any]) -> list[str]:
    """Return the command of a ledger server."""
    return [sys.executable, ledger_server.__file__, json.dumps({**settings, "folder": str(folder)})]


@contextmanager
def http_server(folder: Path, settings: dict[str, Any]) -> Iterator[str]:
    """Run a ledger server over HTTP, which is started again when it ends; yield its address."""
    command = server_command(folder, {**settings, "http": True})
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as keeper:
        assert keeper.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(keeper.stdout.readline())}/mcp"
        finally:
            os.killpg(keeper.pid, signal.SIGKILL)


def _forked(do: Callable[[], None]) -> int:
    """Run `do` in a forked process and return its id."""
    child = os.fork()
    if child == 0:
        try:
            do()
        except BaseException as error:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            os._exit(1)
        os._exit(0)
    return child


def _was_killed(child: int) -> bool:
    """Wait for the end of a forked process and return whether it was killed."""
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise SystemExit("a process of a cell failed; see above")
    return os.WIFSIGNALED(status)


def _left_processes(folder: Path) -> list[int]:
    """Wait for the end of the processes that belong to a folder, and return those that do not end."""
    until = time.monotonic() + PATIENCE_S
    while (left := marked(f"LEDGER_FOLDER={folder}")) and time.monotonic() < until:
        time.sleep(0.01)
    return left


def _outcome(cell: Cell) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if cell["transport"] == "stdio":
            return Case(cell, folder, "").outcome()
        with http_server(folder, cell) as url:
            return Case(cell, folder, url).outcome()


def _serve(lines: Sequence[str]) -> None:
    for line in lines:
        os.write(sys.stdout.fileno(), json.dumps(_outcome(json.loads(line))).encode() + b"\n")


def main() -> None:
    """Run the cells, a few at a time, because they mostly wait for processes to start and end."""
    lines = sys.stdin.readlines()
    workers = [_forked(partial(_serve, lines[first::_AT_ONCE])) for first in range(_AT_ONCE)]
    for worker in workers:
        _was_killed(worker)


if __name__ == "__main__":
    main()
