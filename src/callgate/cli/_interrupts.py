"""Ctrl-C while something runs: a word to whoever runs it, instead of the end of the program."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

__all__ = ["interruptible"]


@contextmanager
def interruptible(interrupt: Callable[[], None]) -> Iterator[None]:
    """Inside the block each Ctrl-C calls `interrupt`, on the running event loop; a system without such handlers changes nothing."""
    loop = asyncio.get_running_loop()
    with suppress(NotImplementedError):
        loop.add_signal_handler(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        with suppress(NotImplementedError):
            loop.remove_signal_handler(signal.SIGINT)
