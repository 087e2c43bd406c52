"""The engine that uses an opened journal: notified, on its own event loop, of messages and of lost runs."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from contextlib import suppress

from callgate.errors import UsageError
from callgate.protocols import InboxMessage, RunWatcher

__all__ = ["JournalWatcher"]


class JournalWatcher:
    """The one watcher of an opened journal. May be called from any thread.

    Two engines that wrote through one opened journal would both hold its runs, and neither would know the calls of the other.
    """

    def __init__(self, where: str) -> None:
        self._where = where
        self._current: tuple[asyncio.AbstractEventLoop, weakref.ref[RunWatcher]] | None = None

    def __bool__(self) -> bool:
        return self._current is not None

    def set(self, watcher: RunWatcher) -> None:
        """Notify this watcher from now on, on the running event loop.

        Raises:
            UsageError: The watcher of another engine is set, which is neither closed nor gone with its event loop.
        """
        if self._is_in_use():
            gc.collect()  # nothing may refer to the engine any more
            if self._is_in_use():
                raise UsageError(
                    f"The journal {self._where} is used by another engine that is not closed. Close that one, or give each engine a journal"
                    " object of its own: SqliteJournal or PostgresJournal with the same address, or MemoryJournal(shared_with=...)."
                )
        self._current = asyncio.get_running_loop(), weakref.ref(watcher)

    def _is_in_use(self) -> bool:
        return self._current is not None and not self._current[0].is_closed() and self._current[1]() is not None

    def lost(self, run: str, why: str) -> None:
        """Notify the watcher that another engine has taken a run."""
        self._tell(lambda watcher: watcher.lost(run, why))

    def message_arrived(self, message: InboxMessage) -> None:
        """Notify the watcher of a new message to a run that is held."""
        self._tell(lambda watcher: watcher.message_arrived(message))

    def clear(self) -> None:
        self._current = None

    def _tell(self, tell: Callable[[RunWatcher], None]) -> None:
        if self._current is None:
            return
        loop, reference = self._current
        if (watcher := reference()) is not None:
            with suppress(RuntimeError):  # the loop may be closed
                loop.call_soon_threadsafe(tell, watcher)
