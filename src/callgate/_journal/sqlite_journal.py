"""Events in an SQLite file: events that were reported as durable survive a power cut.

Any number of writers but one per run, and any number of readers. Each writer has a number and locks the byte at that offset of the lock
file beside the journal as long as it lives, so that others see at once if it is gone. Commits go through the write-ahead log, with
synchronous FULL unless the weaker mode is chosen. If the file is deleted, replaced or truncated while a writer has it open, the next commit
fails before anything is reported as durable. Knows nothing of what the events mean.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

from callgate._clock import Clock, SystemClock
from callgate._engine_limits import LEASE_S
from callgate._journal.commit_batching import CommitQueue
from callgate._journal.commit_writer import CommitWriter
from callgate._journal.event_rows import ChainFault
from callgate._journal.journal_blobs import JournalBlobs
from callgate._journal.journal_watcher import JournalWatcher
from callgate._journal.lease_acquisition import Leases, refuse_odd_lease
from callgate._journal.lock_file import LockFile, LockFileReader, RecordedEnd, this_boot
from callgate._journal.open_sqlite import open_file
from callgate._journal.sql_schema import LAST_SEQ
from callgate._journal.sqlite_file_checks import JournalFiles
from callgate._journal.sqlite_reader import find_events, verify_file
from callgate._journal.sqlite_store import SqliteStore, failures, keep_log_on_close
from callgate._journal.stored_journal import StoredJournal
from callgate._option_checks import by_name
from callgate._unusable_paths import check_path, resolved
from callgate.errors import UsageError
from callgate.event_queries import EventQuery
from callgate.events import Event
from callgate.protocols import JournalStatus

__all__ = ["MachineClock", "SqliteJournal"]

_PROMISES: Final = {
    "full": "what was reported as kept survives a crash and a loss of power",
    "process": "WEAKER: what was reported as kept survives a crash of the process; a loss of power may take the last commits",
}


class SqliteJournal(StoredJournal):
    """A `Journal` in a file.

    Args:
        path: The file. The file and its folder are created if they do not exist. A file of an older version is
            migrated.
        synchronous: `full` waits until each commit is on the disk. `normal` does not wait: it is faster, but a power
            cut may lose events that were already reported as durable. `status` says so.
        lease_s: Seconds after the last renewal until the leases of an engine that hangs expire. An engine whose process
            has ended loses its leases at once.

    Raises:
        UsageError: The file is not a journal of a version that this callgate knows, or an older callgate writes to it.
    """

    @by_name
    def __init__(
        self,
        path: str | Path,
        clock: Clock | None = None,
        *,
        synchronous: Literal["full", "normal"] = "full",
        lease_s: float = LEASE_S,
    ) -> None:
        if synchronous not in ("full", "normal"):
            raise UsageError(f"synchronous={synchronous!r} is none of 'full' and 'normal'. Take 'full' unless you can lose the last calls.")
        refuse_odd_lease(lease_s)
        check_path("SqliteJournal", path, in_memory="Take MemoryJournal().", on_server="Take PostgresJournal with that address.")
        self.path = resolved(path, "a journal")  # two names of one file are one journal
        self.strength = "full" if synchronous == "full" else "process"
        self.blobs = JournalBlobs(self.path)
        opened = open_file(self.path, synchronous)
        self._lock = opened.lock
        self._reader = opened.reading
        self.writer = str(opened.number)
        """See `callgate.protocols.NamesWriters`."""
        self._reading = threading.Lock()
        others = {self._lock.path: self._lock.identity}
        self._files = JournalFiles(self.path, self._reader, others)
        self._watcher = JournalWatcher(str(self.path))
        files = JournalFiles(self.path, opened.beside, others)
        store = SqliteStore(self.path, opened.writing, opened.beside, files, MachineClock(self._lock), self._end_recorder())
        leases = Leases(store.leases, opened.number, f"process {os.getpid()}", lease_s)
        self._commits = CommitQueue(
            CommitWriter(store, opened.tail, leases, lease_s / 3),
            clock or SystemClock(),
            self._last_seq,
            where=str(self.path),
            on_lost=self._watcher.lost,
            on_message=self._watcher.message_arrived,
        )
        self._closed = False

    @property
    def address(self) -> str:
        """The address of the journal, for `callgate.inbox` and for readers."""
        return str(self.path)

    @property
    def files(self) -> tuple[str, ...]:
        """See `callgate.protocols.OnDisk`."""
        tables = (f"{table}{end}" for table in (self.path, self.cache_path) for end in ("", "-wal", "-shm", "-journal"))
        return (*tables, f"{self.path}.lock", *self.blobs.files)

    @property
    def cache_path(self) -> Path:
        """See `callgate.protocols.HasCachePath`."""
        return Path(f"{self.path}.cache")

    def has_ended(self, writer: str) -> bool:
        """See `callgate.protocols.NamesWriters`. The kernel releases a writer's lock when its process ends, however it ends."""
        return writer.isdigit() and writer != self.writer and not self._closed and not self._lock.is_held(int(writer))

    def _find_stored(self, query: EventQuery) -> list[Event]:
        with self._reading, self._checking_files():
            return list(find_events(self._reader, query))

    def verify(self, *, tail: int | None = None) -> ChainFault | None:
        """Return the first event at which verification fails, or None. If `tail` is given, only the last `tail` events are checked."""
        with self._reading, self._checking_files():
            return verify_file(self._reader, tail)

    def status(self) -> JournalStatus:
        return self._commits.status("sqlite", self.strength, _PROMISES[self.strength])

    async def close(self) -> None:
        if self._closed:
            return
        await self._commits.close()
        self._closed = True  # after the close: an interrupted close is repeated
        self._watcher.clear()
        if self._commits.failure is not None:
            keep_log_on_close(self._reader)
        self._files.close()
        self._reader.close()
        self._lock.close()

    def _last_seq(self, run: str) -> int:
        with self._reading, self._checking_files():
            return int(self._reader.execute(LAST_SEQ, (run,)).get)

    def _end_recorder(self) -> Callable[[Event], None]:
        """Return a function that stores the last committed event in the lock file.

        In the weaker mode a power cut may remove the event, so the boot id is stored with it. Without a boot id, nothing is stored then.
        """
        lock, boot = self._lock, this_boot()
        if self.strength == "full":
            return lambda event: lock.note_end(RecordedEnd(event.position, event.hash))
        return (lambda event: lock.note_end(RecordedEnd(event.position, event.hash, boot))) if boot else lambda event: None

    @contextmanager
    def _checking_files(self) -> Iterator[None]:
        """Run the block, and check the journal's files before and after it.

        Raises:
            UsageError: The journal is closed.
        """
        if self._closed:
            raise UsageError(f"The journal {self.path} is closed. Make a new SqliteJournal to read it, or use `callgate log`.")
        with failures(self.path), self._files.whole():
            yield


class MachineClock:
    """The time since the machine was started, which cannot be set, and whether writers are alive by their locks in the lock file."""

    def __init__(self, lock: LockFile | LockFileReader) -> None:
        self._lock = lock

    def now_ns(self) -> int:
        return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))

    def is_alive(self, holder: int) -> bool:
        return self._lock.is_held(holder)
