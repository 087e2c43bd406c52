"""`engine.watch`: waits for a chunk that are cancelled, and the task and the thread that read the stream."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from callgate import Engine, UsageError
from tests.provider_responses.shop import paid, refund
from tests.provider_responses.test_watch import Reads, end, piece, reads
from tests.waiting import PATIENCE_S


async def cancelled_wait(stream: Any) -> None:
    """Wait for the next chunk, and cancel the wait, as a timeout does."""
    waiting = asyncio.create_task(anext(stream))
    for _ in range(3):
        await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_cancelled_wait_for_a_chunk_loses_nothing() -> None:
    reading, sent = Reads(), asyncio.Queue[dict[str, Any]]()

    async def chunks() -> AsyncIterator[dict[str, Any]]:
        while True:
            yield (chunk := await sent.get())
            if chunk == end():
                return

    async with Engine([reading.tool, refund]) as engine, engine.watch(chunks()) as stream:
        seen = []
        for chunk in (*reads(), end()):
            await cancelled_wait(stream)
            await sent.put(chunk)
            seen.append(await anext(stream))
        reading.may_end.set()
        reply = await stream.reply()
    assert seen == [*reads(), end()]
    assert [item["content"] for item in reply.results] == ["read", "refunded A7"]
    assert paid == ["A7"]


async def test_a_cancelled_wait_for_a_chunk_of_a_synchronous_stream_loses_nothing() -> None:
    go_on = threading.Event()

    def chunks() -> Iterator[dict[str, Any]]:
        assert go_on.wait(PATIENCE_S)
        yield piece(0, "refund", '{"order": "A7"}')
        yield end()

    async with Engine([refund]) as engine, engine.watch(chunks()) as stream:
        await cancelled_wait(stream)
        go_on.set()
        assert [chunk async for chunk in stream] == list(chunks())
        assert (await stream.reply()).results[0]["content"] == "refunded A7"
    assert paid == ["A7"]


async def test_a_cancelled_wait_for_the_reply_can_be_repeated_while_the_message_arrives() -> None:
    may_end = asyncio.Event()

    async def chunks() -> AsyncIterator[dict[str, Any]]:
        yield piece(0, "refund", '{"order": "A7"}')
        await may_end.wait()
        yield end()

    async with Engine([refund]) as engine, engine.watch(chunks()) as stream:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(stream.reply(), 0)
        may_end.set()
        assert (await stream.reply()).results[0]["content"] == "refunded A7"
    assert paid == ["A7"]


async def test_leaving_after_a_cancelled_wait_discards_the_message_and_closes_the_stream() -> None:
    reading, closed = Reads(), asyncio.Event()

    async def chunks() -> AsyncIterator[dict[str, Any]]:
        try:
            for chunk in reads():
                yield chunk
            await asyncio.Event().wait()
        finally:
            closed.set()

    async with Engine([reading.tool, refund]) as engine:
        async with engine.watch(chunks()) as stream:
            for _ in reads():
                await anext(stream)
            await reading.started.wait()
            await cancelled_wait(stream)
            assert not reading.ended.is_set()
        assert closed.is_set()
        assert reading.ended.is_set()
        with pytest.raises(UsageError, match="was discarded: its stream was closed"):
            await stream.reply()
    assert paid == []


async def test_a_stream_that_is_cancelled_from_within_discards_its_message() -> None:
    async def chunks() -> AsyncIterator[dict[str, Any]]:
        yield piece(0, "refund", '{"order": "A7"}')
        raise asyncio.CancelledError

    async with Engine([refund]) as engine:
        stream = engine.watch(chunks())
        with pytest.raises(asyncio.CancelledError):
            await stream.reply()
        with pytest.raises(UsageError, match="was discarded: its stream was cancelled"):
            await stream.reply()
    assert paid == []


@pytest.mark.parametrize("how", ["read to its end", "closed"])
async def test_one_task_begins_reads_and_closes_the_stream(how: str) -> None:
    """A stream may hold a timeout or a cancel scope, which only the task that began it may leave."""
    tasks: list[object] = []

    @asynccontextmanager
    async def scope() -> AsyncIterator[None]:
        tasks.append(asyncio.current_task())
        try:
            yield
        finally:
            tasks.append(asyncio.current_task())

    async def chunks() -> AsyncIterator[dict[str, Any]]:
        async with scope():
            for chunk in (*reads()[3:], end()):
                yield chunk

    async with Engine([refund]) as engine, engine.watch(chunks()) as stream:
        await asyncio.create_task(anext(stream))
        if how == "read to its end":
            await stream.reply()
    begun, left = tasks
    assert begun is left


async def test_a_stream_that_cannot_be_iterated_raises_its_error() -> None:
    class Spent:
        def __iter__(self) -> Iterator[object]:
            raise ValueError("spent")

    async with Engine([refund]) as engine:
        with pytest.raises(ValueError, match="spent"):
            await engine.watch(Spent()).reply()


@pytest.mark.parametrize("how", ["read to its end", "closed", "dropped", "failed"])
@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_the_thread_of_a_synchronous_stream_ends_with_the_stream(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callgate._run_in_thread._IDLE_S", 10 * PATIENCE_S)
    threads: list[threading.Thread] = []

    def chunks() -> Iterator[dict[str, Any]]:
        threads.append(threading.current_thread())
        yield piece(0, "refund", '{"order": "A7"}')
        if how == "failed":
            raise ConnectionError
        yield end()

    async with Engine([refund]) as engine:
        stream = engine.watch(chunks())
        await anext(stream)
        if how == "read to its end":
            await stream.reply()
        elif how == "closed":
            await stream.aclose()
        elif how == "failed":
            with pytest.raises(ConnectionError):
                await stream.reply()
        del stream
        thread = threads[0]
        await asyncio.to_thread(thread.join, PATIENCE_S)
    assert not thread.is_alive()
