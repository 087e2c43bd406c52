"""A server that sends exactly the bytes that a test defines, and records the connection of each request."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tests.loopback_server import LoopbackServer

__all__ = ["RawServer"]


class RawServer(LoopbackServer):
    """Answers the requests of all connections with `answers`, in order.

    Args:
        answers: The pieces to send for each request; the server waits for an `asyncio.Event` among them.
    """

    def __init__(self, *answers: Sequence[bytes | asyncio.Event]) -> None:
        super().__init__()
        self._answers = iter(answers)
        self.connections: list[int] = []
        """For each request, the number of its connection."""
        self._opened = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number, self._opened = self._opened, self._opened + 1
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            size = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
            await reader.readexactly(size)
            self.connections.append(number)
            for piece in next(self._answers, ()):
                if isinstance(piece, bytes):
                    writer.write(piece)
                    await writer.drain()
                else:
                    await piece.wait()
