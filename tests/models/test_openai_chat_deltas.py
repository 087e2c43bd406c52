"""Chat completions of servers and proxies with unusual indexes, names and token counts."""

from __future__ import annotations

import json

import pytest

from callgate.models.model_events import ArgumentsDelta, CallSealed, Fault, ReasoningDelta, TextDelta, Usage
from callgate.models.wire import codec
from tests.models.decoding import calls_of, finished, read, text_of
from tests.models.test_openai_chat import API, CALLS, DONE, chunk, data, piece


def whole(*calls: object) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": None, "tool_calls": list(calls)}, "finish_reason": "tool_calls"}
    return json.dumps({"choices": [choice]}).encode()


def call(name: str, **more: object) -> dict[str, object]:
    return {**more, "function": {"name": name}}


@pytest.mark.parametrize("numbered", [{}, {"index": 0}, {"index": None}, {"id": ""}, {"id": "same"}], ids=str)
@pytest.mark.parametrize("streamed", [False, True])
def test_calls_in_one_list_are_never_merged(numbered: dict[str, object], streamed: bool) -> None:
    """Otherwise two tools without arguments would become one call with both names."""
    calls = [call("now", **numbered), call("here", **numbered)]
    body = chunk({"tool_calls": calls}) + CALLS if streamed else whole(*calls)
    assert [name for _, name, _, _ in calls_of(read(API, body, streamed=streamed))] == ["now", "here"]


def test_a_delta_that_repeats_the_name_under_a_new_id_continues_its_call() -> None:
    """Some proxies add a new id and the name to every piece."""
    body = b"".join(piece(text, index=0, id=f"id-{at}", name="f") for at, text in enumerate(['{"q":', ' "b', 'ooks"', "}"])) + CALLS
    assert calls_of(read(API, body)) == [("id-0", "f", '{"q": "books"}', "sealed")]


def test_interleaved_calls_with_one_index_are_told_apart_by_their_ids() -> None:
    pieces = [("a", '{"x"'), ("b", '{"y"'), ("a", ":1}"), ("b", ":2}")]
    body = b"".join(piece(text, index=0, id=one, name="f") for one, text in pieces) + CALLS
    assert calls_of(read(API, body)) == [("a", "f", '{"x":1}', "sealed"), ("b", "f", '{"y":2}', "sealed")]


@pytest.mark.parametrize("split", [["{", '"q": 1}'], ['{"q": 1}'], ["{}"]], ids=["half", "whole", "empty"])
@pytest.mark.parametrize("late", [{"index": 0}, {"index": 0, "id": "a"}, {"id": "a"}], ids=str)
def test_a_name_that_arrives_after_the_first_arguments_belongs_to_their_call(split: list[str], late: dict[str, object]) -> None:
    """Otherwise the name would start a second call, and the first would have none."""
    first, *rest = split
    body = piece(first, index=0, id="a") + piece("", name="f", **late) + b"".join(piece(more, index=0) for more in rest) + CALLS
    closed = "finished" if split == ["{}"] else "sealed"
    assert calls_of(read(API, body)) == [("a", "f", "".join(split), closed)]


def test_a_call_is_not_sealed_before_its_name_is_known() -> None:
    """A consumer that starts calls early needs the name."""
    decoder = codec(API).decoder()
    assert not [event for event in decoder.feed(piece('{"q": 1}', index=0, id="a")) if isinstance(event, CallSealed)]
    assert [event.call.name for event in decoder.feed(piece("", index=0, name="f")) if isinstance(event, CallSealed)] == ["f"]


@pytest.mark.parametrize(
    "last",
    [
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": {"prompt_tokens": 3, "completion_tokens": 4}}]},
        {
            "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
            "x_groq": {"usage": {"prompt_tokens": 3, "completion_tokens": 4}},
        },
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 3.0, "completion_tokens": 4.0}},
    ],
    ids=["in the choice", "in the server's own corner", "with a point"],
)
def test_token_usage_is_read_wherever_the_server_reports_it(last: dict[str, object]) -> None:
    """A token budget has no other source."""
    body = chunk({"content": "hi"}) + data(last) + DONE
    assert finished(read(API, body)).usage == Usage(input_tokens=3, output_tokens=4)


@pytest.mark.parametrize(
    "error", [{"code": 503, "message": "over"}, {"type": "server_error", "message": "x"}, {"code": "rate_limit_exceeded"}]
)
def test_a_transient_error_in_the_stream_is_retryable(error: dict[str, object]) -> None:
    fault = finished(read(API, chunk({"content": "a"}) + data({"error": error}))).fault
    assert isinstance(fault, Fault)
    assert fault.retryable


@pytest.mark.parametrize(
    ("deltas", "text"),
    [
        ([{"content": "a\ud83d"}, {"content": "\ude00b"}, {"content": "c\ud83d"}], "a😀bc?"),
        ([{"content": "a\ud83d"}, {"reasoning_content": "\ude00"}, {"content": "\ude00b"}], "a??b"),
        ([{"content": "\ude00b"}, {"content": "\ud83d\ude00"}], "?b😀"),
        ([{"reasoning_content": "x\ud83d"}, {"reasoning_content": "\ude00"}, {"content": "y"}], "y"),
    ],
)
def test_a_split_surrogate_pair_in_text_is_yielded_as_one_character(deltas: list[dict[str, str]], text: str) -> None:
    """Printing or encoding an event with a lone surrogate fails; proxies split texts by UTF-16 units."""
    events = read(API, b"".join(map(chunk, deltas)) + chunk(finish="stop") + DONE)
    assert text_of(events) == text == finished(events).message.text
    for event in events:
        if isinstance(event, (TextDelta, ReasoningDelta)):
            event.text.encode()


def test_a_split_surrogate_pair_in_arguments_is_yielded_as_one_character() -> None:
    body = piece('{"x":"\ud83d', index=0, id="a", name="f") + piece('\ude00"}', index=0) + CALLS
    events = read(API, body)
    assert [event.text for event in events if isinstance(event, ArgumentsDelta)] == ['{"x":"', '😀"}']
    assert calls_of(events) == [("a", "f", '{"x":"😀"}', "sealed")]


def test_custom_tool_inputs_of_two_calls_with_one_index_are_kept_apart() -> None:
    """Free text has no braces that show whether it is complete, so its content does not show that a call continues."""
    bodies = [chunk({"tool_calls": [{"index": 0, "id": one, "custom": {"name": "run", "input": f"print({one})"}}]}) for one in "ab"]
    calls = calls_of(read(API, b"".join(bodies) + CALLS))
    assert calls == [("a", "run", "print(a)", "finished"), ("b", "run", "print(b)", "finished")]
