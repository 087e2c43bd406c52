"""A memory's background work: read changed files into the store and the index, and refresh indexes.

The files to read are those marked in `journal_read_positions`. If a file cannot be read, it is tried a few times and
then given up. Failures are logged and affect nothing else.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable

from callgate._terminal_text import one_line
from callgate.memory.database import Database
from callgate.memory.file_index import WorkspaceIndex
from callgate.memory.file_passages import FilePassages
from callgate.memory.journal_read_positions import ChangedFile, ReadPositions
from callgate.memory.memory_limits import LOGGED_CHARS, MemoryLimits

__all__ = ["BackgroundJobs"]

log = logging.getLogger("callgate")


class BackgroundJobs:
    """Reads files that are marked as possibly changed, and refreshes indexes that searches found outdated.

    Args:
        stopped: Returns whether to stop now. The remaining work is done later.
        wake: Called when a search has found outdated files.
    """

    def __init__(
        self,
        database: Database,
        positions: ReadPositions,
        files: FilePassages,
        limits: MemoryLimits,
        *,
        stopped: Callable[[], bool],
        wake: Callable[[], None],
    ) -> None:
        self.index = WorkspaceIndex(
            database, positions, self._index_outdated, most_workspaces=limits.indexed_workspaces, secret=files.has_secret_name
        )
        self.failure = ""
        self._positions = positions
        self._files = files
        self._limits = limits
        self._stopped = stopped
        self._wake = wake
        self._wanted: dict[str, set[str] | None] = {}
        self._wanting = threading.Lock()

    def read_marked_files(self) -> bool:
        """Read the marked files. Return whether nothing remains to be done now."""
        marks, succeeded = self._positions.marks(redacting=self._files.redactor is not None), True
        for mark in marks:
            if self._stopped():
                return True
            succeeded = self._read_marked(mark) and succeeded
        return not (marks and succeeded)

    def _read_marked(self, mark: ChangedFile) -> bool:
        """Read the files at one path that is marked as possibly changed.

        Return False if this failed and will be tried again.
        """
        try:
            if os.path.isdir(mark.workspace):
                if self.index.has(mark.workspace):
                    self.index.refresh(mark.workspace, [mark.path], self._stopped)
                self._files.update(mark)
        except Exception as error:
            attempt = self._positions.count_failure(mark)
            what = f"{mark.path or 'what changed'} in {mark.workspace}"
            self.failure = f"{what} could not be taken in (attempt {attempt}): {type(error).__name__}: {error}"
            log.error("Memory: %s", one_line(self.failure, LOGGED_CHARS))
            if attempt < self._limits.attempts:
                return False
        if not self._stopped():
            self._positions.remove(mark)
        return True

    def _index_outdated(self, root: str, paths: list[str] | None) -> None:
        with self._wanting:
            if root not in self._wanted and len(self._wanted) >= self._limits.waiting:
                return
            known = self._wanted.get(root, set())
            self._wanted[root] = None if paths is None or known is None else known | set(paths)
        self._wake()

    def refresh_indexes(self) -> None:
        """Index again the files that searches found to be outdated."""
        with self._wanting:
            wanted, self._wanted = self._wanted, {}
        for root, paths in wanted.items():
            try:
                self.index.refresh(root, paths, self._stopped)
            except Exception as error:
                self.failure = f"the index of {root} could not be refreshed: {type(error).__name__}: {error}"
                log.error("Memory: %s", one_line(self.failure, LOGGED_CHARS))
