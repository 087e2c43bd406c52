"""What holds bytes and results."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, runtime_checkable

__all__ = ["BlobStore", "CacheStore", "HasCachePath", "HoldsBlobs", "OnDisk"]


class BlobStore(Protocol):
    """Holds bytes by their SHA-256. Used from several threads: large results are put from one that is not the event loop's."""

    def put(self, data: bytes) -> str:
        """Keep `data` and return its hash as 64 lower-case hex digits. The same bytes are kept once."""
        ...

    def get(self, digest: str) -> bytes | None:
        """The bytes with this hash, checked against it, or None."""
        ...


@runtime_checkable
class HoldsBlobs(Protocol):
    """A journal that keeps large results beside its events."""

    @property
    def blobs(self) -> BlobStore:
        """What is put there is kept before any event that is appended after it."""
        ...


class CacheStore(Protocol):
    """Holds checked results as bytes, for as long as the process (memory) or the file (table)."""

    def get(self, key: str, now_ns: int) -> bytes | None:
        """The value, unless it has expired."""
        ...

    def put(self, key: str, value: bytes, *, expires_ns: int | None, reads: frozenset[str]) -> None:
        """Keep a value. `reads` are the resource keys it was made from."""
        ...

    def drop_written(self, writes: frozenset[str]) -> int:
        """Forget every value that was made from what is now being written; returns how many."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class HasCachePath(Protocol):
    """A journal in a file that may have another one beside it, for cached results."""

    @property
    def cache_path(self) -> Path:
        """Where results of the cache scope `persistent` are kept, by an engine that was given no cache for them."""
        ...


@runtime_checkable
class OnDisk(Protocol):
    """A journal, store or cache that keeps files, which may be in a workspace."""

    @property
    def files(self) -> tuple[str, ...]:
        """All files and folders that it writes, by their absolute paths."""
        ...
