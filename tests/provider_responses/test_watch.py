"""`engine.watch`: streams that fail, are closed or abandoned, and what runs while a stream arrives."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from callgate import Engine, Scope, UsageError, tool
from callgate.provider_responses import StreamReader
from tests.provider_responses.recorded_bodies import BODIES, WIRE_NAME
from tests.provider_responses.recorded_streams import CHUNKS
from tests.provider_responses.shop import LAMPS, AskAboutRefunds, claude, completion, paid, refund, stock


class BrokenLineError(Exception):
    """The connection of the host's stream has broken."""


def piece(index: int, name: str = "", arguments: str = "", call_id: str = "") -> dict[str, Any]:
    """Return a chunk of a chat completion with a piece of a call."""
    call: dict[str, Any] = {"index": index, "function": {"arguments": arguments}}
    if name:
        call |= {"id": call_id or f"call_{index}", "type": "function"}
        call["function"]["name"] = name
    return {"id": "chatcmpl-1", "model": "m", "choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}]}


def end(reason: str = "tool_calls") -> dict[str, Any]:
    return {"id": "chatcmpl-1", "model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}


class Reads:
    """A tool without effect that reports its start, and then waits until it may end or is ended."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.may_end = asyncio.Event()
        self.ended = asyncio.Event()

        @tool(effect="none")
        async def read() -> str:
            """Read."""
            self.started.set()
            try:
                await self.may_end.wait()
            finally:
                self.ended.set()
            return "read"

        self.tool = read


def reads() -> list[dict[str, Any]]:
    """Return the chunks of a message that reads and then refunds, without its end."""
    return [
        piece(0, "read"),
        piece(0, arguments="{"),
        piece(0, arguments="}"),
        piece(1, "refund", '{"order":'),
        piece(1, arguments=' "A7"}'),
    ]


async def test_a_read_starts_early_and_an_effect_waits_for_the_end_of_the_message() -> None:
    reading = Reads()

    async def chunks() -> AsyncIterator[dict[str, Any]]:
        for chunk in reads():
            yield chunk
        await reading.started.wait()
        assert paid == []
        reading.may_end.set()
        yield end()

    async with Engine([reading.tool, refund]) as engine, engine.watch(chunks()) as stream:
        seen = [chunk async for chunk in stream]
        reply = await stream.reply()
    assert seen == [*reads(), end()]
    assert [item["content"] for item in reply.results] == ["read", "refunded A7"]
    assert (paid, reply.message_id) == (["A7"], "chatcmpl-1")


async def test_an_error_of_the_stream_reaches_the_host_and_discards_the_message() -> None:
    reading, error = Reads(), BrokenLineError("gone")

    async def chunks() -> AsyncIterator[dict[str, Any]]:
        for chunk in reads():
            yield chunk
        await reading.started.wait()
        raise error

    async with Engine([reading.tool, refund]) as engine:
        stream = engine.watch(chunks())
        with pytest.raises(BrokenLineError) as raised:
            await stream.reply()
        assert raised.value is error
        assert reading.ended.is_set()
        with pytest.raises(UsageError, match="was discarded: its stream failed"):
            await stream.reply()
        assert [chunk async for chunk in stream] == []
    assert paid == []


@pytest.mark.parametrize("how", ["closed", "left", "dropped", "engine closed"])
@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_a_stream_that_is_not_read_to_its_end_leaves_nothing_behind(how: str) -> None:
    reading = Reads()
    closed = asyncio.Event()

    async def chunks() -> AsyncIterator[dict[str, Any]]:
        try:
            for chunk in reads():
                yield chunk
            yield end()
        finally:
            closed.set()

    async with Engine([reading.tool, refund]) as engine:
        stream = engine.watch(chunks())
        for _ in reads():
            await anext(stream)
        await reading.started.wait()
        if how == "closed":
            await stream.aclose()
            await stream.aclose()
        elif how == "left":
            async with stream:
                pass
        elif how == "dropped":
            del stream
            gc.collect()
            await reading.ended.wait()
        else:
            await engine.close()
        if how in ("closed", "left"):
            assert closed.is_set()
            with pytest.raises(UsageError, match="closed"):
                await stream.reply()
        assert reading.ended.is_set()
    assert paid == []


async def test_a_stream_that_ends_before_its_message_runs_nothing_more() -> None:
    """Without the reason of the provider, nobody knows whether the message is complete."""
    reading = Reads()

    async def chunks() -> AsyncIterator[dict[str, Any]]:
        for chunk in reads():
            yield chunk
        await reading.started.wait()

    async with Engine([reading.tool, refund]) as engine:
        reply = await engine.watch(chunks()).reply()
    assert (reply.ended, reply.finish, reply.messages, reply.done) == ("aborted", "cut", [], True)
    assert reading.ended.is_set()
    assert paid == []


async def test_a_synchronous_stream_does_not_block_the_event_loop() -> None:
    """The generator waits in its thread for an event that only the event loop sets."""
    import threading

    started = threading.Event()

    @tool(effect="none")
    async def read() -> str:
        """Read."""
        started.set()
        return "read"

    def chunks() -> Iterator[dict[str, Any]]:
        yield from (piece(0, "read"), piece(0, arguments="{"), piece(0, arguments="}"), piece(1, "refund", "{"))
        assert started.wait(30)
        yield piece(1, arguments='"order": "A7"}')
        yield end()

    async with Engine([read, refund]) as engine:
        reply = await engine.watch(chunks()).reply()
    assert [item["content"] for item in reply.results] == ["read", "refunded A7"]


async def test_an_error_of_a_synchronous_stream_reaches_the_host() -> None:
    def chunks() -> Iterator[dict[str, Any]]:
        yield piece(0, "refund", '{"order": "A7"}')
        raise BrokenLineError

    async with Engine([refund]) as engine:
        with pytest.raises(BrokenLineError):
            await engine.watch(chunks()).reply()
    assert paid == []


async def test_a_call_that_continues_after_its_end_runs_once_as_the_message_has_it() -> None:
    """The arguments looked complete, and the stream went on with other ones: the call has an error, and not the result of the first."""
    ran: list[str] = []

    @tool(effect="none")
    def look(article: str = "") -> str:
        """Look."""
        ran.append(article)
        return article

    chunks = [piece(0, "look", '{"article": "lamp"}'), piece(0, arguments='{"article": "desk"}'), end()]
    async with Engine([look]) as engine:
        reply = await engine.watch(chunks).reply()
    (result,) = reply.results
    assert "arguments" in result["content"]
    assert result["content"] != "lamp"


async def test_a_watched_message_can_be_suspended_and_handed_in_again() -> None:
    chunks = [piece(0, "refund", '{"order": "A7"}'), end()]
    async with Engine([refund], policies=[AskAboutRefunds()]) as engine:
        reply = await engine.watch(chunks).reply()
        assert (reply.ended, reply.messages) == ("suspended", [])
        await engine.approve(reply.suspended[0].approval_id)
        assert (await engine.watch(chunks).reply()).results[0]["content"] == "refunded A7"
        whole = await engine.respond(completion(("refund", '{"order": "A7"}')))
    assert whole.results[0]["content"] == "refunded A7"
    assert paid == ["A7"]


async def test_a_stream_whose_call_was_suspended_has_a_new_reply_after_the_answer() -> None:
    """The chunks of an SDK's stream can be read only once."""
    chunks = iter([*reads(), end()])
    reading = Reads()
    reading.may_end.set()
    async with Engine([reading.tool, refund], policies=[AskAboutRefunds()]) as engine, engine.watch(chunks) as stream:
        first = await stream.reply()
        assert (first.ended, first.messages, paid) == ("suspended", [], [])
        await engine.approve(first.suspended[0].approval_id)
        second = await stream.reply()
        assert [item["content"] for item in second.results] == ["read", "refunded A7"]
        assert await stream.reply() is second
    assert paid == ["A7"]


@pytest.mark.parametrize("first", ["{}", "", None, '{"article":'])
async def test_a_call_that_only_the_end_of_the_message_completes_is_not_skipped(first: str | None) -> None:
    """The calls after it are complete before, and each call of the message is made once."""
    ran: list[str] = []

    @tool(effect="none")
    def look(article: str = "all") -> str:
        """Look."""
        ran.append(article)
        return article

    chunks = [piece(0, "look"), piece(1, "refund", '{"order": "A7"}'), piece(2, "look", '{"article": "lamp"}'), end()]
    chunks[0]["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"] = first
    async with Engine([look, refund]) as engine, engine.watch(chunks) as stream:
        reply = await stream.reply()
    assert [item["tool_call_id"] for item in reply.results] == ["call_0", "call_1", "call_2"]
    assert [item["content"] for item in reply.results[1:]] == ["refunded A7", "lamp"]
    assert ("cut off" in reply.results[0]["content"]) is (first == '{"article":')
    assert paid == ["A7"]
    assert ran.count("lamp") == 1


async def test_a_suspended_call_before_and_after_calls_that_are_complete_keeps_its_place() -> None:
    chunks = [piece(0, "read", "{}"), *(piece(place, "refund", f'{{"order": "A{place}"}}') for place in (1, 2)), end()]
    reading = Reads()
    reading.may_end.set()
    async with Engine([reading.tool, refund], policies=[AskAboutRefunds()]) as engine, engine.watch(chunks) as stream:
        first = await stream.reply()
        assert (first.ended, len(first.suspended)) == ("suspended", 2)
        for waiting in first.suspended:
            await engine.approve(waiting.approval_id)
        second = await stream.reply()
    assert [item["content"] for item in second.results] == ["read", "refunded A1", "refunded A2"]
    assert sorted(paid) == ["A1", "A2"]


@pytest.mark.parametrize("provider", CHUNKS)
async def test_plain_dicts_of_chunks_make_the_message_that_the_whole_response_makes(provider: str) -> None:
    @tool(name="stock/look_up", effect="none")
    def look(article: str) -> int:
        """Count."""
        return len(article)

    first, second = CHUNKS[provider]
    async with Engine([look]) as engine:
        reply = await engine.watch([*first, *second], Scope(run="r")).reply()
    assert len(reply.outcomes) == 1
    assert reply.text == ""
    assert WIRE_NAME in str(reply.messages)
    assert "4" in str(reply.results)


async def test_a_stream_that_the_provider_blocked_or_cancelled_runs_nothing() -> None:
    call = {"type": "function_call", "id": "fc", "call_id": "c", "name": "refund", "arguments": '{"order": "A7"}', "status": "completed"}
    cancelled = {"id": "resp_1", "status": "cancelled", "output": [call]}
    responses = [
        {"type": "response.output_item.added", "output_index": 0, "item": {**call, "arguments": ""}},
        {"type": "response.output_item.done", "output_index": 0, "item": call},
        {"type": "response.cancelled", "response": cancelled},
    ]
    async with Engine([refund]) as engine:
        for chunks, said in (
            (responses, "cancelled"),
            ([*responses[:2], {"type": "response.cancelled"}], "cancelled"),
            ([piece(0, "refund", '{"order": "A7"}'), end("content_filter")], "content_filter"),
        ):
            reply = await engine.watch(chunks).reply()
            assert (reply.ended, reply.messages, reply.done) == ("aborted", [], True)
            assert said in reply.reason
    assert paid == []


async def test_an_answer_without_calls_is_done() -> None:
    chunks = [{"choices": [{"index": 0, "delta": {"content": text}}]} for text in ("There ", "are 3.")]
    async with Engine([stock]) as engine:
        reply = await engine.watch([*chunks, end("stop")]).reply()
    assert (reply.done, reply.text, reply.messages) == (True, "There are 3.", [{"role": "assistant", "content": "There are 3."}])


async def test_what_is_no_stream_is_refused() -> None:
    async def request() -> None: ...

    waiting = request()
    async with Engine([stock]) as engine:
        for given, said in (
            (None, "None"),
            ("text", "not a stream"),
            (completion(LAMPS), "engine.respond"),
            (BODIES["anthropic"], "engine.respond"),
            (waiting, "Await the request first"),
            (object(), "not a stream"),
            (engine, "Enter it first"),
        ):
            with pytest.raises(UsageError, match=r"engine\.watch was given") as error:
                engine.watch(given)  # type: ignore[arg-type]
            assert said in str(error.value)
        for chunks, said in (([], "text_stream"), (["a", "b"], "not its texts"), ([{"other": 1}], "the keys 'other'")):
            stream: Any = engine.watch(chunks)
            assert [chunk async for chunk in stream] == chunks
            with pytest.raises(UsageError, match=said):
                await stream.reply()
        with pytest.raises(UsageError, match="Did you mean 'anthropic'"):
            engine.watch([], provider="antropic")
    waiting.close()


@pytest.mark.parametrize("together", [True, False])
async def test_a_stream_with_two_choices_is_refused_as_such_a_response_is(*, together: bool) -> None:
    first, second = piece(0, "refund", '{"order": "A7"}'), piece(0, "refund", '{"order": "B8"}')
    second["choices"][0]["index"] = 1
    both = {**first, "choices": [*first["choices"], *second["choices"]]}
    async with Engine([refund]) as engine, engine.watch([both] if together else [first, second, end()]) as stream:
        with pytest.raises(UsageError, match=r"^engine\.watch was given a response with .* choices, and a conversation continues with one"):
            await stream.reply()
    assert paid == []


async def test_a_stream_with_two_candidates_is_refused() -> None:
    parts = {"content": {"role": "model", "parts": [{"text": "a"}]}}
    chunks = [{"candidates": [parts]}, {"candidates": [{**parts, "index": 1}]}]
    async with Engine([refund]) as engine:
        with pytest.raises(UsageError, match="several candidates"):
            await engine.watch(chunks).reply()


def test_the_public_reader_gives_the_events_of_each_chunk() -> None:
    reader = StreamReader()
    events = [type(event).__name__ for chunk in (*reads(), end()) for event in reader.feed(chunk)]
    response = reader.close()
    assert events.count("CallSealed") == 2
    assert [call.name for call in response.calls] == ["read", "refund"]
    assert (response.finish, reader.message_id, reader.origin) == ("tool_calls", "chatcmpl-1", "openai.chat")


async def test_calls_end_although_the_handler_that_shields_their_reply_is_cancelled() -> None:
    """As a web server cancels a handler when its client leaves."""
    slow = Reads()

    async def chunks() -> AsyncIterator[dict[str, Any]]:
        yield piece(0, "read", "{}")
        yield end()

    async def handle(engine: Engine) -> None:
        async with engine.watch(chunks(), Scope(run="r", conversation="c")) as watched:
            async for _ in watched:
                pass
            await asyncio.shield(watched.reply())

    async with Engine([slow.tool]) as engine:
        handler = asyncio.ensure_future(handle(engine))
        await slow.started.wait()
        handler.cancel()
        await asyncio.gather(handler, return_exceptions=True)
        assert not slow.ended.is_set()
        slow.may_end.set()
        await slow.ended.wait()


async def test_a_stream_that_is_watched_without_async_is_refused_with_what_to_write() -> None:
    async def chunks() -> AsyncIterator[dict[str, Any]]:
        yield end()

    async with Engine([]) as engine:
        with pytest.raises(UsageError, match=r"async with engine\.watch"), engine.watch(chunks()):
            pass


async def test_a_call_whose_block_is_still_open_does_not_start_without_its_arguments() -> None:
    """A gateway may begin the blocks of several calls before it sends their input."""
    ran: list[str] = []

    @tool(effect="none")
    def look(place: str = "everywhere") -> str:
        """Look."""
        ran.append(place)
        return "seen"

    async def events() -> AsyncIterator[dict[str, Any]]:
        yield {"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": "m"}}
        for index in (0, 1):
            block = {"type": "tool_use", "id": f"toolu_{index}", "name": "look", "input": {}}
            yield {"type": "content_block_start", "index": index, "content_block": block}
            for _ in range(20):
                await asyncio.sleep(0)
        for index, place in enumerate(("here", "there")):
            delta = {"type": "input_json_delta", "partial_json": f'{{"place": "{place}"}}'}
            yield {"type": "content_block_delta", "index": index, "delta": delta}
            yield {"type": "content_block_stop", "index": index}
        yield {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 1}}
        yield {"type": "message_stop"}

    async with Engine([look]) as engine:
        watched = engine.watch(events())
        async for _ in watched:
            pass
        reply = await watched.reply()
    assert sorted(ran) == ["here", "there"]
    assert len(reply.messages[1]["content"]) == 2


async def test_a_reply_that_is_awaited_after_the_block_says_where_to_await_it(caplog: pytest.LogCaptureFixture) -> None:
    async def stream() -> AsyncIterator[dict[str, Any]]:
        yield piece(0, "stock", '{"item": "lamp"}')
        yield end()

    async with Engine([stock]) as engine:
        async with engine.watch(stream(), Scope(run="r")) as chunks:
            async for _ in chunks:
                pass
        with pytest.raises(UsageError, match=r"Await reply\(\) inside of `async with engine.watch"):
            await chunks.reply()
    assert "A stream with 1 tool calls was read to its end and closed without reply(), so its calls were discarded." in caplog.text


async def test_equal_calls_in_two_streams_of_invoke_model_are_two_calls() -> None:
    """Some models on Bedrock number their calls anew in each message."""

    def stream(message_id: str) -> Iterator[dict[str, Any]]:
        message = claude(message_id=message_id) | {"stop_reason": None}
        block = {"type": "tool_use", "id": "call_0", "name": "refund", "input": {"order": "A7"}}
        for event in (
            {"type": "message_start", "message": message},
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 1}},
            {"type": "message_stop"},
        ):
            yield {"chunk": {"bytes": json.dumps(event).encode()}}

    ids = []
    async with Engine([refund]) as engine:
        for message_id in ("msg_bdrk_1", "msg_bdrk_1", "msg_bdrk_2"):
            async with engine.watch(stream(message_id), Scope(run="ann")) as chunks:
                async for _ in chunks:
                    pass
                reply = await chunks.reply()
            ids.append((reply.api, reply.message_id))
    assert ids == [("bedrock.invoke", "msg_bdrk_1"), ("bedrock.invoke", "msg_bdrk_1"), ("bedrock.invoke", "msg_bdrk_2")]
    assert paid == ["A7", "A7"]
