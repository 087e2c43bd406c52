"""Read typed lines on the event loop, so that the run continues while the person types.

A blocking read would block the run too: leases would expire, and answers from other terminals would not arrive. The
terminal stays in line mode, so no terminal setting has to be restored.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress

__all__ = ["Keyboard"]

_READ_BYTES = 65_536


class Keyboard:
    """Reads lines from standard input, which must be a terminal."""

    def __init__(self) -> None:
        self._unread = b""

    async def line(self) -> str | None:
        """Return the next line without its line end; None at the end of input (Ctrl-D)."""
        while b"\n" not in self._unread:
            data = await self._read()
            if not data:
                return None
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode(errors="replace").removesuffix("\r")

    def forget_typed(self) -> None:
        """Discard input that was typed but not read."""
        self._unread = b""
        with suppress(ImportError, OSError, ValueError):
            import termios  # not on every system

            termios.tcflush(sys.stdin, termios.TCIFLUSH)

    async def _read(self) -> bytes:
        loop, fd = asyncio.get_running_loop(), sys.stdin.fileno()
        ready = asyncio.Event()
        try:
            loop.add_reader(fd, ready.set)
        except NotImplementedError:  # this event loop cannot watch a terminal
            return await asyncio.to_thread(_read_now, fd)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(fd)
        return _read_now(fd)


def _read_now(fd: int) -> bytes:
    """Return the available input; empty if the terminal is gone."""
    try:
        return os.read(fd, _READ_BYTES)
    except OSError:
        return b""
