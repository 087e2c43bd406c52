"""`callgate run` as a process of its own, with a provider on the loopback interface."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from callgate.models.model_events import Usage
from callgate.testing import Call, Item, ScriptedServer
from callgate.testing.scripted_server import Script
from tests.cli.command_process import CommandProcess, start_command
from tests.cli.shell import Ended, shell
from tests.waiting import COMMAND_S

__all__ = ["CRM", "DONE", "PAYS", "TASK", "Running", "paid", "ran", "running"]

TASK = ("run", "Do it.", "--model", "any")
CRM = ("--tools", "crm.py")
DONE: list[Item] = ["Paid", ".", Usage(input_tokens=1300, output_tokens=2)]
PAYS: list[Item] = ["I pay.", Call("refund", {"order": "A7", "cents": 12})]


class Running:
    """The command while it runs, and its provider."""

    def __init__(self, process: Process | CommandProcess, server: ScriptedServer) -> None:
        self.process = process
        self.server = server

    async def line(self, words: str) -> str:
        """Return the next line on standard error that contains these words."""
        assert self.process.stderr is not None
        while line := (await self.process.stderr.readline()).decode():
            if words in line:
                return line
        raise AssertionError(f"{words!r} never came")

    async def end(self) -> tuple[int, str, str]:
        out, err = await asyncio.wait_for(self.process.communicate(), COMMAND_S)
        assert self.process.returncode is not None
        assert b"Traceback" not in err
        return self.process.returncode, out.decode(), err.decode()


@asynccontextmanager
async def running(folder: Path, turns: Sequence[Script], *words: str, stdin: int = DEVNULL, **more: str) -> AsyncIterator[Running]:
    async with ScriptedServer(turns) as server:
        process = await start_command(folder, *TASK, "--base-url", server.url, *words, stdin=stdin, variables=more)
        try:
            yield Running(process, server)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def ran(folder: Path, turns: Sequence[Script], *words: str, **more: str) -> Ended:
    """Run the command to its end, without a terminal."""
    async with ScriptedServer(turns) as server:
        return await asyncio.to_thread(shell, folder, *TASK, "--base-url", server.url, *words, **more)


def paid(folder: Path) -> list[str]:
    ledger = folder / "paid.txt"
    return ledger.read_text(encoding="utf-8").splitlines() if ledger.exists() else []
