"""Guard standard input, output and error. They may be closed, on a full disk, or a pipe without a reader.

A failed write must not interrupt a call or lose its outcome. After the first write error, further output is discarded,
and the exit code reports the failure. Knows nothing of what is written.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast

__all__ = ["GuardedStream", "guard_streams", "reader_is_gone"]


class GuardedStream:
    """An output stream that discards everything after the first write error."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.lost: OSError | None = None

    def write(self, text: str) -> int:
        if self.lost is None:
            try:
                self._stream.write(text)
            except UnicodeEncodeError:
                encoding = self._stream.encoding or "ascii"
                self.write(text.encode(encoding, "backslashreplace").decode(encoding))
            except OSError as error:
                self._give_up(error)
        return len(text)

    def flush(self) -> None:
        if self.lost is None:
            try:
                self._stream.flush()
            except OSError as error:
                self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        """Redirect the descriptor, so that flushing the buffer at interpreter exit does not fail again."""
        self.lost = error
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def guard_streams() -> Iterator[tuple[GuardedStream | None, GuardedStream]]:
    """Guard the process's streams. Yield standard output (None if it is closed) and standard error."""
    _occupy()
    before = sys.stdin, sys.stdout, sys.stderr
    closed = sys.stdout is None
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115
    output, error = (GuardedStream(stream or open(os.devnull, "w", encoding="utf-8")) for stream in before[1:])  # noqa: SIM115
    sys.stdout, sys.stderr = cast(TextIO, output), cast(TextIO, error)
    try:
        yield (None if closed else output), error
    finally:
        output.flush()
        error.flush()
        sys.stdin, sys.stdout, sys.stderr = before


def _occupy() -> None:
    """Open /dev/null on closed descriptors 0 to 2.

    Otherwise the next opened file, such as the journal, gets their number.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def reader_is_gone() -> bool:
    """Return whether writing to standard output has failed, for example because its reader is gone."""
    return isinstance(sys.stdout, GuardedStream) and sys.stdout.lost is not None
