"""Amazon's event stream framing."""

from __future__ import annotations

import struct
from binascii import crc32
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate.models.wire import stream_framing
from callgate.models.wire.aws_event_stream import AwsEventStream
from callgate.models.wire.stream_framing import Frame, FramingError
from tests.models.aws_frames import event, failure, message, text_header

OTHER_KINDS = (
    b"\x01a\x00\x01b\x01\x01c\x02\x07\x01d\x03\x00\x07\x01e\x04\x00\x00\x00\x07\x01f\x05" + bytes(8)
    + b"\x01g\x06\x00\x03\x00\x01\x02\x01h\x08" + bytes(8) + b"\x01i\x09" + bytes(16)
)  # fmt: skip
STREAM = (
    event("first", {"a": "ü"})
    + message(OTHER_KINDS + text_header(":event-type", "second"), b'{"b": 1}')
    + message(b"", b"")
    + failure("throttlingException", "slow down")
    + message(text_header(":message-type", "error") + text_header(":error-code", "Internal") + text_header(":error-message", "oh"), b"")
)
FRAMES = [
    ("first", '{"a": "ü"}'.encode()),
    ("second", b'{"b": 1}'),
    ("", b"{}"),
    ("!throttlingException", b'{"message": "slow down"}'),
    ("!Internal", b'{"message": "oh"}'),
]


def frames_of(pieces: list[bytes]) -> list[Frame]:
    """Return the frames before the first damaged one."""
    cut, found = AwsEventStream(), list[Frame]()
    try:
        for piece in pieces:
            found += cut.feed(piece)
        return found + cut.close()
    except FramingError:
        return found


@given(st.lists(st.integers(0, 10_000)))
def test_frames_do_not_depend_on_how_the_bytes_are_split(cuts: list[int]) -> None:
    places = sorted({0, len(STREAM), *(cut % len(STREAM) for cut in cuts)})
    assert frames_of([STREAM[a:b] for a, b in pairwise(places)]) == FRAMES
    assert frames_of([STREAM[at : at + 1] for at in range(len(STREAM))]) == FRAMES


@given(st.integers(0, len(STREAM) - 1), st.integers(1, 255))
def test_a_damaged_frame_is_never_read_as_a_different_frame(at: int, flip: int) -> None:
    """Whichever byte changes, the decoder returns the frames before it and raises a framing error."""
    damaged = STREAM[:at] + bytes([STREAM[at] ^ flip]) + STREAM[at + 1 :]
    assert frames_of([damaged]) == FRAMES[: len(frames_of([damaged]))]
    assert len(frames_of([damaged])) < len(FRAMES)


@given(st.integers(0, len(STREAM)))
def test_an_incomplete_frame_at_the_end_is_dropped(at: int) -> None:
    assert frames_of([STREAM[:at]]) == FRAMES[: len(frames_of([STREAM[:at]]))]


@pytest.mark.parametrize(
    "headers",
    [b"\x09short", b"\x01a\x0a", b"\x01a\x07\x00", b"\x01a\x07\xff\xffx", b"\x01a\x09x", b"\x01a"],
    ids=["name too long", "unknown type", "half a length", "value too long", "half a value", "no type"],
)
def test_unreadable_headers_raise_a_framing_error(headers: bytes) -> None:
    with pytest.raises(FramingError):
        AwsEventStream().feed(message(headers, b"{}"))


def test_impossible_frame_lengths_raise_a_framing_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every buffer is bounded: the decoder refuses the length before it receives the bytes."""
    monkeypatch.setattr(stream_framing, "MAX_FRAME_BYTES", 1000)
    for total, headers in ((15, 0), (100, 90), (2000, 0), (400_000, 200_000)):
        prelude = struct.pack(">II", total, headers)
        with pytest.raises(FramingError):
            AwsEventStream().feed(prelude + struct.pack(">I", crc32(prelude)))
