"""A cache in memory, for results that are used during a tick or as long as the process lives.

Its size is limited; the least recently used entry is dropped first.
"""

from __future__ import annotations

from collections import OrderedDict

from msgspec import Struct

from callgate.tools.resource_conflicts import meet

__all__ = ["MemoryCache"]


class _Entry(Struct, frozen=True):
    value: bytes
    expires_ns: int | None
    reads: frozenset[str]


class MemoryCache:
    """A `CacheStore` in memory."""

    def __init__(self, *, most_bytes: int = 67_108_864) -> None:
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._most_bytes = most_bytes
        self._bytes = 0

    def get(self, key: str, now_ns: int) -> bytes | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.expires_ns is not None and entry.expires_ns <= now_ns:
            self._drop(key)
            return None
        self._entries.move_to_end(key)
        return entry.value

    def put(self, key: str, value: bytes, *, expires_ns: int | None, reads: frozenset[str]) -> None:
        if len(value) > self._most_bytes:
            return
        if key in self._entries:
            self._drop(key)
        self._entries[key] = _Entry(value, expires_ns, reads)
        self._bytes += len(value)
        while self._bytes > self._most_bytes:
            self._drop(next(iter(self._entries)))

    def drop_written(self, writes: frozenset[str]) -> int:
        stale = [key for key, entry in self._entries.items() if any(meet(w, r) for w in writes for r in entry.reads)]
        for key in stale:
            self._drop(key)
        return len(stale)

    def close(self) -> None:
        self._entries.clear()
        self._bytes = 0

    def _drop(self, key: str) -> None:
        self._bytes -= len(self._entries.pop(key).value)
