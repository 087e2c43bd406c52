"""Standard input, output and error, whatever the shell made of them: closed, a full disk, a reader that went away.

Here because a call must not be cut short, nor its outcome be lost, because nobody can be told. Output that cannot be written is left
out from there on, and the exit code says so. Must not know what is written.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast

__all__ = ["GuardedStream", "guarded", "reader_is_gone"]


class GuardedStream:
    """A stream to write to. The first error ends it: what comes later goes nowhere."""

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
        """What is still buffered must not fail once more when the interpreter ends."""
        self.lost = error
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def guarded() -> Iterator[tuple[GuardedStream | None, GuardedStream]]:
    """Guard this process's streams; gives standard output, or None where it is closed, and standard error."""
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
    """Put nothing in the place of closed descriptors, or the next file opened, as the journal, would be written to in their name."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def reader_is_gone() -> bool:
    """Whether nobody reads standard output any more."""
    return isinstance(sys.stdout, GuardedStream) and sys.stdout.lost is not None
