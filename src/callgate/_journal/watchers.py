"""Who is told what becomes of the runs that a journal holds, each on its own event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from callgate.protocols import InboxMessage, RunWatcher

__all__ = ["Watchers"]


class Watchers:
    """The watchers of one opened journal. May be called from any thread."""

    def __init__(self) -> None:
        self._watchers: list[tuple[asyncio.AbstractEventLoop, RunWatcher]] = []

    def __bool__(self) -> bool:
        return bool(self._watchers)

    def add(self, watcher: RunWatcher) -> None:
        """Tell this watcher on the running event loop."""
        self._watchers.append((asyncio.get_running_loop(), watcher))

    def lost(self, run: str, why: str) -> None:
        """Tell that somebody else has a run now."""
        self._tell(lambda watcher: watcher.lost(run, why))

    def came(self, message: InboxMessage) -> None:
        """Tell that a message has come to a run that is held."""
        self._tell(lambda watcher: watcher.came(message))

    def clear(self) -> None:
        self._watchers.clear()

    def _tell(self, tell: Callable[[RunWatcher], None]) -> None:
        for loop, watcher in tuple(self._watchers):
            with suppress(RuntimeError):  # its loop may be gone
                loop.call_soon_threadsafe(tell, watcher)
