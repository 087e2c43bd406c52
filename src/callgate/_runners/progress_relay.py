"""Progress on its way from a tool's thread to the event loop, bounded.

Apart from the thread runner because it lives in both worlds. Must not know what runs in the thread.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

from callgate._runners.output import PARTIAL_CHARS, LiveText, OutputTail
from callgate.tools.context import ToolContext

__all__ = ["ProgressRelay"]


class ProgressRelay:
    """Takes progress in any thread, and shows it through the call's own context on the event loop's."""

    def __init__(self, context: ToolContext, loop: asyncio.AbstractEventLoop) -> None:
        self._context = context
        self._loop = loop
        self._lock = threading.Lock()
        self._fresh: list[tuple[str, str]] = []
        self._live: LiveText | None = None  # most tools never report anything
        self._tail: OutputTail | None = None
        self._listening = True

    def take(self, text: str, stream: str) -> None:
        """In the tool's thread."""
        with self._lock:
            if self._live is None:
                self._live = LiveText()
            waiting = bool(self._fresh)
            self._fresh += self._live.offer(text, stream, self._loop.time())
            if waiting or not self._fresh:
                return
        with suppress(RuntimeError):  # the event loop is closed: nobody listens any more
            self._loop.call_soon_threadsafe(self._show)

    def flush(self) -> None:
        """Show what was taken and what was held back. On the event loop, as is all that follows."""
        if self._live is not None:
            with self._lock:
                self._fresh += self._live.rest()
            self._show()

    def _show(self) -> None:
        with self._lock:
            pieces, self._fresh = self._fresh, []
        tail = self._tail = self._tail or OutputTail(PARTIAL_CHARS)
        for text, stream in pieces:
            tail.add(text)
            if self._listening:
                self._context.progress(text, stream=stream)

    def text(self) -> str:
        """The end of all that was shown."""
        return self._tail.text() if self._tail is not None else ""

    def stop(self) -> None:
        """The call is over: show what there is, and nothing after that."""
        self.flush()
        self._listening = False
