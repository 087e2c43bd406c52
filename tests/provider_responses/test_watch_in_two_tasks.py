"""`engine.watch`: several tasks read one stream of the official SDK, and one of them is cancelled."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from callgate import Engine, RawCall, Scope, SqliteJournal, Tool, UsageError, tool
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


async def _two_calls(first_complete: asyncio.Event) -> AsyncIterator[dict[str, Any]]:
    """The calls of an OpenAI message that does not end. The second one begins where the first one is complete."""
    for place in (0, 1):
        function = {"name": "look", "arguments": '{"cents": 5}'}
        call = {"index": place, "id": f"call_{place}", "type": "function", "function": function}
        if place == 1:
            first_complete.set()
        yield {"id": "msg_1", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}
    await asyncio.Event().wait()


async def _read(chunks: AsyncIterator[Any]) -> None:
    async for _ in chunks:
        pass


def slow_payment() -> tuple[Tool, asyncio.Event]:
    """Return a tool that pays and does not end, and the event that is set when it has paid."""
    begun = asyncio.Event()

    @tool(name="pay")
    async def pay_slowly(cents: int) -> str:
        """Pay."""
        paid.append(cents)
        begun.set()
        await asyncio.Event().wait()
        return ""

    return pay_slowly, begun


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
    pay_slowly, begun = slow_payment()
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


async def test_tasks_that_wait_while_a_reply_is_cancelled_get_one_reply_together(tmp_path: Path) -> None:
    pay_slowly, begun = slow_payment()
    with RecordedServer(("text/event-stream", [*_FIRST, *_SECOND])) as server:
        async with Engine([pay_slowly], journal=SqliteJournal(tmp_path / "j.db")) as engine:
            sent = await ASK["anthropic"](server.url, [{"role": "user", "content": "Go."}], engine.schemas("anthropic"), stream=True)
            async with engine.watch(sent, Scope(run="r")) as chunks:
                cancelled = asyncio.create_task(chunks.reply())
                await asyncio.wait_for(begun.wait(), PATIENCE_S)
                others = [asyncio.create_task(chunks.reply()) for _ in range(3)]
                await asyncio.sleep(0)
                cancelled.cancel()
                one, two, three = await asyncio.wait_for(asyncio.gather(*others), PATIENCE_S)
    assert one is two is three
    assert (one.unknown[0].result.data, paid) == ({"earlier_call": "r/0/0"}, [10000])


async def test_a_task_that_reads_a_stream_that_another_one_closes_is_not_cancelled() -> None:
    go_on, first_seen = threading.Event(), asyncio.Event()
    with RecordedServer(("text/event-stream", [*_FIRST, go_on, *_SECOND])) as server:
        async with Engine([pay]) as engine:
            sent = await ASK["anthropic"](server.url, [{"role": "user", "content": "Go."}], engine.schemas("anthropic"), stream=True)
            async with engine.watch(sent, Scope(run="r")) as chunks:
                iterating = asyncio.create_task(_seen(chunks, first_seen))
                await first_seen.wait()
                replying = asyncio.create_task(chunks.reply())
                await asyncio.sleep(0)
            assert len(await asyncio.wait_for(iterating, PATIENCE_S)) == len(_FIRST)
            with pytest.raises(UsageError, match="its stream was closed before its calls were run"):
                await asyncio.wait_for(replying, PATIENCE_S)
            go_on.set()
    assert paid == []


async def test_no_call_starts_after_a_stream_was_closed_while_its_run_was_opened(tmp_path: Path) -> None:
    begun, end = asyncio.Event(), asyncio.Event()

    @tool(effect="none")
    async def look(cents: int) -> str:
        """Look."""
        paid.append(cents)
        begun.set()
        await end.wait()
        return ""

    complete, scope = asyncio.Event(), Scope(run="r")
    journals = SqliteJournal(tmp_path / "j.db"), SqliteJournal(tmp_path / "j.db")
    async with Engine([look], journal=journals[0]) as one, Engine([look], journal=journals[1]) as two:
        holding = asyncio.create_task(one.call(RawCall(name="look", arguments={"cents": 1}), scope))
        await begun.wait()
        chunks = two.watch(_two_calls(complete), scope)
        reading = asyncio.create_task(_read(chunks))
        await complete.wait()
        for _ in range(20):  # steps of the event loop in which the reader gets the chunk and begins to open the run
            await asyncio.sleep(0)
        await chunks.aclose()
        end.set()
        await holding
        await one.close()  # gives the run away
        await asyncio.wait_for(reading, PATIENCE_S)
        assert len({event.call for event in two.journal.read(run="r")}) == 1
    assert paid == [1]


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


async def _endless() -> AsyncIterator[dict[str, Any]]:
    while True:
        yield {"id": "msg_1", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": "a"}}]}


@pytest.mark.parametrize("steps", range(6))
async def test_a_reader_ends_at_whichever_step_of_the_event_loop_another_task_closes_the_stream(steps: int) -> None:
    async with Engine([pay]) as engine:
        chunks = engine.watch(_endless(), Scope(run="r"))
        reading = asyncio.create_task(_read(chunks))
        for _ in range(steps):
            await asyncio.sleep(0)
        await chunks.aclose()
        await asyncio.wait_for(reading, PATIENCE_S)
