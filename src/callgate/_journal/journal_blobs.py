"""Store large results in a folder beside an SQLite journal's file. The file and the folder together are the complete journal."""

from __future__ import annotations

import os
from pathlib import Path

from callgate._blob_store import DirectoryBlobs
from callgate._unusable_paths import path_error
from callgate.errors import JournalFailed, UsageError

__all__ = ["JournalBlobs"]


class JournalBlobs:
    """A `BlobStore` in the folder `<journal>.blobs`, which is created with the first blob.

    Args:
        journal: The journal's file.
    """

    def __init__(self, journal: Path) -> None:
        self._folder = journal.with_name(f"{journal.name}.blobs")
        self.files = (str(self._folder.absolute()),)

    def put(self, data: bytes) -> str:
        """See `BlobStore`. The blob is on disk when this returns.

        Raises:
            JournalFailed: The blob cannot be stored.
        """
        try:
            return DirectoryBlobs(self._folder).put(data)
        except UsageError as error:
            raise JournalFailed(f"{len(data)} bytes cannot be kept. {error}") from error
        except OSError as error:
            why = path_error(self._folder, "a folder for large results", error)
            raise JournalFailed(f"{len(data)} bytes cannot be kept. {why}") from error

    def get(self, digest: str) -> bytes | None:
        return DirectoryBlobs(self._folder).get(digest) if os.path.isdir(self._folder) else None
