"""Calls as the providers' own libraries give them: what a developer with a loop of their own types first."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from anthropic.types import Message, RawContentBlockDeltaEvent
from google.genai.types import GenerateContentResponse
from mistralai.client.models import FunctionCallEntry, FunctionCallEvent, ToolCall
from openai.types.chat import ChatCompletion, ChatCompletionChunk, ChatCompletionMessageFunctionToolCall
from openai.types.responses import Response

from callgate import Engine, RawCall, Scope, UsageError, tool
from tests.engine_calls import result_of

ARGUMENTS = {"order": "A7", "cents": 1200}
TEXT = json.dumps(ARGUMENTS)
FUNCTION = {"name": "refund", "arguments": TEXT}


def completion(**message: object) -> ChatCompletion:
    choice = {"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant", "content": None, **message}}
    return ChatCompletion.model_validate({"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]})


CHAT = completion(tool_calls=[{"id": "c1", "type": "function", "function": FUNCTION}])
RESPONSE = Response.model_validate(
    {
        "id": "r",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "tools": [],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "output": [{"type": "function_call", "id": "fc_1", "call_id": "c1", **FUNCTION, "status": "completed"}],
    }
)
ANTHROPIC = Message.model_validate(
    {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 1, "output_tokens": 1},
        "content": [{"type": "text", "text": "Wait."}, {"type": "tool_use", "id": "c1", "name": "refund", "input": ARGUMENTS}],
    }
)
GEMINI = GenerateContentResponse.model_validate(
    {
        "candidates": [
            {
                "content": {
                    "role": "model",
                    "parts": [{"text": "Wait."}, {"function_call": {"id": "c1", "name": "refund", "args": ARGUMENTS}}],
                }
            }
        ]
    }
)
PARTS: Any = GEMINI.candidates[0].content.parts  # type: ignore[index, union-attr]
TOOL_USE = {"toolUseId": "c1", "name": "refund", "input": ARGUMENTS}

OBJECTS: dict[str, object] = {
    "openai chat": CHAT.choices[0].message.tool_calls[0],  # type: ignore[index]
    "openai chat, as attributes": SimpleNamespace(id="c1", type="function", function=SimpleNamespace(name="refund", arguments=TEXT)),
    "openai responses": RESPONSE.output[0],
    "anthropic": ANTHROPIC.content[1],
    "gemini part": PARTS[1],
    "gemini call": PARTS[1].function_call,
    "mistral": SimpleNamespace(id="c1", type=None, index=0, function=SimpleNamespace(name="refund", arguments=ARGUMENTS)),
    "cohere": SimpleNamespace(id="c1", type="function", function=SimpleNamespace(name="refund", arguments=TEXT)),
}
DICTS: dict[str, object] = {
    "openai chat": {"id": "c1", "type": "function", "function": FUNCTION},
    "openai responses": {"type": "function_call", "call_id": "c1", "id": "fc_1", "status": "completed", **FUNCTION},
    "anthropic": {"type": "tool_use", "id": "c1", "name": "refund", "input": ARGUMENTS},
    "gemini part": {"functionCall": {"id": "c1", "name": "refund", "args": ARGUMENTS}},
    "gemini call": {"id": "c1", "name": "refund", "args": ARGUMENTS},
    "bedrock block": {"toolUse": TOOL_USE},
    "bedrock call": TOOL_USE,
    "mistral": {"id": "c1", "function": {"name": "refund", "arguments": ARGUMENTS}, "index": 0},
    "filled function beside an empty custom": {"id": "c1", "function": FUNCTION, "custom": {}},
}
READERS = [RawCall.from_openai, RawCall.from_provider, RawCall.from_dict]


@tool
async def refund(order: str, cents: int) -> str:
    """Pay money back."""
    return f"{cents} for {order}"


@pytest.mark.parametrize("item", [*OBJECTS.values(), *DICTS.values()], ids=[*OBJECTS, *(f"{name} dict" for name in DICTS)])
@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
async def test_a_call_of_any_provider_runs_as_its_library_gives_it(read: Any, item: object) -> None:
    async with Engine([refund]) as engine:
        result = result_of(await engine.call(read(item)))
    assert (result.text, result.id) == ("1200 for A7", "c1")


@pytest.mark.parametrize("function", [{"name": "refund", "arguments": ARGUMENTS}, SimpleNamespace(name="refund", arguments=ARGUMENTS)])
async def test_a_call_without_an_id_runs_as_ollama_gives_it(function: object) -> None:
    item = {"function": function} if isinstance(function, dict) else SimpleNamespace(function=function)
    async with Engine([refund]) as engine:
        assert result_of(await engine.call(RawCall.from_provider(item))).text == "1200 for A7"


@pytest.mark.parametrize("entry_id", [None, "fc_1"])
@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
async def test_a_call_of_mistrals_conversations_runs_once_although_it_is_handed_in_twice(read: Any, entry_id: str | None) -> None:
    """The result has to name the id of the call, which is not that of the entry."""
    paid: list[str] = []

    @tool
    async def pay(order: str) -> str:
        """Pay an order."""
        paid.append(order)
        return "paid"

    entry = FunctionCallEntry(tool_call_id="abcdefgh1", name="pay", arguments={"order": "A7"}, id=entry_id)
    async with Engine([pay]) as engine:
        for item in (entry, entry.model_dump(), entry.model_dump(exclude_unset=True)):
            assert result_of(await engine.call(read(item), Scope(run="r", message_id="m"))).id == "abcdefgh1"
    assert paid == ["A7"]


PIECE = FunctionCallEvent(id="fc_1", name="pay", tool_call_id="abcdefgh1", arguments="{}")


@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
def test_a_piece_of_a_call_of_mistrals_conversations_is_no_call(read: Any) -> None:
    with pytest.raises(UsageError, match="a piece of a streamed call"):
        read(PIECE)


def test_a_dict_of_a_piece_is_the_hosts_mistake_unless_a_model_may_have_written_it() -> None:
    with pytest.raises(UsageError, match="a piece of a streamed call"):
        RawCall.from_provider(PIECE.model_dump())
    assert RawCall.from_dict(PIECE.model_dump()).name == "pay"


@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
def test_a_call_of_mistrals_sdk_without_an_id_has_none(read: Any) -> None:
    """The SDK fills in the text `null`."""
    call = ToolCall.model_validate({"function": FUNCTION})
    assert [read(item).id for item in (call, call.model_dump())] == ["", ""]


async def test_a_custom_call_gives_its_text_as_input() -> None:
    @tool
    async def note(input: str) -> str:
        """Note a text."""
        return input

    item = completion(tool_calls=[{"id": "c1", "type": "custom", "custom": {"name": "note", "input": "as it is"}}]).choices[0].message
    async with Engine([note]) as engine:
        assert result_of(await engine.call(RawCall.from_openai(item.tool_calls[0]))).text == "as it is"  # type: ignore[index]


EMPTY: list[Any] = [None, {}, {"name": "", "arguments": "", "input": ""}, {"name": None, "arguments": None, "input": None}]


def as_object(value: object) -> object:
    """Return a dict as an object with attributes, as SDKs give it."""
    return SimpleNamespace(**{key: as_object(inner) for key, inner in value.items()}) if isinstance(value, dict) else value


@pytest.mark.parametrize("empty", EMPTY, ids=["null", "empty", "empty texts", "nulls"])
@pytest.mark.parametrize("kind", ["function", "custom", None])
@pytest.mark.parametrize("form", [dict, as_object], ids=["dict", "object"])
@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
def test_the_filled_one_of_a_function_and_a_custom_call_is_the_call(read: Any, form: Any, kind: str | None, empty: object) -> None:
    """Some servers and SDKs send both fields, one of them empty, whatever the type says."""
    head = {"id": "c1"} if kind is None else {"id": "c1", "type": kind}
    function = read(form({**head, "function": FUNCTION, "custom": empty}))
    assert (function.name, function.arguments) == ("refund", TEXT)
    custom = read(form({**head, "function": empty, "custom": {"name": "note", "input": "as it is"}}))
    assert (custom.name, custom.arguments) == ("note", {"input": "as it is"})


@pytest.mark.parametrize("reason", ["length", "max_tokens", "MAX_TOKENS", "content_filter", "refusal", None])
@pytest.mark.parametrize("item", [CHAT.choices[0].message.tool_calls[0], ANTHROPIC.content[1], PARTS[1]])  # type: ignore[index]
async def test_a_call_of_a_message_that_was_cut_off_never_runs(item: object, reason: str | None) -> None:
    async with Engine([refund]) as engine:
        assert result_of(await engine.call(RawCall.from_provider(item, finish_reason=reason))).code == "truncated"


@pytest.mark.parametrize("reason", ["tool_calls", "tool_use", "end_turn", "STOP", "TOOL_CALL", "stop"])
def test_every_provider_has_a_word_for_a_complete_message(reason: str) -> None:
    assert RawCall.from_provider(PARTS[1], finish_reason=reason).closed == "finished"


def test_an_item_that_says_it_is_incomplete_is_cut() -> None:
    item = {"type": "function_call", "call_id": "c1", "status": "incomplete", **FUNCTION}
    assert RawCall.from_openai(item).closed == "cut"


CHUNK = ChatCompletionChunk.model_validate(
    {
        "id": "x",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "refund", "arguments": ""}}]}}],
    }
)
MISTAKES: dict[str, tuple[object, str]] = {
    "a chat response": (CHAT, "a ChatCompletion, a message or response"),
    "a choice": (CHAT.choices[0], "a Choice, a message or response"),
    "a chat message": (CHAT.choices[0].message, "a ChatCompletionMessage, a message or response"),
    "a message's calls": (CHAT.choices[0].message.tool_calls, "a list of 1. It reads one call"),
    "dicts of calls": ([DICTS["openai chat"]], "a list of 1. It reads one call"),
    "a responses response": (RESPONSE, "a Response, a message or response"),
    "an anthropic message": (ANTHROPIC, "a Message of type 'message'"),
    "an anthropic text block": (ANTHROPIC.content[0], "a TextBlock of type 'text'"),
    "a text block as a dict": ({"type": "text", "text": "Wait."}, "a dict with the keys 'type', 'text' of type 'text'"),
    "a gemini response": (GEMINI, "a GenerateContentResponse, a message or response"),
    "a gemini text part": (PARTS[0], "a Part, which is not a call"),
    "a chat message as a dict": (CHAT.choices[0].message.model_dump(), "a message or response"),
    "a bedrock response": ({"output": {"message": {}}, "stopReason": "tool_use"}, "a message or response"),
    "a piece of a stream": (CHUNK.choices[0].delta.tool_calls[0], "a piece of a streamed call"),  # type: ignore[index]
    "a chunk": (CHUNK, "a ChatCompletionChunk, a message or response"),
    "a tool": (refund, "a FunctionTool, which is not a call"),
    "a call that was read": (RawCall(name="refund"), "a RawCall. It is read already"),
    "a number of no model": (1 + 1j, "a complex, which is not a call"),
    "a message without calls": (completion().choices[0].message.model_dump(), "a message or response"),
}
NO_ITEMS: dict[str, tuple[object, str]] = {
    "the calls of a message that has none": (completion().choices[0].message.tool_calls, "None, which is not a call: a message without"),
    "no calls": ([], "a list of 0. It reads one call"),
    "a name": ("refund", "the text 'refund', which is not a call. Give it one call of the message"),
    "a list of names": (["refund"], "a list of 1. It reads one call"),
    "JSON text": (json.dumps(DICTS["openai chat"]), "which is not a call but JSON text: decode it first"),
    "bytes": (TEXT.encode(), "but JSON text: decode it first"),
    "a number": (5, "5, which is not a call"),
    "a bool": (True, "True, which is not a call"),
    "arguments": (ARGUMENTS, "a dict with the keys 'order', 'cents', which is not a call"),
    "callgate's own format": ({"tool": "refund", "parameters": ARGUMENTS}, "RawCall.from_dict reads it"),
    "an item of another tool": ({"type": "web_search_call", "id": "w"}, "of type 'web_search_call', which is not a call"),
}
"""What a host may have in hand by mistake, and a model can only write as JSON that `RawCall.from_dict` reads."""


@pytest.mark.parametrize(("item", "words"), NO_ITEMS.values(), ids=NO_ITEMS)
@pytest.mark.parametrize("read", READERS[:2], ids=lambda read: read.__name__)
def test_what_no_library_gives_as_a_call_is_the_hosts_mistake_and_is_not_blamed_on_the_model(read: Any, item: object, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(item)
    assert words in str(caught.value)


def test_a_call_of_gemini_without_arguments_keeps_its_name() -> None:
    for item in ({"name": "refund"}, {"functionCall": {"name": "refund"}}):
        assert RawCall.from_provider(item).name == "refund"


@pytest.mark.parametrize(("item", "words"), MISTAKES.values(), ids=MISTAKES)
@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
def test_what_is_no_call_is_the_hosts_mistake_and_says_what_was_given(read: Any, item: object, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(item)
    assert words in str(caught.value)
    assert str(caught.value).startswith(f"RawCall.{read.__name__} was given ")


def test_a_streaming_event_of_anthropic_is_no_call() -> None:
    event = RawContentBlockDeltaEvent.model_validate(
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": "{"}}
    )
    with pytest.raises(UsageError, match="a piece of a streamed call"):
        RawCall.from_provider(event)


@pytest.mark.parametrize("item", [{}, {"function": "pay"}, {"function": {"name": None}}, {"type": []}, {"status": {}}])
@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
def test_an_invalid_item_of_a_message_is_a_call_without_a_name(read: Any, item: object) -> None:
    """What a server sends is no mistake of the host: the call ends its message, and the loop goes on."""
    assert read(item).name == ""


@pytest.mark.parametrize("kind", ["function", "custom"])
def test_a_call_of_a_library_that_lost_its_function_is_a_call_without_a_name(kind: str) -> None:
    item = ChatCompletionMessageFunctionToolCall.construct(id="c1", type=kind, function=None)
    assert RawCall.from_openai(item).name == ""


@pytest.mark.parametrize("item", [None, "pay", ["pay"], 5, {"a": 1}])
def test_json_of_a_model_that_is_no_call_is_a_call_without_a_name(item: object) -> None:
    """A host that parses a model's text has no mistake to mend."""
    assert RawCall.from_dict(item).name == ""


async def test_an_engine_that_is_given_an_sdk_object_says_how_to_read_it() -> None:
    async with Engine([refund]) as engine:
        with pytest.raises(UsageError, match=r"RawCall\.from_provider"):
            await engine.call(CHAT.choices[0].message.tool_calls[0])  # type: ignore[index, arg-type]
        with pytest.raises(UsageError, match=r"RawCall\.from_provider"):
            await engine.call_many(CHAT.choices[0].message.tool_calls or ())  # type: ignore[arg-type]
