"""A pseudo terminal with a running command."""

from __future__ import annotations

import asyncio
import os
import pty
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from tests.cli.command_process import CommandProcess, start_command
from tests.waiting import COMMAND_S

__all__ = ["Screen", "Terminal", "command_at_terminal", "saved_command_at_terminal"]


class Screen:
    """Reads the output of a pseudo terminal, in order and without loss between two reads."""

    def __init__(self, device: int) -> None:
        self._device = device
        self._unread = b""

    async def until(self, *words: bytes) -> bytes:
        """Return all output up to the end of the first of these words."""
        return await asyncio.to_thread(self._until, words)

    def _until(self, words: Sequence[bytes]) -> bytes:
        while not (ends := [place + len(one) for one in words if (place := self._unread.find(one)) >= 0]):
            try:
                self._unread += os.read(self._device, 4096)
            except OSError as error:
                raise AssertionError(f"None of {words!r} came: {self._unread.decode()}") from error
        seen, self._unread = self._unread[: min(ends)], self._unread[min(ends) :]
        return seen


class Terminal:
    """A terminal with a running command."""

    def __init__(self, device: int, process: Process | CommandProcess) -> None:
        self._device = device
        self.until = Screen(device).until
        self.process = process

    def type(self, text: bytes) -> None:
        os.write(self._device, text)

    async def end(self) -> int:
        """Return the exit code once the process has ended."""
        return await asyncio.wait_for(self.process.wait(), COMMAND_S)


@asynccontextmanager
async def command_at_terminal(folder: Path, *words: str, **more: str) -> AsyncIterator[Terminal]:
    """Run `callgate` with these words at a terminal of its own."""
    async with _at_terminal(folder, words, None, more) as terminal:
        yield terminal


@asynccontextmanager
async def saved_command_at_terminal(folder: Path, file: int, *words: str) -> AsyncIterator[Terminal]:
    """Run `callgate` with these words and the input of a terminal, while the output and the errors go to the file with this descriptor."""
    async with _at_terminal(folder, words, file, {}) as terminal:
        yield terminal


@asynccontextmanager
async def _at_terminal(folder: Path, words: Sequence[str], file: int | None, more: Mapping[str, str]) -> AsyncIterator[Terminal]:
    ours, theirs = pty.openpty()
    shown = theirs if file is None else file
    process = await start_command(folder, *words, stdin=theirs, stdout=shown, stderr=shown, variables={"TERM": "dumb", **more})
    os.close(theirs)
    try:
        yield Terminal(ours, process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(ours)
