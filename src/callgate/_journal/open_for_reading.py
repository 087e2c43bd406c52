"""Open a journal for reading only, whatever its store. A store's driver is loaded only when such a journal is opened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, runtime_checkable

from callgate._journal.in_memory_journal import MemoryJournal, MemoryReader
from callgate._journal.journal_reader import JournalReader, is_url

__all__ = ["JournalAddress", "address_of", "ended_writers", "open_reader"]

JournalAddress = str | Path | MemoryJournal
"""A journal's file, its `postgresql://` address, or a journal in the memory of this process."""


@runtime_checkable
class Addressed(Protocol):
    """A journal that other objects, and other processes, can open by its address."""

    @property
    def address(self) -> str: ...


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


def address_of(journal: object) -> JournalAddress | None:
    """Return the address by which this journal can be opened for reading; None if it has none."""
    if isinstance(journal, MemoryJournal):
        return journal
    return journal.address if isinstance(journal, Addressed) else None


def ended_writers(where: JournalAddress) -> Callable[[str], bool]:
    """Return a function that says whether an engine, by its name in this journal, has certainly ended."""
    if isinstance(where, MemoryJournal):
        return lambda writer: False
    if is_url(where):
        from callgate._process_identity import has_ended

        return has_ended
    from callgate._journal.lock_file import LockFileReader

    lock = LockFileReader(Path(where).resolve())
    return lambda writer: writer.isdecimal() and not lock.is_held(int(writer))
