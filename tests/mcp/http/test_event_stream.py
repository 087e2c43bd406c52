"""Event streams are read in the same way however their bytes arrive, and within bounds."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate.mcp._event_stream import EventStream, EventTooLarge

_FIELDS = "data: a|data:b|data:  c|data|data:|id: 1|id: 2|id|id: a\0b|event: message|event: endpoint|retry: 5|retry: x|other: 1|data: ü😀"
LINES = st.sampled_from([*_FIELDS.split("|"), ": comment", "", "", ""])
ENDS = st.sampled_from(["\n", "\r\n", "\r"])


def read(stream: EventStream, chunks: list[bytes]) -> list[bytes]:
    return [event for chunk in chunks for event in stream.feed(chunk)]


@given(st.lists(st.tuples(LINES, ENDS), max_size=30), st.lists(st.integers(0, 300)), st.booleans())
def test_the_same_events_are_read_however_the_bytes_arrive(lines: list[tuple[str, str]], cuts: list[int], mark: bool) -> None:
    text = ("\ufeff" if mark else "").encode() + "".join(line + end for line, end in lines).encode()
    places = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    whole, parts, single = EventStream(1_000), EventStream(1_000), EventStream(1_000)
    pieces = [text[start:end] for start, end in pairwise(places)]
    bytes_one_by_one = [text[place : place + 1] for place in range(len(text))]
    assert read(whole, [text]) == read(parts, pieces) == read(single, bytes_one_by_one)
    assert whole.last_event_id == parts.last_event_id == single.last_event_id
    assert whole.retry_ms == parts.retry_ms == single.retry_ms


@pytest.mark.parametrize(
    ("text", "events"),
    [
        (b"data: a\n\n", [b"a"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b"event: message\r\ndata: a\r\n\r\n", [b"a"]),
        (b"event: endpoint\ndata: a\n\ndata: b\n\n", [b"b"]),
        (b"id: 1\ndata:\n\n", []),
        (b"data: a\n", []),
        (b": ping\n\ndata: a\n\n", [b"a"]),
        (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
    ],
)
def test_events_named_message_with_data_are_returned(text: bytes, events: list[bytes]) -> None:
    assert EventStream(1_000).feed(text) == events


def test_the_id_of_an_event_counts_once_the_event_is_complete() -> None:
    """A stream that is continued after the id of a cut event would lose that event."""
    stream = EventStream(1_000)
    stream.feed(b"id: 1\ndata: a\n\nid: 2\ndata: b")
    assert stream.last_event_id == "1"
    stream.restart()
    assert stream.feed(b"\n\nid: 2\ndata: b\n\n") == [b"b"]
    assert stream.last_event_id == "2"


def test_comments_are_no_part_of_an_event_in_any_number() -> None:
    stream = EventStream(100)
    for _ in range(1_000):
        assert stream.feed(b": still here\n") == []
    assert stream.feed(b"data: a\n\n") == [b"a"]


@pytest.mark.parametrize("chunk", [b"data: xxx\n", b"x", b"id: 1\n", b": xxxxxxxxx"])
def test_an_event_above_the_limit_is_not_collected(chunk: bytes) -> None:
    with pytest.raises(EventTooLarge):
        read(EventStream(1_000), [chunk] * 1_001)


def test_an_event_at_the_limit_is_read() -> None:
    assert EventStream(1_000).feed(b"data: " + b"x" * 994 + b"\n\n") == [b"x" * 994]
