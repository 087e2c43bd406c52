"""Split a response body into frames, however the bytes arrive.

Server-sent events, JSON lines, or one whole body. Linear in the bytes and bounded: a provider's data may be slow, huge or hostile. Knows
nothing of what a frame means.
"""

from __future__ import annotations

from typing import Protocol

__all__ = ["MAX_FRAME_BYTES", "Frame", "FrameParser", "FramingError", "JsonLines", "ServerSentEvents", "WholeBody"]

MAX_FRAME_BYTES = 67_108_864
"""Maximum size of a frame or body; an image in base64 fits."""

Frame = tuple[str, bytes]
"""The event's name, if the framing has one, and its bytes."""


class FramingError(ValueError):
    """The rest of the body cannot be read."""

    def __init__(self, message: str, code: str = "bad_frame") -> None:
        super().__init__(message)
        self.code = code


def _too_large_error(what: str) -> FramingError:
    return FramingError(f"One {what} of the answer is larger than {MAX_FRAME_BYTES} bytes; the rest is not read.", "too_large")


class FrameParser(Protocol):
    """Splits a body into frames as it arrives."""

    def feed(self, data: bytes) -> list[Frame]: ...

    def close(self) -> list[Frame]:
        """Return the frames that the end of the body completes."""
        ...


class _LineBuffer:
    """Bytes of a line that is not complete yet, at most `MAX_FRAME_BYTES`."""

    __slots__ = ("_pieces", "_size")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    def add(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > MAX_FRAME_BYTES:
            raise _too_large_error("frame")
        self._pieces.append(data)

    def take_with(self, data: bytes) -> bytes:
        """Return the buffered bytes followed by `data`, and empty the buffer."""
        if not self._pieces and len(data) <= MAX_FRAME_BYTES:
            return data
        self.add(data)
        return self.take()

    def take(self) -> bytes:
        """Return the buffered bytes and empty the buffer."""
        whole = b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        return whole


class ServerSentEvents:
    """Parses `text/event-stream` as the HTML standard defines it, with two exceptions: an event that the end of the body cuts is still
    returned, and a line that begins with `{` is data, as servers write errors in the middle of a stream.
    """

    def __init__(self) -> None:
        self._buffer = _LineBuffer()
        self._started = False
        self._event = ""
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[Frame]:
        if b"\n" not in data and b"\r" not in data:
            self._buffer.add(data)
            return []
        text = self._buffer.take_with(data)
        if b"\r" in text:
            if text.endswith(b"\r"):  # may be the first half of \r\n
                self._buffer.add(b"\r")
                text = text[:-1]
            text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = text.split(b"\n")
        if rest:
            tail = self._buffer.take()
            self._buffer.add(rest + tail)
        return self._read(lines)

    def close(self) -> list[Frame]:
        lines = self._buffer.take().replace(b"\r", b"\n").split(b"\n")
        return self._read([*lines, b""])

    def _read(self, lines: list[bytes]) -> list[Frame]:
        frames: list[Frame] = []
        if not self._started and lines:
            self._started = True
            lines[0] = lines[0].removeprefix(b"\xef\xbb\xbf")
        for line in lines:
            if line[:5] == b"data:" or line[:1] == b"{":
                self._size += len(line)
                if self._size > MAX_FRAME_BYTES:
                    raise _too_large_error("event")
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
    """Parses one JSON value per line."""

    def __init__(self) -> None:
        self._buffer = _LineBuffer()

    def feed(self, data: bytes) -> list[Frame]:
        self._buffer.add(data)
        if b"\n" not in data:
            return []
        *lines, rest = self._buffer.take().split(b"\n")
        self._buffer.add(rest)
        return [("", line) for line in lines if line.strip()]

    def close(self) -> list[Frame]:
        rest = self._buffer.take()
        return [("", rest)] if rest.strip() else []


class WholeBody:
    """Returns the whole body as one frame."""

    def __init__(self) -> None:
        self._buffer = _LineBuffer()

    def feed(self, data: bytes) -> list[Frame]:
        self._buffer.add(data)
        return []

    def close(self) -> list[Frame]:
        return [("", self._buffer.take())]
