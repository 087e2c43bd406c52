"""A server that sends exactly the bytes that a test defines, and records the connection of each request."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

__all__ = ["RawServer"]


class RawServer:
    """Answers the requests of all connections with `answers`, in order.

    Args:
        answers: The pieces to send for each request; the server waits for an `asyncio.Event` among them.
    """

    def __init__(self, *answers: Sequence[bytes | asyncio.Event]) -> None:
        self._answers = iter(answers)
        self.url = ""
        self.connections: list[int] = []
        """For each request, the number of its connection."""
        self._opened = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> RawServer:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.append(asyncio.ensure_future(self._serve(reader, writer)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number, self._opened = self._opened, self._opened + 1
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
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
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
