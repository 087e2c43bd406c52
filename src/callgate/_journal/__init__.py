"""Journals: where events are kept. In memory for tests and scripts, in an SQLite file for what must survive, in PostgreSQL for teams.

In reading order:

- `memory` is the smallest journal, over `memory_events` and `memory_store`.
- `stored_journal` is what the other two share: `commit_queue` takes events at once and has one thread write them, `commit_writer` does one
  commit, `event_positions` says where events stand, `commit_waiters` wakes who waits.
- `leases` decides who holds a run, `journal_inbox` which message is new, and `watchers` tells; `inbox_client` sends messages.
- `event_rows` and `sql_schema` are events in tables; `sql_leases` are leases and inbox there.
- `sqlite` is the journal in a file: `sqlite_opening`, `sqlite_store`, `sqlite_rows` and `sqlite_reader`, with `lock_file`, `sqlite_files`
  and `write_ahead_log` to notice who else is there and what is missing; `journal_blobs` has its large results.
- `postgres` is the journal on a server, with `postgres_server` and `postgres_blobs`.
- `reader` and `journal_address` open a journal for reading only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from callgate._journal.journal_address import JournalAddress, open_reader
from callgate._journal.memory import MemoryJournal
from callgate._journal.reader import JournalReader, is_url
from callgate._journal.sqlite import SqliteJournal

if TYPE_CHECKING:
    from callgate._journal.postgres import PostgresJournal

__all__ = ["JournalAddress", "JournalReader", "MemoryJournal", "PostgresJournal", "SqliteJournal", "is_url", "open_reader"]


def __getattr__(name: str) -> Any:
    if name != "PostgresJournal":  # what it needs is an extra
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from callgate._journal.postgres import PostgresJournal

    return PostgresJournal
