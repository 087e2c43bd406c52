"""Cohere's chat API, versions 2 and 1."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate.calls import Text
from callgate.messages import AssistantMessage, Reasoning, UserMessage
from callgate.models.model_events import CallSealed, Usage
from callgate.models.wire import codec
from tests.models.decoding import calls_of, finished, read, shape, text_of
from tests.models.sample_conversation import PICTURE, TALK, answered, sent

API = "cohere.chat"


def event(kind: str, index: int | None = None, **message: object) -> bytes:
    value: dict[str, object] = {"type": kind} | ({} if index is None else {"index": index})
    if message:
        value["delta"] = {"message": message}
    return f"event: {kind}\ndata: {json.dumps(value, ensure_ascii=False)}\n\n".encode()


def start(index: int | None, call_id: str, name: str, arguments: str = "") -> bytes:
    return event(
        "tool-call-start", index, tool_calls={"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    )


def piece(index: int | None, arguments: str) -> bytes:
    return event("tool-call-delta", index, tool_calls={"function": {"arguments": arguments}})


def stop(index: int | None) -> bytes:
    return event("tool-call-end", index)


def end(reason: str, **more: object) -> bytes:
    usage = {"billed_units": {"input_tokens": 1}, "tokens": {"input_tokens": 5, "output_tokens": 7}, "cached_tokens": 2}
    value = {"type": "message-end", "delta": {"finish_reason": reason, "usage": usage, **more}}
    return f"event: message-end\ndata: {json.dumps(value)}\n\ndata: [DONE]\n\n".encode()


BEGIN = event("message-start", role="assistant", content=[], tool_plan="", tool_calls=[], citations=[])
USUAL = (
    BEGIN
    + event("tool-plan-delta", tool_plan="I will ")
    + event("tool-plan-delta", tool_plan="look. ünï")
    + start(0, "a", "find")
    + piece(0, '{"q": "}')
    + piece(0, '{"}')
    + stop(0)
    + start(1, "b", "shot")
    + stop(1)
    + end("TOOL_CALL")
)


@given(st.lists(st.integers(0, 5000), max_size=30))
def test_the_decoded_answer_does_not_depend_on_how_the_bytes_are_split(cuts: list[int]) -> None:
    places = sorted({0, len(USUAL), *(cut % len(USUAL) for cut in cuts)})
    assert shape(read(API, [USUAL[a:b] for a, b in pairwise(places)])) == shape(read(API, USUAL))


def test_the_plan_and_calls_are_decoded_in_order() -> None:
    told = finished(read(API, USUAL))
    assert told.message.parts[0] == Reasoning(text="I will look. ünï", opaque={"kind": "tool_plan"})
    assert calls_of(read(API, USUAL)) == [("a", "find", '{"q": "}{"}', "sealed"), ("b", "shot", "", "finished")]
    assert (told.reason, told.said, told.message.text) == ("tool_calls", "TOOL_CALL", "")
    assert told.usage == Usage(input_tokens=5, output_tokens=7, cached_tokens=2)


def test_a_call_is_sealed_at_its_closing_brace() -> None:
    decoder = codec(API).decoder()
    decoder.feed(start(0, "a", "f") + piece(0, '{"a": 1'))
    assert [type(told) for told in decoder.feed(piece(0, "}"))][-1] is CallSealed


def test_reasoning_text_and_citations_are_read() -> None:
    body = (
        BEGIN
        + event("content-start", 0, content={"type": "thinking", "thinking": ""})
        + event("content-delta", 0, content={"thinking": "Hm."})
        + event("content-end", 0)
        + event("content-start", 1, content={"type": "text", "text": ""})
        + event("content-delta", 1, content={"text": "Sunny."})
        + event("citation-start", 0, citations={"start": 0, "end": 5, "text": "Sunny"})
        + event("citation-end", 0)
        + event("content-end", 1)
        + end("COMPLETE")
    )
    told = finished(read(API, body))
    cited = {"kind": "citations", "citations": [{"start": 0, "end": 5, "text": "Sunny"}]}
    assert told.message.parts == (Reasoning(text="Hm.", opaque={"kind": "thinking"}), Text(text="Sunny."), Reasoning(text="", opaque=cited))
    assert told.reason == "stop"


def test_interleaved_deltas_and_deltas_without_an_index_are_assigned_to_their_call() -> None:
    mixed = start(0, "a", "f") + start(1, "b", "g") + piece(1, '{"y"') + piece(0, '{"x": 1}') + piece(1, ": 2}")
    assert [call[:3] for call in calls_of(read(API, BEGIN + mixed + end("TOOL_CALL")))] == [
        ("a", "f", '{"x": 1}'),
        ("b", "g", '{"y": 2}'),
    ]
    bare = start(None, "a", "f") + piece(None, '{"x": 1}') + start(None, "b", "g", '{"y": 2}')
    assert [call[:3] for call in calls_of(read(API, BEGIN + bare + end("TOOL_CALL")))] == [("a", "f", '{"x": 1}'), ("b", "g", '{"y": 2}')]


@pytest.mark.parametrize(
    ("said", "reason", "closed"),
    [
        ("TOOL_CALL", "tool_calls", "finished"),
        ("COMPLETE", "tool_calls", "finished"),
        ("MAX_TOKENS", "length", "cut"),
        ("ERROR", "error", "cut"),
        ("TIMEOUT", "error", "cut"),
        ("ERROR_TOXIC", "content_filter", "cut"),
        ("WHO_KNOWS", "other", "cut"),
    ],
)
def test_an_incomplete_call_is_finished_or_cut_by_the_finish_reason(said: str, reason: str, closed: str) -> None:
    events = read(API, BEGIN + start(0, "a", "f") + piece(0, '{"x": [1') + stop(0) + end(said))
    assert calls_of(events) == [("a", "f", '{"x": [1', closed)]
    assert finished(events).reason == reason


def test_the_last_call_of_a_body_that_hit_the_token_limit_is_cut() -> None:
    calls = [{"id": call_id, "type": "function", "function": {"name": "f", "arguments": "{}"}} for call_id in "ab"]
    body = json.dumps({"finish_reason": "MAX_TOKENS", "message": {"role": "assistant", "tool_calls": calls}}).encode()
    assert [call[3] for call in calls_of(read(API, body, streamed=False))] == ["sealed", "cut"]


def test_an_error_at_the_end_is_reported_with_the_providers_message() -> None:
    told = finished(read(API, BEGIN + end("ERROR", error="the model broke")))
    assert (told.reason, told.fault and told.fault.message) == ("error", "the model broke")
    assert finished(read(API, b'{"id": "x", "message": "invalid api token"}', streamed=False)).fault is not None


def test_arguments_of_a_call_that_never_started_are_a_fault() -> None:
    assert finished(read(API, BEGIN + piece(3, "{}") + end("TOOL_CALL"))).reason == "error"


@pytest.mark.parametrize("streamed", [True, False])
def test_a_single_body_decodes_like_a_stream(streamed: bool) -> None:
    message = {
        "role": "assistant",
        "tool_plan": "I will look.",
        "content": [{"type": "text", "text": "One moment."}],
        "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}],
    }
    body = json.dumps({"id": "r", "finish_reason": "TOOL_CALL", "message": message, "usage": {"tokens": {"input_tokens": 3}}}).encode()
    events = read(API, body, streamed=streamed)
    assert calls_of(events) == [("a", "f", '{"x": 1}', "sealed")]
    assert (text_of(events), finished(events).usage) == ("One moment.", Usage(input_tokens=3))


FIRST = {
    "generation_id": "g",
    "text": "I will look.",
    "tool_calls": [{"name": "f", "parameters": {"x": 1}}, {"name": "f", "parameters": {}}],
    "finish_reason": "COMPLETE",
    "meta": {"tokens": {"input_tokens": 3, "output_tokens": 4}},
}


def test_calls_and_text_of_api_version_1_are_read() -> None:
    events = read(API, json.dumps(FIRST).encode(), streamed=False)
    assert calls_of(events) == [("made-0", "f", '{"x":1}', "sealed"), ("made-1", "f", "{}", "finished")]
    assert (finished(events).reason, text_of(events), finished(events).usage) == ("tool_calls", "", Usage(input_tokens=3, output_tokens=4))
    assert text_of(read(API, b'{"text": "Sunny.", "finish_reason": "COMPLETE"}', streamed=False)) == "Sunny."


@pytest.mark.parametrize("previewed", [True, False])
def test_calls_previewed_by_api_version_1_are_not_read_twice(previewed: bool) -> None:
    """Version 1 sends calls in pieces, then as a whole, and once more in the last event."""
    preview = [
        {"event_type": "tool-calls-chunk", "text": "I will look."},
        {"event_type": "tool-calls-chunk", "tool_call_delta": {"index": 0, "name": "f"}},
        {"event_type": "tool-calls-chunk", "tool_call_delta": {"index": 0, "parameters": '{\n  "x":'}},
        {"event_type": "tool-calls-chunk", "tool_call_delta": {"index": 0, "parameters": " 1\n}"}},
        {"event_type": "tool-calls-chunk", "tool_call_delta": {"index": 1, "name": "f"}},
    ]
    lines = [
        {"event_type": "stream-start", "generation_id": "g"},
        *(preview if previewed else []),
        {"event_type": "tool-calls-generation", "tool_calls": FIRST["tool_calls"]},
        {"event_type": "stream-end", "finish_reason": "COMPLETE", "response": FIRST},
    ]
    body = b"\n".join(json.dumps(line).encode() for line in lines)
    for content_type in ("application/stream+json", ""):
        events = read(API, body, content_type=content_type)
        assert [(call[1], json.loads(call[2])) for call in calls_of(events)] == [("f", {"x": 1}), ("f", {})]
        assert finished(events).reason == "tool_calls"


def test_a_request_carries_the_whole_conversation() -> None:
    body = sent(API, max_tokens=9, temperature=0.5, output_schema={"type": "object"})
    assert (body["max_tokens"], body["temperature"]) == (9, 0.5)
    assert "response_format" not in body
    assert "response_format" in sent(API, tools=(), output_schema={"type": "object"})
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Find it."},
        {
            "role": "assistant",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "find", "arguments": '{"q": "x"}'}},
                {"id": "b", "type": "function", "function": {"name": "shot", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "3 hits"},
        {"role": "tool", "tool_call_id": "b", "content": "no screen"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Pictures from the results above:"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
            ],
        },
        {"role": "user", "content": "Well?"},
    ]


@pytest.mark.parametrize(
    ("choice", "tools", "said"),
    [("auto", 2, None), ("required", 2, "REQUIRED"), ("find", 1, "REQUIRED"), ("none", 0, None)],
)
def test_tool_choice_selects_the_tools_and_the_mode_that_are_sent(choice: str, tools: int, said: str | None) -> None:
    body = sent(API, tool_choice=choice)
    assert (len(body.get("tools", [])), body.get("tool_choice")) == (tools, said)


def test_a_received_answer_is_sent_back_with_its_plan() -> None:
    """An empty answer is left out."""
    messages = sent(API, answered(read(API, USUAL)))["messages"]
    assert messages[1]["tool_plan"] == "I will look. ünï"
    assert [item["id"] for item in messages[1]["tool_calls"]] == [item["tool_call_id"] for item in messages[2:]] == ["a", "b"]
    assert len(sent(API, [TALK[1], AssistantMessage(), UserMessage((PICTURE,))])["messages"]) == 2


def test_reasoning_is_sent_back_before_the_text() -> None:
    parts = (Reasoning(text="Hm.", opaque={"kind": "thinking"}), Text(text="Sunny."))
    content = [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Sunny."}]
    assert sent(API, [AssistantMessage(parts=parts, api=API)])["messages"][0]["content"] == content
    assert sent(API, [AssistantMessage(parts=parts, api="another")])["messages"][0]["content"] == "Sunny."
