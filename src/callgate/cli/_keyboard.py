"""Lines that a person types, read on the event loop, so that the run goes on while nobody types.

Here because a blocking read would hold everything else: a lease would run out, and an answer from another terminal could not come in. The
terminal stays in its own line mode, so nothing has to be put back.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress

__all__ = ["Keyboard"]

_READ_BYTES = 65_536


class Keyboard:
    """Standard input, where it is a terminal."""

    def __init__(self) -> None:
        self._unread = b""

    async def line(self) -> str | None:
        """Return the next line without its end; None where the input has ended, as by Ctrl-D."""
        while b"\n" not in self._unread:
            data = await self._read()
            if not data:
                return None
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode(errors="replace").removesuffix("\r")

    def forget_typed(self) -> None:
        """Drop what was typed and not yet read."""
        self._unread = b""
        with suppress(ImportError, OSError, ValueError):
            import termios  # not on every system

            termios.tcflush(sys.stdin, termios.TCIFLUSH)

    async def _read(self) -> bytes:
        loop, fd = asyncio.get_running_loop(), sys.stdin.fileno()
        ready = asyncio.Event()
        try:
            loop.add_reader(fd, ready.set)
        except NotImplementedError:  # an event loop that watches no terminal
            return await asyncio.to_thread(_read_now, fd)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(fd)
        return _read_now(fd)


def _read_now(fd: int) -> bytes:
    """What is there; nothing where the terminal is gone."""
    try:
        return os.read(fd, _READ_BYTES)
    except OSError:
        return b""
