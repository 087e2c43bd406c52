"""The base of servers for tests: listens on loopback, serves each connection in a task, and ends them all."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Self

__all__ = ["LoopbackServer"]


class LoopbackServer(ABC):
    """Serves each connection with `answer`. `async with` starts and ends it."""

    def __init__(self) -> None:
        self.url = ""
        self._tasks: set[asyncio.Task[None]] = set()

    @abstractmethod
    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer what arrives on one connection. The client may close it at any time."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    def stop_listening(self) -> None:
        """Refuse new connections; those that are open go on."""
        self._server.close()

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # the transports are closed by then

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        task.add_done_callback(lambda _: writer.transport.abort())  # if it was cancelled, without waiting for the client to read
        self._tasks.add(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await self.answer(reader, writer)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
