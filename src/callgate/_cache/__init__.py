"""Cache stores: tool results by cache key, in memory or in a table of an SQLite file."""

from __future__ import annotations

from callgate._cache.in_memory_cache import MemoryCache
from callgate._cache.journal_cache import JournalCache
from callgate._cache.sqlite_cache import SqliteCache

__all__ = ["JournalCache", "MemoryCache", "SqliteCache"]
