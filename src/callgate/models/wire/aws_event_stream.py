"""Cut a body in Amazon's event stream framing (`application/vnd.amazon.eventstream`) into its frames.

A message is: total length, length of the headers, a checksum of those two; the headers; the payload; a checksum of it all. Both checksums
are checked, so that a damaged frame ends the answer and is never read as something else. What follows a damaged frame cannot be found.
Nor is a frame read whose payload is JSON all the same: one letter changed inside a string still is, and would be run.
"""

from __future__ import annotations

import json
import struct
from binascii import crc32

from callgate.models.wire import framing
from callgate.models.wire.framing import Frame, FramingError

__all__ = ["EXCEPTION_PREFIX", "AwsEventStream"]

EXCEPTION_PREFIX = "!"
"""Begins the name of a frame with which the service reports a failure: `!throttlingException`."""

_PRELUDE = struct.Struct(">III")
_CHECKSUM = struct.Struct(">I")
_WIDTHS = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""Of header values of a fixed size, by their type: true, false, integers of 1 to 8 bytes, time, UUID."""
_SIZED = {6: "bytes", 7: "text"}
_MOST_HEADER_BYTES = 131_072


class AwsEventStream:
    """The messages of an event stream; a frame's name is its `:event-type`."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._broken: FramingError | None = None

    def feed(self, data: bytes) -> list[Frame]:
        """Give the frames that are whole by now; one that is damaged is raised after those before it were given."""
        if self._broken is not None:
            raise self._broken
        self._held += data
        found: list[Frame] = []
        try:
            self._cut(found)
        except FramingError as error:
            if not found:
                raise
            self._broken = error
        return found

    def close(self) -> list[Frame]:
        """Half a frame at the end is dropped: the message is cut there."""
        if self._broken is not None:
            raise self._broken
        return []

    def _cut(self, found: list[Frame]) -> None:
        at = 0
        try:
            while (end := self._end(at)) is not None:
                found.append(_frame(bytes(self._held[at:end])))
                at = end
        finally:
            del self._held[:at]

    def _end(self, at: int) -> int | None:
        """Where the frame at `at` ends; None while it is not all there."""
        if len(self._held) - at < _PRELUDE.size:
            return None
        total, headers, checksum = _PRELUDE.unpack_from(self._held, at)
        if crc32(self._held[at : at + 8]) != checksum:
            raise FramingError("A frame's lengths do not match their checksum; nothing more of the answer is read.")
        if headers > _MOST_HEADER_BYTES or total < headers + _PRELUDE.size + _CHECKSUM.size:
            raise FramingError(f"A frame says it has {total} bytes, {headers} of them headers; nothing more of the answer is read.")
        if total > framing.MAX_FRAME_BYTES:
            raise FramingError(
                f"One frame of the answer is larger than {framing.MAX_FRAME_BYTES} bytes; nothing more is read.", "too_large"
            )
        return at + total if len(self._held) - at >= total else None


def _frame(message: bytes) -> Frame:
    total, size, _ = _PRELUDE.unpack_from(message)
    if crc32(message[:-4]) != _CHECKSUM.unpack_from(message, total - 4)[0]:
        raise FramingError("A frame does not match its checksum; nothing more of the answer is read.")
    begin = _PRELUDE.size
    headers = _headers(message[begin : begin + size])
    payload = message[begin + size : total - 4]
    match headers.get(":message-type", "event"):
        case "exception":
            return EXCEPTION_PREFIX + headers.get(":exception-type", "exception"), payload or b"{}"
        case "error":
            told = {"message": headers.get(":error-message", "")}
            return EXCEPTION_PREFIX + headers.get(":error-code", "error"), json.dumps(told).encode()
        case _:
            return headers.get(":event-type", ""), payload or b"{}"


def _headers(data: bytes) -> dict[str, str]:
    """The headers whose values are text; the others are skipped over."""
    found: dict[str, str] = {}
    at = 0
    try:
        while at < len(data):
            name_end = at + 1 + data[at]
            name, kind = data[at + 1 : name_end].decode("utf-8", "replace"), data[name_end]
            at, width = _value(data, name_end + 1, kind)
            if at + width > len(data):
                raise IndexError(at)
            if _SIZED.get(kind) == "text":
                found[name] = data[at : at + width].decode("utf-8", "replace")
            at += width
    except (IndexError, KeyError, struct.error) as error:
        raise FramingError("A frame's headers cannot be read; nothing more of the answer is read.") from error
    return found


def _value(data: bytes, at: int, kind: int) -> tuple[int, int]:
    """Where a header's value begins, and its size."""
    if kind in _SIZED:
        return at + 2, struct.unpack_from(">H", data, at)[0]
    return at, _WIDTHS[kind]
