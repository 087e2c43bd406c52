"""`engine.respond` and `engine.watch` with objects of Mistral's SDK, which tell the engine what Mistral's server wants."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from callgate import Engine, Image, tool
from tests.provider_responses.recorded_bodies import ANSWERS, BODIES, QUESTIONS, body
from tests.provider_responses.recorded_server import RecordedServer
from tests.provider_responses.recorded_streams import CHUNKS
from tests.provider_responses.sdk_requests import ASK, SDK_WARNINGS
from tests.provider_responses.shop import stock

pytestmark = SDK_WARNINGS

JSON, EVENTS = "application/json", "text/event-stream"
THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": "Count them."}]}


def sse(chunks: list[dict[str, Any]]) -> list[bytes]:
    return [b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"]


def ids(messages: list[dict[str, Any]]) -> list[str]:
    """Return the ids of the calls, then those of the results."""
    return [call["id"] for call in messages[0]["tool_calls"]] + [item["tool_call_id"] for item in messages[1:]]


@pytest.mark.parametrize("call_id", [None, "call_1234567890"])
async def test_ids_of_calls_have_nine_characters_as_mistral_demands(call_id: str | None) -> None:
    """A proxy gives no ids, or those of another server."""
    sent = copy.deepcopy(BODIES["mistral"])
    del sent["choices"][0]["message"]["tool_calls"][1]
    call = sent["choices"][0]["message"]["tool_calls"][0]
    call.pop("id")
    call |= {"id": call_id} if call_id else {}
    chunks = copy.deepcopy([chunk for half in CHUNKS["mistral"] for chunk in half])
    streamed = chunks[1]["choices"][0]["delta"]["tool_calls"][0]
    streamed.pop("id")
    streamed |= {"id": call_id} if call_id else {}
    with RecordedServer((JSON, body(sent)), (EVENTS, sse(chunks))) as server:
        async with Engine([stock]) as engine:
            tools, question = engine.schemas("mistral"), QUESTIONS["mistral"]
            reply = await engine.respond(await ASK["mistral"](server.url, question, tools))
            watched = await engine.watch(await ASK["mistral"](server.url, question, tools, stream=True)).reply()
    for messages in (reply.messages, watched.messages):
        made, answered = ids(messages)
        assert made == answered
        assert len(made) == 9
        assert made.isalnum()


async def test_what_a_reasoning_model_thought_comes_back_with_its_answer() -> None:
    content = [THOUGHT, {"type": "text", "text": "One moment."}]
    thinking = copy.deepcopy(BODIES["mistral"])
    thinking["choices"][0]["message"]["content"] = content
    with RecordedServer((JSON, body(thinking)), (JSON, body(ANSWERS["mistral"]))) as server:
        async with Engine([stock]) as engine:
            tools, messages = engine.schemas("mistral"), list(QUESTIONS["mistral"])
            reply = await engine.respond(await ASK["mistral"](server.url, messages, tools))
            await ASK["mistral"](server.url, [*messages, *reply.messages], tools)
    assert reply.messages[0]["content"] == content
    assert reply.text == "One moment."
    sent = server.requests[1]["messages"][1]["content"]
    assert [part["type"] for part in sent] == ["thinking", "text"]
    assert sent[0]["thinking"] == THOUGHT["thinking"]


@pytest.mark.parametrize("way", ["respond", "watch"])
async def test_sources_and_signed_thoughts_come_back_in_their_places(way: str) -> None:
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "Count."}], "signature": "c2ln", "closed": True}
    source = {"type": "reference", "reference_ids": [1, 2]}
    document = {"type": "document_url", "document_url": "https://example.org/lamps"}
    content = [thought, {"type": "text", "text": "There are 3"}, source, {"type": "text", "text": " in all."}, document]
    answer = copy.deepcopy(ANSWERS["mistral"])
    answer["choices"][0]["message"]["content"] = content
    first, last = CHUNKS["mistral"][0][0], CHUNKS["mistral"][1][0]
    chunks = [copy.deepcopy(first) for _ in content]
    for chunk, part in zip(chunks, content, strict=True):
        chunk["choices"][0]["delta"] = {"content": [part]}
    end = copy.deepcopy(last)
    end["choices"][0]["finish_reason"] = "stop"
    sent = (JSON, body(answer)) if way == "respond" else (EVENTS, sse([*chunks, end]))
    with RecordedServer(sent) as server:
        async with Engine([stock]) as engine:
            answered = await ASK["mistral"](server.url, QUESTIONS["mistral"], engine.schemas("mistral"), stream=way == "watch")
            reply = await (engine.respond(answered) if way == "respond" else engine.watch(answered).reply())
    assert (reply.text, reply.done) == ("There are 3 in all.", True)
    assert reply.messages == [{"role": "assistant", "content": content}]


@pytest.mark.parametrize("form", ["object", "dict"])
async def test_a_part_that_the_sdk_does_not_know_is_left_out_because_the_sdk_would_send_another(form: str) -> None:
    answer = copy.deepcopy(ANSWERS["mistral"])
    answer["choices"][0]["message"]["content"] = [
        {"type": "text", "text": "There are 3."},
        {"type": "hologram", "url": "https://example.org"},
    ]
    with RecordedServer((JSON, body(answer))) as server:
        async with Engine([stock]) as engine:
            answered = await ASK["mistral"](server.url, QUESTIONS["mistral"], engine.schemas("mistral"))
            reply = await engine.respond(answered if form == "object" else answered.model_dump(), provider="mistral")
    assert reply.messages == [{"role": "assistant", "content": "There are 3."}]


async def test_a_thought_that_arrives_in_pieces_comes_back_whole() -> None:
    chunks = copy.deepcopy([chunk for half in CHUNKS["mistral"] for chunk in half])
    pieces = [{**THOUGHT, "thinking": [{"type": "text", "text": text}]} for text in ("Count ", "them.")]
    for piece in reversed(pieces):
        chunks.insert(1, copy.deepcopy(chunks[0]))
        chunks[1]["choices"][0]["delta"] = {"content": [piece]}
    with RecordedServer((EVENTS, sse(chunks))) as server:
        async with Engine([stock]) as engine:
            stream = await ASK["mistral"](server.url, QUESTIONS["mistral"], engine.schemas("mistral"), stream=True)
            reply = await engine.watch(stream).reply()
    assert reply.messages[0]["content"] == [THOUGHT]


async def test_equal_calls_without_ids_are_two_calls_although_the_sdk_writes_null() -> None:
    """A dict of the SDK's object has the text `null` for the id that a server leaves out, and the index 0 for every call."""
    sent = copy.deepcopy(BODIES["mistral"])
    calls = sent["choices"][0]["message"]["tool_calls"]
    calls[0].pop("id")
    calls[1:] = [copy.deepcopy(calls[0])]
    with RecordedServer((JSON, body(sent))) as server:
        async with Engine([stock]) as engine:
            response = await ASK["mistral"](server.url, QUESTIONS["mistral"], engine.schemas("mistral"))
            reply = await engine.respond(response.model_dump(), provider="mistral")
    found = ids(reply.messages)
    assert (len(found), len(set(found)), found[:2]) == (4, 2, found[2:])


def without_ids(model: str, *, chunk: bool = False) -> dict[str, Any]:
    """Return a whole response, or the only chunk of a stream, with two equal calls without ids."""
    call = {"type": "function", "function": {"name": "stock", "arguments": '{"article": "lamp"}'}}
    message = {"role": "assistant", "content": "", "tool_calls": [call | {"index": 0}, call | {"index": 1}] if chunk else [call, call]}
    choice = {"index": 0, "delta" if chunk else "message": message, "finish_reason": "tool_calls"}
    return {"id": "cmpl-1", "object": "chat.completion", "created": 1, "model": model, "choices": [choice]}


@pytest.mark.parametrize(("model", "provider"), [("mistral-large-latest", None), ("devstral", None), ("ft:support", "mistral")])
async def test_ids_that_a_saved_message_of_mistral_lacks_are_made_as_mistral_demands(model: str, provider: str | None) -> None:
    """A dict does not show the SDK that it came from."""
    async with Engine([stock]) as engine:
        reply = await engine.respond(without_ids(model), provider=provider)
        streamed = await engine.respond([without_ids(model, chunk=True)], provider=provider)
    made, made_streamed = ids(reply.messages), ids(streamed.messages)
    assert made == made_streamed
    assert (len(made), len(set(made)), made[:2]) == (4, 2, made[2:])
    assert all(len(one) == 9 and one.isalnum() for one in made)


async def test_an_id_of_another_server_of_mistrals_models_comes_back_unchanged() -> None:
    """A host that appends the model's message itself has this id in it."""
    sent = without_ids("mistralai/mistral-large")
    for number, call in enumerate(sent["choices"][0]["message"]["tool_calls"]):
        sent["choices"][0]["message"]["tool_calls"][number] = {**call, "id": f"call_123456789{number}"}
    async with Engine([stock]) as engine:
        assert ids((await engine.respond(sent)).messages) == ["call_1234567890", "call_1234567891"] * 2


@tool(effect="none")
def draw(article: str) -> Image:
    """Draw an article."""
    return Image(data="iVBORw0KGgo=", mime_type="image/png")


async def test_an_answer_stands_between_a_result_and_its_image_whatever_the_model_is_called() -> None:
    """Mistral refuses a message of the user directly after a result, and the server may give its models other names."""
    answer = copy.deepcopy(BODIES["mistral"])
    answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"] = "draw"
    with RecordedServer((JSON, body(answer)), (JSON, body(ANSWERS["mistral"]))) as server:
        async with Engine([draw]) as engine:
            tools, question = engine.schemas("mistral"), QUESTIONS["mistral"]
            reply = await engine.respond(await ASK["mistral"](server.url, question, tools))
            await ASK["mistral"](server.url, [*question, *reply.messages], tools)
    assert [message["role"] for message in server.requests[1]["messages"]] == ["user", "assistant", "tool", "tool", "assistant", "user"]
