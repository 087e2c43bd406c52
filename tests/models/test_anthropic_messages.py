"""Anthropic's messages API: content blocks are decoded, alternating turns are encoded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate.calls import Audio, Image, Resource, Text
from callgate.messages import AssistantMessage, Message, Native, Reasoning, SystemMessage, ToolCall, ToolMessage, UserMessage
from callgate.models.model_events import CallSealed, Usage
from callgate.models.wire import codec
from callgate.models.wire.request import ModelRequest, ToolSpec
from callgate.models.wire.tool_names import WireNames
from tests.models.decoding import calls_of, finished, read, shape, text_of

API = "anthropic.messages"


def frame(kind: str, **fields: object) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields}, ensure_ascii=False)}\n\n".encode()


def start(index: object, **block: object) -> bytes:
    return frame("content_block_start", index=index, content_block=block)


def delta(index: object, **fields: object) -> bytes:
    return frame("content_block_delta", index=index, delta=fields)


def piece(index: object, text: str) -> bytes:
    return delta(index, type="input_json_delta", partial_json=text)


def stop(index: object) -> bytes:
    return frame("content_block_stop", index=index)


def call(index: object, call_id: str, name: str, *pieces: str, **more: object) -> bytes:
    block = start(index, type="tool_use", id=call_id, name=name, **{"input": {}, **more})
    return block + b"".join(piece(index, text) for text in pieces) + stop(index)


def end(reason: str | None = "tool_use", **usage: int) -> bytes:
    return frame("message_delta", delta={"stop_reason": reason, "stop_sequence": None}, usage=usage) + frame("message_stop")


def whole(*content: Mapping[str, object], reason: str | None = "tool_use") -> bytes:
    return json.dumps({"type": "message", "role": "assistant", "model": "m", "content": content, "stop_reason": reason}).encode()


BEGIN = frame("message_start", message={"role": "assistant", "model": "m", "content": [], "usage": {"input_tokens": 5, "output_tokens": 1}})
PING = frame("ping")
USUAL = (
    BEGIN
    + start(0, type="thinking", thinking="", signature="")
    + delta(0, type="thinking_delta", thinking="Two things")
    + delta(0, type="signature_delta", signature="sig")
    + stop(0)
    + start(1, type="redacted_thinking", data="opaque")
    + stop(1)
    + PING
    + start(2, type="text", text="")
    + delta(2, type="text_delta", text="Let me lóok.")
    + stop(2)
    + call(3, "a", "search", "", '{"q": "b', 'ooks}{"}')
    + call(4, "b", "now")
    + call(5, "c", "read", '{"path": "x"}')
    + end(output_tokens=40, cache_read_input_tokens=3)
)


@given(st.lists(st.integers(0, 5000), max_size=30))
def test_the_decoded_answer_does_not_depend_on_how_the_bytes_are_split(cuts: list[int]) -> None:
    places = sorted({0, len(USUAL), *(cut % len(USUAL) for cut in cuts)})
    assert shape(read(API, [USUAL[a:b] for a, b in pairwise(places)])) == shape(read(API, USUAL))


def test_blocks_become_the_parts_of_one_message() -> None:
    """Streaming: thinking with its signature, text and calls. Usage is cumulative and counts cached input separately."""
    over = finished(read(API, USUAL))
    assert over.message.parts == (
        Reasoning(text="Two things", opaque={"signature": "sig"}),
        Reasoning(opaque={"redacted": "opaque"}),
        Text(text="Let me lóok."),
        ToolCall(id="a", name="search", arguments='{"q": "books}{"}'),
        ToolCall(id="b", name="now", arguments="{}"),
        ToolCall(id="c", name="read", arguments='{"path": "x"}'),
    )
    assert (over.reason, over.said, over.model) == ("tool_calls", "tool_use", "m")
    assert over.usage == Usage(input_tokens=8, output_tokens=40, cached_tokens=3)


def test_a_single_body_decodes_like_a_stream() -> None:
    body = whole(
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "Yes."},
        {"type": "tool_use", "id": "a", "name": "f", "input": {"x": [1]}},
        {"type": "tool_use", "id": "b", "name": "g", "input": {}},
    )
    for streamed in (True, False):
        events = read(API, body, streamed=streamed)
        assert calls_of(events) == [("a", "f", '{"x":[1]}', "sealed"), ("b", "g", "{}", "sealed")]
        assert finished(events).message.parts[:2] == (Reasoning(text="hm", opaque={"signature": "s"}), Text(text="Yes."))


def test_a_call_is_sealed_at_its_closing_brace_or_else_by_the_next_block() -> None:
    """A read can then start while the model still writes."""
    decoder = codec(API).decoder()
    decoder.feed(BEGIN + start(0, type="tool_use", id="a", name="f", input={}) + piece(0, '{"a": 1'))
    assert isinstance(decoder.feed(piece(0, "}"))[-1], CallSealed)
    assert not any(isinstance(event, CallSealed) for event in decoder.feed(stop(0) + call(1, "b", "g")))
    assert any(isinstance(event, CallSealed) and event.call.arguments == "{}" for event in decoder.feed(start(2, type="text", text="")))


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded", "refusal", "something_new"])
@pytest.mark.parametrize(
    "last",
    [call(1, "b", "g", '{"x": [1'), call(1, "b", "g"), call(1, "b", "g", ""), call(1, "b", "g", input={"x": 1})],
    ids=["half", "nothing", "an empty piece", "given at the start"],
)
def test_the_last_block_is_cut_if_the_message_was_cut(last: bytes, reason: str) -> None:
    """The API closes every block, also the one that the limit truncated."""
    events = read(API, BEGIN + call(0, "a", "f", '{"x": 1}') + last + end(reason))
    assert [one[3] for one in calls_of(events)] == ["sealed", "cut"]


def test_the_last_call_of_a_single_body_is_cut_if_the_answer_was_cut() -> None:
    """The provider builds the input of a truncated call from its incomplete text."""
    blocks = [{"type": "tool_use", "id": name, "name": "f", "input": {"x": 1}} for name in "ab"]
    events = read(API, whole(*blocks, reason="max_tokens"), streamed=False)
    assert [one[3] for one in calls_of(events)] == ["sealed", "cut"]
    assert finished(events).reason == "length"


def test_a_truncated_stream_never_completes_a_partial_call() -> None:
    right = {one[0]: one for one in calls_of(read(API, USUAL))}
    for length in range(len(USUAL)):
        for one in calls_of(read(API, USUAL[:length])):
            assert one[3] == "cut" or one == right[one[0]]


@pytest.mark.parametrize(
    ("body", "calls"),
    [
        (call(0, "a", "f", input={"x": 1}), [("a", "f", '{"x":1}')]),
        (call(0, "a", "f", '{"x"', ": 2}", input={"x": 1}), [("a", "f", '{"x": 2}')]),
        (call(0, "a", "f", '{"x": 1}') + call(0, "b", "g", '{"y": 2}'), [("a", "f", '{"x": 1}'), ("b", "g", '{"y": 2}')]),
        (call(None, "a", "f", '{"x": 1}') + call(None, "b", "g", "{}"), [("a", "f", '{"x": 1}'), ("b", "g", "{}")]),
        (call(0, "a", "f", '{"x": 1}') + call(1, "a", "f", '{"x": 2}'), [("a", "f", '{"x": 1}'), ("a", "f", '{"x": 2}')]),
        (call(0, "", "f", '{"x": 1}'), [("made-0", "f", '{"x": 1}')]),
        (start(0, type="tool_use", id="a", name="f") + piece(0, '{"x": 1}') + start(1, type="text", text="t"), [("a", "f", '{"x": 1}')]),
        (call(0, "a", "f", '{"x": "u') + b"", [("a", "f", '{"x": "u')]),
    ],
    ids=["whole at the start", "pieces count", "index always 0", "no index", "one id twice", "no id", "no stop", "eager and broken"],
)
def test_calls_altered_by_gateways_are_read(body: bytes, calls: list[tuple[str, str, str]]) -> None:
    assert [one[:3] for one in calls_of(read(API, BEGIN + body + end()))] == calls


def test_deltas_of_interleaved_blocks_are_assigned_to_their_call() -> None:
    """The API itself writes one block after the other; a gateway may start them all at once."""
    begun = [start(index, type="tool_use", id=call_id, name="f", input={}) for index, call_id in enumerate("ab")]
    body = BEGIN + b"".join(begun) + piece(1, '{"y": 2}') + piece(0, '{"x":') + piece(0, " 1}") + stop(0) + stop(1) + end()
    assert sorted(one[:3] for one in calls_of(read(API, body))) == [("a", "f", '{"x": 1}'), ("b", "f", '{"y": 2}')]
    assert [call.id for call in finished(read(API, body)).message.calls] == ["a", "b"]
    for end_of_part in range(len(body)):
        part = read(API, body[:end_of_part])
        assert "{}" not in [one[2] for one in calls_of(part)]


def test_interleaved_calls_without_arguments_get_an_empty_object_when_they_stop_or_the_message_ends() -> None:
    begun = [start(index, type="tool_use", id=call_id, name="f", input={}) for index, call_id in enumerate("ab")]
    stopped = BEGIN + b"".join(begun) + stop(0) + stop(1) + end()
    assert [one[:3] for one in calls_of(read(API, stopped))] == [("a", "f", "{}"), ("b", "f", "{}")]
    never_stopped = BEGIN + b"".join(begun) + end()
    assert [one[:3] for one in calls_of(read(API, never_stopped))] == [("a", "f", "{}"), ("b", "f", "{}")]


@pytest.mark.parametrize(("given", "arguments"), [(None, "{}"), ("", "{}"), ([], "[]"), (0, "0"), ('{"x": 1}', '{"x": 1}')])
def test_input_that_is_not_an_object_is_not_replaced_by_an_empty_one(given: object, arguments: str) -> None:
    block = {"type": "tool_use", "id": "a", "name": "f", "input": given}
    assert [one[2] for one in calls_of(read(API, whole(block), streamed=False))] == [arguments]


def test_frames_without_event_names_or_without_types_are_read() -> None:
    unnamed = b"".join(line + b"\n\n" for line in USUAL.split(b"\n") if line.startswith(b"data"))
    assert shape(read(API, unnamed)) == shape(read(API, USUAL))
    untyped = b'event: content_block_delta\ndata: {"index": 0, "delta": {"text": "hi"}}\n\n'
    assert text_of(read(API, BEGIN + start(0, type="text", text="") + untyped + end("end_turn"))) == "hi"


def test_calls_in_the_message_start_event_are_read() -> None:
    """Programmatic tool calling: a turn that continues after code starts with the calls of the code."""
    caller = {"type": "code_execution_20250825", "tool_id": "s"}
    block = {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}, "caller": caller}
    events = read(API, frame("message_start", message={"content": [block], "stop_reason": "tool_use"}) + end())
    assert calls_of(events) == [("a", "f", '{"x":1}', "sealed")]
    assert finished(events).message.calls[0].opaque == {"caller": caller}


def test_tools_run_by_the_provider_become_native_parts_and_never_calls() -> None:
    body = (
        BEGIN
        + start(0, type="server_tool_use", id="s1", name="web_search", input={})
        + piece(0, '{"query"')
        + piece(0, ': "x"}')
        + stop(0)
        + start(1, type="web_search_tool_result", tool_use_id="s1", content=[{"type": "web_search_result"}])
        + stop(1)
        + start(2, type="mcp_tool_use", id="m1", name="echo", server_name="s", input={"a": 1})
        + stop(2)
        + start(3, type="mcp_tool_result", tool_use_id="m1", content=[])
        + stop(3)
        + start(4, type="compaction", content="")
        + delta(4, type="compaction_delta", content="short")
        + stop(4)
        + end("pause_turn")
    )
    over = finished(read(API, body))
    natives = [part for part in over.message.parts if isinstance(part, Native)]
    assert [(part.kind, part.id) for part in natives] == [
        ("server_tool_use", "s1"), ("web_search_tool_result", "s1"), ("mcp_tool_use", "m1"), ("mcp_tool_result", "m1"), ("compaction", ""),
    ]  # fmt: skip
    assert natives[0].item["input"] == {"query": "x"}
    assert natives[4].item["content"] == "short"
    assert (over.message.calls, over.reason) == ((), "pause")


@pytest.mark.parametrize(("second", "meant"), [(rb"\ude00", {"query": "\U0001f600"}), (b"", {})])
def test_a_character_split_in_the_input_of_a_providers_tool_does_not_end_the_message(second: bytes, meant: dict[str, str]) -> None:
    """Proxies split texts by UTF-16 units. Half a character is not JSON, as in a call."""
    tool = start(0, type="server_tool_use", id="s1", name="web_search", input={})
    pieces = piece(0, '{"query": "FIRST').replace(b"FIRST", rb"\ud83d") + piece(0, 'SECOND"}').replace(b"SECOND", second)
    (native,) = finished(read(API, BEGIN + tool + pieces + stop(0) + end("pause_turn"))).message.parts
    assert isinstance(native, Native)
    assert native.item["input"] == meant


@pytest.mark.parametrize(
    ("body", "code", "retryable"),
    [
        (frame("error", error={"type": "overloaded_error", "message": "busy"}), "overloaded_error", True),
        (b'{"type": "error", "error": {"type": "invalid_request_error", "message": "busy"}}', "invalid_request_error", False),
        (b'data: {"error": {"type": "api_error", "message": "busy"}}\n\n', "api_error", True),
        (b'data: {"error": "busy"}\n\n', "error", False),
    ],
)
def test_an_error_ends_the_message_with_the_providers_message(body: bytes, code: str, *, retryable: bool) -> None:
    before = b"" if body.startswith(b"{") else BEGIN + start(0, type="tool_use", id="a", name="f") + piece(0, '{"x": ')
    events = read(API, before + body)
    over = finished(events)
    assert over.fault is not None
    assert (over.reason, over.fault.code, over.fault.message, over.fault.retryable) == ("error", code, "busy", retryable)
    assert all(one[3] == "cut" for one in calls_of(events))


@pytest.mark.parametrize(
    "odd",
    [
        b"data: {oops\n\n",
        frame("content_block_start", index=9, content_block=7),
        frame("news", x=1),
        piece(77, '{"lost": 1}'),
        b"data: 7\n\n",
    ],
)
def test_unexpected_frames_are_skipped(odd: bytes) -> None:
    assert finished(read(API, BEGIN + odd + USUAL)).message.text == "Let me lóok."


def test_consecutive_messages_in_one_body_become_one_message() -> None:
    """A gateway that runs tools of its own between two messages sends such bodies."""
    events = read(API, BEGIN + call(0, "a", "f") + end() + BEGIN + call(0, "b", "g") + end("end_turn"))
    assert calls_of(events) == [("a", "f", "{}", "sealed"), ("b", "g", "{}", "sealed")]
    assert finished(read(API, BEGIN + call(0, "a", "f") + frame("message_stop"))).reason == "tool_calls"


# Encoding of requests


def sent(messages: list[Message], **more: object) -> dict[str, Any]:
    request = ModelRequest(model="m", messages=messages, **more)  # type: ignore[arg-type]
    body = json.loads(codec(API).encode(request, WireNames(), {}).body)
    roles = [turn["role"] for turn in body["messages"]]
    assert roles[0] == "user"
    assert all(one != other for one, other in pairwise(roles))
    return dict(body)


def result(call_id: str, text: str = "ok", **more: object) -> ToolMessage:
    return ToolMessage(call_id=call_id, name="f", content=(Text(text=text),), **more)  # type: ignore[arg-type]


def test_a_request_carries_the_whole_conversation() -> None:
    names = WireNames()
    calls = (ToolCall(id="a", name="files/find", arguments='{"q": "x"}'), ToolCall(id="b", name="f", arguments=""))
    messages: list[Message] = [
        SystemMessage("Be brief."),
        UserMessage("Find it."),
        AssistantMessage(parts=(Text(text="Yes."), *calls), api="openai.chat"),
        result("a", "3 hits"),
        result("b", "broken", is_error=True),
        UserMessage("Go on."),
    ]
    request = ModelRequest(model="m", messages=messages, tools=(ToolSpec(name="files/find", description="d"),), tool_choice="required")
    http = codec(API).encode(request, names, {})
    assert (http.path, http.headers) == ("/messages", {"anthropic-version": "2023-06-01"})
    wire = names.to_wire("files/find")
    assert json.loads(http.body) == {
        "model": "m",
        "max_tokens": 8192,
        "stream": True,
        "system": "Be brief.",
        "tools": [{"name": wire, "description": "d", "input_schema": {"type": "object", "properties": {}}}],
        "tool_choice": {"type": "any"},
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Find it."}]},
            {"role": "assistant", "content": [
                {"type": "text", "text": "Yes."},
                {"type": "tool_use", "id": "a", "name": wire, "input": {"q": "x"}},
                {"type": "tool_use", "id": "b", "name": "f", "input": {}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "3 hits"},
                {"type": "tool_result", "tool_use_id": "b", "content": "broken", "is_error": True},
                {"type": "text", "text": "Go on."},
            ]},
        ],
    }  # fmt: skip


def test_a_received_message_is_sent_back_unchanged_and_only_to_its_api() -> None:
    """The API verifies the signature of thinking, so it is sent unchanged, and only to the API that signed it."""
    message = finished(read(API, USUAL)).message
    body = sent([UserMessage("?"), message, result("a"), result("b"), result("c")])
    blocks = body["messages"][1]["content"]
    assert blocks[:2] == [
        {"type": "thinking", "thinking": "Two things", "signature": "sig"},
        {"type": "redacted_thinking", "data": "opaque"},
    ]
    assert [block["type"] for block in blocks[2:]] == ["text", "tool_use", "tool_use", "tool_use"]
    foreign = AssistantMessage(parts=message.parts, api="openai.responses")
    kept = sent([UserMessage("?"), foreign])["messages"][1]["content"]
    assert [block["type"] for block in kept] == ["text", "tool_use", "tool_use", "tool_use"]


def test_native_parts_are_sent_back_in_order_unless_their_result_is_missing() -> None:
    use = Native(kind="server_tool_use", id="s", item={"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}})
    answer = Native(kind="web_search_tool_result", id="s", item={"type": "web_search_tool_result", "tool_use_id": "s", "content": []})
    paused = AssistantMessage(parts=(Text(text="Hm."), use), api=API)
    kinds = [block["type"] for block in sent([UserMessage("?"), paused])["messages"][1]["content"]]
    assert kinds == ["text", "server_tool_use"]
    gone_on = AssistantMessage(parts=(answer, Text(text="So.")), api=API)
    kinds = [block["type"] for block in sent([UserMessage("?"), paused, gone_on])["messages"][1]["content"]]
    assert kinds == ["text", "server_tool_use", "web_search_tool_result", "text"]
    kinds = [block["type"] for block in sent([UserMessage("?"), paused, UserMessage("!")])["messages"][1]["content"]]
    assert kinds == ["text"]


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [AssistantMessage(parts=(Text(text="Hello. "),))],
        [UserMessage(""), AssistantMessage(), UserMessage(" ")],
        [UserMessage("a"), UserMessage("b"), AssistantMessage(parts=(Text(text=""),)), UserMessage("c")],
        [UserMessage("a"), AssistantMessage(parts=(Reasoning(opaque={"signature": "s"}),), api=API), UserMessage("b")],
        [UserMessage("a"), AssistantMessage(parts=(ToolCall(id="x", name="f"),)), UserMessage("b"), result("x"), result("lost")],
        [UserMessage("a"), AssistantMessage(parts=(ToolCall(id="x", name="f", arguments="{"),)), AssistantMessage()],
    ],
    ids=["nothing", "model first", "all empty", "two users", "thinking alone", "result late", "result never"],
)
def test_every_history_is_encoded_as_turns_that_the_api_accepts(messages: list[Message]) -> None:
    """Turns alternate and begin with the user, no block is empty, and every call has its result in the next turn."""
    turns = sent(messages)["messages"] if messages else []
    assert isinstance(turns, list)
    for turn, following in pairwise([*turns, {"content": []}]):
        assert turn["content"]
        assert all(block["type"] != "text" or block["text"].strip() == block["text"] != "" for block in turn["content"])
        used = [block["id"] for block in turn["content"] if block["type"] == "tool_use"]
        assert used == [block["tool_use_id"] for block in following["content"] if block["type"] == "tool_result"]


def test_results_contain_images_and_their_ids_are_made_valid() -> None:
    parts = (Text(text="see"), Image(data="AA", mime_type="image/png"), Audio(data="AA", mime_type="audio/wav"))
    pdf = Resource(resource={"uri": "x", "mimeType": "application/pdf", "blob": "AA"})
    item = codec(API).encode_result(ToolMessage(call_id="call:1.f", name="f", content=(*parts, pdf)), WireNames())
    use = sent([AssistantMessage(parts=(ToolCall(id="call:1.f", name="f"),))])["messages"][1]["content"][0]
    assert item["tool_use_id"] == use["id"] != "call:1.f"
    content = item["content"]
    assert isinstance(content, list)
    assert [block["type"] for block in content] == ["text", "image", "text", "document"]


def test_tools_used_only_in_the_history_are_declared_but_not_offered() -> None:
    """The API refuses a conversation with calls if the request declares no tools."""
    body = sent([UserMessage("?"), AssistantMessage(parts=(ToolCall(id="x", name="f"),)), result("x")])
    assert body["tools"] == [{"name": "f", "input_schema": {"type": "object", "properties": {}}}]
    assert body["tool_choice"] == {"type": "none"}


def test_tool_schemas_are_given_an_object_at_their_root() -> None:
    branch = {"type": "object", "properties": {"b": {"type": "string"}}, "required": ["b"]}
    schema = {"$schema": "s", "properties": {"a": {}}, "required": ["a"], "anyOf": [{"$ref": "#/$defs/B"}], "$defs": {"B": branch}}
    body = sent([UserMessage("?")], tools=(ToolSpec(name="f", schema=schema), ToolSpec(name="t", custom=True)), tool_choice="f")
    first, free = body["tools"]
    assert first["input_schema"] == {
        "type": "object", "properties": {"b": {"type": "string"}, "a": {}}, "required": ["a"], "$defs": {"B": branch},
    }  # fmt: skip
    assert free["input_schema"]["required"] == ["input"]
    assert body["tool_choice"] == {"type": "tool", "name": "f"}


def test_limits_output_schema_and_extra_fields_are_placed_as_the_api_requires() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "object", "properties": {}}}}
    request = ModelRequest(
        model="m", messages=[UserMessage("?")], stream=False, max_tokens=9, temperature=0.5, output_schema=schema, extra={"top_k": 3}
    )
    body = json.loads(codec(API).encode(request, WireNames(), {"version_in_body": "vertex-2023-10-16"}).body)
    assert (body["max_tokens"], body["temperature"], body["top_k"], body["anthropic_version"]) == (9, 0.5, 3, "vertex-2023-10-16")
    assert "model" not in body
    assert "stream" not in body
    answer = body["output_config"]["format"]["schema"]
    assert answer["additionalProperties"] is answer["properties"]["x"]["additionalProperties"] is False
