"""Frames over a non-blocking file descriptor.

A frame is one letter, the length of the body in four bytes (big-endian), and the body. `worker_protocol.py` defines the letters; a
supervisor needs only a few of them.
"""

from __future__ import annotations

import os

__all__ = ["NO_WORKER", "WORKER_FD", "FrameChannel", "frame", "split"]

HEAD = 5
READ_BYTES = 262_144
MOST_BYTES = 268_435_456
"""The largest valid frame. A longer one means that something else has written to the channel."""
WORKER_FD = 230
"""The worker's descriptor. High, so that a tool that closes the first few descriptors does not close it."""
NO_WORKER = 96
"""The exit code that is reported if the worker could not be started."""


def frame(kind: bytes, body: bytes = b"") -> bytes:
    return kind + len(body).to_bytes(4, "big") + body


def split(data: bytearray) -> list[tuple[bytes, bytes]]:
    """Remove the complete frames from the front of `data` and return them."""
    frames, at = [], 0
    while len(data) - at >= HEAD:
        end = at + HEAD + _size(data, at)
        if len(data) < end:
            break
        frames.append((bytes(data[at : at + 1]), bytes(data[at + HEAD : end])))
        at = end
    del data[:at]
    return frames


def _size(data: bytearray, at: int) -> int:
    return int.from_bytes(data[at + 1 : at + HEAD], "big")


class FrameChannel:
    """One end of a channel."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self.unsent = bytearray()
        self.ended = False
        """Whether the other side has closed the channel."""
        self._unread = bytearray()

    def fill(self) -> bool:
        """Read once; return False if there was nothing to read."""
        try:
            data = os.read(self.fd, READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        self.ended = not data
        self._unread += data
        return bool(data)

    def take(self) -> list[tuple[bytes, bytes]]:
        """Return the frames that are complete; an invalid frame ends the channel."""
        frames = split(self._unread)
        if len(self._unread) >= HEAD and _size(self._unread, 0) > MOST_BYTES:
            self.ended = True
        return frames

    def send(self, kind: bytes, body: bytes = b"") -> None:
        self.unsent += frame(kind, body)
        self.flush()

    def flush(self) -> None:
        """Write as much of `unsent` as possible without blocking. Clear `unsent` if the other side has closed."""
        try:
            while self.unsent:
                del self.unsent[: os.write(self.fd, self.unsent)]
        except BlockingIOError:
            return
        except OSError:
            self.unsent.clear()
