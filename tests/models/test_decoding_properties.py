"""Properties of all decoders for any body: no exception, no hang, and no call made of incomplete parts."""

from __future__ import annotations

import json
import re
from importlib import import_module
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate.models.model_events import CallReopened, CallSealed, ModelEvent
from callgate.models.wire import codec, known_apis
from tests.models.decoding import calls_of, finished, read, shape, text_of

APIS = known_apis()
CONTENT_TYPES = st.sampled_from(["", "text/event-stream", "application/json", "application/x-ndjson", "application/vnd.amazon.eventstream"])


def usual(api: str) -> bytes:
    """Return the body that the API's own tests use: text, reasoning and calls."""
    body = import_module(f"tests.models.test_{api.replace('.', '_')}").USUAL
    assert isinstance(body, bytes)
    return body


BODIES = {api: usual(api) for api in APIS}


def assert_exactly_one_end(events: list[ModelEvent]) -> None:
    """Assert one `Finished`, the last event; one seal per opening of a call; and the same text and calls in events and message."""
    end = finished(events)
    seals = [event.position for event in events if isinstance(event, CallSealed)]
    again = [event.position for event in events if isinstance(event, CallReopened)]
    assert sorted(seals) == sorted([*range(len(end.message.calls)), *again])
    assert text_of(events) == end.message.text


mutations = st.one_of(
    st.tuples(st.just("flip"), st.integers(0, 20_000), st.integers(1, 255)),
    st.tuples(st.just("drop"), st.integers(0, 20_000), st.integers(1, 60)),
    st.tuples(st.just("double"), st.integers(0, 20_000), st.integers(1, 400)),
    st.tuples(st.just("end"), st.integers(0, 20_000), st.just(0)),
)


def mutated(body: bytes, changes: list[tuple[str, int, int]]) -> bytes:
    for kind, place, size in changes:
        at = place % (len(body) + 1)
        match kind:
            case "flip":
                body = body[:at] + bytes(byte ^ size for byte in body[at : at + 1]) + body[at + 1 :]
            case "drop":
                body = body[:at] + body[at + size :]
            case "double":
                body = body[: at + size] + body[at:]
            case _:
                body = body[:at]
    return body


@pytest.mark.parametrize("api", APIS)
@given(st.lists(st.binary(max_size=200), max_size=5), st.booleans(), CONTENT_TYPES)
def test_any_bytes_are_decoded_to_exactly_one_end(api: str, pieces: list[bytes], streamed: bool, content_type: str) -> None:
    assert_exactly_one_end(read(api, pieces, streamed=streamed, content_type=content_type))


@pytest.mark.parametrize("api", APIS)
@given(st.sampled_from(APIS), st.lists(mutations, max_size=4), st.booleans(), CONTENT_TYPES, st.lists(st.integers(0, 5000), max_size=9))
def test_damaged_answers_are_decoded_to_exactly_one_end(
    api: str, other: str, changes: list[tuple[str, int, int]], streamed: bool, content_type: str, cuts: list[int]
) -> None:
    """The body may also be one of another API. The result does not depend on how the bytes are split."""
    for body in (mutated(BODIES[api], changes), mutated(BODIES[other], changes)):
        places = sorted({0, len(body), *(cut % (len(body) + 1) for cut in cuts)})
        whole = read(api, body, streamed=streamed, content_type=content_type)
        pieces = read(api, [body[a:b] for a, b in pairwise(places)], streamed=streamed, content_type=content_type)
        assert_exactly_one_end(whole)
        assert shape(whole) == shape(pieces)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("streamed", [True, False])
def test_a_leading_byte_order_mark_is_ignored(api: str, streamed: bool) -> None:
    for body in (BODIES[api], b'{"error": {"message": "no"}}'):
        marked = b"\xef\xbb\xbf" + body
        assert shape(read(api, marked, streamed=streamed)) == shape(read(api, body, streamed=streamed))
        assert shape(read(api, [marked[at : at + 1] for at in range(len(marked))], streamed=streamed)) == shape(
            read(api, marked, streamed=streamed)
        )


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 3) | st.text("a{}", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=1), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize("api", APIS)
@given(st.data())
def test_fields_of_any_type_raise_no_error(api: str, data: st.DataObject) -> None:
    """Any value of the body is replaced by any other."""
    lines = BODIES[api].split(b"\n")
    at = data.draw(st.sampled_from([number for number, line in enumerate(lines) if b"{" in line]))
    head, brace, rest = lines[at].partition(b"{")
    try:
        value = json.loads(brace + rest)
    except ValueError:
        return  # binary framing: checksums do not allow changes
    _replace(value, data)
    lines[at] = head + json.dumps(value).encode()
    assert_exactly_one_end(read(api, b"\n".join(lines)))


def _replace(value: object, data: st.DataObject) -> None:
    """Replace one value, at any depth, by another."""
    while isinstance(value, (dict, list)) and value:
        key = data.draw(st.sampled_from(list(value) if isinstance(value, dict) else list(range(len(value)))))
        inner = value[key]
        if not isinstance(inner, (dict, list)) or not inner or data.draw(st.booleans()):
            value[key] = data.draw(VALUES)
            return
        value = inner


@pytest.mark.parametrize("api", APIS)
def test_a_truncated_answer_never_completes_a_partial_call(api: str) -> None:
    """A call that is not whole is `cut`, neither `sealed` nor `finished`."""
    body = BODIES[api]
    whole = {call[0]: call[1:3] for call in calls_of(read(api, body))}
    assert whole
    for at in range(len(body)):
        events = read(api, body[:at])
        assert_exactly_one_end(events)
        for call_id, name, arguments, closed in calls_of(events):
            assert closed == "cut" or whole[call_id] == (name, arguments), (at, call_id, arguments)


@pytest.mark.parametrize("api", APIS)
def test_an_answer_with_a_broken_frame_never_completes_a_partial_call(api: str) -> None:
    """The unreadable frame may have contained a piece of any open call. A call without a name runs nothing."""
    body = BODIES[api]
    whole = {call[0]: call[1:3] for call in calls_of(read(api, body))}
    frames = body.split(b"\n\n") if b"\n\n" in body else body.split(b"\n")
    for at, frame in enumerate(frames):
        if b"{" not in frame:
            continue
        broken = b"\n\n".join([*frames[:at], frame[: frame.rindex(b"}") - 1], *frames[at + 1 :]])
        for call_id, name, arguments, closed in calls_of(read(api, broken)):
            assert closed == "cut" or not name or whole.get(call_id) == (name, arguments), (at, call_id, name, arguments)


NAMES = {"cohere.chat": r"[A-Za-z_][A-Za-z0-9_]{0,63}", "gemini.generate": r"[A-Za-z_][A-Za-z0-9_.-]{0,63}"}
"""The pattern for tool names of APIs that do not follow the common rule."""


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("tool", ["get-issue", "crm.find", "files/read", "2nd", "-x", "naïve", "x" * 80, "get_issue"])
def test_tool_names_are_sent_in_the_form_that_each_api_accepts(api: str, tool: str) -> None:
    """Sent names follow the providers' documented rules, and a returned name is mapped back to the tool's own."""
    names = codec(api).wire_names([tool])
    assert re.fullmatch(NAMES.get(api, r"[A-Za-z0-9_-]{1,64}"), names.to_wire(tool))
    assert names.original(names.to_wire(tool)) == tool


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("content_type", ["", "text/html", "text/event-stream"])
def test_an_html_page_instead_of_an_answer_is_reported_as_such(api: str, streamed: bool, content_type: str) -> None:
    """A wrong base URL or a gateway may return a page; the fault must not say that the connection ended too early."""
    page = b"\n<!doctype html>\n<html><body>Sign in</body></html>\n"
    for body in ([page], [page[at : at + 1] for at in range(len(page))]):
        fault = finished(read(api, body, content_type=content_type, streamed=streamed)).fault
        assert fault is not None
        assert fault.message.startswith("The answer is an HTML page, not JSON: '<!doctype html>")
        assert fault.message.endswith("Check the URL of the request.")


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    "failure", [{"error": {"message": "no luck"}}, {"error": "no luck"}, {"message": "no luck"}, {"detail": "no luck"}]
)
def test_an_error_body_with_status_200_is_reported_with_its_message(api: str, streamed: bool, failure: dict[str, object]) -> None:
    """Gateways report failures in their own formats, whichever API they serve. Their message says more than that there was no answer."""
    end = finished(read(api, json.dumps(failure).encode(), streamed=streamed))
    assert end.fault is not None
    assert "no luck" in end.fault.message
