"""Journals: where events are kept. Memory for tests and scripts, an SQLite file for everything that must survive, PostgreSQL for teams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from callgate._journal.memory import MemoryJournal
from callgate._journal.opening import JournalAddress, open_reader
from callgate._journal.reading import Reader, is_url
from callgate._journal.sqlite import SqliteJournal

if TYPE_CHECKING:
    from callgate._journal.postgres import PostgresJournal

__all__ = ["JournalAddress", "MemoryJournal", "PostgresJournal", "Reader", "SqliteJournal", "is_url", "open_reader"]


def __getattr__(name: str) -> Any:
    if name != "PostgresJournal":  # what it needs is an extra
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from callgate._journal.postgres import PostgresJournal

    return PostgresJournal
