"""Cache stores: checked results by key, in memory or in a table of an SQLite file."""

from __future__ import annotations

from callgate._cache.beside import CacheBeside
from callgate._cache.memory import MemoryCache
from callgate._cache.table import TableCache

__all__ = ["CacheBeside", "MemoryCache", "TableCache"]
