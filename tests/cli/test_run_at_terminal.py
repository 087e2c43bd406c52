"""`callgate run` at a terminal: what a person is shown, is asked, and answers."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from callgate.testing import Call, Pause, ScriptedServer
from callgate.testing.server import Script
from tests.cli.running import CRM, DONE, PAYS, TASK, paid
from tests.cli.shell import command, environment
from tests.patience import COMMAND_S


class Terminal:
    """What a person sees and types, and what runs behind it."""

    def __init__(self, device: int, process: asyncio.subprocess.Process, server: ScriptedServer) -> None:
        self._device = device
        self.process = process
        self.server = server

    async def until(self, *words: bytes) -> bytes:
        """All that is shown up to the first of these words."""
        return await asyncio.to_thread(read_until, self._device, *words)

    def type(self, text: bytes) -> None:
        os.write(self._device, text)

    async def end(self) -> int:
        """The exit code, once all has been shown."""
        return await asyncio.wait_for(self.process.wait(), COMMAND_S)


def read_until(terminal: int, *words: bytes) -> bytes:
    seen = b""
    while not any(one in seen for one in words):
        try:
            seen += os.read(terminal, 4096)
        except OSError as error:
            raise AssertionError(f"None of {words!r} came: {seen.decode()}") from error
    return seen


@asynccontextmanager
async def at_terminal(folder: Path, turns: Sequence[Script], *words: str, **more: str) -> AsyncIterator[Terminal]:
    ours, theirs = pty.openpty()
    async with ScriptedServer(turns) as server:
        process = await asyncio.create_subprocess_exec(
            *command((*TASK, "--base-url", server.url, *CRM, *words)),
            cwd=folder,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment(**{"TERM": "dumb", **more}),
        )
        os.close(theirs)
        try:
            yield Terminal(ours, process, server)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            os.close(ours)


@pytest.mark.parametrize(
    ("answer", "told", "effects"),
    [("y", "Paid", ["A7 12"]), ("n", "he person at the terminal said no", []), ("x\ny", "Paid", ["A7 12"])],
    ids=["yes", "no", "neither, then yes"],
)
async def test_at_a_terminal_a_person_decides_and_the_run_goes_on(folder: Path, answer: str, told: str, effects: list[str]) -> None:
    """A no is a denial that the model reads; either way the run ends completed."""
    async with at_terminal(folder, [PAYS, DONE], TERM="xterm", COLUMNS="60") as terminal:
        assert b'"order": "A7"' in await terminal.until(b"Run it? [y/N]")
        for line in answer.split("\n"):
            terminal.type(line.encode() + b"\n")
        shown = await terminal.until(b"callgate log show")
        assert await terminal.end() == 0
        sent: Any = terminal.server.requests[1].body_json["messages"]
    assert paid(folder) == effects
    assert told in shown.decode() + json.dumps(sent)


async def test_what_was_typed_before_a_question_is_no_answer_to_it(folder: Path) -> None:
    """An approval is for what somebody has read. A key that was pressed twice must not say yes to the next call."""
    typed = asyncio.Event()
    async with at_terminal(folder, [["I think. ", Pause(typed), *PAYS], DONE]) as terminal:
        await terminal.until(b"I think.")
        terminal.type(b"y\n")
        await terminal.until(b"y\r\n")
        typed.set()
        await terminal.until(b"Run it? [y/N]")
        terminal.type(b"n\n")
        await terminal.until(b"callgate log show")
        assert await terminal.end() == 0
    assert paid(folder) == []


async def test_a_chat_goes_on_in_one_conversation_until_its_end(folder: Path) -> None:
    async with at_terminal(folder, [[Call("odd_text")], "Hello.", "Once more hello."], "--chat") as terminal:
        await terminal.until(b"you> ")
        terminal.type(b"Say it again.\n")
        assert b"Once more hello." in await terminal.until(b"you> ")
        terminal.type(b"\x04")
        await terminal.until(b"callgate log show")
        assert await terminal.end() == 0
        sent: Any = terminal.server.requests[2].body_json["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "assistant", "user"]
    assert sent[-1]["content"] == "Say it again."


async def test_ctrl_c_at_a_question_leaves_it_open(folder: Path) -> None:
    async with at_terminal(folder, [PAYS]) as terminal:
        await terminal.until(b"Run it? [y/N]")
        terminal.process.send_signal(signal.SIGINT)
        assert b"callgate resume run-" in await terminal.until(b"callgate log show")
        assert await terminal.end() == 130
    assert paid(folder) == []
