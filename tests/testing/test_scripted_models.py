"""The scripted models and the scripted server for tests of agents."""

from __future__ import annotations

import asyncio

import pytest
from openai import AsyncOpenAI
from openai.types.responses import ResponseCompletedEvent, ResponseIncompleteEvent

from callgate import AbortController, tool
from callgate.agent import Agent
from callgate.errors import UsageError
from callgate.messages import UserMessage
from callgate.models.http_model import HttpModel
from callgate.models.model_events import CallOpened, CallSealed, Fault, Finished, ReasoningDelta, TextDelta, Usage
from callgate.models.model_protocol import StreamingContext
from callgate.models.wire import known_apis
from callgate.models.wire.request import ModelRequest
from callgate.testing import (
    Beat,
    Call,
    Drop,
    End,
    Fail,
    Item,
    ManualClock,
    Pause,
    Raise,
    Raw,
    ReceivedRequest,
    Recording,
    ReplayModel,
    Reply,
    ScriptedModel,
    ScriptedServer,
    Thought,
)
from tests.models.decoding import calls_of, finished, shape, text_of
from tests.models.http_requests import REQUEST, ask, at
from tests.waiting import until

SPOKEN = sorted({"openai.chat", "openai.responses", "anthropic.messages", "ollama.chat"} & set(known_apis()))
FULL: list[Item] = [Thought("Hm. "), "Let me look. ", Call("search", {"q": "books"}, id="a"), Usage(input_tokens=7, output_tokens=3)]


async def test_a_scripted_model_plays_its_turns_in_order_and_records_every_request() -> None:
    model = ScriptedModel([FULL, "Two.", lambda request: f"{len(request.messages)} messages"])
    first, second, third = [await ask(model) for _ in range(3)]
    assert [type(event) for event in first[:3]] == [ReasoningDelta, TextDelta, CallOpened]
    assert calls_of(first) == [("a", "search", '{"q":"books"}', "sealed")]
    assert (finished(first).reason, finished(first).usage) == ("tool_calls", Usage(input_tokens=7, output_tokens=3))
    assert (text_of(second), finished(second).reason, text_of(third)) == ("Two.", "stop", "1 messages")
    assert model.requests == [REQUEST] * 3


@pytest.mark.parametrize("kind", ["scripted", "replayed"])
async def test_recorded_requests_do_not_change_with_the_conversation(kind: str) -> None:
    """After the run, the recorded requests show what the model received, not how the conversation continued."""

    @tool(effect="none")
    async def look() -> str:
        """Look."""
        return "seen"

    asked = b'{"message":{"role":"assistant","content":"","tool_calls":[{"function":{"name":"look","arguments":{}}}]},"done":true}'
    told = b'{"message":{"role":"assistant","content":"Done."},"done":true}'
    model = (
        ScriptedModel([[Call("look", {})], "Done."])
        if kind == "scripted"
        else ReplayModel([Recording(body=body + b"\n", api="ollama.chat", content_type="application/x-ndjson") for body in (asked, told)])
    )
    async with Agent(model, tools=[look]) as agent:
        result = await agent.run("Look.")
    assert result.status == "completed"
    assert [len(request.messages) for request in model.requests] == [1, 3]
    assert len(result.messages) == 4


async def test_a_scripted_model_without_turns_left_raises_usage_error() -> None:
    model = ScriptedModel(["Hello"])
    await ask(model)
    with pytest.raises(UsageError, match="1 turns, and this is pass 2"):
        await ask(model)


def test_a_turn_without_a_pause_never_suspends() -> None:
    """The cost of a loop can then be measured without an event loop."""

    async def one() -> int:
        return len(await ask(model))

    model = ScriptedModel([FULL])
    with pytest.raises(StopIteration) as ended:
        one().send(None)
    assert ended.value.value == 7


@pytest.mark.parametrize(
    ("turn", "reason", "closed"),
    [
        ([Call("f", '{"a": 1'), End("length")], "length", "cut"),
        ([Call("f", '{"a": 1}'), End("length")], "length", "sealed"),
        ([Call("f", "nonsense")], "tool_calls", "finished"),
        ([Call("f", '{"a": 1'), End("cut")], "cut", "cut"),
        ([Call("f", '{"a": 1'), Fail(retryable=True), "never"], "error", "cut"),
    ],
)
async def test_calls_are_closed_as_a_provider_would_close_them(turn: list[Item], reason: str, closed: str) -> None:
    events = await ask(ScriptedModel([turn]))
    assert (finished(events).reason, calls_of(events)[0][3]) == (reason, closed)
    assert text_of(events) == ""


async def test_an_error_is_raised_where_the_script_says() -> None:
    model = ScriptedModel([["Hello", Raise(RuntimeError("broken"))]])
    stream = model.stream(REQUEST, StreamingContext())
    assert await anext(stream) == TextDelta("Hello")
    with pytest.raises(RuntimeError, match="broken"):
        await anext(stream)


async def test_a_pause_waits_for_its_event_or_for_the_clock() -> None:
    gate, clock = asyncio.Event(), ManualClock()
    model = ScriptedModel([["a", Pause(gate), "b", Pause(5.0), "c"]], clock=clock)
    asking = asyncio.create_task(ask(model))
    gate.set()
    await until(lambda: clock.sleeping)
    clock.advance(4.9)
    assert clock.sleeping
    clock.advance(0.1)
    assert text_of(await asking) == "abc"


async def test_an_abort_ends_a_pause() -> None:
    controller, context = AbortController(), StreamingContext()
    context.abort_signal = controller.signal
    model = ScriptedModel([["a", Call("f", '{"x": '), Pause(asyncio.Event()), "b"]])
    asking = asyncio.create_task(ask(model, context=context))
    await until(lambda: model.requests)
    controller.abort()
    events = await asking
    assert (text_of(events), finished(events).reason, calls_of(events)) == ("a", "cut", [("call_1", "f", '{"x": ', "cut")])


async def test_every_event_and_every_beat_reports_progress() -> None:
    beats: list[None] = []
    context = StreamingContext()
    context.on_progress = lambda: beats.append(None)
    events = await ask(ScriptedModel([[Beat(), "a", Beat()]]), context=context)
    assert len(beats) == len(events) + 2


@pytest.mark.parametrize("cut_bytes", [0, 1, 7])
async def test_a_recording_is_decoded_by_its_api(cut_bytes: int) -> None:
    body = b'data: {"choices":[{"delta":{"content":"Hello"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    model = ReplayModel([Recording(body=body, api="openai.chat", content_type="text/event-stream")], cut_bytes=cut_bytes)
    events = await ask(model)
    assert (text_of(events), finished(events).reason, len(model.requests)) == ("Hello", "stop", 1)
    with pytest.raises(UsageError, match="1 recordings"):
        await ask(model)


def spoken_at(server: ScriptedServer, api: str) -> HttpModel:
    from callgate.models.http_transport import Transport

    return HttpModel("someone", "m", api=api, base_url=server.url, transport=Transport("someone"))


@pytest.mark.parametrize("api", SPOKEN)
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_a_script_gives_the_same_message_over_a_socket(api: str, stream: bool) -> None:
    """The server and the scripted model play the same script; the decoded messages are compared."""
    played = await ask(ScriptedModel([FULL]))
    async with ScriptedServer([FULL], api=api) as server:
        of = spoken_at(server, api)
        events = await ask(of, ModelRequest(model="m", messages=REQUEST.messages, stream=stream))
        await of.close()
    first = 1 if api == "ollama.chat" else 0  # Ollama's API has no ids
    assert [call[first:3] for call in calls_of(events)] == [call[first:3] for call in calls_of(played)]
    assert (text_of(events), finished(events).reason, finished(events).usage) == (text_of(played), "tool_calls", finished(played).usage)
    assert [part.text for part in finished(events).message.parts[:1]] == ["Hm. "]  # type: ignore[union-attr]


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize(("end", "status"), [([], "completed"), ([End("length")], "incomplete")])
async def test_a_script_is_read_by_the_official_client_of_the_responses_api(stream: bool, end: list[Item], status: str) -> None:
    async with ScriptedServer([[*FULL, Beat(), *end]], api="openai.responses") as server:
        client = AsyncOpenAI(base_url=server.url, api_key="k")
        if stream:
            events = [event async for event in await client.responses.create(model="m", input="Hi", stream=True)]
            ended = events[-1]
            assert isinstance(ended, ResponseCompletedEvent | ResponseIncompleteEvent)
            response = ended.response
        else:
            response = await client.responses.create(model="m", input="Hi")
        await client.close()
    assert response.status == status
    assert [item.type for item in response.output] == ["reasoning", "message", "function_call"]
    assert response.output_text == "Let me look. "
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens) == (7, 3)


@pytest.mark.parametrize("api", SPOKEN)
@pytest.mark.parametrize(("turn", "reason"), [(["a", End("length")], "length"), (["a", Fail()], "error"), (["a", End("cut")], "cut")])
async def test_every_end_is_encoded_in_the_format_of_the_api(api: str, turn: list[Item], reason: str) -> None:
    async with ScriptedServer([turn], api=api) as server:
        events = await ask(of := spoken_at(server, api))
        await of.close()
    assert (text_of(events), finished(events).reason) == ("a", reason)


@pytest.mark.parametrize("api", SPOKEN)
async def test_an_error_response_is_encoded_in_the_format_of_the_api(api: str) -> None:
    async with ScriptedServer([Reply(turn=Fail("bad_request", "Too long."), status=400)], api=api) as server:
        events = await ask(of := spoken_at(server, api))
        await of.close()
    fault = next(event for event in events if isinstance(event, Fault))
    assert fault.message == "someone answered 400: Too long."


async def test_the_server_records_requests_and_calls_pace_for_every_piece() -> None:
    paced: list[int] = []

    async def pace(received: ReceivedRequest, number: int) -> None:
        paced.append(number)

    async with ScriptedServer(["Hello"], pace=pace) as server:
        await ask(of := at(server), ModelRequest(model="m", messages=[UserMessage("Hi")]))
        await of.close()
        received = server.requests[0]
    assert (received.method, received.path, received.number) == ("POST", "/v1/chat/completions", 0)
    assert received.body_json["messages"] == [{"role": "user", "content": "Hi"}]
    assert paced == list(range(len(paced)))
    assert paced


async def test_a_request_beyond_the_script_is_refused() -> None:
    async with ScriptedServer([]) as server:
        events = await ask(of := at(server))
        await of.close()
    assert "The script has 0 turns, and this is request 1" in str(finished(events).fault)


def test_an_unsupported_api_is_refused_when_the_server_is_created() -> None:
    with pytest.raises(UsageError, match=r"It speaks: openai\.chat"):
        ScriptedServer([], api="morse")


async def test_the_server_drops_the_connection_where_the_script_says() -> None:
    async with ScriptedServer([["a", Raw(b": odd\n\n"), "b", Drop()]]) as server:
        events = await ask(of := at(server))
        await of.close()
    assert (text_of(events), finished(events).reason) == ("ab", "cut")


async def test_the_message_of_a_scripted_model_can_be_sent_in_the_next_request() -> None:
    """It can be sent like any other message."""
    model = ScriptedModel([FULL])
    end = finished(await ask(model))
    assert isinstance(end, Finished)
    async with ScriptedServer(["ok"]) as server:
        await ask(of := at(server), ModelRequest(model="m", messages=[*REQUEST.messages, end.message]))
        await of.close()
    assert "search" in str(server.requests[0].body_json["messages"])
    assert shape(await ask(ScriptedModel([FULL]))) == shape(await ask(ScriptedModel([FULL])))
    assert [event for event in await ask(ScriptedModel([FULL])) if isinstance(event, CallSealed)]
