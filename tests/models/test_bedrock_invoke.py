"""Amazon Bedrock's InvokeModel, in the formats of the models' makers."""

from __future__ import annotations

import base64
import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate.messages import Reasoning
from callgate.models.model_events import CallSealed, Usage
from callgate.models.wire import codec
from callgate.models.wire.request import ModelRequest
from callgate.models.wire.tool_names import WireNames
from tests.models.aws_frames import event, failure
from tests.models.decoding import calls_of, finished, read, shape, text_of
from tests.models.sample_conversation import TALK, answered, sent

API = "bedrock.invoke"


def chunk(**value: object) -> bytes:
    return event("chunk", {"bytes": base64.b64encode(json.dumps(value).encode()).decode(), "p": "abc"})


def block(index: int, kind: str, **fields: object) -> bytes:
    return chunk(type="content_block_start", index=index, content_block={"type": kind, **fields})


def delta(index: int, kind: str, **fields: object) -> bytes:
    return chunk(type="content_block_delta", index=index, delta={"type": kind, **fields})


def end(reason: str) -> bytes:
    return (
        chunk(type="message_delta", delta={"stop_reason": reason, "stop_sequence": None}, usage={"output_tokens": 7})
        + chunk(type="message_stop", **{"amazon-bedrock-invocationMetrics": {"inputTokenCount": 5, "outputTokenCount": 7}})
    )  # fmt: skip


USUAL = (
    chunk(type="message_start", message={"id": "m", "role": "assistant", "model": "claude", "content": [], "usage": {"input_tokens": 5}})
    + block(0, "thinking", thinking="", signature="")
    + delta(0, "thinking_delta", thinking="Hm.")
    + delta(0, "signature_delta", signature="sig")
    + chunk(type="content_block_stop", index=0)
    + block(1, "text", text="")
    + delta(1, "text_delta", text="Look.")
    + chunk(type="content_block_stop", index=1)
    + block(2, "tool_use", id="a", name="find", input={})
    + delta(2, "input_json_delta", partial_json='{"q": "}')
    + delta(2, "input_json_delta", partial_json='{"}')
    + chunk(type="content_block_stop", index=2)
    + end("tool_use")
)


@given(st.lists(st.integers(0, 5000), max_size=30))
def test_the_decoded_answer_does_not_depend_on_how_the_bytes_are_split(cuts: list[int]) -> None:
    places = sorted({0, len(USUAL), *(cut % len(USUAL) for cut in cuts)})
    assert shape(read(API, [USUAL[a:b] for a, b in pairwise(places)])) == shape(read(API, USUAL))


def test_reasoning_text_and_calls_are_decoded_in_order() -> None:
    events = read(API, USUAL)
    told = finished(events)
    assert told.message.parts[0] == Reasoning(text="Hm.", opaque={"signature": "sig"})
    assert (text_of(events), calls_of(events)) == ("Look.", [("a", "find", '{"q": "}{"}', "sealed")])
    assert (told.reason, told.said, told.model) == ("tool_calls", "tool_use", "claude")
    assert told.usage == Usage(input_tokens=5, output_tokens=7)


def test_a_call_is_sealed_at_its_closing_brace() -> None:
    decoder = codec(API).decoder()
    decoder.feed(block(0, "tool_use", id="a", name="f", input={}) + delta(0, "input_json_delta", partial_json='{"a": 1'))
    assert [type(told) for told in decoder.feed(delta(0, "input_json_delta", partial_json="}"))][-1] is CallSealed


def test_a_block_that_hit_the_token_limit_is_cut() -> None:
    body = block(0, "tool_use", id="a", name="f", input={}) + delta(0, "input_json_delta", partial_json='{"a": [1')
    assert calls_of(read(API, body + chunk(type="content_block_stop", index=0) + end("max_tokens"))) == [("a", "f", '{"a": [1', "cut")]


@given(st.integers(0, len(USUAL) - 1), st.integers(1, 255))
def test_a_damaged_stream_never_produces_a_wrong_call(at: int, flip: int) -> None:
    events = read(API, USUAL[:at] + bytes([USUAL[at] ^ flip]) + USUAL[at + 1 :])
    assert all(call[:3] == ("a", "find", '{"q": "}{"}') for call in calls_of(events) if call[3] != "cut")


@pytest.mark.parametrize("data", ["%%%", "bm8ganNvbg==", "WzFd", None, 7], ids=["no base64", "no JSON", "no object", "null", "number"])
def test_an_unreadable_chunk_is_a_fault(data: object) -> None:
    """Without the missing piece, the rest could form other arguments."""
    body = block(0, "tool_use", id="a", name="f", input={}) + delta(0, "input_json_delta", partial_json='{"a": 1')
    told = read(API, body + event("chunk", {"bytes": data}) + delta(0, "input_json_delta", partial_json='0')
                + chunk(type="content_block_stop", index=0) + end("tool_use"))  # fmt: skip
    assert (finished(told).reason, calls_of(told)[0][3]) == ("error", "cut")


@pytest.mark.parametrize(
    ("body", "retryable"),
    [
        (failure("throttlingException", "slow down"), True),
        (b'{"message": "slow down"}', False),
        (chunk(type="error", error={"type": "overloaded_error", "message": "slow down"}), True),
    ],
)
def test_an_error_ends_the_answer_with_the_services_message(body: bytes, retryable: bool) -> None:
    told = finished(read(API, body))
    assert told.fault is not None
    assert (told.reason, told.fault.message, told.fault.retryable) == ("error", "slow down", retryable)


WHOLE: dict[str, dict[str, object]] = {
    "anthropic": {
        "type": "message",
        "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}}],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 1, "output_tokens": 2},
    },
    "nova": {
        "output": {"message": {"content": [{"toolUse": {"toolUseId": "a", "name": "f", "input": {"x": 1}}}]}},
        "stopReason": "tool_use",
    },
    "mistral": {
        "choices": [
            {
                "index": 0,
                "message": {"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": '{"x":1}'}}]},
                "stop_reason": "tool_calls",
            }
        ]
    },
    "cohere": {"generation_id": "g", "text": "I will.", "tool_calls": [{"name": "f", "parameters": {"x": 1}}], "finish_reason": "COMPLETE"},
}


@pytest.mark.parametrize("maker", WHOLE)
@pytest.mark.parametrize("streamed", [True, False])
def test_every_model_vendor_is_recognized_by_the_shape_of_its_response(maker: str, streamed: bool) -> None:
    told = read(API, json.dumps(WHOLE[maker]).encode(), streamed=streamed)
    assert [call[1:] for call in calls_of(told)] == [("f", '{"x":1}', "sealed")]
    assert finished(told).reason == "tool_calls"


STREAMED = {
    "nova": (
        chunk(messageStart={"role": "assistant"})
        + chunk(contentBlockStart={"contentBlockIndex": 0, "start": {"toolUse": {"toolUseId": "a", "name": "f"}}})
        + chunk(contentBlockDelta={"contentBlockIndex": 0, "delta": {"toolUse": {"input": '{"x":1}'}}})
        + chunk(contentBlockStop={"contentBlockIndex": 0})
        + chunk(messageStop={"stopReason": "tool_use"})
    ),
    "mistral": chunk(choices=[{"index": 0, "message": {"content": "", "tool_calls": None}, "stop_reason": None}])
    + chunk(**WHOLE["mistral"]),
    "cohere": chunk(event_type="stream-start", is_finished=False)
    + chunk(event_type="tool-calls-generation", tool_calls=[{"name": "f", "parameters": {"x": 1}}], is_finished=False)
    + chunk(event_type="stream-end", finish_reason="COMPLETE", is_finished=True, response=WHOLE["cohere"]),
}


@pytest.mark.parametrize("maker", STREAMED)
def test_every_model_vendor_is_recognized_by_the_shape_of_its_events(maker: str) -> None:
    told = read(API, STREAMED[maker])
    assert [call[1:] for call in calls_of(told)] == [("f", '{"x":1}', "sealed")]
    assert finished(told).reason == "tool_calls"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"generation": "Sunny.", "prompt_token_count": 5, "generation_token_count": 7, "stop_reason": "stop"}, "stop"),
        ({"outputs": [{"text": "Sunny.", "stop_reason": "length"}]}, "length"),
        ({"inputTextTokenCount": 5, "results": [{"tokenCount": 7, "outputText": "Sunny.", "completionReason": "FINISH"}]}, "stop"),
        ({"completion": "Sunny.", "stop_reason": "stop_sequence"}, "stop"),
        ({"choices": [{"text": "Sunny.", "stop_reason": "stop"}]}, "stop"),
    ],
    ids=["llama", "mistral", "titan", "claude before messages", "choices of text"],
)
def test_text_only_responses_are_read(body: dict[str, object], reason: str) -> None:
    for told in (read(API, json.dumps(body).encode(), streamed=False), read(API, chunk(**body))):
        assert (text_of(told), finished(told).reason) == ("Sunny.", reason)
        assert finished(told).usage in (None, Usage(input_tokens=5, output_tokens=7))


def test_a_text_stream_without_a_stop_reason_is_cut() -> None:
    told = read(API, chunk(generation="Sun", stop_reason=None) + chunk(generation="ny.", stop_reason=None))
    assert (text_of(told), finished(told).reason) == ("Sunny.", "cut")


def test_a_request_is_an_anthropic_request_without_model_and_stream() -> None:
    request = ModelRequest(model="anthropic.claude:0", messages=TALK, stream=True)
    http = codec(API).encode(request, WireNames(), {})
    assert http.path == "/model/anthropic.claude%3A0/invoke-with-response-stream"
    body = json.loads(http.body)
    assert body["anthropic_version"] == "bedrock-2023-05-31"
    assert body["max_tokens"] > 0
    assert {"model", "stream"}.isdisjoint(body)
    assert sent(API, stream=False)["messages"][-1]["content"][0]["tool_use_id"] == "a"


def test_a_received_answer_is_sent_back_with_its_signature() -> None:
    """A thought of another API is left out."""
    messages = sent(API, answered(read(API, USUAL)))["messages"]
    assert [item["type"] for item in messages[1]["content"]] == ["thinking", "text", "tool_use"]
    assert messages[1]["content"][0]["signature"] == "sig"
    assert messages[2]["content"][0]["tool_use_id"] == "a"
    assert "thinking" not in json.dumps(sent(API))
