"""Split a body in Amazon's event stream framing (`application/vnd.amazon.eventstream`) into frames.

A frame consists of its total length, the length of its headers, a checksum of both lengths, the headers, the payload,
and a checksum of the whole frame. Both checksums are verified. A damaged frame ends the answer, because the next frame
cannot be found. The payload of a damaged frame is not read even if it is valid JSON, because a string with one altered
letter is valid JSON too.
"""

from __future__ import annotations

import json
import struct
from binascii import crc32

from callgate.models.wire import stream_framing
from callgate.models.wire.stream_framing import Frame, FramingError

__all__ = ["EXCEPTION_PREFIX", "AwsEventStream"]

EXCEPTION_PREFIX = "!"
"""Begins the name of a frame that reports a service error: `!throttlingException`."""

_PRELUDE = struct.Struct(">III")
_CHECKSUM = struct.Struct(">I")
_FIXED_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""Sizes of header values by type: true, false, integers of 1 to 8 bytes, time, UUID."""
_VARIABLE_TYPES = {6: "bytes", 7: "text"}
_MAX_HEADER_BYTES = 131_072


class AwsEventStream:
    """Parses frames of an event stream; a frame's name is its `:event-type`."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._broken: FramingError | None = None

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that are complete.

        Raises:
            FramingError: A frame is damaged; raised after the frames before it were returned.
        """
        if self._broken is not None:
            raise self._broken
        self._buffer += data
        found: list[Frame] = []
        try:
            self._split_frames(found)
        except FramingError as error:
            if not found:
                raise
            self._broken = error
        return found

    def close(self) -> list[Frame]:
        """Drop an incomplete frame: the message is cut there."""
        if self._broken is not None:
            raise self._broken
        return []

    def _split_frames(self, found: list[Frame]) -> None:
        at = 0
        try:
            while (end := self._frame_end(at)) is not None:
                found.append(_parse_frame(bytes(self._buffer[at:end])))
                at = end
        finally:
            del self._buffer[:at]

    def _frame_end(self, at: int) -> int | None:
        """Return where the frame at `at` ends; None while it is incomplete."""
        if len(self._buffer) - at < _PRELUDE.size:
            return None
        total, headers, checksum = _PRELUDE.unpack_from(self._buffer, at)
        if crc32(self._buffer[at : at + 8]) != checksum:
            raise FramingError("A frame's lengths do not match their checksum; the rest of the answer is not read.")
        if headers > _MAX_HEADER_BYTES or total < headers + _PRELUDE.size + _CHECKSUM.size:
            raise FramingError(f"A frame says it has {total} bytes, {headers} of them headers; the rest of the answer is not read.")
        if total > stream_framing.MAX_FRAME_BYTES:
            raise FramingError(
                f"One frame of the answer is larger than {stream_framing.MAX_FRAME_BYTES} bytes; the rest is not read.", "too_large"
            )
        return at + total if len(self._buffer) - at >= total else None


def _parse_frame(message: bytes) -> Frame:
    total, size, _ = _PRELUDE.unpack_from(message)
    if crc32(message[:-4]) != _CHECKSUM.unpack_from(message, total - 4)[0]:
        raise FramingError("A frame does not match its checksum; the rest of the answer is not read.")
    begin = _PRELUDE.size
    headers = _parse_headers(message[begin : begin + size])
    payload = message[begin + size : total - 4]
    match headers.get(":message-type", "event"):
        case "exception":
            return EXCEPTION_PREFIX + headers.get(":exception-type", "exception"), payload or b"{}"
        case "error":
            error = {"message": headers.get(":error-message", "")}
            return EXCEPTION_PREFIX + headers.get(":error-code", "error"), json.dumps(error).encode()
        case _:
            return headers.get(":event-type", ""), payload or b"{}"


def _parse_headers(data: bytes) -> dict[str, str]:
    """Return the headers whose values are text."""
    found: dict[str, str] = {}
    at = 0
    try:
        while at < len(data):
            name_end = at + 1 + data[at]
            name, kind = data[at + 1 : name_end].decode("utf-8", "replace"), data[name_end]
            at, width = _value_span(data, name_end + 1, kind)
            if at + width > len(data):
                raise IndexError(at)
            if _VARIABLE_TYPES.get(kind) == "text":
                found[name] = data[at : at + width].decode("utf-8", "replace")
            at += width
    except (IndexError, KeyError, struct.error) as error:
        raise FramingError("A frame's headers cannot be read; the rest of the answer is not read.") from error
    return found


def _value_span(data: bytes, at: int, kind: int) -> tuple[int, int]:
    """Return where a header's value begins, and its size."""
    if kind in _VARIABLE_TYPES:
        return at + 2, struct.unpack_from(">H", data, at)[0]
    return at, _FIXED_SIZES[kind]
