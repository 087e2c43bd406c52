"""Gemini's generateContent: candidates are decoded, contents are encoded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate.calls import Image, Text
from callgate.messages import AssistantMessage, Message, Native, Reasoning, SystemMessage, ToolCall, ToolMessage, UserMessage
from callgate.models.model_events import CallSealed, Usage
from callgate.models.wire import codec
from callgate.models.wire.gemini_generate.partial_arguments import PartialArguments
from callgate.models.wire.gemini_generate.schema_subset import FollowedReferences, reduce_schema
from callgate.models.wire.request import ModelRequest, ToolSpec
from callgate.models.wire.tool_names import WireNames
from tests.models.decoding import calls_of, finished, read, shape, text_of

API = "gemini.generate"


def answer(*parts: Mapping[str, object], finish: str | None = None, **more: object) -> dict[str, Any]:
    candidate: dict[str, object] = {"content": {"role": "model", "parts": parts}, "index": 0}
    if finish:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], "modelVersion": "m", **more}


def chunk(*parts: Mapping[str, object], finish: str | None = None, **more: object) -> bytes:
    return b"data: " + json.dumps(answer(*parts, finish=finish, **more), ensure_ascii=False).encode() + b"\r\n\r\n"


def function(name: str | None = None, **more: object) -> dict[str, object]:
    return {"functionCall": {**({"name": name} if name else {}), **more}}


def grows(path: str, value: object, *, goes_on: bool = False) -> dict[str, object]:
    kind = "boolValue" if isinstance(value, bool) else "stringValue" if isinstance(value, str) else "numberValue"
    item = {"jsonPath": path, kind: value} | ({"willContinue": True} if goes_on else {})
    return function(partialArgs=[item], willContinue=True)


STOP = chunk(finish="STOP")
USUAL = (
    chunk({"text": "Two ", "thought": True})
    + chunk({"text": "things.", "thought": True, "thoughtSignature": "s0"})
    + chunk({"text": "Let me "})
    + chunk({"text": "lóok."})
    + chunk({"text": "", "thoughtSignature": "s1"})
    + chunk({**function("search", args={"q": "books}{"}), "thoughtSignature": "s2"}, function("now", id="b", args={}))
    + chunk({**function("read", willContinue=True), "thoughtSignature": "s3"})
    + chunk(grows("$.path", "a", goes_on=True))
    + chunk(grows("$.path", "/b", goes_on=True))
    + chunk(grows("$.path", ""))
    + chunk(grows("$.lines[0].from", 3), grows("$['all']", value=True))
    + chunk(function())
    + chunk(
        finish="STOP",
        usageMetadata={"promptTokenCount": 5, "candidatesTokenCount": 4, "thoughtsTokenCount": 3, "cachedContentTokenCount": 2},
    )
)
PARTS = (
    Reasoning(text="Two things.", opaque={"thoughtSignature": "s0"}),
    Text(text="Let me lóok."),
    Reasoning(opaque={"textSignature": "s1"}),
    ToolCall(id="made-0", name="search", arguments='{"q":"books}{"}', made_id=True, opaque={"thoughtSignature": "s2"}),
    ToolCall(id="b", name="now", arguments="{}"),
    ToolCall(
        id="made-1",
        name="read",
        arguments='{"path":"a/b","lines":[{"from":3}],"all":true}',
        made_id=True,
        opaque={"thoughtSignature": "s3"},
    ),
)


@given(st.lists(st.integers(0, 5000), max_size=30))
def test_the_decoded_answer_does_not_depend_on_how_the_bytes_are_split(cuts: list[int]) -> None:
    places = sorted({0, len(USUAL), *(cut % len(USUAL) for cut in cuts)})
    assert shape(read(API, [USUAL[a:b] for a, b in pairwise(places)])) == shape(read(API, USUAL))


def test_parts_become_the_parts_of_one_message() -> None:
    """Calls may have no ids, any part may have a signature, and thought tokens are counted separately from the other output."""
    over = finished(read(API, USUAL))
    assert over.message.parts == PARTS
    assert (over.reason, over.said, over.model) == ("tool_calls", "STOP", "m")
    assert over.usage == Usage(input_tokens=5, output_tokens=7, cached_tokens=2, reasoning_tokens=3)


def test_a_json_list_and_a_single_body_decode_like_a_stream() -> None:
    """Without `alt=sse` a stream is one JSON list."""
    frames = [json.loads(line[6:]) for line in USUAL.split(b"\r\n\r\n") if line]
    listed = json.dumps(frames).encode()
    assert shape(read(API, listed)) == shape(read(API, listed, streamed=False)) == shape(read(API, USUAL))
    parts = [part for frame in frames[:6] for part in frame["candidates"][0]["content"]["parts"]]
    whole = json.dumps(answer(*parts, finish="STOP")).encode()
    assert finished(read(API, whole, streamed=False)).message.parts == PARTS[:5]
    assert [one[3] for one in calls_of(read(API, whole, streamed=False))] == ["sealed", "sealed"]


@pytest.mark.parametrize(("given", "arguments"), [(None, "{}"), ({}, "{}"), ([], "[]"), (0, "0")])
def test_arguments_that_are_not_an_object_are_not_replaced_by_an_empty_one(given: object, arguments: str) -> None:
    assert [call[2] for call in calls_of(read(API, chunk(function("f", args=given)) + STOP))] == [arguments]


def test_a_complete_function_call_part_is_sealed_at_once() -> None:
    assert isinstance(codec(API).decoder().feed(chunk(function("f", args={})))[-1], CallSealed)


WHOLE = function("f", id="a", args={"x": 1})
GROWN = chunk(function("f", id="a", willContinue=True)) + chunk(grows("$.x", 1)) + chunk(function())


@pytest.mark.parametrize(
    "first",
    [chunk(function("f", id="a", args={"x": 1.0})), GROWN, chunk(WHOLE, WHOLE)],
    ids=["in two frames", "after it grew", "in one frame"],
)
def test_a_call_repeated_under_the_same_id_is_one_call(first: bytes) -> None:
    """Without an id, a repeated call may be a second request for the same thing."""
    assert [one[:2] for one in calls_of(read(API, first + chunk(WHOLE) + STOP))] == [("a", "f")]
    assert len(calls_of(read(API, chunk(function("f", args={"x": 1})) * 2 + STOP))) == 2
    assert len(calls_of(read(API, first + chunk(function("f", id="a", args={"x": 2})) + STOP))) == 2


def test_text_and_a_call_in_one_part_are_both_read() -> None:
    events = read(API, chunk({"text": "Let me look.", **WHOLE}) + STOP)
    assert (text_of(events), calls_of(events)[0][:2]) == ("Let me look.", ("a", "f"))


def test_an_unspecified_finish_reason_is_ignored() -> None:
    """Some versions send this value in every frame; the last frame has the reason."""
    body = chunk(function("f", willContinue=True), finish="FINISH_REASON_UNSPECIFIED") + chunk(grows("$.x", 1)) + chunk(function())
    assert finished(read(API, body)).reason == "cut"
    assert finished(read(API, body + STOP)).reason == "tool_calls"


@pytest.mark.parametrize("finish", ["MAX_TOKENS", "SAFETY", "OTHER", "NEW", None])
def test_a_call_still_receiving_arguments_at_the_end_is_cut(finish: str | None) -> None:
    """A truncated call is not complete, whatever else the body says."""
    growing = chunk(function("f", willContinue=True)) + chunk(grows("$.x", "half", goes_on=True))
    events = read(API, chunk(function("g", args={"x": 1})) + growing + (chunk(finish=finish) if finish else b""))
    assert [one[3] for one in calls_of(events)] == ["sealed", "cut"]


def test_a_stop_reason_in_every_frame_does_not_complete_a_broken_stream() -> None:
    """Some versions send STOP from the first frame on."""
    body = chunk({"text": "Hm."}, finish="STOP") + chunk(function("f", willContinue=True))
    assert [one[3] for one in calls_of(read(API, body))] == ["cut"]


def test_a_partial_call_ends_with_the_next_call_or_with_the_message() -> None:
    growing = chunk(function("f", willContinue=True)) + chunk(grows("$.x", 1))
    for after in (chunk(function("g", args={})) + STOP, STOP):
        assert calls_of(read(API, growing + after))[0][1:] == ("f", '{"x":1}', "sealed")


def test_a_string_that_was_to_continue_is_cut_by_the_next_call_and_by_the_message() -> None:
    """It may be the first half of a name: the call must not run with it."""
    growing = chunk(function("f", willContinue=True)) + chunk(grows("$.x", "half", goes_on=True))
    for after in (chunk(function("g", args={})) + STOP, STOP):
        assert ("f", '{"x":"half"}', "cut") in [one[1:] for one in calls_of(read(API, growing + after))]
    assert calls_of(read(API, growing + chunk(function()) + STOP))[0][3] == "sealed"


def test_a_truncated_stream_never_completes_a_partial_call() -> None:
    right = {one[1]: one for one in calls_of(read(API, USUAL))}
    for length in range(0, len(USUAL), 3):
        for one in calls_of(read(API, USUAL[:length])):
            assert one[3] == "cut" or one == right[one[1]]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("$.a", {"a": 1}),
        ("$['a.b']", {"a.b": 1}),
        ('$["a]\\"b"]', {'a]"b': 1}),
        ("$.a[1].b", {"a": [None, {"b": 1}]}),
        ("$.a[0][0]", {"a": [[1]]}),
    ],
)
def test_json_paths_in_partial_arguments_are_resolved(path: str, value: object) -> None:
    arguments = PartialArguments()
    arguments.add({"jsonPath": path, "numberValue": 1})
    assert arguments.value() == value


@pytest.mark.parametrize("path", ["", "$", "a", "$..", "$.a[9999]", "$[0]", "$.a[x]", "$.s.t", "$.s[0]"])
def test_an_invalid_json_path_is_a_fault_and_cuts_its_call(path: str) -> None:
    """Otherwise a call without the lost value could look complete."""
    body = chunk(function("f", willContinue=True)) + chunk(grows("$.s", "x")) + chunk(grows(path, 1)) + chunk(function()) + STOP
    events = read(API, body)
    assert finished(events).reason == "error"
    assert [one[3] for one in calls_of(events)] == ["cut"]


@pytest.mark.parametrize(
    ("finish", "reason"),
    [("STOP", "stop"), ("MAX_TOKENS", "length"), ("SAFETY", "content_filter"), ("RECITATION", "content_filter"),
     ("OTHER", "other"), ("NEW", "other")],
)  # fmt: skip
def test_finish_reasons_are_mapped(finish: str, reason: str) -> None:
    assert finished(read(API, chunk({"text": "x"}) + chunk(finish=finish))).reason == reason


@pytest.mark.parametrize("finish", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"])
def test_a_call_the_provider_could_not_parse_is_a_retryable_fault(finish: str) -> None:
    body = answer(finish=finish)
    body["candidates"][0]["finishMessage"] = "Malformed function call: f(x=)"
    over = finished(read(API, json.dumps(body).encode(), streamed=False))
    assert over.fault is not None
    assert (over.reason, over.fault.code, over.fault.retryable) == ("error", finish, True)


@pytest.mark.parametrize("finish", ["MALFORMED_FUNCTION_CALL", "TOO_MANY_TOOL_CALLS", "MISSING_THOUGHT_SIGNATURE"])
def test_an_answer_that_the_provider_calls_broken_is_a_fault_whatever_calls_it_has(finish: str) -> None:
    over = finished(read(API, chunk(function("f", args={}), finish=finish)))
    assert over.fault is not None
    assert (over.reason, over.fault.code) == ("error", finish)


def test_a_call_of_a_tool_that_was_not_offered_is_kept() -> None:
    """The engine reports the unknown tool to the model, as for every API."""
    over = finished(read(API, chunk(function("f", args={}), finish="UNEXPECTED_TOOL_CALL")))
    assert (over.reason, [call.name for call in over.message.calls]) == ("tool_calls", ["f"])


def test_a_blocked_prompt_ends_with_reason_content_filter() -> None:
    over = finished(read(API, b'{"promptFeedback": {"blockReason": "SAFETY"}}'))
    assert (over.reason, over.said, over.fault) == ("content_filter", "SAFETY", None)


def test_tools_run_by_the_provider_become_native_parts() -> None:
    parts: list[dict[str, object]] = [
        {"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": "s"},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
        {"toolCall": {"id": "t", "toolType": "GOOGLE_SEARCH_WEB"}},
        {"toolResponse": {"id": "t"}},
        {"inlineData": {"mimeType": "image/png", "data": "AA"}},
        {"somethingNew": 3},
    ]
    over = finished(read(API, chunk(*parts, finish="STOP")))
    natives = [part for part in over.message.parts if isinstance(part, Native)]
    assert [part.kind for part in natives] == [next(iter(part)) for part in parts]
    assert [part.item for part in natives] == parts
    assert (natives[2].id, over.message.calls, over.reason) == ("t", (), "stop")


@pytest.mark.parametrize(
    "body",
    [
        b'data: {"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}}\n\n',
        b'{"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}}',
        b'[{"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}}]',
    ],
)
def test_an_error_ends_the_answer_with_the_providers_message(body: bytes) -> None:
    events = read(API, (chunk(function("f", willContinue=True)) if body.startswith(b"data") else b"") + body)
    over = finished(events)
    assert over.fault is not None
    assert (over.reason, over.fault.code, over.fault.message, over.fault.retryable) == ("error", "UNAVAILABLE", "busy", True)
    assert all(one[3] == "cut" for one in calls_of(events))


@pytest.mark.parametrize(
    "odd",
    [
        b"data: {oops\n\n",
        b'data: {"candidates": 3}\n\n',
        b'data: {"candidates": [{"content": {"parts": [7, null, {}]}}]}\n\n',
        b'data: {"candidates": [{"content": null}, {"index": 1, "content": {"parts": [{"text": "other"}]}}]}\n\n',
        b'data: {"usageMetadata": {"promptTokenCount": null}}\n\n',
        chunk(function()),
    ],
)
def test_unexpected_frames_are_skipped(odd: bytes) -> None:
    over = finished(read(API, odd + USUAL))
    assert over.message.text == "Let me lóok."
    assert len(over.message.calls) == 3


def test_an_answer_wrapped_in_a_response_object_is_read() -> None:
    assert text_of(read(API, json.dumps({"response": answer({"text": "hi"}, finish="STOP")}).encode())) == "hi"


# Encoding of requests


def sent(messages: list[Message], model: str = "gemini-2.5-flash", quirks: Mapping[str, object] = {}, **more: Any) -> dict[str, Any]:
    request = ModelRequest(model=model, messages=messages, **more)
    return dict(json.loads(codec(API).encode(request, WireNames(), quirks).body))


def result(call_id: str, text: str = "ok", **more: Any) -> ToolMessage:
    return ToolMessage(**{"call_id": call_id, "name": "f", "content": (Text(text=text),), **more})


def test_a_request_carries_the_whole_conversation() -> None:
    names = WireNames()
    calls = (ToolCall(id="a", name="files/find", arguments='{"q": "x"}'), ToolCall(id="made", name="f", made_id=True))
    messages: list[Message] = [
        SystemMessage("Be brief."),
        UserMessage("Find it."),
        AssistantMessage(parts=(Text(text="Yes."), *calls), api="openai.chat"),
        ToolMessage(call_id="a", name="files/find", content=(Text(text="3 hits"),)),
        result("made", "broken", is_error=True, made_id=True),
        UserMessage("Go on."),
    ]
    tools = (ToolSpec(name="files/find", description="d", schema={"properties": {"q": {"type": "string"}}}), ToolSpec(name="f"))
    request = ModelRequest(model="gemini-2.5-flash", messages=messages, tools=tools, tool_choice="f", max_tokens=9, temperature=0.5)
    http = codec(API).encode(request, names, {})
    assert http.path == "/models/gemini-2.5-flash:streamGenerateContent?alt=sse"
    wire = names.to_wire("files/find")
    assert json.loads(http.body) == {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "tools": [
            {"functionDeclarations": [
                {"name": wire, "description": "d", "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}},
                {"name": "f", "description": ""},
            ]}
        ],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f"]}},
        "generationConfig": {"maxOutputTokens": 9, "temperature": 0.5},
        "contents": [
            {"role": "user", "parts": [{"text": "Find it."}]},
            {"role": "model", "parts": [
                {"text": "Yes."},
                {"functionCall": {"name": wire, "args": {"q": "x"}, "id": "a"}},
                {"functionCall": {"name": "f", "args": {}}},
            ]},
            {"role": "user", "parts": [
                {"functionResponse": {"name": wire, "response": {"result": "3 hits"}, "id": "a"}},
                {"functionResponse": {"name": "f", "response": {"error": "broken"}}},
            ]},
            {"role": "user", "parts": [{"text": "Go on."}]},
        ],
    }  # fmt: skip


def test_signatures_are_sent_back_on_their_parts_and_to_no_other_api() -> None:
    """Gemini 3 models refuse a call without its signature."""
    message = finished(read(API, USUAL)).message
    results: list[Message] = [result(call.id, made_id=call.made_id) for call in message.calls]
    parts = sent([UserMessage("?"), message, *results])["contents"][1]["parts"]
    assert [part.get("thoughtSignature") for part in parts] == ["s0", "s1", "s2", None, "s3"]
    assert parts[0]["thought"] is True
    assert parts[3]["functionCall"] == {"name": "now", "args": {}, "id": "b"}
    foreign = AssistantMessage(parts=message.parts, api="openai.chat")
    kept = sent([UserMessage("?"), foreign, *results])["contents"][1]["parts"]
    assert [next(iter(part)) for part in kept] == ["text", "functionCall", "functionCall", "functionCall"]
    assert not any("thoughtSignature" in part for part in kept)
    third = sent([UserMessage("?"), foreign, *results], "gemini-3-pro-preview")["contents"][1]["parts"]
    assert [part.get("thoughtSignature") for part in third] == [None, "skip_thought_signature_validator", None, None]


@pytest.mark.parametrize(
    "messages",
    [
        [AssistantMessage(parts=(Text(text="Hello."),))],
        [UserMessage(""), AssistantMessage(), UserMessage("x")],
        [UserMessage("a"), UserMessage("b"), AssistantMessage(parts=(Text(text=""),)), UserMessage("c")],
        [UserMessage("a"), AssistantMessage(parts=(ToolCall(id="x", name="f"),)), UserMessage("b"), result("x"), result("lost")],
        [UserMessage("a"), AssistantMessage(parts=(Text(text="t"),)), AssistantMessage(parts=(ToolCall(id="x", name="f", arguments="{"),))],
    ],
    ids=["model first", "all empty", "two users", "result late", "result never"],
)
def test_every_history_is_encoded_as_contents_that_the_api_accepts(messages: list[Message]) -> None:
    """Contents begin with the user, none is empty, and the results of an answer form one content directly after it."""
    contents = sent(messages)["contents"]
    assert contents[0]["role"] == "user"
    for content, following in pairwise([*contents, {"role": "", "parts": []}]):
        assert content["parts"]
        assert all(part.get("text") != "" for part in content["parts"])
        assert (content["role"], following["role"]) != ("model", "model")
        called = [part["functionCall"]["name"] for part in content["parts"] if "functionCall" in part]
        if called:
            assert called == [part["functionResponse"]["name"] for part in following["parts"]]


def test_images_of_results_are_sent_inside_them_or_after_them() -> None:
    content = (Text(text="see"), Image(data="AA", mime_type="image/png"))
    messages: list[Message] = [
        UserMessage("?"),
        AssistantMessage(parts=(ToolCall(id="x", name="f"),)),
        ToolMessage(call_id="x", name="f", content=content),
    ]
    picture = {"inlineData": {"mimeType": "image/png", "data": "AA"}}
    assert sent(messages)["contents"][3]["parts"][1] == picture
    inside = sent(messages, "gemini-3-flash")["contents"][2]["parts"][0]["functionResponse"]
    assert (inside["response"], inside["parts"]) == ({"result": "see"}, [picture])
    assert sent(messages, "mine", {"generation": 3})["contents"][2]["parts"][0]["functionResponse"]["parts"] == [picture]


@pytest.mark.parametrize(
    ("schema", "made"),
    [
        ({"type": ["string", "null"], "description": "d"}, {"type": "string", "description": "d", "nullable": True}),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, {"type": "integer", "nullable": True}),
        ({"oneOf": [{"type": "integer"}, {"type": "string"}]}, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        ({"const": "x"}, {"type": "string", "enum": ["x"]}),
        ({"type": "integer", "enum": [1, 2]}, {"type": "integer", "description": "One of: 1, 2."}),
        ({"type": "string", "format": "email"}, {"type": "string", "description": "Format: email."}),
        ({"type": "string", "format": "date-time", "title": "T", "default": "x"}, {"type": "string", "format": "date-time"}),
        ({"type": "array"}, {"type": "array", "items": {"type": "string"}}),
        ({"prefixItems": [{"type": "integer"}, {"type": "string"}]},
         {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "string"}]}}),
        ({"allOf": [{"properties": {"a": {}}, "required": ["a"]}], "properties": {"b": {}}},
         {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "required": ["a"]}),
        ({"$ref": "#/$defs/A"}, {"type": "object", "properties": {"next": {"type": "object"}}}),
        ({"$ref": "#/$defs/loop"}, {"type": "object"}),
        ({"$ref": "http://elsewhere/x"}, {"type": "string"}),
        ({"type": "object", "properties": {"a": {}}, "required": ["a", "b"], "additionalProperties": False},
         {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}),
        (True, {"type": "string"}),
        ({}, {"type": "string"}),
    ],
)  # fmt: skip
def test_schemas_are_reduced_to_the_subset_that_the_api_supports(schema: object, made: object) -> None:
    defined = {"A": {"type": "object", "properties": {"next": {"$ref": "#/$defs/A"}}}, "loop": {"$ref": "#/$defs/loop"}}
    assert reduce_schema(schema, FollowedReferences({"$defs": defined})) == made


def test_tools_may_be_sent_as_json_schema() -> None:
    schema = {"$schema": "s", "type": "object", "properties": {"a": {"const": 1}}}
    declared = sent([UserMessage("?")], quirks={"json_schema": True}, tools=(ToolSpec(name="f", schema=schema),))["tools"][0]
    assert declared["functionDeclarations"][0]["parametersJsonSchema"] == {"type": "object", "properties": {"a": {"const": 1}}}


def test_an_output_schema_is_sent_with_tools_only_to_models_that_accept_both() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}}
    tool = (ToolSpec(name="f"),)
    assert sent([UserMessage("?")], output_schema=schema)["generationConfig"]["responseSchema"] == schema
    assert "generationConfig" not in sent([UserMessage("?")], output_schema=schema, tools=tool)
    assert "generationConfig" in sent([UserMessage("?")], "gemini-3-pro", output_schema=schema, tools=tool)
