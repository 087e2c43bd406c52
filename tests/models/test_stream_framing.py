"""Bodies are split into the same frames however their bytes arrive."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate.models.wire import stream_framing
from callgate.models.wire.stream_framing import Frame, FrameParser, FramingError, JsonLines, ServerSentEvents

STREAM = (
    b'\xef\xbb\xbf: hello\n\nevent: first\ndata: {"a": 1}\n\ndata:two\r\ndata: lines\r\n\r\n:keep-alive\n\ndata\n\n'
    b"id: 7\rretry: 10\rdata: \xe2\x80\xa8x\r\r"
    b"event: last\ndata: no blank line"
)
FRAMES = [("first", b'{"a": 1}'), ("", b"two\nlines"), ("", b""), ("", b"\xe2\x80\xa8x"), ("last", b"no blank line")]


def read(cut: FrameParser, pieces: list[bytes]) -> list[Frame]:
    return [frame for piece in pieces for frame in cut.feed(piece)] + cut.close()


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[a:b] for a, b in pairwise(places)]


@given(st.lists(st.integers(0, 10_000)))
def test_server_sent_events_do_not_depend_on_how_the_bytes_are_split(cuts: list[int]) -> None:
    """HTML standard, server-sent events: three line ends, comments, fields without a colon, a byte order mark, U+2028 inside a line."""
    assert read(ServerSentEvents(), pieces(STREAM, cuts)) == FRAMES


def test_server_sent_events_are_read_byte_by_byte() -> None:
    assert read(ServerSentEvents(), [bytes([byte]) for byte in STREAM]) == FRAMES


@given(st.lists(st.integers(0, 10_000)))
def test_json_lines_do_not_depend_on_how_the_bytes_are_split(cuts: list[int]) -> None:
    body = b'{"a": 1}\n\n  \n{"b": "\xe2\x80\xa8"}\r\n{"c": 3}'
    assert [frame.strip() for _, frame in read(JsonLines(), pieces(body, cuts))] == [b'{"a": 1}', b'{"b": "\xe2\x80\xa8"}', b'{"c": 3}']


@pytest.mark.parametrize("cut", [ServerSentEvents, JsonLines])
def test_a_frame_without_an_end_is_refused_at_the_size_limit(cut: type[FrameParser], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every buffer is bounded."""
    monkeypatch.setattr(stream_framing, "MAX_FRAME_BYTES", 1000)
    body = cut()
    for _ in range(17):
        body.feed(b"data: " + b"x" * 50)
    with pytest.raises(FramingError) as broken:
        body.feed(b"data: " + b"x" * 50)
    assert broken.value.code == "too_large"
