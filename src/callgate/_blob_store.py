"""Store bytes under their SHA-256 digest: whole results, files before a change, and whatever is too large for an event.

Bytes are hashed again when they are read; bytes that do not match their digest are treated as missing. Knows nothing of who stores what.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import secrets
import threading
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path

from callgate._option_checks import by_name
from callgate._unusable_paths import check_path, expanded, refused_paths

__all__ = ["DirectoryBlobs", "MemoryBlobs", "is_digest"]

_DIGEST = re.compile(r"[0-9a-f]{64}")
_log = logging.getLogger("callgate.blobs")


def is_digest(text: str) -> bool:
    """Return whether `text` is 64 lower-case hex digits, which also makes it safe to use as a file name."""
    return _DIGEST.fullmatch(text) is not None


class MemoryBlobs:
    """Store bytes as long as the process lives. Safe to use from several threads.

    Args:
        max_bytes: The largest total size of all blobs. Above the limit, the oldest blobs are dropped; a blob that is larger than the limit
            is not stored. Both are counted in `dropped`, and `get` returns None for them, as for any unknown digest. None: no limit.
    """

    def __init__(self, *, max_bytes: int | None = None) -> None:
        self._blobs: OrderedDict[str, bytes] = OrderedDict()
        self._lock = threading.Lock()
        self._max_bytes = max_bytes
        self._bytes = 0
        self.dropped = 0
        """How many blobs have been dropped or refused so far because of `max_bytes`."""

    def put(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        with self._lock:
            if digest in self._blobs:
                self._blobs.move_to_end(digest)
                return digest
            if self._max_bytes is not None and len(data) > self._max_bytes:
                self.dropped += 1
                return digest
            self._blobs[digest] = bytes(data)
            self._bytes += len(data)
            while self._max_bytes is not None and self._bytes > self._max_bytes:
                _, oldest = self._blobs.popitem(last=False)
                self._bytes -= len(oldest)
                self.dropped += 1
        return digest

    def get(self, digest: str) -> bytes | None:
        with self._lock:
            return self._blobs.get(digest)


class DirectoryBlobs:
    """Store bytes as files `ab/cdef…` in one folder. Only the owner can read them. Safe across threads and processes.

    A file gets its name when it is complete, and is on disk before `put` returns. An altered file is never returned: `get` returns None and
    logs a warning, and the next `put` of the original bytes repairs the file.
    """

    @by_name
    def __init__(self, path: str | os.PathLike[str]) -> None:
        in_memory = "With MemoryJournal, large results are kept in memory: leave blobs out of the engine's options."
        on_server = "With PostgresJournal, large results are kept on its server: leave blobs out of the engine's options."
        check_path("DirectoryBlobs", path, in_memory=in_memory, on_server=on_server)
        self._root = expanded(path)
        with refused_paths(path, "a folder for large results"):
            if not self._root.is_dir():
                self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
                _sync(self._root.parent)
        self.files = (str(self._root.absolute()),)

    def put(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        if self._read(digest) != data:
            self._write(digest, data)
        return digest

    def get(self, digest: str) -> bytes | None:
        if not is_digest(digest):
            return None
        data = self._read(digest)
        if data is None or hashlib.sha256(data).hexdigest() == digest:
            return data
        _log.warning("blob %s was altered on disk and is not served; put the original again to repair it", digest)
        return None

    def _file(self, digest: str) -> Path:
        return self._root / digest[:2] / digest[2:]

    def _read(self, digest: str) -> bytes | None:
        try:
            fd = os.open(self._file(digest), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            _log.warning("blob %s cannot be read: %s", digest, error.strerror)
            return None
        with os.fdopen(fd, "rb") as file:
            return file.read()

    def _write(self, digest: str, data: bytes) -> None:
        target = self._file(digest)
        target.parent.mkdir(mode=0o700, exist_ok=True)
        draft = target.with_name(f"{target.name}.{secrets.token_hex(8)}.tmp")
        try:
            fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            draft.rename(target)
        except BaseException:
            with suppress(OSError):
                draft.unlink()
            raise
        for folder in (target.parent, self._root):
            _sync(folder)


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
