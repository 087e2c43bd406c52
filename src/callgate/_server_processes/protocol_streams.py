"""Reserve standard input and output for a protocol of messages, so that nothing else is written between them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

__all__ = ["protocol_streams"]


@contextmanager
def protocol_streams() -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Redirect the process's input to an empty file and its output to standard error; return the real input and output."""
    sys.stdout.flush()
    reading, writing = os.fdopen(os.dup(0), "rb", 0), os.fdopen(os.dup(1), "wb", 0)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    os.dup2(2, 1)
    with writing:
        yield reading, writing
