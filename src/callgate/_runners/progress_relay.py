"""Pass progress from a tool's thread to the event loop, with bounded memory.

Separate from the thread runner because it runs in both threads. Must not know what runs in the tool's thread.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

from callgate._runners.output_limits import PARTIAL_CHARS, LiveText, OutputTail
from callgate.tools.tool_context import ToolContext

__all__ = ["ProgressRelay"]


class ProgressRelay:
    """Accepts progress in any thread and reports it through the call's context on the event loop."""

    def __init__(self, context: ToolContext, loop: asyncio.AbstractEventLoop) -> None:
        self._context = context
        self._loop = loop
        self._lock = threading.Lock()
        self._fresh: list[tuple[str, str]] = []
        self._live: LiveText | None = None  # most tools never report anything
        self._tail: OutputTail | None = None
        self._listening = True

    def take(self, text: str, stream: str) -> None:
        """Accept a piece of progress; called in the tool's thread."""
        with self._lock:
            if self._live is None:
                self._live = LiveText()
            waiting = bool(self._fresh)
            self._fresh += self._live.offer(text, stream, self._loop.time())
            if waiting or not self._fresh:
                return
        with suppress(RuntimeError):  # the event loop is closed: nothing receives progress any more
            self._loop.call_soon_threadsafe(self._show)

    def flush(self) -> None:
        """Report all accepted progress, including what the rate limit held back. Must be called on the event loop."""
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
        """Return the end of all reported text. Must be called on the event loop."""
        return self._tail.text() if self._tail is not None else ""

    def stop(self) -> None:
        """Report the remaining progress when the call ends, and nothing after that. Must be called on the event loop."""
        self.flush()
        self._listening = False
