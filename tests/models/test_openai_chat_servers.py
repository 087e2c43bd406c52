"""What servers of chat completions report besides the message: finish reasons, usage, errors, and fields to send back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from callgate.calls import Audio
from callgate.messages import AssistantMessage, Message, Reasoning, ToolCall, UserMessage
from callgate.models.model_events import Usage
from callgate.models.providers import PROVIDERS
from callgate.models.wire import codec
from callgate.models.wire.request import ToolSpec
from tests.models.decoding import calls_of, finished, read, text_of
from tests.models.sample_conversation import PICTURE, TALK, answered, sent
from tests.models.test_openai_chat import API, CALLS, DONE, chunk, data, piece
from tests.models.test_openai_chat_deltas import whole


def usage_of(usage: Mapping[str, object]) -> Usage | None:
    body = json.dumps({"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}], "usage": usage})
    return finished(read(API, body.encode(), streamed=False)).usage


@pytest.mark.parametrize(
    ("said", "reason", "closed"),
    [
        ("complete", "tool_calls", "finished"),
        ("token_limit", "length", "cut"),
        ("model_context_window_exceeded", "length", "cut"),
        ("sensitive", "content_filter", "cut"),
        ("content_filter: RECITATION", "content_filter", "cut"),
        ("SAFETY", "content_filter", "cut"),
        ("null", "tool_calls", "finished"),
    ],
)
def test_finish_reasons_of_many_servers_are_mapped(said: str, reason: str, closed: str) -> None:
    """For a call without arguments, only the finish reason shows that it is complete."""
    events = read(API, piece("{}", index=0, id="a", name="f") + chunk(finish=said) + DONE)
    assert (finished(events).reason, calls_of(events)[0][3]) == (reason, closed)


@pytest.mark.parametrize(
    "said", ["abort", "network_error", "insufficient_system_resource", "function_call_filter: MALFORMED_FUNCTION_CALL"]
)
def test_a_finish_reason_that_reports_a_server_failure_is_retryable(said: str) -> None:
    end = finished(read(API, chunk({"content": "Hm"}) + chunk(finish=said) + DONE))
    assert end.fault is not None
    assert (end.reason, end.said, end.fault.retryable) == ("error", said, True)


FAILURES = [
    ({"object": "error", "message": "too long", "type": "BadRequestError", "code": 400}, "400", "too long"),
    ({"code": "InvalidApiKey", "message": "bad key", "request_id": "r"}, "InvalidApiKey", "bad key"),
    ({"error_code": 336003, "error_msg": "bad"}, "336003", "bad"),
    ({"code": 500, "msg": "no route", "success": False}, "500", "no route"),
    ({"detail": "Not Found"}, "error", "Not Found"),
    ({"choices": None, "base_resp": {"status_code": 1004, "status_msg": "login"}}, "1004", "login"),
    ({"choices": [{"index": 0, "delta": {}, "finish_reason": "error", "error": {"code": 502, "message": "gone"}}]}, "502", "gone"),
]


@pytest.mark.parametrize(("failure", "code", "said"), FAILURES)
@pytest.mark.parametrize("begun", [True, False])
def test_an_error_of_any_shape_is_reported_with_the_servers_message(failure: dict[str, object], code: str, said: str, begun: bool) -> None:
    """With status 200, alone or within a stream; otherwise a partial answer would look complete."""
    body = chunk({"content": "Hm"}) + data(failure) + DONE if begun else json.dumps(failure).encode()
    end = finished(read(API, body, streamed=begun))
    assert end.fault is not None
    assert (end.reason, end.fault.code, end.fault.message) == ("error", code, said)


@pytest.mark.parametrize(
    "beside",
    [{"error_code": 0, "error_msg": ""}, {"detail": None}, {"code": 200, "message": "ok"}, {"code": "Success", "msg": ""}, {"error": {}}],
    ids=str,
)
def test_empty_error_fields_are_not_an_error(beside: dict[str, object]) -> None:
    """Some servers fill in all their fields, also next to the usage; the answer must not be discarded for them."""
    body = chunk({"content": "Hm"}) + chunk(finish="stop") + data({"choices": [], "usage": {"prompt_tokens": 1}, **beside}) + DONE
    end = finished(read(API, body))
    assert (end.reason, end.fault) == ("stop", None)


def test_a_bare_error_object_in_an_event_stream_is_reported() -> None:
    """A server that fails in mid-stream appends its usual error body to the events."""
    for tail in (b"", b"\n", b"\n\n"):
        end = finished(read(API, piece('{"q": 1', index=0, id="a", name="f") + b'{"error": {"message": "boom", "code": 500}}' + tail))
        assert end.fault is not None
        assert (end.fault.message, end.fault.retryable) == ("boom", True)


def test_a_body_after_comments_is_read() -> None:
    assert len(calls_of(read(API, b": WAIT\n\n: WAIT\n\n" + whole({"id": "a", "function": {"name": "f"}})))) == 1


@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        (
            {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 115, "completion_tokens_details": {"reasoning_tokens": 100}},
            Usage(input_tokens=10, output_tokens=105, reasoning_tokens=100),
        ),
        ({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 35}, Usage(input_tokens=10, output_tokens=25, reasoning_tokens=20)),
        (
            {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15, "prompt_cache_hit_tokens": 8},
            Usage(input_tokens=10, output_tokens=5, cached_tokens=8),
        ),
        ({"prompt_tokens": 10, "completion_tokens": 5, "cached_tokens": 8}, Usage(input_tokens=10, output_tokens=5, cached_tokens=8)),
        ({"prompt_tokens": 10, "completion_tokens": 5, "reasoning_tokens": 3}, Usage(input_tokens=10, output_tokens=5, reasoning_tokens=3)),
        ({"input_tokens": 10, "output_tokens": 5}, Usage(input_tokens=10, output_tokens=5)),
    ],
    ids=["thought beside the completion", "thought in the total only", "cache hits", "cached on top", "reasoning on top", "other words"],
)
def test_token_usage_is_read_from_every_known_shape(usage: dict[str, object], counted: Usage) -> None:
    """A token budget has no other source. Reasoning tokens count as output, also if the server reports them separately."""
    assert usage_of(usage) == counted


CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}}
OTHER = {**CALL, "id": "b"}


@pytest.mark.parametrize("numbers", [(None, None), (0, 1), ("0", "1")], ids=str)
def test_calls_repeated_at_the_end_are_not_read_twice(numbers: tuple[object, object]) -> None:
    first, second = ({**call, "index": number} for call, number in zip((CALL, OTHER), numbers, strict=True))
    body = chunk({"tool_calls": [first]}) + chunk({"tool_calls": [second]}) + chunk({"tool_calls": [first, second]}) + CALLS
    assert [call[:3] for call in calls_of(read(API, body))] == [("a", "f", '{"x":1}'), ("b", "f", '{"x":1}')]


@pytest.mark.parametrize("first", ["{}", {}], ids=["text", "object"])
@pytest.mark.parametrize("rest", [['{"x":1}'], ['{"x"', ":1}"]])
def test_an_empty_object_before_the_arguments_is_a_placeholder(first: object, rest: list[str]) -> None:
    """The empty object and the arguments after it must not be joined to two objects in a row."""
    body = chunk({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": first}}]})
    assert calls_of(read(API, body + b"".join(piece(text, index=0) for text in rest) + CALLS)) == [("a", "f", '{"x":1}', "sealed")]


def test_a_call_given_as_tool_call_and_function_call_is_one_call() -> None:
    message = {"tool_calls": [CALL], "function_call": CALL["function"]}
    body = json.dumps({"choices": [{"message": message, "finish_reason": "tool_calls"}]}).encode()
    assert len(calls_of(read(API, body, streamed=False))) == 1


def test_a_full_message_beside_each_delta_is_not_read_as_more_text() -> None:
    choices = [
        {"delta": {"content": "Hel"}, "message": {"content": "Hel"}},
        {"delta": {"content": "lo"}, "message": {"content": "Hello"}},
        {"delta": {}, "message": {"content": "Hello"}, "finish_reason": "stop"},
    ]
    assert text_of(read(API, b"".join(data({"choices": [choice]}) for choice in choices))) == "Hello"


@pytest.mark.parametrize("calls", [[CALL], [{**CALL, "id": ""}]], ids=["with ids", "without"])
def test_a_full_message_after_its_deltas_is_not_read_twice(calls: list[dict[str, object]]) -> None:
    """Some servers end a stream with the complete message that they would send without streaming."""
    pieces = chunk({"role": "assistant", "content": "Hel"}) + chunk({"content": "lo"}) + chunk({"tool_calls": calls})
    whole_again = data({"choices": [{"message": {"content": "Hello", "tool_calls": calls}, "finish_reason": "tool_calls"}]})
    events = read(API, pieces + whole_again)
    assert (text_of(events), len(calls_of(events)), finished(events).reason) == ("Hello", 1, "tool_calls")
    alone = read(API, chunk({"role": "assistant"}) + whole_again)
    assert (text_of(alone), len(calls_of(alone))) == ("Hello", 1)


BEHIND = {"content": "Hello", "reasoning_content": "Hm", "tool_calls": [CALL]}


@pytest.mark.parametrize("told", [["content"], ["reasoning_content"], ["tool_calls"], ["content", "tool_calls"], [*BEHIND]], ids=str)
@pytest.mark.parametrize("beside", [{}, {"delta": {}}, {"delta": {"content": ""}}], ids=["alone", "nothing", "no text"])
def test_parts_missing_in_the_deltas_are_read_from_the_full_message(told: list[str], beside: dict[str, object]) -> None:
    """A server that streams only its text sends its calls in the last event."""
    body = b"".join(chunk({key: BEHIND[key]}) for key in told)
    body += data({"choices": [{"index": 0, **beside, "message": {"role": "assistant", **BEHIND}, "finish_reason": "tool_calls"}]})
    events = read(API, body)
    assert (text_of(events), calls_of(events)) == ("Hello", [("a", "f", '{"x":1}', "sealed")])
    assert [part.text for part in finished(events).message.parts if isinstance(part, Reasoning)] == ["Hm"]


@pytest.mark.parametrize(
    "message",
    [
        {"content": ["a", "b"]},
        {"content": [{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "b"}]},
        {"content": None, "audio": {"id": "1", "transcript": "ab"}},
    ],
)
def test_text_is_read_from_every_known_place(message: dict[str, object]) -> None:
    choices = [{"index": 1, "message": message, "finish_reason": "stop"}, {"index": 2, "message": {"content": "another"}}]
    assert text_of(read(API, json.dumps({"choices": choices}).encode(), streamed=False)) == "ab"


# Fields that are sent back


def echoed(deltas: list[dict[str, object]], quirks: Mapping[str, object]) -> dict[str, Any]:
    decoder = codec(API).decoder(server="router.example")
    events = [event for delta in deltas for event in decoder.feed(chunk(delta))] + decoder.feed(CALLS) + decoder.close()
    item = sent(API, answered(events), quirks=quirks)["messages"][1]
    assert isinstance(item, dict)
    return item


def test_reasoning_details_are_sent_back_only_to_the_same_server() -> None:
    """Without its signatures, a model behind a gateway refuses the request or loses its reasoning before the call."""
    detail = {"type": "reasoning.text", "format": "v1", "index": 0}
    deltas: list[dict[str, object]] = [
        {"reasoning": "Tw", "reasoning_details": [{**detail, "text": "Tw"}]},
        {"reasoning": "o.", "reasoning_details": [{**detail, "text": "o."}]},
        {"reasoning_details": [{**detail, "signature": "s"}, {"type": "reasoning.encrypted", "data": "x", "index": 1}]},
        {"tool_calls": [{**CALL, "index": 0}]},
    ]
    kept = [{**detail, "text": "Two.", "signature": "s"}, {"type": "reasoning.encrypted", "data": "x", "index": 1}]
    assert echoed(deltas, {"server": "router.example"})["reasoning_details"] == kept
    assert "reasoning_details" not in echoed(deltas, {"server": "another.example"})


def test_signed_thinking_blocks_of_a_gateway_are_kept_separate() -> None:
    blocks = [{"type": "thinking", "thinking": "A", "signature": "1"}, {"type": "thinking", "thinking": "B", "signature": "2"}]
    deltas: list[dict[str, object]] = [{"thinking_blocks": [block]} for block in blocks]
    assert echoed([*deltas, {"tool_calls": [{**CALL, "index": 0}]}], {})["thinking_blocks"] == blocks


@pytest.mark.parametrize(
    ("model", "quirks"), [("mistral-large-latest", {}), ("mistralai/Devstral-Small", {}), ("m", {"answers_results": True})]
)
def test_an_assistant_message_is_added_between_results_and_user_if_required(model: str, quirks: dict[str, object]) -> None:
    """Mistral's models refuse a user message directly after results on every server, also one that contains images."""
    after = [UserMessage((PICTURE,))] if quirks else []
    roles = [item["role"] for item in sent(API, [*TALK, *after], model=model, quirks=quirks)["messages"]]
    assert roles[:7] == ["system", "user", "assistant", "tool", "tool", "assistant", "user"]
    assert [item["role"] for item in sent(API, TALK)["messages"]][5] == "user"


def test_custom_tools_are_sent_as_functions_if_the_server_lacks_custom_tools() -> None:
    """A conversation can continue on another server: its custom tools become functions, which every server supports."""
    talk: list[Message] = [
        UserMessage("Go."),
        AssistantMessage(parts=(Reasoning(text="Hm."), ToolCall(id="a", name="py", arguments="print(1)", custom=True)), api=API),
    ]
    tools = (ToolSpec(name="py", custom=True),)
    plain = sent(API, talk, tools=tools, tool_choice="py", quirks=PROVIDERS["groq"].quirks)
    call = plain["messages"][1]["tool_calls"][0]
    assert (call["type"], json.loads(call["function"]["arguments"])) == ("function", {"input": "print(1)"})
    assert plain["tools"][0]["function"]["parameters"]["required"] == ["input"]
    assert plain["tool_choice"] == {"type": "function", "function": {"name": "py"}}
    own = sent(API, talk, tools=tools, tool_choice="py", quirks=PROVIDERS["openai"].quirks)
    assert own["messages"][1]["tool_calls"][0]["type"] == own["tools"][0]["type"] == own["tool_choice"]["type"] == "custom"


def test_audio_is_sent_to_mistral_without_its_format() -> None:
    sound = UserMessage((Audio(data="aGk=", mime_type="audio/wav"),))
    (part,) = sent(API, [sound], quirks=PROVIDERS["mistral"].quirks)["messages"][0]["content"]
    assert part == {"type": "input_audio", "input_audio": "aGk="}


def test_audio_formats_are_sent_under_the_names_of_the_api() -> None:
    formats = [
        sent(API, [UserMessage((Audio(data="aGk=", mime_type=mime),))])["messages"][0]["content"][0]["input_audio"]["format"]
        for mime in ("audio/mpeg", "audio/x-wav", "audio/wav")
    ]
    assert formats == ["mp3", "wav", "wav"]
