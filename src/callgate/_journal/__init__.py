"""Journals: where events are kept. Memory for tests and scripts, an SQLite file for everything that must survive."""

from __future__ import annotations

from callgate._journal.memory import MemoryJournal
from callgate._journal.sqlite import SqliteJournal, open_reader, read_events

__all__ = ["MemoryJournal", "SqliteJournal", "open_reader", "read_events"]
