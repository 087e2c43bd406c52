"""A handler that is cancelled while its shielded reply runs loses neither the calls nor the reply."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from callgate import Engine, Scope, Tool, tool
from callgate.response_streams import WatchedStream

IN_RUN = Scope(run="r", conversation="c")


class Till:
    """A tool with an effect, whose call ends when it is released."""

    def __init__(self) -> None:
        self.paid: list[str] = []
        self.started, self.release = asyncio.Event(), asyncio.Event()

    @property
    def tool(self) -> Tool:
        @tool
        async def pay(order: str) -> str:
            """Pay an order."""
            self.paid.append(order)
            self.started.set()
            await self.release.wait()
            return f"paid {order}"

        return pay


async def chunks() -> AsyncIterator[dict[str, Any]]:
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "pay", "arguments": '{"order": "A7"}'}}
    yield {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}
    yield {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}],
    }


async def cancelled_handler(engine: Engine, till: Till) -> WatchedStream[dict[str, Any]]:
    """Cancel a handler while its reply pays, and return its stream."""
    kept: list[WatchedStream[dict[str, Any]]] = []

    async def handle() -> None:
        async with engine.watch(chunks(), IN_RUN) as watched:
            kept.append(watched)
            async for _ in watched:
                pass
            await asyncio.shield(watched.reply())

    handler = asyncio.ensure_future(handle())
    await till.started.wait()
    handler.cancel()
    await asyncio.gather(handler, return_exceptions=True)
    return kept[0]


@pytest.mark.parametrize("ended_first", [True, False], ids=["the reply had ended", "the reply still runs"])
async def test_reply_again_returns_the_reply_of_a_cancelled_handler(ended_first: bool, caplog: pytest.LogCaptureFixture) -> None:
    till = Till()
    async with Engine([till.tool]) as engine:
        watched = await cancelled_handler(engine, till)
        later = asyncio.ensure_future(watched.reply())
        if ended_first:
            till.release.set()
            await later
            later = asyncio.ensure_future(watched.reply())
        till.release.set()
        reply = await later
        assert (reply.ended, reply.results[0]["content"]) == (None, "paid A7")
        assert await watched.reply() is reply
    assert till.paid == ["A7"]
    assert "discarded" not in caplog.text


async def test_replies_that_are_asked_for_at_once_are_one() -> None:
    till = Till()
    async with Engine([till.tool]) as engine:
        watched = engine.watch(chunks(), IN_RUN)
        async for _ in watched:
            pass
        first, second = asyncio.ensure_future(watched.reply()), asyncio.ensure_future(watched.reply())
        await till.started.wait()
        till.release.set()
        assert await first is await second
    assert till.paid == ["A7"]
