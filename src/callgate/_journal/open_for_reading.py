"""Open a journal for reading only, whatever its store. A store's driver is loaded only when such a journal is opened."""

from __future__ import annotations

from pathlib import Path

from callgate._journal.in_memory_journal import MemoryJournal, MemoryReader
from callgate._journal.journal_reader import JournalReader, is_url

__all__ = ["JournalAddress", "open_reader"]

JournalAddress = str | Path | MemoryJournal
"""A journal's file, its `postgresql://` address, or a journal in the memory of this process."""


def open_reader(where: JournalAddress) -> JournalReader:
    """Return a reader of the journal in this file, at this `postgresql://` address, or in memory.

    Raises:
        UsageError: There is no journal at `where`, or it cannot be read.
    """
    if isinstance(where, MemoryJournal):
        return MemoryReader(where)
    if is_url(where):
        from callgate._journal.postgres_journal import PostgresReader

        return PostgresReader(str(where))
    from callgate._journal.sqlite_reader import SqliteReader

    return SqliteReader(where)
