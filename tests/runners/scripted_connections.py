"""Connections that a test can break, and a far side whose answers a test scripts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from examples.remote_runner.near import MOST_BYTES, RemoteRunner

from callgate.protocols import Execution
from callgate.remote import Ended, Order, Start, decode_order, encode, frame, read_frame
from tests.runners.far_side import TOKEN
from tests.waiting import PATIENCE_S

__all__ = ["Cable", "Scripted"]


class _Listener:
    """A server on the loopback interface that listens while its `async with` block runs."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections = 0
        return self

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.append(writer)
        self.spawn(self.serve(reader, writer))

    def spawn(self, coro: Awaitable[None]) -> None:
        self._tasks.add(asyncio.ensure_future(coro))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise NotImplementedError

    def cut(self) -> None:
        """Break every connection for both sides."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def runner(self, *, answer_s: float = PATIENCE_S) -> RemoteRunner:
        return RemoteRunner("127.0.0.1", self.port, TOKEN, connect_s=PATIENCE_S, answer_s=answer_s)

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class Cable(_Listener):
    """Forwards to a real far side until a test breaks its connections."""

    def __init__(self, port: int) -> None:
        self._far = port

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._far)
        self._writers.append(far_writer)
        self.spawn(_pump(reader, far_writer))
        await _pump(far_reader, writer)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


class Scripted(_Listener):
    """A far side that sends a valid greeting and records the orders that it receives.

    Args:
        greeting: The answer to the token; None sends the valid greeting.
        answer: Called with each order, to answer it with `say` or `write`; None sends no answer.
    """

    def __init__(self, answer: Callable[[Scripted, Order], None] | None = None, *, greeting: bytes | None = None) -> None:
        self._answer = answer
        self._greeting = frame(b"welcome", MOST_BYTES) if greeting is None else greeting
        self.heard: list[Order] = []
        self.ended = 0
        """The number of connections that the near side has closed."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        try:
            await read_frame(reader, MOST_BYTES)
            writer.write(self._greeting)
            while True:
                order = decode_order(await read_frame(reader, MOST_BYTES))
                self.heard.append(order)
                if self._answer is not None:
                    self._answer(self, order)
        except (EOFError, OSError):
            self.ended += 1
            writer.close()

    @property
    def started(self) -> list[Start]:
        return [order for order in self.heard if isinstance(order, Start)]

    def say(self, message: object) -> None:
        self.write(frame(encode(message), MOST_BYTES))

    def returns(self, order: Order, value: object) -> None:
        self.say(Ended.of(order.id, Execution(status="returned", value=value)))

    def write(self, data: bytes) -> None:
        self._writer.write(data)
