"""The protocols of stores for bytes and cached results."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, runtime_checkable

__all__ = ["BlobStore", "CacheStore", "HasCachePath", "HoldsBlobs", "OnDisk"]


class BlobStore(Protocol):
    """Stores bytes by their SHA-256. Used from several threads, not only the event loop's."""

    def put(self, data: bytes) -> str:
        """Store `data` and return its hash as 64 lower-case hex digits. The same bytes are stored once."""
        ...

    def get(self, digest: str) -> bytes | None:
        """Return the bytes with this hash, checked against it, or None."""
        ...


@runtime_checkable
class HoldsBlobs(Protocol):
    """A journal that stores large results beside its events."""

    @property
    def blobs(self) -> BlobStore:
        """The blob store. A blob is durable before any event that is appended after it."""
        ...


class CacheStore(Protocol):
    """Stores checked results as bytes, in memory or in a file."""

    def get(self, key: str, now_ns: int) -> bytes | None:
        """Return the value, or None if there is none or it has expired."""
        ...

    def put(self, key: str, value: bytes, *, expires_ns: int | None, reads: frozenset[str]) -> None:
        """Store a value. `reads` are the resource keys from which it was computed."""
        ...

    def drop_written(self, writes: frozenset[str]) -> int:
        """Remove every value that was computed from these keys; return their number."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class HasCachePath(Protocol):
    """A journal in a file that may have a cache file beside it."""

    @property
    def cache_path(self) -> Path:
        """The cache file for results of the cache scope `persistent`, for an engine without a given cache."""
        ...


@runtime_checkable
class OnDisk(Protocol):
    """A journal, store or cache with files, which may be in a workspace."""

    @property
    def files(self) -> tuple[str, ...]:
        """The absolute paths of all files and folders that it writes."""
        ...
