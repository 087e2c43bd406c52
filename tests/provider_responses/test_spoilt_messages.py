"""`engine.respond` and `engine.watch` with messages that a server or a proxy has spoilt, and with messages that may be empty."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pytest

from callgate import Engine, UsageError, tool
from tests.provider_responses.recorded_bodies import ANSWERS, QUESTIONS, body
from tests.provider_responses.recorded_server import RecordedServer
from tests.provider_responses.recorded_streams import CHUNKS
from tests.provider_responses.sdk_requests import ASK, SDK_WARNINGS
from tests.provider_responses.shop import stock

pytestmark = SDK_WARNINGS

INTERACTION = {"id": "i_1", "object": "interaction", "status": "completed", "steps": []}
Path = tuple[str | int, ...]
MISSING = object()
_CHOICE: Path = ("choices", 0, "message")
SPOILT: list[tuple[str, Path, object, str]] = [
    ("openai", ("choices",), "x", "choices is text; it must be a list or null"),
    ("openai", ("choices", 0), {}, "choices[0].message is missing; it must be an object"),
    ("openai", ("choices", 0), None, "choices[0] is null; it must be an object"),
    ("openai", _CHOICE, None, "choices[0].message is null; it must be an object"),
    ("openai", _CHOICE, "There are 3.", "choices[0].message is text; it must be an object"),
    ("openai", _CHOICE, {}, "choices[0].message is an object without any of its fields"),
    ("openai", (*_CHOICE, "content"), 3, "choices[0].message.content is a number; it must be text or a list or null"),
    ("openai", (*_CHOICE, "content"), [3], "choices[0].message.content[0] is a number; it must be an object"),
    ("openai", (*_CHOICE, "tool_calls"), "stock", "choices[0].message.tool_calls is text; it must be a list or an object or null"),
    ("openai", (*_CHOICE, "tool_calls"), [None], "choices[0].message.tool_calls[0] is null; it must be an object"),
    ("mistral", (*_CHOICE, "content"), True, "choices[0].message.content is true or false"),
    ("openai-responses", ("output",), None, "output is null; it must be a list"),
    ("openai-responses", ("output",), [{}], "output[0].type is missing; it must be text"),
    ("openai-responses", ("output", 0, "content"), "There are 3.", "output[0].content is text; it must be a list"),
    ("openai-responses", ("output", 0, "content", 0, "text"), None, "output[0].content[0].text is null; it must be text"),
    ("anthropic", ("content",), None, "content is null; it must be a list or text"),
    ("anthropic", ("content", 0), "There are 3.", "content[0] is text; it must be an object"),
    ("anthropic", ("content", 0), {}, "content[0].type is missing; it must be text"),
    ("anthropic", ("content", 0, "text"), None, "content[0].text is null; it must be text"),
    ("gemini", ("candidates", 0), {}, "candidates[0] is an object without any of its fields; it must be an object with content or"),
    ("gemini", ("candidates", 0, "content"), "x", "candidates[0].content is text; it must be an object or null"),
    ("gemini", ("candidates", 0, "content", "parts"), {"text": "x"}, "candidates[0].content.parts is an object; it must be a list or null"),
    ("bedrock", ("output",), {}, "output.message is missing; it must be an object"),
    ("bedrock", ("output", "message", "content"), None, "output.message.content is null; it must be a list"),
    ("bedrock", ("output", "message", "content", 0), "x", "output.message.content[0] is text; it must be an object"),
    ("cohere", ("message",), {}, "message is an object without any of its fields"),
    ("cohere", ("message", "content"), 3, "message.content is a number"),
    ("cohere", ("message", "tool_calls"), 3, "message.tool_calls is a number"),
    ("ollama", ("message",), {}, "message is an object without any of its fields"),
    ("ollama", ("message", "content"), ["x"], "message.content is a list; it must be text or null"),
    ("interactions", ("steps",), "x", "steps is text; it must be a list or null"),
    ("interactions", ("steps",), [{"text": "x"}], "steps[0].type is missing"),
]
LEGAL: list[tuple[str, Path, object]] = [
    ("openai", (*_CHOICE, "content"), None),
    ("openai", (*_CHOICE, "content"), MISSING),
    ("openai", (*_CHOICE, "content"), ["There ", {"type": "text", "text": "are 3."}]),
    ("openai", (*_CHOICE, "tool_calls"), None),
    ("openai", (*_CHOICE, "tool_calls"), []),
    ("openai-responses", ("output",), []),
    ("openai-responses", ("status",), ["completed"]),
    ("anthropic", ("content",), []),
    ("gemini", ("candidates", 0, "content"), MISSING),
    ("gemini", ("candidates", 0, "content", "parts"), MISSING),
    ("bedrock", ("output", "message", "content"), []),
    ("cohere", ("message", "content"), MISSING),
    ("ollama", ("message", "tool_calls"), None),
    ("ollama", ("message", "content"), MISSING),
    ("interactions", ("steps",), []),
]


def changed(provider: str, path: Path, value: object) -> dict[str, Any]:
    """Return an answer of a provider with another value at a path."""
    answer = copy.deepcopy({**ANSWERS, "interactions": INTERACTION}[provider])
    inner: Any = answer
    for key in path[:-1]:
        inner = inner[key]
    if value is MISSING:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return answer


@pytest.mark.parametrize(("provider", "path", "value", "said"), SPOILT)
async def test_a_spoilt_message_is_refused_and_not_taken_for_an_empty_answer(provider: str, path: Path, value: object, said: str) -> None:
    async with Engine([stock]) as engine:
        with pytest.raises(UsageError, match=r"engine\.respond was given a response of .* Request it again") as error:
            await engine.respond(changed(provider, path, value))
    assert said in str(error.value)


@pytest.mark.parametrize(("provider", "path", "value"), LEGAL)
async def test_a_message_that_is_empty_as_it_may_be_is_an_answer(provider: str, path: Path, value: object) -> None:
    async with Engine([stock]) as engine:
        reply = await engine.respond(changed(provider, path, value))
    assert (reply.done, reply.ended) == (True, None)


async def test_a_spoilt_message_that_an_sdk_passed_on_is_refused() -> None:
    """OpenAI's SDK makes an object of any JSON."""
    with RecordedServer(("application/json", body({**ANSWERS["openai"], "choices": [{}]}))) as server:
        async with Engine([stock]) as engine:
            response = await ASK["openai"](server.url, QUESTIONS["openai"], engine.schemas("openai"))
            with pytest.raises(UsageError, match=r"choices\[0\]\.message is missing"):
                await engine.respond(response)


async def test_the_body_of_a_model_on_bedrock_is_checked_as_what_it_is() -> None:
    async with Engine([stock]) as engine:
        with pytest.raises(UsageError, match=r"response of bedrock\.invoke whose content is null"):
            await engine.respond(changed("anthropic", ("content",), None), provider="bedrock.invoke")


SPOILT_CHUNKS: Mapping[str, tuple[dict[str, Any], str]] = {
    "openai": ({"id": "c", "choices": [{"index": 0, "delta": "There"}]}, "choices[0].delta is text"),
    "openai-responses": ({"type": "response.output_item.done", "item": {}}, "item.type is missing"),
    "anthropic": ({"type": "content_block_delta", "index": 0, "delta": "There"}, "delta is text"),
    "gemini": ({"candidates": [{"content": {"parts": "There"}}]}, "candidates[0].content.parts is text"),
    "bedrock": ({"contentBlockDelta": {"delta": "There", "contentBlockIndex": 0}}, "contentBlockDelta.delta is text"),
    "cohere": ({"type": "content-delta", "delta": {"message": "There"}}, "delta.message is text"),
    "ollama": ({"model": "m", "created_at": "2026", "message": "There", "done": False}, "message is text"),
}


@pytest.mark.parametrize("provider", SPOILT_CHUNKS)
async def test_a_spoilt_chunk_is_refused_and_its_message_discarded(provider: str) -> None:
    spoilt, said = SPOILT_CHUNKS[provider]
    first, second = CHUNKS[provider]
    async with Engine([stock]) as engine, engine.watch([*first, spoilt, *second]) as stream:
        with pytest.raises(UsageError, match=r"engine\.watch was given a chunk of .* Request it again") as error:
            await stream.reply()
        assert said in str(error.value)
        with pytest.raises(UsageError, match="was discarded"):
            await stream.reply()


@pytest.mark.parametrize(
    ("provider", "empty"),
    [
        ("openai-responses", {"type": "response.output_item.done", "output_index": 9}),
        ("anthropic", {"type": "content_block_start", "index": 9}),
    ],
)
async def test_a_chunk_without_its_item_does_not_lose_the_results_of_calls(provider: str, empty: dict[str, object]) -> None:
    """The calls have run when their results are written, so an error would hide what they did."""
    first, second = CHUNKS[provider]
    async with Engine([stock]) as engine, engine.watch([*first, empty, *second]) as stream:
        reply = await stream.reply()
    assert (reply.ended, len(reply.outcomes), len(reply.results)) == (None, 1, 1)


async def test_what_an_anthropic_client_had_read_of_a_broken_stream_runs_nothing() -> None:
    """Its stream helper returns such a message without an error: no stop reason, and the last input as far as it came."""
    paid: list[int] = []

    @tool
    def pay(order: str, cents: int) -> str:
        """Pay."""
        paid.append(cents)
        return "paid"

    block = {"type": "tool_use", "id": "toolu_1", "name": "pay", "input": {"order": "A7", "cents": 50}}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [block], "stop_reason": None}
    async with Engine([pay]) as engine:
        cut = await engine.respond(message)
        assert (cut.ended, cut.messages, paid) == ("aborted", [], [])
        assert (await engine.respond(message | {"stop_reason": "tool_use"})).ended is None
    assert paid == [50]
