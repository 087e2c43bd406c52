"""`engine.watch`: several tasks read one stream of the official SDK, and one of them is cancelled."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from callgate import Engine, Scope, tool
from tests.provider_responses.recorded_server import RecordedServer
from tests.provider_responses.sdk_requests import ASK, SDK_WARNINGS, close_clients
from tests.waiting import PATIENCE_S

pytestmark = SDK_WARNINGS

paid: list[int] = []


@tool
def pay(cents: int) -> str:
    """Pay."""
    paid.append(cents)
    return f"paid {cents}"


@pytest.fixture(autouse=True)
async def _closed_clients() -> AsyncIterator[None]:
    paid.clear()
    yield
    await close_clients()


def _event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def _piece(text: str) -> bytes:
    return _event("content_block_delta", index=0, delta={"type": "input_json_delta", "partial_json": text})


_HEAD: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [],
    "stop_reason": None,
    "usage": {},
}
_CALL = {"type": "tool_use", "id": "toolu_1", "name": "pay", "input": {}}
_FIRST = [_event("message_start", message=_HEAD), _event("content_block_start", index=0, content_block=_CALL), _piece('{"cents": 1')]
_SECOND = [
    *[_piece("0") for _ in range(4)],
    _piece("}"),
    _event("content_block_stop", index=0),
    _event("message_delta", delta={"stop_reason": "tool_use"}, usage={"output_tokens": 1}),
    _event("message_stop"),
]


async def _seen(chunks: Any, first_seen: asyncio.Event) -> list[str]:
    seen = []
    async for chunk in chunks:
        seen.append(chunk.type)
        if len(seen) == len(_FIRST):
            first_seen.set()
    return seen


async def test_a_reply_that_is_awaited_beside_an_iteration_reads_no_piece_of_an_amount_twice() -> None:
    go_on, first_seen = threading.Event(), asyncio.Event()
    with RecordedServer(("text/event-stream", [*_FIRST, go_on, *_SECOND])) as server:
        async with Engine([pay]) as engine:
            sent = await ASK["anthropic"](server.url, [{"role": "user", "content": "Go."}], engine.schemas("anthropic"), stream=True)
            async with engine.watch(sent, Scope(run="r")) as chunks:
                iterating = asyncio.create_task(_seen(chunks, first_seen))
                await first_seen.wait()
                replying = asyncio.create_task(chunks.reply())
                await asyncio.sleep(0)
                go_on.set()
                reply, seen = await asyncio.wait_for(asyncio.gather(replying, iterating), PATIENCE_S)
    assert paid == [10000]
    assert reply.results[0]["content"][0]["content"] == "paid 10000"
    assert seen[: len(_FIRST)] == ["message_start", "content_block_start", "content_block_delta"]


async def test_two_tasks_that_await_the_reply_from_the_beginning_get_the_same_one() -> None:
    with RecordedServer(("text/event-stream", [*_FIRST, *_SECOND])) as server:
        async with Engine([pay]) as engine:
            sent = await ASK["anthropic"](server.url, [{"role": "user", "content": "Go."}], engine.schemas("anthropic"), stream=True)
            async with engine.watch(sent, Scope(run="r")) as chunks:
                one, two = await asyncio.wait_for(asyncio.gather(chunks.reply(), chunks.reply()), PATIENCE_S)
    assert one is two
    assert paid == [10000]


@pytest.mark.parametrize("waiting", [True, False], ids=["beside it", "after async with"])
async def test_after_a_cancelled_reply_the_next_one_says_that_the_payment_may_have_happened(waiting: bool) -> None:
    """Its message is read to its end: the advice to request it again would let the model pay twice."""
    begun = asyncio.Event()

    @tool(name="pay")
    async def pay_slowly(cents: int) -> str:
        """Pay."""
        paid.append(cents)
        begun.set()
        await asyncio.Event().wait()
        return ""

    with RecordedServer(("text/event-stream", [*_FIRST, *_SECOND])) as server:
        async with Engine([pay_slowly]) as engine:
            sent = await ASK["anthropic"](server.url, [{"role": "user", "content": "Go."}], engine.schemas("anthropic"), stream=True)
            async with engine.watch(sent, Scope(run="r")) as chunks:
                cancelled = asyncio.create_task(chunks.reply())
                await asyncio.wait_for(begun.wait(), PATIENCE_S)
                other = asyncio.create_task(chunks.reply()) if waiting else None
                await asyncio.sleep(0)
                cancelled.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await cancelled
            reply = await asyncio.wait_for(other or chunks.reply(), PATIENCE_S)
            again = await chunks.reply()
    (unknown,) = reply.unknown
    assert unknown.result.data == {"earlier_call": "r/0/0"}
    assert reply.results[0]["content"][0]["tool_use_id"] == "toolu_1"
    assert again is reply
    assert paid == [10000]


async def test_a_blocked_message_stays_aborted_however_often_the_reply_is_awaited() -> None:
    refused = _event("message_delta", delta={"stop_reason": "refusal"}, usage={"output_tokens": 1})
    body = [*_FIRST, *[refused if b'tool_use"}, "usage' in piece else piece for piece in _SECOND]]
    with RecordedServer(("text/event-stream", body)) as server:
        async with Engine([pay]) as engine:
            sent = await ASK["anthropic"](server.url, [{"role": "user", "content": "Go."}], engine.schemas("anthropic"), stream=True)
            async with engine.watch(sent, Scope(run="r")) as chunks:
                replies = [await chunks.reply(), await chunks.reply()]
    assert [(reply.ended, reply.finish, reply.messages) for reply in replies] == [("aborted", "content_filter", [])] * 2
    assert paid == []
