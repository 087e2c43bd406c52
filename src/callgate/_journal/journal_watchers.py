"""Notify the watchers of one opened journal, each on its own event loop, of messages and of lost runs."""

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
        """Notify this watcher from now on, on the running event loop."""
        self._watchers.append((asyncio.get_running_loop(), watcher))

    def lost(self, run: str, why: str) -> None:
        """Notify the watchers that another engine has taken a run."""
        self._tell(lambda watcher: watcher.lost(run, why))

    def message_arrived(self, message: InboxMessage) -> None:
        """Notify the watchers of a new message to a run that is held."""
        self._tell(lambda watcher: watcher.message_arrived(message))

    def clear(self) -> None:
        self._watchers.clear()

    def _tell(self, tell: Callable[[RunWatcher], None]) -> None:
        for loop, watcher in tuple(self._watchers):
            with suppress(RuntimeError):  # its loop may be closed
                loop.call_soon_threadsafe(tell, watcher)
