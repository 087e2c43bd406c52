"""Read the chunks of an SDK's stream one by one, asynchronous or not.

Below `response_streams`, which runs the calls in the chunks. Knows no chunk's content.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, Generic, Self, TypeVar, cast

from callgate._run_in_thread import BlockingPool, in_thread

__all__ = ["END", "ChunkSource"]

Chunk = TypeVar("Chunk")

END = object()
"""Stands for a chunk after the last one."""
_CLOSE_S = 2.0
"""Seconds that the host's stream has to close."""


class ChunkSource(Generic[Chunk]):
    """Reads the chunks of a stream one by one, each when it is asked for.

    One task reads the whole stream, because a stream may hold a timeout or a lock that belongs to the task that began it. A wait for a
    chunk that is cancelled does not cancel the reading.

    Args:
        stream: The stream. A synchronous one is read in a thread.
    """

    def __init__(self, stream: AsyncIterable[Chunk] | Iterable[Chunk]) -> None:
        self._stream: AsyncIterable[Chunk] = stream if isinstance(stream, AsyncIterable) else _ChunksFromThread(stream)
        self._iterator: AsyncIterator[Chunk] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._asked: asyncio.Queue[asyncio.Future[Chunk | object]] = asyncio.Queue()
        self._next: asyncio.Future[Chunk | object] | None = None
        """The chunk that was asked for and not handed on yet."""
        self._is_closing = False

    async def next(self) -> Chunk | object:
        """Return the next chunk, or `END`. If the wait is cancelled, the next call returns this chunk."""
        if self._next is None:
            self._reading = self._reading or asyncio.create_task(self._read(), name="callgate stream")
            self._next = asyncio.get_running_loop().create_future()
            self._asked.put_nowait(self._next)
        try:
            chunk = await asyncio.shield(self._next)
        except Exception:
            self._next = None
            raise
        self._next = None
        return chunk

    @property
    def cancelled(self) -> bool:
        """Whether the stream itself was cancelled while it was read."""
        return self._next is not None and self._next.cancelled()

    async def _read(self) -> None:
        """Read a chunk for each future that asks for one, until the stream ends."""
        asked = await self._asked.get()
        try:
            self._iterator = self._stream.__aiter__()
            while True:
                asked.set_result(await self._iterator.__anext__())
                asked = await self._asked.get()
        except StopAsyncIteration:
            asked.set_result(END)
        except asyncio.CancelledError:
            asked.cancel()
            if self._is_closing:
                await self._close_stream()
            elif isinstance(self._stream, _ChunksFromThread):
                self._stream.end_thread()
            raise
        except BaseException as error:
            asked.set_exception(error)

    def abandon(self) -> None:
        """End the reading without waiting for it, from any thread. The stream stays open, because the host may have it."""
        if self._reading is not None and not self._reading.done():
            with suppress(RuntimeError):  # the loop is closed, and has ended its tasks
                self._reading.get_loop().call_soon_threadsafe(self._reading.cancel)

    async def close(self) -> None:
        """End the reading, and close the stream in the task that reads it."""
        self._is_closing = True
        if self._reading is not None and not self._reading.done():
            self._reading.cancel()
            await asyncio.wait({self._reading}, timeout=_CLOSE_S)
            if self._next is not None and self._reading.done():  # it was asked for, and the reading ended before it took that
                self._next.cancel()
        if self._reading is None or self._iterator is None or not self._reading.cancelled():
            await self._close_stream()

    async def _close_stream(self) -> None:
        for stream in (self._iterator, self._stream):
            close: Any = getattr(stream, "aclose", None) or getattr(stream, "close", None)
            if close is not None:
                with suppress(Exception):  # the message has ended, and errors of its connection are of no interest any more
                    async with asyncio.timeout(_CLOSE_S):
                        waiting = close()
                        if inspect.isawaitable(waiting):
                            await waiting


class _ChunksFromThread(Generic[Chunk]):
    """The chunks of a synchronous stream, read in a thread that ends with the stream."""

    def __init__(self, stream: Iterable[Chunk]) -> None:
        self._stream = stream
        self._iterator: Iterator[Chunk] | None = None
        self._thread = BlockingPool("callgate stream", 1)

    def __aiter__(self) -> Self:
        self._iterator = iter(self._stream)
        return self

    async def __anext__(self) -> Chunk:
        assert self._iterator is not None
        try:
            chunk = await self._thread.run(partial(next, self._iterator, END))
        except Exception:
            self.end_thread()
            raise
        if chunk is END:
            self.end_thread()
            raise StopAsyncIteration
        return cast("Chunk", chunk)

    def end_thread(self) -> None:
        """End the thread when it has its chunk. No chunk may be read after that."""
        self._thread.close()

    async def aclose(self) -> None:
        """Close the stream in another thread than the one that may still wait for a chunk."""
        self.end_thread()
        for stream in (self._iterator, self._stream):
            close = getattr(stream, "close", None)
            if close is not None:
                with suppress(Exception):
                    async with asyncio.timeout(_CLOSE_S):
                        await in_thread(close)
