"""Ollama's own chat API, of old and new servers."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate.messages import Reasoning, UserMessage
from callgate.models.model_events import CallSealed, Usage
from callgate.models.wire import codec
from tests.models.decoding import calls_of, finished, read, shape, text_of
from tests.models.sample_conversation import PICTURE, TALK, TOOLS, answered, sent

API = "ollama.chat"


def line(**fields: object) -> bytes:
    return json.dumps({"model": "m", "created_at": "2026-01-01T00:00:00Z", "done": False, **fields}, ensure_ascii=False).encode() + b"\n"


def says(**message: object) -> bytes:
    return line(message={"role": "assistant", "content": "", **message})


def call(name: str, arguments: object, **more: object) -> dict[str, object]:
    return {"function": {"name": name, "arguments": arguments}, **more}


DONE = line(message={"role": "assistant", "content": ""}, done=True, done_reason="stop", prompt_eval_count=7, eval_count=5)
USUAL = (
    says(thinking="Hm, ")
    + says(thinking="yes.")
    + says(content="Let me look. ünï\u2028")
    + says(tool_calls=[call("find", {"q": "}{", "n": 1}, id="call_1")])
    + says(tool_calls=[call("shot", {}, id="call_2")])
    + DONE
)


@given(st.lists(st.integers(0, 5000), max_size=30))
def test_the_decoded_answer_does_not_depend_on_how_the_bytes_are_split(cuts: list[int]) -> None:
    places = sorted({0, len(USUAL), *(cut % len(USUAL) for cut in cuts)})
    assert shape(read(API, [USUAL[a:b] for a, b in pairwise(places)])) == shape(read(API, USUAL))


def test_reasoning_text_and_calls_are_decoded_in_order() -> None:
    end = finished(read(API, USUAL))
    assert [type(part).__name__ for part in end.message.parts] == ["Reasoning", "Text", "ToolCall", "ToolCall"]
    assert calls_of(read(API, USUAL)) == [("call_1", "find", '{"q":"}{","n":1}', "sealed"), ("call_2", "shot", "{}", "sealed")]
    assert (end.reason, end.said, end.model) == ("tool_calls", "stop", "m")
    assert end.usage == Usage(input_tokens=7, output_tokens=5)


def test_a_call_is_sealed_at_the_end_of_its_line() -> None:
    """A read can then start while the model still writes."""
    assert [type(event) for event in codec(API).decoder().feed(says(tool_calls=[call("f", {})]))][-1] is CallSealed


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("content_type", ["", "application/json; charset=utf-8", "application/x-ndjson"])
def test_a_single_body_and_lines_are_recognized_by_their_content(streamed: bool, content_type: str) -> None:
    """Servers send either form with either content type."""
    whole = says(content="hi", tool_calls=[call("f", {"a": 1})])[:-2] + b', "done": true, "done_reason": "stop"}'
    for body in (whole, USUAL, b"".join(b"data: " + part + b"\n\n" for part in USUAL.splitlines())):
        end = finished(read(API, body, streamed=streamed, content_type=content_type))
        assert end.reason == "tool_calls"
        assert shape(read(API, [body[at : at + 1] for at in range(len(body))], streamed=streamed, content_type=content_type)) == shape(
            read(API, body, streamed=streamed, content_type=content_type)
        )


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
def test_indented_json_values_are_read(streamed: bool, end: str) -> None:
    """One value or several, each on several lines."""
    values = [json.loads(value) for value in USUAL.decode().split("\n") if value]
    body = "".join(json.dumps(value, indent=2).replace("\n", end or "\n") + end for value in values).encode()
    assert shape(read(API, body, streamed=streamed)) == shape(read(API, USUAL))
    assert shape(read(API, [body[at : at + 1] for at in range(len(body))], streamed=streamed)) == shape(read(API, USUAL))


def test_unreadable_text_after_the_last_value_is_a_fault() -> None:
    body = json.dumps(json.loads(says(tool_calls=[call("f", {"a": 1})])), indent=2).encode()
    events = read(API, body + b'\n{"message":')
    assert finished(events).reason == "error"
    assert [one[1:] for one in calls_of(events)] == [("f", '{"a":1}', "sealed")]


@pytest.mark.parametrize(
    ("item", "got"),
    [
        (call("f", {"a": 1}), ("made-0", "f", '{"a":1}')),
        (call("f", {"a": 1}, id=""), ("made-0", "f", '{"a":1}')),
        (call("f", '{"a": 1}', id="x"), ("x", "f", '{"a": 1}')),
        ({"function": {"index": 0, "name": "f", "arguments": {}}}, ("made-0", "f", "{}")),
        ({"function": {"name": "f", "arguments": None}}, ("made-0", "f", "")),
        ({"name": "f", "parameters": {"a": 1}}, ("made-0", "f", '{"a":1}')),
    ],
    ids=["no id", "empty id", "arguments as text", "index", "no arguments", "flat"],
)
def test_calls_of_every_server_are_read(item: dict[str, object], got: tuple[str, str, str]) -> None:
    assert [one[:3] for one in calls_of(read(API, says(tool_calls=[item]) + DONE))] == [got]


def test_a_call_repeated_under_the_same_id_is_one_call() -> None:
    again = says(tool_calls=[call("f", {"x": 1}, id="a")])
    assert len(calls_of(read(API, again + again + DONE))) == 1
    assert len(calls_of(read(API, again + says(tool_calls=[call("f", {"x": 2}, id="a")]) + DONE))) == 2


@pytest.mark.parametrize(
    ("said", "reason"),
    [("stop", "stop"), ("length", "length"), ("load", "stop"), ("unload", "stop"), ("who_knows", "other")],
)
def test_done_reasons_are_mapped(said: str, reason: str) -> None:
    end = finished(read(API, says(content="hi") + line(done=True, done_reason=said)))
    assert (end.reason, end.said) == (reason, said)


def test_a_truncated_body_is_cut_between_lines_and_an_error_within_a_line() -> None:
    """The calls before the end are complete in both cases."""
    end = finished(read(API, USUAL[: -len(DONE)]))
    assert end.reason == "cut"
    events = read(API, USUAL[: USUAL.index(b"call_2")])
    assert finished(events).reason == "error"
    assert [one[0] for one in calls_of(events)] == ["call_1"]


def test_an_error_line_ends_the_answer_with_the_servers_message() -> None:
    end = finished(read(API, says(content="Let") + b'{"error": "model runner has stopped"}\n'))
    assert (end.reason, end.fault and end.fault.message) == ("error", "model runner has stopped")
    assert finished(read(API, b'{"error": "model not found"}', streamed=False)).reason == "error"


def test_the_text_of_a_generate_response_is_read() -> None:
    assert text_of(read(API, line(response="Sun") + line(response="ny.", done=True))) == "Sunny."


@pytest.mark.parametrize("odd", [b"{oops\n", b"7\n", b'{"message": 3}\n', b'{"message": {"tool_calls": [7, null, {}]}}\n', b"\n\n"])
def test_unexpected_lines_are_skipped(odd: bytes) -> None:
    assert finished(read(API, odd + USUAL)).message.text.startswith("Let me")


def test_a_request_carries_the_whole_conversation() -> None:
    body = sent(API, max_tokens=9, temperature=0.5, extra={"options": {"num_ctx": 8192}, "think": True})
    assert body["options"] == {"num_predict": 9, "temperature": 0.5, "num_ctx": 8192}
    assert body["think"] is True
    assert body["tools"][1]["function"]["parameters"] == {"type": "object", "properties": {}}
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Find it."},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"id": "a", "function": {"name": "find", "arguments": {"q": "x"}}},
                {"id": "b", "function": {"name": "shot", "arguments": {}}},
            ],
        },
        {"role": "tool", "content": "3 hits", "tool_name": "find", "tool_call_id": "a"},
        {"role": "tool", "content": "no screen", "tool_name": "shot", "tool_call_id": "b"},
        {"role": "user", "content": "Pictures from the results above:", "images": ["aGk="]},
        {"role": "user", "content": "Well?"},
    ]


def test_a_received_answer_is_sent_back_with_its_reasoning_and_without_made_up_ids() -> None:
    """Ids that the decoder made up are not sent."""
    body = sent(API, answered(read(API, says(thinking="Hm.") + says(tool_calls=[call("f", {"a": [1]})]) + DONE)))
    assert body["messages"][1:] == [
        {"role": "assistant", "content": "", "thinking": "Hm.", "tool_calls": [{"function": {"name": "f", "arguments": {"a": [1]}}}]},
        {"role": "tool", "content": "done", "tool_name": "f"},
    ]
    assert isinstance(finished(read(API, USUAL)).message.parts[0], Reasoning)


def test_tool_choice_limits_the_tools_that_are_sent() -> None:
    assert [len(sent(API, tool_choice=choice).get("tools", [])) for choice in ("auto", "required", "none", TOOLS[1].name)] == [2, 2, 0, 1]


def test_user_images_are_sent_in_the_images_field() -> None:
    assert sent(API, [UserMessage((PICTURE,)), *TALK[:1]])["messages"][0] == {"role": "user", "content": "", "images": ["aGk="]}
