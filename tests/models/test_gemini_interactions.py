"""Gemini's Interactions, as steps and as the content blocks of the previous revision."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate.messages import Native, Reasoning, UserMessage
from callgate.models.model_events import CallSealed, Usage
from callgate.models.wire import codec
from tests.models.decoding import calls_of, finished, read, shape, text_of
from tests.models.sample_conversation import TALK, TOOLS, answered, sent

API = "gemini.interactions"


def event(kind: str, **fields: object) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'event_type': kind, **fields}, ensure_ascii=False)}\n\n".encode()


def start(index: int | None, kind: str, **fields: object) -> bytes:
    return event("step.start", index=index, step={"type": kind, **fields})


def delta(index: int | None, kind: str, **fields: object) -> bytes:
    return event("step.delta", index=index, delta={"type": kind, **fields})


def stop(index: int | None) -> bytes:
    return event("step.stop", index=index)


def completed(status: str, **more: object) -> bytes:
    usage = {"total_input_tokens": 5, "total_output_tokens": 7, "total_thought_tokens": 2, "total_cached_tokens": 1}
    done = event("interaction.completed", interaction={"id": "v1", "status": status, "usage": usage, **more})
    return done + b"event: done\ndata: [DONE]\n\n"


BEGIN = event("interaction.created", interaction={"id": "v1", "status": "in_progress", "model": "m"}) + event(
    "interaction.status_update", status="in_progress"
)
USUAL = (
    BEGIN
    + start(0, "thought")
    + delta(0, "thought_summary", content={"type": "text", "text": "Hm"})
    + delta(0, "thought_summary", content={"type": "text", "text": "m."})
    + delta(0, "thought_signature", signature="sig")
    + stop(0)
    + start(1, "model_output", content=[{"type": "text", "text": "Let me "}])
    + delta(1, "text", text="look. ünï")
    + stop(1)
    + start(2, "function_call", id="a", name="find", arguments={})
    + delta(2, "arguments_delta", arguments='{"q": "}')
    + delta(2, "arguments_delta", arguments='{"}')
    + stop(2)
    + start(3, "function_call", id="b", name="shot", arguments={}, signature="s2")
    + stop(3)
    + completed("requires_action")
)


@given(st.lists(st.integers(0, 5000), max_size=30))
def test_the_decoded_answer_does_not_depend_on_how_the_bytes_are_split(cuts: list[int]) -> None:
    places = sorted({0, len(USUAL), *(cut % len(USUAL) for cut in cuts)})
    assert shape(read(API, [USUAL[a:b] for a, b in pairwise(places)])) == shape(read(API, USUAL))


def test_reasoning_text_and_calls_are_decoded_in_order() -> None:
    events = read(API, USUAL)
    told = finished(events)
    assert told.message.parts[0] == Reasoning(text="Hmm.", opaque={"signature": "sig"})
    assert text_of(events) == "Let me look. ünï"
    assert calls_of(events) == [("a", "find", '{"q": "}{"}', "sealed"), ("b", "shot", "", "finished")]
    assert (told.reason, told.said, told.model) == ("tool_calls", "requires_action", "m")
    assert told.usage == Usage(input_tokens=5, output_tokens=9, cached_tokens=1, reasoning_tokens=2)


def test_a_call_is_sealed_at_its_closing_brace() -> None:
    decoder = codec(API).decoder()
    decoder.feed(start(0, "function_call", id="a", name="f", arguments={}) + delta(0, "arguments_delta", arguments='{"a": 1'))
    assert [type(told) for told in decoder.feed(delta(0, "arguments_delta", arguments="}"))][-1] is CallSealed


@pytest.mark.parametrize(
    "body",
    [
        start(0, "function_call", id="a", name="f", arguments={"x": 1}) + stop(0),
        start(0, "function_call", id="a", name="f", arguments={"y": 2}) + delta(0, "arguments_delta", arguments='{"x": 1}') + stop(0),
        start(0, "function_call", id="a", name="f") + delta(0, "arguments_delta", partial_arguments='{"x": 1}') + stop(0),
        start(None, "function_call", id="a", name="f") + delta(None, "arguments_delta", arguments='{"x": 1}') + stop(None),
        event("content.start", index=0, content={"type": "function_call"})
        .replace(b"function_call", b"model_output") + event("content.delta", index=0, delta={
            "type": "function_call", "id": "a", "name": "f", "arguments": {"x": 1}}) + event("content.stop", index=0),
        start(2, "function_call") + delta(2, "function_call", id="a", name="f", arguments={"x": 1}) + stop(2),
    ],
    ids=["in the start", "the start was a preview", "older field", "no index", "whole in a delta", "a start that says nothing"],
)  # fmt: skip
def test_arguments_are_read_from_every_event_that_may_carry_them(body: bytes) -> None:
    (call,) = calls_of(read(API, BEGIN + body + completed("requires_action")))
    assert (call[:2], json.loads(call[2])) == (("a", "f"), {"x": 1})
    assert call[3] in ("sealed", "finished")


@pytest.mark.parametrize(
    ("status", "reason", "closed"),
    [
        ("requires_action", "tool_calls", "finished"),
        ("completed", "tool_calls", "finished"),
        ("incomplete", "length", "cut"),
        ("cancelled", "other", "cut"),
        ("failed", "error", "cut"),
        ("who_knows", "other", "cut"),
    ],
)
def test_an_incomplete_step_is_finished_or_cut_by_the_status(status: str, reason: str, closed: str) -> None:
    step = start(0, "function_call", id="a", name="f") + delta(0, "arguments_delta", arguments='{"x": [1') + stop(0)
    events = read(API, BEGIN + step + completed(status))
    assert calls_of(events) == [("a", "f", '{"x": [1', closed)]
    assert finished(events).reason == reason


def test_a_stream_without_a_final_event_is_cut() -> None:
    assert finished(read(API, USUAL[: USUAL.index(b"event: interaction.completed")])).reason == "cut"


def whole(*steps: object, key: str = "steps", status: str = "requires_action") -> bytes:
    return json.dumps({"id": "v1", "object": "interaction", "status": status, "model": "m", key: steps}, indent=2).encode()


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("key", ["steps", "outputs"])
def test_a_single_body_decodes_like_a_stream(key: str, streamed: bool) -> None:
    steps = (
        {"type": "thought", "signature": "sig"},
        {"type": "text", "text": "Look."} if key == "outputs" else {"type": "model_output", "content": [{"type": "text", "text": "Look."}]},
        {"type": "function_call", "id": "a", "name": "f", "arguments": {"x": 1}},
        {"type": "function_call", "id": "b", "name": "g", "arguments": {}},
    )
    events = read(API, whole(*steps, key=key), streamed=streamed)
    assert calls_of(events) == [("a", "f", '{"x":1}', "sealed"), ("b", "g", "{}", "finished")]
    assert finished(events).message.text == "Look."


def test_the_last_call_of_an_incomplete_body_is_cut() -> None:
    steps = [{"type": "function_call", "id": call_id, "name": "f", "arguments": {"x": 1}} for call_id in "ab"]
    assert [call[3] for call in calls_of(read(API, whole(*steps, status="incomplete")))] == ["sealed", "cut"]


@pytest.mark.parametrize(("given", "arguments"), [(None, "{}"), ({}, "{}"), ([], "[]"), (0, "0")])
def test_arguments_that_are_not_an_object_are_not_replaced_by_an_empty_one(given: object, arguments: str) -> None:
    told = delta(0, "function_call", id="a", name="f", arguments=given)
    for body in (whole({"type": "function_call", "id": "a", "name": "f", "arguments": given}), BEGIN + told + completed("requires_action")):
        assert [call[2] for call in calls_of(read(API, body))] == [arguments]


def test_a_call_without_arguments_is_sealed_if_another_call_follows() -> None:
    calls = [{"type": "function_call", "id": call_id, "name": "f", "arguments": {}} for call_id in "ab"]
    assert [call[3] for call in calls_of(read(API, whole(*calls, status="incomplete")))] == ["sealed", "cut"]


def test_steps_sent_only_in_the_final_event_are_read() -> None:
    body = BEGIN + completed("requires_action", steps=[{"type": "function_call", "id": "a", "name": "f", "arguments": {"x": 1}}])
    assert calls_of(read(API, body)) == [("a", "f", '{"x":1}', "sealed")]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (event("error", error={"code": 503, "message": "overloaded"}), "overloaded"),
        (b'{"error": {"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}}', "overloaded"),
        (completed("failed", errors=[{"code": 503, "message": "overloaded"}]), "overloaded"),
    ],
)
def test_an_error_ends_the_answer_with_the_providers_message(body: bytes, message: str) -> None:
    told = finished(read(API, body))
    assert told.fault is not None
    assert (told.reason, told.fault.message, told.fault.retryable) == ("error", message, True)


def test_arguments_of_a_call_that_never_started_are_a_fault() -> None:
    assert finished(read(API, delta(0, "arguments_delta", arguments="{}") + completed("completed"))).reason == "error"


def test_tools_run_by_the_provider_are_recorded_and_sent_back() -> None:
    body = (
        start(0, "google_search_call", id="n1", arguments={})
        + delta(0, "google_search_call", id="n1", arguments={"queries": ["x"]}, signature="s")
        + stop(0)
        + start(1, "google_search_result", call_id="n1", result=None)
        + delta(1, "google_search_result", call_id="n1", result=[{"title": "t"}])
        + stop(1)
        + start(2, "model_output")
        + delta(2, "text", text="T.")
        + delta(2, "text_annotation", annotations=[])
        + completed("completed")
    )
    events = read(API, body)
    natives = [part for part in finished(events).message.parts if isinstance(part, Native)]
    assert [(part.kind, part.id) for part in natives] == [("google_search_call", "n1"), ("google_search_result", "n1")]
    assert (calls_of(events), text_of(events)) == ([], "T.")
    assert sent(API, answered(events))["input"][1:] == [
        {"type": "google_search_call", "id": "n1", "arguments": {"queries": ["x"]}, "signature": "s"},
        {"type": "google_search_result", "call_id": "n1", "result": [{"title": "t"}]},
        {"type": "model_output", "content": [{"type": "text", "text": "T."}]},
    ]


def test_a_request_carries_the_whole_conversation() -> None:
    body = sent(API, max_tokens=9, temperature=0.5, tool_choice="find", extra={"generation_config": {"seed": 1}})
    assert body["generation_config"] == {
        "max_output_tokens": 9,
        "temperature": 0.5,
        "tool_choice": {"allowed_tools": {"mode": "any", "tools": ["find"]}},
        "seed": 1,
    }
    assert (body["system_instruction"], body["store"]) == ("Be brief.", False)
    assert [tool["name"] for tool in body["tools"]] == [tool.name for tool in TOOLS]
    assert body["input"] == [
        {"type": "user_input", "content": [{"type": "text", "text": "Find it."}]},
        {"type": "function_call", "id": "a", "name": "find", "arguments": {"q": "x"}},
        {"type": "function_call", "id": "b", "name": "shot", "arguments": {}},
        {"type": "function_result", "call_id": "a", "name": "find", "result": "3 hits"},
        {
            "type": "function_result",
            "call_id": "b",
            "name": "shot",
            "result": [{"type": "text", "text": "no screen"}, {"type": "image", "data": "aGk=", "mime_type": "image/png"}],
            "is_error": True,
        },
        {"type": "user_input", "content": [{"type": "text", "text": "Well?"}]},
    ]


def test_a_received_answer_is_sent_back_unchanged() -> None:
    """The signatures of thoughts and calls are included."""
    assert sent(API, answered(read(API, USUAL)))["input"][1:] == [
        {"type": "thought", "signature": "sig", "summary": [{"type": "text", "text": "Hmm."}]},
        {"type": "model_output", "content": [{"type": "text", "text": "Let me look. ünï"}]},
        {"type": "function_call", "id": "a", "name": "find", "arguments": {"q": "}{"}},
        {"type": "function_call", "id": "b", "name": "shot", "arguments": {}, "signature": "s2"},
        {"type": "function_result", "call_id": "a", "name": "find", "result": "done"},
        {"type": "function_result", "call_id": "b", "name": "shot", "result": "done"},
    ]


def test_an_empty_user_message_is_omitted() -> None:
    assert len(sent(API, [UserMessage(""), *TALK[1:2]])["input"]) == 1
