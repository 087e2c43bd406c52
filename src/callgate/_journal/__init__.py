"""Journals: stores of events. In memory for tests and scripts, in an SQLite file for events that must survive, in PostgreSQL for teams.

In reading order:

- `in_memory_journal` is the smallest journal; it uses `in_memory_events` and `in_memory_store`.
- `stored_journal` is the shared part of the other two: `commit_batching` accepts events at once and lets one thread write them,
  `pending_events` are those that it has not written yet. `commit_writer` makes one commit, `event_positions` corrects the positions of
  events, and `commit_waiters` wakes the tasks that wait.
- `lease_acquisition` decides which engine holds a run, and `lease_changes` collects the changes of leases for the next commit.
  `delivered_messages` decides which message is new, `journal_watcher` notifies the engine, and `inbox_sender` sends messages.
- `event_rows` and `sql_schema` map events to tables; `sql_leases` does the same for leases and the inbox.
- `sqlite_journal` is the journal in a file. It uses `open_sqlite`, `sqlite_store`, `sqlite_rows` and `sqlite_reader`; `lock_file`,
  `sqlite_file_checks` and `write_ahead_log` detect other writers and missing files; `journal_blobs` stores large results.
- `postgres_journal` is the journal on a server, with `postgres_server` and `postgres_blobs`.
- `journal_reader` and `open_for_reading` open a journal for reading only; `location_check` says whether one could be written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from callgate._journal.in_memory_journal import MemoryJournal
from callgate._journal.journal_reader import JournalReader, is_url
from callgate._journal.location_check import refuse_unusable_location
from callgate._journal.open_for_reading import JournalAddress, ended_writers, open_reader
from callgate._journal.sqlite_journal import SqliteJournal

if TYPE_CHECKING:
    from callgate._journal.postgres_journal import PostgresJournal

__all__ = [
    "JournalAddress",
    "JournalReader",
    "MemoryJournal",
    "PostgresJournal",
    "SqliteJournal",
    "ended_writers",
    "is_url",
    "open_reader",
    "refuse_unusable_location",
]


def __getattr__(name: str) -> Any:
    if name != "PostgresJournal":  # imported on demand: its driver is an extra
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from callgate._journal.postgres_journal import PostgresJournal

    return PostgresJournal
