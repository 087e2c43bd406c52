"""Amazon Bedrock's Converse and ConverseStream."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate.calls import Image, Text
from callgate.messages import AssistantMessage, Message, Native, Reasoning, ToolCall, ToolMessage, UserMessage
from callgate.models.model_events import CallSealed, Usage
from callgate.models.wire import codec
from callgate.models.wire.request import ModelRequest
from callgate.models.wire.tool_names import WireNames
from tests.models.aws_frames import event, failure
from tests.models.decoding import calls_of, finished, read, shape, text_of
from tests.models.sample_conversation import TALK, TOOLS, answered, sent

API = "bedrock.converse"


def start(index: int | None, call_id: str, name: str, **more: object) -> bytes:
    return event("contentBlockStart", _at(index) | {"start": {"toolUse": {"toolUseId": call_id, "name": name, **more}}})


def delta(index: int | None, **piece: object) -> bytes:
    return event("contentBlockDelta", _at(index) | {"delta": piece, "p": "abcd"})


def piece(index: int | None, text: str) -> bytes:
    return delta(index, toolUse={"input": text})


def stop(index: int | None) -> bytes:
    return event("contentBlockStop", _at(index))


def end(reason: str) -> bytes:
    return event("messageStop", {"stopReason": reason}) + METADATA


def _at(index: int | None) -> dict[str, object]:
    return {} if index is None else {"contentBlockIndex": index}


METADATA = event(
    "metadata", {"usage": {"inputTokens": 5, "outputTokens": 7, "cacheReadInputTokens": 3, "totalTokens": 15}, "metrics": {"latencyMs": 1}}
)
BEGIN = event("messageStart", {"role": "assistant"})
USUAL = (
    BEGIN
    + delta(0, reasoningContent={"text": "Hm"})
    + delta(0, reasoningContent={"text": "m."})
    + delta(0, reasoningContent={"signature": "sig"})
    + stop(0)
    + delta(1, text="Let me ")
    + delta(1, text="look. ünï")
    + stop(1)
    + start(2, "tooluse_a", "find")
    + piece(2, '{"q": "}')
    + piece(2, '{"}')
    + stop(2)
    + start(3, "tooluse_b", "shot")
    + piece(3, "")
    + stop(3)
    + end("tool_use")
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
    assert calls_of(events) == [("tooluse_a", "find", '{"q": "}{"}', "sealed"), ("tooluse_b", "shot", "", "finished")]
    assert (told.reason, told.said) == ("tool_calls", "tool_use")
    assert told.usage == Usage(input_tokens=8, output_tokens=7, cached_tokens=3)


def test_a_call_is_sealed_at_its_closing_brace() -> None:
    decoder = codec(API).decoder()
    decoder.feed(start(0, "a", "f") + piece(0, '{"a": 1'))
    assert [type(told) for told in decoder.feed(piece(0, "}"))][-1] is CallSealed


def test_an_empty_object_is_sealed_when_its_block_ends() -> None:
    body = start(0, "a", "f") + piece(0, "{}") + stop(0)
    assert calls_of(read(API, body)) == [("a", "f", "{}", "sealed")]


@pytest.mark.parametrize(
    ("said", "reason", "closed"),
    [
        ("tool_use", "tool_calls", "finished"),
        ("end_turn", "tool_calls", "finished"),
        ("max_tokens", "length", "cut"),
        ("model_context_window_exceeded", "length", "cut"),
        ("guardrail_intervened", "content_filter", "cut"),
        ("content_filtered", "content_filter", "cut"),
        ("malformed_tool_use", "error", "cut"),
        ("malformed_model_output", "error", "cut"),
    ],
)
def test_an_incomplete_block_is_finished_or_cut_by_the_stop_reason(said: str, reason: str, closed: str) -> None:
    """The service also closes a block that the limit truncated."""
    events = read(API, start(0, "a", "f") + piece(0, '{"a": [1') + stop(0) + end(said))
    assert calls_of(events) == [("a", "f", '{"a": [1', closed)]
    over = finished(events)
    assert (over.reason, over.fault.code if over.fault is not None else over.said) == (reason, said)


@given(st.integers(0, len(USUAL) - 1))
def test_a_truncated_stream_is_cut(at: int) -> None:
    told = finished(read(API, USUAL[:at]))
    assert told.reason == ("tool_calls" if at >= len(USUAL) - len(METADATA) else "cut")


@given(st.integers(0, len(USUAL) - 1), st.integers(1, 255))
def test_a_damaged_stream_never_produces_a_wrong_call(at: int, flip: int) -> None:
    """Checksums detect the damage: it ends the answer with a fault, and calls before it are kept."""
    events = read(API, USUAL[:at] + bytes([USUAL[at] ^ flip]) + USUAL[at + 1 :])
    right = {"tooluse_a": ("find", '{"q": "}{"}'), "tooluse_b": ("shot", "")}
    assert all(right[call_id] == (name, arguments) for call_id, name, arguments, closed in calls_of(events) if closed != "cut")


def test_deltas_with_a_missing_or_reused_index_are_assigned_to_their_call() -> None:
    for index in (None, 0):
        body = start(index, "a", "f") + piece(index, '{"x"') + piece(index, ": 1}") + stop(index) + start(index, "b", "g")
        events = read(API, body + piece(index, '{"y": 2}') + stop(index) + end("tool_use"))
        assert [call[:3] for call in calls_of(events)] == [("a", "f", '{"x": 1}'), ("b", "g", '{"y": 2}')]


def test_arguments_of_a_call_that_never_started_are_a_fault() -> None:
    told = finished(read(API, BEGIN + piece(4, '{"a": 1}') + end("tool_use")))
    assert (told.reason, told.fault and told.fault.code, told.message.calls) == ("error", "bad_frame", ())


@pytest.mark.parametrize(
    ("body", "retryable"),
    [
        (failure("throttlingException", "slow down"), True),
        (failure("modelStreamErrorException", "slow down"), True),
        (b'{"message": "slow down", "__type": "com.amazonaws.bedrock#ThrottlingException"}', True),
        (b'{"Message": "slow down"}', False),
        (b'{"throttlingException": {"message": "slow down"}}', True),
    ],
)
def test_an_error_ends_the_answer_with_the_services_message(body: bytes, retryable: bool) -> None:
    told = finished(read(API, body))
    assert told.fault is not None
    assert (told.reason, told.fault.message, told.fault.retryable) == ("error", "slow down", retryable)


def whole(*content: Mapping[str, object], reason: str = "tool_use") -> bytes:
    output = {"message": {"role": "assistant", "content": list(content)}}
    return json.dumps({"output": output, "stopReason": reason, "usage": {"inputTokens": 1, "outputTokens": 2}}).encode()


@pytest.mark.parametrize("streamed", [True, False])
def test_a_single_body_decodes_like_a_stream(streamed: bool) -> None:
    body = whole(
        {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "sig"}}},
        {"reasoningContent": {"redactedContent": "AAAA"}},
        {"text": "Look."},
        {"toolUse": {"toolUseId": "a", "name": "f", "input": {"x": 1}, "type": "tool_use"}},
        {"toolUse": {"toolUseId": "b", "name": "g", "input": {}}},
    )
    events = read(API, body, streamed=streamed, content_type="application/json")
    assert calls_of(events) == [("a", "f", '{"x":1}', "sealed"), ("b", "g", "{}", "finished")]
    assert finished(events).message.parts[:3] == (
        Reasoning(text="Hm.", opaque={"signature": "sig"}),
        Reasoning(opaque={"redactedContent": "AAAA"}),
        Text(text="Look."),
    )


@pytest.mark.parametrize("given", [{"x": 1}, {}], ids=["arguments", "none"])
def test_the_last_call_of_a_body_that_hit_the_token_limit_is_cut(given: dict[str, object]) -> None:
    """Its input is an object made of the text so far; the calls before it are complete."""
    calls = [{"toolUse": {"toolUseId": call_id, "name": "f", "input": given}} for call_id in "ab"]
    assert [call[3] for call in calls_of(read(API, whole(*calls, reason="max_tokens")))] == ["sealed", "cut"]


def test_a_stream_reframed_by_a_proxy_as_sse_lines_or_a_list_is_read() -> None:
    """The stream becomes server-sent events, lines, or a list; each entry is an object with one key."""
    objects: list[dict[str, object]] = [
        {"messageStart": {"role": "assistant"}},
        {"contentBlockStart": {"contentBlockIndex": 0, "start": {"toolUse": {"toolUseId": "a", "name": "f"}}}},
        {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"toolUse": {"input": '{"x": 1}'}}}},
        {"contentBlockStop": {"contentBlockIndex": 0}},
        {"messageStop": {"stopReason": "tool_use"}},
    ]
    lines = [json.dumps(value).encode() for value in objects]
    for body in (b"".join(b"data: " + line + b"\n\n" for line in lines), b"\n".join(lines), b"[" + b",".join(lines) + b"]"):
        events = read(API, body)
        assert calls_of(events) == [("a", "f", '{"x": 1}', "sealed")]
        assert finished(events).reason == "tool_calls"


def test_tools_run_by_the_service_are_recorded_and_sent_back() -> None:
    """They are never run here."""
    body = (
        start(0, "n1", "nova_grounding", type="server_tool_use")
        + piece(0, '{"query": ')
        + piece(0, '"x"}')
        + stop(0)
        + event("contentBlockStart", {"contentBlockIndex": 1, "start": {"toolResult": {"toolUseId": "n1", "status": "success"}}})
        + delta(1, toolResult=[{"json": {"hits": 3}}])
        + stop(1)
        + delta(2, text="Three.")
        + end("end_turn")
    )
    events = read(API, body)
    told = finished(events)
    assert (calls_of(events), told.reason, told.message.text) == ([], "stop", "Three.")
    assert [part.kind for part in told.message.parts if isinstance(part, Native)] == ["nova_grounding", "toolResult"]
    assert sent(API, answered(events))["messages"][1]["content"] == [
        {"toolUse": {"toolUseId": "n1", "name": "nova_grounding", "type": "server_tool_use", "input": {"query": "x"}}},
        {"toolResult": {"toolUseId": "n1", "status": "success", "content": [{"json": {"hits": 3}}]}},
        {"text": "Three."},
    ]


def test_a_request_carries_the_whole_conversation() -> None:
    body = sent(API, max_tokens=9, temperature=0.5, extra={"inferenceConfig": {"topP": 0.1}})
    assert body["inferenceConfig"] == {"maxTokens": 9, "temperature": 0.5, "topP": 0.1}
    assert body["system"] == [{"text": "Be brief."}]
    assert body["messages"] == [
        {"role": "user", "content": [{"text": "Find it."}]},
        {
            "role": "assistant",
            "content": [
                {"toolUse": {"toolUseId": "a", "name": "find", "input": {"q": "x"}}},
                {"toolUse": {"toolUseId": "b", "name": "shot", "input": {}}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"toolResult": {"toolUseId": "a", "content": [{"text": "3 hits"}]}},
                {"toolResult": {"toolUseId": "b", "content": [{"text": "no screen"}], "status": "error"}},
                {"text": "Pictures from the results above:"},
                {"image": {"format": "png", "source": {"bytes": "aGk="}}},
                {"text": "Well?"},
            ],
        },
    ]


def test_turns_alternate_and_begin_with_the_user() -> None:
    """Also if the conversation has empty messages or begins with an answer."""
    talk: list[Message] = [
        AssistantMessage(parts=(Text(text="Hello."),)),
        AssistantMessage(parts=(Text(text=" "), Reasoning(text="Hm."))),
        UserMessage(""),
        UserMessage("Go."),
        AssistantMessage(),
        UserMessage("Go!"),
    ]
    messages = sent(API, talk)["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    assert all(block["text"].strip() for message in messages for block in message["content"])


@pytest.mark.parametrize("choice", ["auto", "required", "none", "find"])
def test_tools_are_declared_whenever_the_history_has_calls(choice: str) -> None:
    config = sent(API, tool_choice=choice)["toolConfig"]
    assert [tool["toolSpec"]["name"] for tool in config["tools"]] == ["find", "shot"]
    assert config.get("toolChoice") == {"required": {"any": {}}, "find": {"tool": {"name": "find"}}}.get(choice)
    assert len(sent(API, tools=())["toolConfig"]["tools"]) == 2
    assert "toolConfig" not in sent(API, TALK[:2], tool_choice="none")


def test_a_received_answer_is_sent_back_unchanged() -> None:
    """Without the signature, a thinking model refuses the next request."""
    assert sent(API, answered(read(API, USUAL)))["messages"][1:] == [
        {
            "role": "assistant",
            "content": [
                {"reasoningContent": {"reasoningText": {"text": "Hmm.", "signature": "sig"}}},
                {"text": "Let me look. ünï"},
                {"toolUse": {"toolUseId": "tooluse_a", "name": "find", "input": {"q": "}{"}}},
                {"toolUse": {"toolUseId": "tooluse_b", "name": "shot", "input": {}}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"toolResult": {"toolUseId": "tooluse_a", "content": [{"text": "done"}]}},
                {"toolResult": {"toolUseId": "tooluse_b", "content": [{"text": "done"}]}},
            ],
        },
    ]


def test_call_ids_of_other_providers_are_shortened_to_fit() -> None:
    long = "call|" + "x" * 80
    talk: list[Message] = [
        UserMessage("Go."),
        AssistantMessage(parts=(ToolCall(id=long, name="f"),)),
        ToolMessage(call_id=long, name="f"),
    ]
    messages = sent(API, talk)["messages"]
    call, result = messages[1]["content"][0]["toolUse"], messages[2]["content"][0]["toolResult"]
    assert call["toolUseId"] == result["toolUseId"]
    assert len(call["toolUseId"]) <= 64
    assert result["content"] == [{"text": "(no output)"}]


def test_the_model_is_named_in_the_request_path() -> None:
    for stream, verb in ((True, "converse-stream"), (False, "converse")):
        request = ModelRequest(model="us.anthropic.x-v1:0", messages=TALK, tools=TOOLS, stream=stream, output_schema={"type": "object"})
        http = codec(API).encode(request, WireNames(), {})
        assert http.path == f"/model/us.anthropic.x-v1%3A0/{verb}"
        assert unquote(http.path).count("/") == 3
        schema = json.loads(http.body)["outputConfig"]["textFormat"]["structure"]["jsonSchema"]
        assert json.loads(schema["schema"]) == {"type": "object"}


@pytest.mark.parametrize(("model", "kept"), [("moonshot.kimi-k2", True), ("us.anthropic.claude-x", False)])
def test_a_valid_call_id_is_sent_back_unchanged_unless_the_model_refuses_it(model: str, kept: bool) -> None:
    """Some models read the tool's name and the number of the call from the id; Anthropic's models refuse its dots and colons."""
    given = "functions.find:0"
    talk: list[Message] = [
        UserMessage("Go."),
        AssistantMessage(parts=(ToolCall(id=given, name="find"),)),
        ToolMessage(call_id=given, name="find"),
    ]
    messages = sent(API, talk, model=model)["messages"]
    call_id = messages[1]["content"][0]["toolUse"]["toolUseId"]
    assert call_id == messages[2]["content"][0]["toolResult"]["toolUseId"]
    assert (call_id == given) is kept


def test_an_unsupported_image_is_replaced_by_a_text() -> None:
    drawing = Image(data="aGk=", mime_type="image/svg+xml")
    talk: list[Message] = [UserMessage((drawing, Image(data="aGk=", mime_type="image/jpg")))]
    content = sent(API, talk)["messages"][0]["content"]
    assert "image/svg+xml" in content[0]["text"]
    assert content[1]["image"]["format"] == "jpeg"


@pytest.mark.parametrize("said", ["malformed_tool_use", "malformed_model_output"])
def test_a_call_the_service_could_not_parse_is_a_retryable_fault(said: str) -> None:
    for before in (b"", start(0, "a", "f") + piece(0, '{"x": 1}') + stop(0)):  # nobody knows what the whole message was to be
        over = finished(read(API, before + end(said)))
        assert over.fault is not None
        assert (over.reason, over.fault.code, over.fault.retryable) == ("error", said, True)
