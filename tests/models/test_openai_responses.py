"""Decoding of OpenAI's responses API: output items become the parts of one message."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate.calls import Text
from callgate.messages import Native, Reasoning, ToolCall
from callgate.models.model_events import CallSealed, ReasoningDelta, Usage
from callgate.models.wire import codec
from tests.models.decoding import calls_of, finished, read, shape, text_of
from tests.models.responses_api import (
    API,
    FREE,
    OUTPUT,
    SAID,
    SEARCH,
    THOUGHT,
    USUAL,
    added,
    done,
    event,
    function,
    message,
    over,
    piece,
    response,
)


@given(st.lists(st.integers(0, 9000), max_size=30))
def test_the_decoded_answer_does_not_depend_on_how_the_bytes_are_split(cuts: list[int]) -> None:
    places = sorted({0, len(USUAL), *(cut % len(USUAL) for cut in cuts)})
    assert shape(read(API, [USUAL[a:b] for a, b in pairwise(places)])) == shape(read(API, USUAL))


PARTS = (
    Reasoning(text="Hm.", opaque={"item": {**THOUGHT, "status": "completed"}}),
    Native(kind="web_search_call", id="ws_1", item=SEARCH),
    Reasoning(opaque={"message": {"id": "msg_1", "phase": "commentary"}}),
    Text(text="Let me lóok."),
    ToolCall(id="a", name="search", arguments='{"q": "books}{"}', opaque={"id": "fc_a"}),
    ToolCall(id="b", name="now", arguments="{}", opaque={"id": "fc_b"}),
    ToolCall(id="c", name="py", arguments="print(1)}", custom=True, opaque={"id": "ctc_1"}),
)


def test_items_become_the_parts_of_one_message() -> None:
    end = finished(read(API, USUAL))
    assert end.message.parts == PARTS
    assert (end.reason, end.said, end.model) == ("tool_calls", "completed", "m")
    assert end.usage == Usage(input_tokens=9, output_tokens=7, cached_tokens=2, reasoning_tokens=3)


def lines(*kinds: str) -> bytes:
    """Return the usual stream without the events of these kinds."""
    return b"".join(frame + b"\n\n" for frame in USUAL.split(b"\n\n")[:-1] if not any(kind.encode() in frame for kind in kinds))


DELTAS = (".delta", "text.done", "arguments.done", "input.done")


@pytest.mark.parametrize(
    "body",
    [
        lines(*DELTAS),
        lines("event: response.output_item.added"),
        lines("event: response.output_item.done"),
        lines(*DELTAS, "event: response.output_item.added"),
        lines(*DELTAS, "output_item"),
        lines(".delta"),
        lines("arguments.done", "input.done", "text.done"),
        lines("event: response.output_item.done", *DELTAS),
        json.dumps(response(*OUTPUT)).encode(),
        b"data: " + json.dumps(response(*OUTPUT)).encode() + b"\n\n",
        USUAL + b"data: [DONE]\n\n",
        b"".join(line + b"\n\n" for line in USUAL.split(b"\n") if line.startswith(b"data")),
        b"".join(frame + b"\n\n" + (frame + b"\n\n" if b"output_item" in frame else b"") for frame in USUAL.split(b"\n\n")[:-1]),
    ],
    ids=[
        "no pieces", "no begins", "no ends", "ends only", "the last event only", "no deltas", "no ends of pieces", "begins only",
        "one body", "a response as a frame", "end mark", "no event names", "items twice",
    ],
)  # fmt: skip
def test_omitted_or_repeated_events_do_not_change_the_message(body: bytes) -> None:
    """Servers omit events whose content another event repeats."""
    end = finished(read(API, body))
    assert (end.message.text, end.reason) == ("Let me lóok.", "tool_calls")
    assert {(call.id, call.name, call.arguments, call.custom) for call in end.message.calls} == {
        (part.id, part.name, part.arguments, part.custom) for part in PARTS if isinstance(part, ToolCall)
    }
    assert len(end.message.calls) == 3
    assert [part.kind for part in end.message.parts if isinstance(part, Native)] == ["web_search_call"]


TWO_CALLS = [("a", "f", '{"x": 1}', "sealed"), ("b", "f", '{"x": 2}', "sealed")]


def series(first: tuple[object, object], second: tuple[object, object], **ids: object) -> bytes:
    """Return the body of two consecutive calls, with these indexes and ids in their pieces."""
    body = b""
    for (index, item_id), call_id, text in ((first, "a", '{"x": 1}'), (second, "b", '{"x": 2}')):
        body += added(index, **{**function(call_id, "f"), **ids})
        body += piece(index, item_id, text[:4]) + piece(index, item_id, text[4:])
        body += done(index, **{**function(call_id, "f", text), **ids})
    return body + over()


@pytest.mark.parametrize(
    "body",
    [
        series((0, "fc_a"), (0, "fc_b")),
        series((0, ""), (0, ""), id=""),
        series((None, None), (None, None), id=None),
        series((0, "x9"), (1, "y9"), id="z"),
        series((0, "same"), (1, "same"), id="same"),
        added(0, **function("a", "f")) + added(1, **function("b", "f")) + piece(0, "fc_a", '{"x"') + piece(1, "fc_b", '{"x"')
        + piece(0, "fc_a", ": 1}") + piece(1, "fc_b", ": 2}") + over(function("a", "f", '{"x": 1}'), function("b", "f", '{"x": 2}')),
    ],
    ids=["numbers all 0", "zero-filled", "nothing", "ids that change", "one item id", "interleaved"],
)  # fmt: skip
def test_deltas_with_unreliable_ids_are_assigned_to_their_call(body: bytes) -> None:
    """Some servers fill ids and indexes with zeros, or give an item a new id in every event."""
    assert calls_of(read(API, body)) == TWO_CALLS


def test_a_call_is_sealed_at_its_closing_brace() -> None:
    decoder = codec(API).decoder()
    decoder.feed(added(0, **function("a", "f")) + piece(0, "fc_a", '{"x": 1'))
    sealed = decoder.feed(piece(0, "fc_a", "}"))[-1]
    assert isinstance(sealed, CallSealed)
    assert sealed.call.opaque == {"id": "fc_a"}


@pytest.mark.parametrize("status", ["incomplete", "failed", "cancelled"])
@pytest.mark.parametrize(
    "item",
    [function("b", "f", '{"x": [1'), function("b", "f", ""), {**FREE, "call_id": "b", "name": "f"}],
    ids=["half", "nothing", "free text"],
)
def test_the_open_call_of_an_unfinished_response_is_cut(item: dict[str, object], status: str) -> None:
    """A truncated call is not complete. Free text has no end of its own, so only the item's status shows that it is complete."""
    whole = function("a", "f", '{"x": 1}', status="completed")
    for last in ({**item, "status": "incomplete"}, item):
        streamed = done(0, **whole) + added(1, **{**item, "arguments": "", "input": ""}) + over(whole, last, status=status)
        for body in (streamed, json.dumps(response(whole, last, status=status)).encode()):
            assert [one[3] for one in calls_of(read(API, body))] == ["sealed", "cut"]


def test_an_incomplete_item_is_cut_although_the_response_is_completed() -> None:
    assert [one[3] for one in calls_of(read(API, over({**FREE, "status": "incomplete"})))] == ["cut"]


@pytest.mark.parametrize(("status", "closed"), [("completed", "finished"), ("incomplete", "cut")])
def test_a_done_item_in_progress_is_finished_or_cut_with_its_response(status: str, closed: str) -> None:
    """Some servers never change an item's status."""
    item = function("a", "f", "{}", status="in_progress")
    for body in (added(0, **item) + done(0, **item) + over(item, status=status), json.dumps(response(item, status=status)).encode()):
        assert calls_of(read(API, body)) == [("a", "f", "{}", closed)]


def test_arguments_in_the_added_event_are_used_only_if_nothing_follows() -> None:
    body = added(0, **function("a", "f", "{}")) + piece(0, "fc_a", '{"x": 1}')
    assert calls_of(read(API, body + over())) == [("a", "f", '{"x": 1}', "sealed")]
    assert calls_of(read(API, added(0, **function("a", "f", '{"x": 1}')) + over())) == [("a", "f", '{"x": 1}', "sealed")]
    assert calls_of(read(API, added(0, **function("a", "f", '{"x": 1}')))) == [("a", "f", "", "cut")]


def test_a_truncated_stream_never_completes_a_partial_call() -> None:
    right = {one[0]: one for one in calls_of(read(API, USUAL))}
    for length in range(0, len(USUAL), 3):
        for one in calls_of(read(API, USUAL[:length])):
            assert one[3] == "cut" or one == right[one[0]]


@pytest.mark.parametrize(
    ("details", "reason"),
    [({"reason": "max_output_tokens"}, "length"), ({"reason": "content_filter"}, "content_filter"), (None, "other"), ({}, "other")],
)
def test_the_reason_of_an_incomplete_response_is_mapped(details: object, reason: str) -> None:
    assert finished(read(API, over(SAID, status="incomplete", incomplete_details=details))).reason == reason


@pytest.mark.parametrize(
    "body",
    [
        event("error", code="server_error", message="busy", param=None),
        event("error", error={"type": "error", "code": "server_error", "message": "busy"}),
        b'data: {"error": {"code": "server_error", "message": "busy"}}\n\n',
        over(status="failed", error={"code": "server_error", "message": "busy"}),
        b'{"error": {"type": "server_error", "code": null, "message": "busy"}}',
        json.dumps(response(status="failed", error={"code": "server_error", "message": "busy"})).encode(),
    ],
)
def test_an_error_ends_the_response_with_the_providers_message(body: bytes) -> None:
    before = b"" if body.startswith(b"{") else added(0, **function("a", "f")) + piece(0, "fc_a", '{"x"')
    events = read(API, before + body)
    end = finished(events)
    assert end.fault is not None
    assert (end.reason, end.fault.code, end.fault.message, end.fault.retryable) == ("error", "server_error", "busy", True)
    assert all(one[3] == "cut" for one in calls_of(events))


KINDS = (
    "web_search_call", "file_search_call", "computer_call", "code_interpreter_call", "image_generation_call", "mcp_call", "mcp_list_tools",
    "mcp_approval_request", "tool_search_call", "tool_search_output", "local_shell_call",
    "shell_call", "apply_patch_call", "compaction", "new",
)  # fmt: skip


def test_items_other_than_our_calls_become_native_parts() -> None:
    items = [{"type": kind, "id": f"i_{kind}", "name": "x", "arguments": "{}"} for kind in KINDS]
    streamed = b"".join(added(at, **item) + done(at, **item) for at, item in enumerate(items))
    for body in (streamed + over(), over(*items), json.dumps(response(*items)).encode()):
        end = finished(read(API, body))
        assert [part.kind for part in end.message.parts if isinstance(part, Native)] == list(KINDS)
        assert (end.message.calls, end.reason) == ((), "stop")


def test_refusals_become_text_and_summary_parts_become_paragraphs() -> None:
    refusal = {"type": "message", "id": "m", "content": [{"type": "refusal", "refusal": "No."}]}
    streamed = added(0, type="message", id="m") + event("response.refusal.delta", item_id="m", output_index=0, delta="No.")
    for body in (streamed + done(0, **refusal) + over(refusal), over(refusal)):
        assert text_of(read(API, body)) == "No."
    thought = {"type": "reasoning", "id": "r", "summary": [{"text": "One."}, {"text": "Two."}]}
    pieces = b"".join(
        event("response.reasoning_summary_text.delta", item_id="r", output_index=0, summary_index=at, delta=text)
        for at, text in enumerate(("One.", "Two."))
    )
    for body in (added(0, type="reasoning", id="r") + pieces + done(0, **thought) + over(thought), over(thought)):
        events = read(API, body)
        assert "".join(one.text for one in events if isinstance(one, ReasoningDelta)) == "One.\n\nTwo."


@pytest.mark.parametrize(
    "odd",
    [
        b"data: {oops\n\n",
        event("response.output_item.added", item=7),
        event("response.output_item.done", output_index=9, item=None),
        event("response.new.kind", x=1),
        piece(77, "lost", '{"lost": 1}'),
        event("response.completed.extra", response=3),
    ],
)
def test_unexpected_frames_are_skipped(odd: bytes) -> None:
    end = finished(read(API, odd + USUAL))
    assert end.message.text == "Let me lóok."
    assert len(end.message.calls) == 3


def test_arguments_without_a_call_are_a_fault() -> None:
    assert finished(read(API, piece(0, "x", "{}") + over())).reason == "error"


def test_consecutive_responses_in_one_body_become_one_message() -> None:
    """A gateway that runs tools of its own between two responses sends such bodies."""
    created = event("response.created", response={"model": "m"})
    first = created + done(0, **SAID) + done(1, **function("a", "f", "{}")) + over(SAID, function("a", "f", "{}"))
    second = created + done(0, **message("So.", id="")) + done(1, **function("b", "f", "{}")) + over(message("So.", id=""))
    events = read(API, first + second)
    assert [one[0] for one in calls_of(events)] == ["a", "b"]
    assert text_of(events) == "Let me lóok.So."
    assert shape(read(API, first + over(SAID, function("a", "f", "{}")))) == shape(read(API, first))


@pytest.mark.parametrize(
    "body",
    [
        added(0, **message("Let me.")),
        added(0, type="message", id="m", content=[])
        + event(
            "response.content_part.done", item_id="m", output_index=0, content_index=0, part={"type": "output_text", "text": "Let me."}
        ),
    ],
    ids=["in its begin", "in its part"],
)
def test_text_reported_only_once_is_read(body: bytes) -> None:
    """Some servers never send the end of an item, and their last event does not repeat the text."""
    assert text_of(read(API, body + over())) == "Let me."


def test_an_unfinished_native_item_is_kept_if_the_response_completed() -> None:
    assert finished(read(API, added(0, **SEARCH) + over())).message.parts == (Native(kind="web_search_call", id="ws_1", item=SEARCH),)
    assert finished(read(API, added(0, **SEARCH))).message.parts == ()


def test_a_failure_event_of_another_object_does_not_fail_the_response() -> None:
    """For example the failure of a steering message."""
    beside = event("response.steer.failed", error={"code": "invalid_input", "message": "no"})
    assert finished(read(API, beside + USUAL)).reason == "tool_calls"
