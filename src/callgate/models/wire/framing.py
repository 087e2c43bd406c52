"""Cut a response body into its frames, however the bytes arrive.

Server-sent events, one JSON value a line, or one body. Linear in the bytes and bounded: what a provider sends may be slow, huge or
hostile. Must not know what a frame means.
"""

from __future__ import annotations

from typing import Protocol

__all__ = ["MAX_FRAME_BYTES", "Frame", "FrameParser", "FramingError", "JsonLines", "ServerSentEvents", "WholeBody"]

MAX_FRAME_BYTES = 67_108_864
"""The largest frame or body that is read; a picture in base64 fits."""

Frame = tuple[str, bytes]
"""The event's name, where the framing has one, and its bytes."""


class FramingError(ValueError):
    """The body cannot be read any further."""

    def __init__(self, message: str, code: str = "bad_frame") -> None:
        super().__init__(message)
        self.code = code


def _too_large(what: str) -> FramingError:
    return FramingError(f"One {what} of the answer is larger than {MAX_FRAME_BYTES} bytes; nothing more of it is read.", "too_large")


class FrameParser(Protocol):
    """A body, cut into frames as it arrives."""

    def feed(self, data: bytes) -> list[Frame]: ...

    def close(self) -> list[Frame]:
        """What the end of the body completes."""
        ...


class _LineBuffer:
    """Bytes that no line's end has followed yet, at most `FRAME_BYTES` of them."""

    __slots__ = ("_pieces", "_size")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    def add(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > MAX_FRAME_BYTES:
            raise _too_large("frame")
        self._pieces.append(data)

    def with_more(self, data: bytes) -> bytes:
        """All of it and `data`; nothing is held any more."""
        if not self._pieces and len(data) <= MAX_FRAME_BYTES:
            return data
        self.add(data)
        return self.take()

    def take(self) -> bytes:
        whole = b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        return whole


class ServerSentEvents:
    """`text/event-stream` as the HTML standard reads it, and more kindly: an event that the end of the body cut short is still given, and
    a line that is an object is data without its label, as servers write an error that meets them in the middle of a stream.
    """

    def __init__(self) -> None:
        self._held = _LineBuffer()
        self._began = False
        self._event = ""
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[Frame]:
        if b"\n" not in data and b"\r" not in data:
            self._held.add(data)
            return []
        text = self._held.with_more(data)
        if b"\r" in text:
            if text.endswith(b"\r"):  # perhaps half of a line's end
                self._held.add(b"\r")
                text = text[:-1]
            text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = text.split(b"\n")
        if rest:
            tail = self._held.take()
            self._held.add(rest + tail)
        return self._read(lines)

    def close(self) -> list[Frame]:
        lines = self._held.take().replace(b"\r", b"\n").split(b"\n")
        return self._read([*lines, b""])

    def _read(self, lines: list[bytes]) -> list[Frame]:
        frames: list[Frame] = []
        if not self._began and lines:
            self._began = True
            lines[0] = lines[0].removeprefix(b"\xef\xbb\xbf")
        for line in lines:
            if line[:5] == b"data:" or line[:1] == b"{":
                self._size += len(line)
                if self._size > MAX_FRAME_BYTES:
                    raise _too_large("event")
                self._data.append(line if line[:1] == b"{" else line[6:] if line[5:6] == b" " else line[5:])
            elif not line:
                if self._data:
                    frames.append((self._event, self._data[0] if len(self._data) == 1 else b"\n".join(self._data)))
                    self._data = []
                    self._size = 0
                self._event = ""
            elif line[:6] == b"event:":
                self._event = line[6:].strip().decode("utf-8", "replace")
            elif line == b"data":
                self._data.append(b"")
        return frames


class JsonLines:
    """One JSON value a line."""

    def __init__(self) -> None:
        self._held = _LineBuffer()

    def feed(self, data: bytes) -> list[Frame]:
        self._held.add(data)
        if b"\n" not in data:
            return []
        *lines, rest = self._held.take().split(b"\n")
        self._held.add(rest)
        return [("", line) for line in lines if line.strip()]

    def close(self) -> list[Frame]:
        rest = self._held.take()
        return [("", rest)] if rest.strip() else []


class WholeBody:
    """One value: the whole body."""

    def __init__(self) -> None:
        self._held = _LineBuffer()

    def feed(self, data: bytes) -> list[Frame]:
        self._held.add(data)
        return []

    def close(self) -> list[Frame]:
        return [("", self._held.take())]
