"""Parse a `text/event-stream` of a server, however its bytes arrive.

As the HTML standard defines it: an event that the end of the stream cuts is dropped, with its id. Linear in the bytes and bounded: a server
may be slow, huge or hostile. Knows nothing of JSON-RPC.
"""

from __future__ import annotations

import asyncio

__all__ = ["EventStream", "EventTooLarge", "pause_between_events"]

_MAX_ID_BYTES = 1_024
_MAX_RETRY_DIGITS = 9
_EVENTS_IN_TURN = 64
_PAUSE_S = 0.005


async def pause_between_events(number: int) -> None:
    """Pause before every 64th event of one chunk, so that a server that floods its stream does not block other tasks and threads."""
    if number % _EVENTS_IN_TURN == _EVENTS_IN_TURN - 1:
        await asyncio.sleep(_PAUSE_S)


class EventTooLarge(ValueError):
    """An event is larger than the limit; the rest of the stream cannot be read."""


class EventStream:
    """Collects the data of events.

    Args:
        max_bytes: The largest size of an event, with all its lines.
    """

    __slots__ = ("_carriage_return", "_data", "_id", "_max_bytes", "_name", "_pieces", "_size", "_started", "last_event_id", "retry_ms")

    def __init__(self, max_bytes: int) -> None:
        self.last_event_id = ""
        """The id of the last complete event, from which the server can continue this stream; empty if it gave none."""
        self.retry_ms: int | None = None
        """How long the server asks clients to wait before they continue the stream."""
        self._max_bytes = max_bytes
        self.restart()

    def restart(self) -> None:
        """Drop an event that the end of a connection cut, and read the bytes of the next connection."""
        self._pieces: list[bytes] = []
        self._data: list[bytes] = []
        self._name = b""
        self._id: bytes | None = None
        self._size = 0
        self._started = False
        self._carriage_return = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the data of the events named `message` that `chunk` completes. Events without data are left out.

        Raises:
            EventTooLarge: An event is larger than `max_bytes`.
        """
        if self._carriage_return and chunk:
            self._carriage_return = False
            chunk = chunk.removeprefix(b"\n")
        if b"\r" in chunk:
            self._carriage_return = chunk.endswith(b"\r")  # may be the first half of \r\n
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        first, *lines = chunk.split(b"\n")
        self._add_size(len(first))
        self._pieces.append(first)
        if not lines:
            return []
        found: list[bytes] = []
        self._read_line(b"".join(self._pieces), found)
        rest = lines.pop()
        for line in lines:
            self._add_size(len(line))
            self._read_line(line, found)
        self._add_size(len(rest))
        self._pieces = [rest]
        return found

    def _add_size(self, size: int) -> None:
        self._size += size
        if self._size > self._max_bytes:
            raise EventTooLarge(f"an event is larger than {self._max_bytes} bytes")

    def _read_line(self, line: bytes, found: list[bytes]) -> None:
        if not self._started:
            self._started = True
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line:
            self._end_event(found)
        elif line.startswith(b":"):
            self._size -= len(line)  # comments keep a connection alive, in any number
        else:
            name, _, value = line.partition(b":")
            self._read_field(name, value.removeprefix(b" "))

    def _read_field(self, name: bytes, value: bytes) -> None:
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._name = value
        elif name == b"id" and b"\0" not in value and len(value) <= _MAX_ID_BYTES:
            self._id = value
        elif name == b"retry" and value.isdigit() and len(value) <= _MAX_RETRY_DIGITS:
            self.retry_ms = int(value)

    def _end_event(self, found: list[bytes]) -> None:
        if self._id is not None:
            self.last_event_id = self._id.decode("utf-8", "replace")
        if self._name in (b"", b"message") and (data := b"\n".join(self._data)):
            found.append(data)
        self._data = []
        self._name = b""
        self._id = None
        self._size = 0
