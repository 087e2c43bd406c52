"""Encoding for OpenAI's responses API: the conversation becomes input items, and received items are sent unchanged."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from callgate.calls import Audio, Image, Text
from callgate.messages import AssistantMessage, Message, Reasoning, SystemMessage, ToolCall, ToolMessage, UserMessage
from callgate.models.wire import codec
from callgate.models.wire.request import ModelRequest, ToolSpec
from callgate.models.wire.tool_names import WireNames
from tests.models.decoding import finished, read
from tests.models.responses_api import API, FREE, ONE, SAID, SEARCH, THOUGHT, TWO, USUAL, function, message, over


def sent(messages: list[Message], quirks: Mapping[str, object] = {}, **more: object) -> dict[str, Any]:
    request = ModelRequest(model="m", messages=messages, **more)  # type: ignore[arg-type]
    return dict(json.loads(codec(API).encode(request, WireNames(), quirks).body))


def result(call_id: str, text: str = "ok", **more: Any) -> ToolMessage:
    return ToolMessage(call_id=call_id, name="f", content=(Text(text=text),), **more)


def test_a_request_carries_the_whole_conversation() -> None:
    names = WireNames()
    call = ToolCall(id="a", name="files/find", arguments='{"q": "x"}')
    messages: list[Message] = [
        SystemMessage("Be brief."),
        UserMessage("Find it."),
        AssistantMessage(parts=(Text(text="Yes."), call), api="anthropic.messages"),
        result("a", "3 hits"),
        SystemMessage("Be kind."),
        UserMessage(()),
    ]
    tools = (ToolSpec(name="files/find", description="d"), ToolSpec(name="py", custom=True))
    request = ModelRequest(model="m", messages=messages, tools=tools, tool_choice="py", max_tokens=9, extra={"user": "u"})
    http = codec(API).encode(request, names, {"store": False, "encrypted_reasoning": True})
    assert http.path == "/responses"
    wire = names.to_wire("files/find")
    empty = {"type": "object", "properties": {}}
    assert json.loads(http.body) == {
        "model": "m",
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "instructions": "Be brief.",
        "max_output_tokens": 9,
        "user": "u",
        "tools": [
            {"type": "function", "name": wire, "description": "d", "parameters": empty, "strict": False},
            {"type": "custom", "name": "py", "description": ""},
        ],
        "tool_choice": {"type": "custom", "name": "py"},
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Find it."}]},
            {"type": "message", "role": "assistant", "content": "Yes."},
            {"type": "function_call", "call_id": "a", "name": wire, "arguments": '{"q": "x"}'},
            {"type": "function_call_output", "call_id": "a", "output": "3 hits"},
            {"type": "message", "role": "developer", "content": "Be kind."},
        ],
    }


def test_received_items_are_sent_back_unchanged() -> None:
    """Reasoning models refuse a call without its reasoning, and reasoning without its call."""
    answer = finished(read(API, USUAL)).message
    results: list[Message] = [result("a"), result("b"), result("c", "1", custom=True)]
    assert sent([answer, *results], {"store": False})["input"] == [
        {"type": "reasoning", "id": "rs_1", "summary": THOUGHT["summary"], "encrypted_content": "enc"},
        SEARCH,
        {**message("Let me lóok.", phase="commentary", status="completed"),
         "content": [{"type": "output_text", "text": "Let me lóok.", "annotations": []}]},
        ONE,
        TWO,
        FREE,
        {"type": "function_call_output", "call_id": "a", "output": "ok"},
        {"type": "function_call_output", "call_id": "b", "output": "ok"},
        {"type": "custom_tool_call_output", "call_id": "c", "output": "1"},
    ]  # fmt: skip


def test_a_call_made_by_a_program_and_its_output_name_the_caller() -> None:
    caller = {"type": "program", "caller_id": "p"}
    program = {"type": "program", "id": "pr_1", "call_id": "p", "code": "f()"}
    answer = finished(read(API, over(program, function("a", "f", "{}", caller=caller, namespace="n"), TWO))).message
    items = sent([answer, result("a"), result("b")])["input"]
    assert [item.get("caller") for item in items] == [None, caller, None, caller, None]
    assert items[1]["namespace"] == "n"


def test_provider_specific_fields_of_another_api_are_not_sent() -> None:
    answer = finished(read(API, USUAL)).message
    foreign = AssistantMessage(parts=(*answer.parts, Reasoning(opaque={"signature": "s"})), api="gemini.generate")
    items = sent([foreign])["input"]
    assert [item["type"] for item in items[:4]] == ["message", "function_call", "function_call", "custom_tool_call"]
    assert not any("id" in item for item in items)


def test_reasoning_neither_stored_nor_encrypted_is_omitted_with_its_ids() -> None:
    """The API refuses the id of reasoning that is neither stored nor encrypted."""
    plain = {key: value for key, value in THOUGHT.items() if key != "encrypted_content"}
    answer = finished(read(API, over(plain, ONE))).message
    stored, unstored = (sent([answer, result("a")], {"store": keep})["input"] for keep in (True, False))
    assert [item.get("id") for item in stored] == ["rs_1", "fc_a", None]
    assert [(item["type"], item.get("id")) for item in unstored] == [("function_call", None), ("function_call_output", None)]


@pytest.mark.parametrize("rest", [(), ({"type": "computer_call", "id": "cu", "call_id": "x", "action": {}},)], ids=["nothing", "not run"])
def test_reasoning_without_a_following_item_is_omitted(rest: tuple[dict[str, object], ...]) -> None:
    answer = finished(read(API, over(SAID, THOUGHT, *rest, status="incomplete"))).message
    assert [item["type"] for item in sent([answer])["input"]] == ["message"]


def test_every_call_is_followed_by_its_output() -> None:
    calls = AssistantMessage(parts=(ToolCall(id="x", name="f", arguments="{"), ToolCall(id="y" * 99, name="f")))
    items = sent([calls, UserMessage("?"), result("y" * 99)])["input"]
    assert [item["type"] for item in items] == [*["function_call"] * 2, *["function_call_output"] * 2, "message"]
    assert [item["call_id"] for item in items[:2]] == [item["call_id"] for item in items[2:4]]
    assert len(items[1]["call_id"]) <= 64
    assert all(isinstance(json.loads(item["arguments"]), dict) for item in items[:2])


def test_results_contain_images_only_if_the_server_accepts_them() -> None:
    content = (Text(text="see"), Image(data="AA", mime_type="image/png"), Audio(data="AA", mime_type="audio/wav"))
    messages: list[Message] = [
        AssistantMessage(parts=(ToolCall(id="x", name="f"),)),
        ToolMessage(call_id="x", name="f", content=content),
    ]
    assert [part["type"] for part in sent(messages)["input"][1]["output"]] == ["input_text", "input_image", "input_text"]
    items = sent(messages, {"result_parts": False})["input"]
    assert items[1]["output"] == "see\n[audio/wav]"
    assert [part["type"] for part in items[2]["content"]] == ["input_text", "input_image"]
