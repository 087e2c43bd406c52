"""Chat completions, from OpenAI and from servers with small differences."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate.calls import Text
from callgate.messages import AssistantMessage, Message, Reasoning, SystemMessage, ToolCall, ToolMessage, UserMessage
from callgate.models.model_events import CallReopened, CallSealed, Usage
from callgate.models.wire import codec
from callgate.models.wire.request import ModelRequest, ToolSpec
from callgate.models.wire.tool_names import WireNames
from tests.models.decoding import calls_of, finished, read, shape, text_of

API = "openai.chat"


def data(value: object) -> bytes:
    """Return one event of a stream."""
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def chunk(delta: Mapping[str, object] | None = None, finish: str | None = None, **more: object) -> bytes:
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    return data({"object": "chat.completion.chunk", "model": "m", "choices": [choice], **more})


def piece(arguments: str | None = None, **more: object) -> bytes:
    name = more.pop("name", None)
    function: dict[str, object] = {} if arguments is None else {"arguments": arguments}
    if name is not None:
        function["name"] = name
    return chunk({"tool_calls": [{**more, "function": function}]})


DONE = b"data: [DONE]\n\n"
CALLS = chunk(finish="tool_calls") + DONE
USUAL = (
    chunk({"role": "assistant", "content": "Let me "})
    + chunk({"content": "look. ünïcode"})
    + piece("", index=0, id="a", type="function", name="search")
    + piece('{"q": "b', index=0)
    + piece('ooks}{"}', index=0)
    + piece("", index=1, id="b", type="function", name="read")
    + b": keep-alive\n\n"
    + piece('{"path": "x"', index=1)
    + piece("}", index=1)
    + CALLS
)


@given(st.lists(st.integers(0, 5000), max_size=30))
def test_the_decoded_answer_does_not_depend_on_how_the_bytes_are_split(cuts: list[int]) -> None:
    places = sorted({0, len(USUAL), *(cut % len(USUAL) for cut in cuts)})
    assert shape(read(API, [USUAL[a:b] for a, b in pairwise(places)])) == shape(read(API, USUAL))


def test_text_and_calls_are_decoded_in_order() -> None:
    events = read(API, USUAL)
    assert text_of(events) == "Let me look. ünïcode"
    assert calls_of(events) == [("a", "search", '{"q": "books}{"}', "sealed"), ("b", "read", '{"path": "x"}', "sealed")]
    assert finished(events).reason == "tool_calls"


def test_a_call_is_sealed_at_its_closing_brace_before_the_message_ends() -> None:
    """A read can then start while the model still writes."""
    decoder = codec(API).decoder()
    decoder.feed(piece("", index=0, id="a", name="search"))
    decoder.feed(piece('{"q": {"x": 1}', index=0))
    assert [type(event) for event in decoder.feed(piece("}", index=0))][-1] is CallSealed


@pytest.mark.parametrize(
    ("body", "calls"),
    [
        (piece('{"a": 1}', id="x", name="f") + piece('{"b": 2}', id="y", name="g"), [("x", "f", '{"a": 1}'), ("y", "g", '{"b": 2}')]),
        (piece('{"a": 1}', index=0, id="x", name="f") + piece('{"b": 2}', index=0, id="y", name="f"),
         [("x", "f", '{"a": 1}'), ("y", "f", '{"b": 2}')]),
        (piece('{"a": 1}', name="f", id="") + piece('{"a": 2}', name="f", id=""),
         [("made-0", "f", '{"a": 1}'), ("made-1", "f", '{"a": 2}')]),
        (piece('{"a": 1}', name="f", index=0) + piece('{"a": 2}', name="f", index=0),
         [("made-0", "f", '{"a": 1}'), ("made-1", "f", '{"a": 2}')]),
        (piece('{"a"', index=None, id="x", name="f") + piece(": 1}", index=None, id=None, name=None), [("x", "f", '{"a": 1}')]),
        (piece('{"a"', index=0, id="x", name="f") + piece(": 1}", index=0, id="x", name="f", type="function"), [("x", "f", '{"a": 1}')]),
        (piece('{"a"', index=0, id="x", name="f") + piece(": 1}", index=0, id="", name="", type=""), [("x", "f", '{"a": 1}')]),
        (piece("", index=3, id="x", name="f") + piece('{"a": 1}', index=3), [("x", "f", '{"a": 1}')]),
        (piece("", index=0, name="f") + piece('{"a": 1}', index=0, id="late"), [("late", "f", '{"a": 1}')]),
        (piece("", index=0, id="x", name="get_") + piece('{"a": 1}', index=0, name="it"), [("x", "get_it", '{"a": 1}')]),
        (piece("{}", index=0, id="x", name="f") + piece("", index=0, id="x", name="f"), [("x", "f", "{}")]),
        (
            piece('{"a": 1}', index=0, id="x", name="f") + piece('{"a": 2}', index=1, id="x", name="f"),
            [("x", "f", '{"a": 1}'), ("x", "f", '{"a": 2}')],
        ),
        (
            piece('{"a"', index=0, id="x", name="f") + piece('{"b"', index=1, id="y", name="g")
            + piece(":1}", index=0) + piece(":2}", index=1),
            [("x", "f", '{"a":1}'), ("y", "g", '{"b":2}')],
        ),
        (piece('{"a"', index=0, id="x", name="f") + piece(":", index=0, id="y") + piece("1}", index=0, id="z", name=""),
         [("x", "f", '{"a":1}')]),
        (
            chunk({"tool_calls": {"index": 0, "id": "x", "function": {"name": "f", "arguments": '{"a"'}}})
            + chunk({"tool_calls": {"index": 0, "id": "", "function": {"name": None, "arguments": ":1}"}}}),
            [("x", "f", '{"a":1}')],
        ),
        (piece('{"a":1}', index=0, id="x", name="f") * 2, [("x", "f", '{"a":1}')]),
        (piece("", index=0, id="", name="") + piece("", index=1, id="", name="") + piece('{"a":1}', index=0, id="x", name="f"),
         [("x", "f", '{"a":1}')]),
        (chunk({"content": "hi", "function_call": {"name": "", "arguments": ""}}), []),
    ],
    ids=[
        "no index", "index always 0", "no index, no id", "index 0, no id", "null fields", "everything repeated", "zero-filled",
        "index not from 0", "id comes late", "name in pieces", "a last empty piece", "one id twice", "interleaved",
        "a new id for every piece", "no list", "the whole call twice", "a place kept for a call", "an older place kept for a call",
    ],
)  # fmt: skip
def test_deltas_with_unusual_indexes_and_ids_are_assigned_to_their_call(body: bytes, calls: list[tuple[str, str, str]]) -> None:
    """Servers identify the call of a piece by index, by id, by both, or not at all."""
    assert [call[:3] for call in calls_of(read(API, body + CALLS))] == calls


@pytest.mark.parametrize(
    ("finish", "closed"),
    [
        ("length", "cut"),
        ("content_filter", "cut"),
        (None, "cut"),
        ("who_knows", "cut"),
        ("tool_calls", "finished"),
        ("stop", "finished"),
        ("STOP", "finished"),
        ("eos_token", "finished"),
        ("tool_call", "finished"),
    ],
)
def test_incomplete_arguments_are_cut_unless_the_message_ended_normally(finish: str | None, closed: str) -> None:
    """A truncated call is not complete, and the end of the body alone does not show that the message ended."""
    body = piece('{"a": [1', index=0, id="x", name="f") + (chunk(finish=finish) if finish else b"")
    assert [call[3] for call in calls_of(read(API, body))] == [closed]


def test_a_complete_object_is_sealed_even_if_the_message_is_cut() -> None:
    body = piece('{"a": [1]}', index=0, id="x", name="f") + piece('{"b"', index=1, id="y", name="g") + chunk(finish="length")
    assert [call[3] for call in calls_of(read(API, body))] == ["sealed", "cut"]


def test_events_without_separating_empty_lines_are_read_line_by_line() -> None:
    body = piece('{"a"', index=0, id="x", name="f") + piece(":1}", index=0) + CALLS
    assert shape(read(API, body.replace(b"\n\n", b"\n"))) == shape(read(API, body))


@pytest.mark.parametrize(
    ("written", "arguments"),
    [('{"a": "\\ud83d"}', '{"a": "\\ud83d"}'), ('{"a": 1e999}', '{"a":"1e999"}'), ('{"a": -Infinity}', '{"a":"-Infinity"}'), ("[]", "[]")],
    ids=["half a character", "a number too large", "no number", "no object"],
)
def test_arguments_given_as_a_json_value_are_not_changed_to_other_values(written: str, arguments: str) -> None:
    """Values that JSON cannot represent stay visible, so that later stages refuse them."""
    body = '{"choices": [{"message": {"tool_calls": [{"id": "x", "function": {"name": "f", "arguments": WRITTEN}}]}}]}'
    answer = body.replace("WRITTEN", written).encode()
    assert calls_of(read(API, answer, streamed=False))[0][:3] == ("x", "f", arguments)


def test_only_the_last_call_of_a_body_that_hit_the_token_limit_is_cut() -> None:
    """An empty object is not sealed at its own brace, but by the next call."""
    calls = [{"id": call_id, "type": "function", "function": {"name": "f", "arguments": "{}"}} for call_id in "ab"]
    body = json.dumps({"choices": [{"message": {"role": "assistant", "tool_calls": calls}, "finish_reason": "length"}]})
    assert [call[3] for call in calls_of(read(API, body.encode(), streamed=False))] == ["sealed", "cut"]


def test_a_sealed_call_is_reopened_by_further_arguments() -> None:
    """A consumer that started the call early must learn that it was not final."""
    events = read(API, piece('{"a": 1}', index=0, id="x", name="f") + piece('{"b": 2}', index=0) + CALLS)
    assert [type(event) for event in events if isinstance(event, (CallSealed, CallReopened))] == [CallSealed, CallReopened, CallSealed]
    assert calls_of(events) == [("x", "f", '{"a": 1}{"b": 2}', "finished")]


def test_an_empty_object_is_not_sealed_before_the_message_ends() -> None:
    events = read(API, piece("{}", index=0, id="x", name="f") + CALLS)
    assert calls_of(events) == [("x", "f", "{}", "finished")]


@pytest.mark.parametrize(
    "body",
    [
        b'data: {"error": {"message": "overloaded", "code": "busy"}}\n\n',
        b'event: error\ndata: {"message": "overloaded", "type": "busy"}\n\n',
        b'{"error": {"message": "overloaded", "type": "busy"}}',
    ],
)
def test_an_error_ends_the_answer_with_the_providers_message(body: bytes) -> None:
    end = finished(read(API, USUAL[: USUAL.index(b": keep")] + body if body.startswith(b"data") else body))
    assert end.reason == "error"
    assert end.fault is not None
    assert (end.fault.code, end.fault.message) == ("busy", "overloaded")


@pytest.mark.parametrize(
    "frame",
    [b"data: {oops\n\n", b'data: {"choices": 3}\n\n', b'data: {"choices": [{"delta": {"tool_calls": [7, null]}}]}\n\n', b"data: 7\n\n"],
)
def test_unexpected_frames_are_skipped(frame: bytes) -> None:
    assert finished(read(API, frame + USUAL)).message.text.startswith("Let me")


def test_a_call_open_at_an_unreadable_frame_is_cut_although_its_braces_match() -> None:
    """The unreadable frame may have contained a part of the call."""
    events = read(API, piece('{"a": "', index=0, id="x", name="f") + b"data: {oops\n\n" + piece('b"}', index=0) + CALLS)
    assert calls_of(events) == [("x", "f", '{"a": "b"}', "cut")]
    assert finished(events).reason == "error"


def test_a_surrogate_pair_split_between_frames_is_joined() -> None:
    """Servers that count in UTF-16 units may split a character between two frames."""
    halves = piece('{"a": "\ud83d', index=0, id="x", name="f") + piece('\ude00"}', index=0)
    text = chunk({"content": "\ud83d"}) + chunk({"content": "\ude00"})
    events = read(API, text + halves + CALLS)
    assert calls_of(events) == [("x", "f", '{"a": "\U0001f600"}', "sealed")]
    assert finished(events).message.text == "\U0001f600"


def test_a_single_body_decodes_like_a_stream() -> None:
    """Some servers send a single body although a stream was requested."""
    message = {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": {"x": 1}}}]}
    body = json.dumps(
        {"choices": [{"index": 0, "finish_reason": "stop", "message": message}], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}
    ).encode()
    for streamed in (True, False):
        events = read(API, body, streamed=streamed)
        assert calls_of(events) == [("a", "f", '{"x":1}', "sealed")]
        assert (finished(events).reason, finished(events).usage) == ("tool_calls", Usage(input_tokens=3, output_tokens=4))


def test_a_legacy_function_call_is_read() -> None:
    body = (
        chunk({"function_call": {"name": "f", "arguments": '{"x"'}})
        + chunk({"function_call": {"arguments": ": 1}"}})
        + chunk(finish="function_call")
    )
    assert calls_of(read(API, body)) == [("made-0", "f", '{"x": 1}', "sealed")]


def test_a_free_text_call_is_a_custom_call() -> None:
    events = read(
        API, chunk({"tool_calls": [{"index": 0, "id": "a", "type": "custom", "custom": {"name": "py", "input": "print(1)}"}}]}) + CALLS
    )
    call = finished(events).message.calls[0]
    assert (call.custom, call.arguments) == (True, "print(1)}")


@pytest.mark.parametrize("empty", [None, {}, {"name": "", "arguments": "", "input": ""}], ids=["null", "empty", "empty texts"])
def test_an_empty_payload_beside_a_filled_one_changes_nothing(empty: object) -> None:
    """Some servers send both fields in every piece of a call."""
    function = chunk(
        {"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x"'}, "custom": empty}]}
    )
    function += chunk({"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}, "custom": empty}]}) + CALLS
    assert calls_of(read(API, function)) == [("a", "f", '{"x": 1}', "sealed")]
    custom = chunk({"tool_calls": [{"index": 0, "id": "a", "type": "custom", "custom": {"name": "py", "input": "pri"}, "function": empty}]})
    custom += chunk({"tool_calls": [{"index": 0, "custom": {"input": "nt"}, "function": empty}]}) + CALLS
    call = finished(read(API, custom)).message.calls[0]
    assert (call.name, call.custom, call.arguments) == ("py", True, "print")


def test_reasoning_is_not_part_of_the_text() -> None:
    events = read(API, chunk({"reasoning_content": "hmm"}) + chunk({"content": "yes"}) + chunk(finish="stop") + DONE)
    assert text_of(events) == "yes"
    assert len(finished(events).message.parts) == 2


def test_a_request_carries_the_whole_conversation() -> None:
    """Requirements C71, C72: content is null, arguments are a JSON string, and the result is a tool message with the call's id."""
    messages: list[Message] = [
        SystemMessage("Be brief."),
        UserMessage("Find it."),
        AssistantMessage(parts=(ToolCall(id="a", name="files/find", arguments='{"q": "x"}'),), api=API),
        ToolMessage(call_id="a", name="files/find", content=(Text(text="3 hits"),)),
    ]
    names = WireNames()
    request = ModelRequest(model="m", messages=messages, tools=(ToolSpec(name="files/find", schema={"type": "object"}),))
    body = json.loads(codec(API).encode(request, names, {}).body)
    sent = body["tools"][0]["function"]["name"]
    assert names.original(sent) == "files/find"
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Find it."},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": sent, "arguments": '{"q": "x"}'}}],
        },
        {"role": "tool", "tool_call_id": "a", "content": "3 hits"},
    ]


def test_every_call_is_followed_directly_by_exactly_one_result() -> None:
    """A provider refuses the whole conversation for one call without a result, or one result without a call."""
    results: list[Message] = [ToolMessage(call_id=name, name="f", content=(Text(text=name),)) for name in ("b", "lost")]
    calls = AssistantMessage(parts=(ToolCall(id="a", name="f"), ToolCall(id="b", name="f")))
    request = ModelRequest(model="m", messages=[calls, UserMessage("And?"), *results])
    items = json.loads(codec(API).encode(request, WireNames(), {}).body)["messages"]
    assert [item.get("tool_call_id", item["role"]) for item in items] == ["assistant", "a", "b", "user", "user"]
    assert [item["content"] for item in items[1:3]] == ["No result of this call was recorded.", "b"]


def test_empty_messages_are_omitted() -> None:
    """Several servers refuse a conversation with an empty answer; an answer with only another provider's reasoning would be empty."""
    empty: list[Message] = [SystemMessage(""), AssistantMessage(parts=(Reasoning(text="Hm."),)), AssistantMessage()]
    request = ModelRequest(model="m", messages=[*empty, UserMessage("")])
    assert json.loads(codec(API).encode(request, WireNames(), {}).body)["messages"] == [{"role": "user", "content": ""}]


def test_malformed_arguments_are_sent_back_as_valid_json() -> None:
    """A provider refuses the whole conversation for one call whose arguments are not JSON."""
    request = ModelRequest(model="m", messages=[AssistantMessage(parts=(ToolCall(id="a", name="f", arguments='{"q": '),))])
    item = json.loads(codec(API).encode(request, WireNames(), {}).body)["messages"][0]["tool_calls"][0]
    assert json.loads(item["function"]["arguments"]) == {"malformed_arguments": '{"q": '}


@given(st.lists(st.text(max_size=80), unique=True, max_size=30))
def test_every_tool_name_has_a_valid_wire_name_and_is_restored(tools: list[str]) -> None:
    names = WireNames(tools)
    wire = [names.to_wire(name) for name in tools]
    assert len(set(wire)) == len(tools)
    assert all(0 < len(name) <= 64 and name.replace("_", "a").replace("-", "a").isalnum() and name.isascii() for name in wire)
    assert [names.original(name) for name in wire] == tools


@pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
def test_two_tools_never_share_a_wire_name(first: bool) -> None:
    """Also if one tool has the name under which the other would be sent; otherwise calls of one would reach the other."""
    sent_as = WireNames().to_wire("files/read")
    names = WireNames([sent_as, "files/read"] if first else ["files/read", sent_as])
    wire = [names.to_wire("files/read"), names.to_wire(sent_as)]
    assert wire[1] == sent_as
    assert [names.original(name) for name in wire] == ["files/read", sent_as]
