"""One standard stream of the worker: sent live up to a rate; above it, only the end is kept."""

from __future__ import annotations

import os
import time

from .frames import READ_BYTES, FrameChannel

__all__ = ["BACKLOG_BYTES", "StreamOutput"]

BACKLOG_BYTES = 1_048_576
"""The size of unsent output above which the engine is too slow: no live output is sent, and no frames are read from the
worker.
"""
LIVE_BYTES_PER_S = 1_048_576
TAIL_BYTES = 65_536
SECRET_BYTES = 8_192
"""The number of bytes that are left out after a cut, because they may contain the end of a secret, which cannot be
recognised without its beginning.
"""


class StreamOutput:
    """Reads a pipe, so that its writers never block."""

    def __init__(self, fd: int, stream: bytes, engine: FrameChannel) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self._stream = stream
        self._engine = engine
        self._window = 0.0
        self._left = 0
        self._tail = bytearray()
        self._dropped = 0

    def drain(self, wanted: bool) -> bool:
        """Read once and send the data if `wanted`; return False at the end of the stream."""
        try:
            data = os.read(self.fd, READ_BYTES)
        except BlockingIOError:
            return True
        if data and wanted:
            self._take(data)
        return bool(data)

    def _take(self, data: bytes) -> None:
        now = time.monotonic()
        if now - self._window >= 1.0:
            self._window, self._left = now, LIVE_BYTES_PER_S
            self.flush()
        if self._tail or len(data) > self._left or len(self._engine.unsent) > BACKLOG_BYTES:
            self._hold(data)
        else:
            self._left -= len(data)
            self._engine.send(b"O", self._stream + data)

    def _hold(self, data: bytes) -> None:
        self._tail += data
        extra = len(self._tail) - TAIL_BYTES - SECRET_BYTES
        if extra > 0:
            del self._tail[:extra]
            self._dropped += extra

    def flush(self) -> None:
        """Send what was held back, after a frame that states how many bytes are missing."""
        if self._dropped:
            del self._tail[:SECRET_BYTES]
            self._dropped += SECRET_BYTES
            self._engine.send(b"S", self._stream + str(self._dropped).encode())
        if self._tail:
            self._engine.send(b"O", self._stream + bytes(self._tail))
        self._tail.clear()
        self._dropped = 0
