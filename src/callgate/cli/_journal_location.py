"""Where the command line keeps its record: `.callgate/` in the current folder, unless it is told another place.

Beside the work, so that `callgate log` in the same folder finds it, and two projects never wait for each other. The journal's folder also
holds what belongs to it: large results and the persistent cache. A `postgresql://` address names a journal on a server, and large results
are there, too; those that an older callgate left in `.callgate/` here are still found.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

from msgspec import Struct

from callgate._blobs import DirectoryBlobs, MemoryBlobs
from callgate._journal import MemoryJournal, Reader, SqliteJournal, is_url
from callgate.cli._arguments import refuse_odd_text
from callgate.errors import UsageError
from callgate.protocols import BlobStore, HoldsBlobs, Journal, OnDisk

__all__ = ["MEMORY", "CommandJournal", "WithOlderBlobs", "default_journal", "default_memory", "stored_blobs", "without_password"]

MEMORY = ":memory:"
_VARIABLE = "CALLGATE_JOURNAL"
_PASSWORD = re.compile(r"(://[^:@/?]*):[^@/?]*(?=@)|(?<=[?&])password=[^&]*&?")


def default_journal() -> str:
    """`CALLGATE_JOURNAL`, or `.callgate/journal.db` under the current folder."""
    return os.environ.get(_VARIABLE) or os.path.join(".callgate", "journal.db")


def default_memory() -> str:
    """`CALLGATE_MEMORY`; empty for none."""
    return os.environ.get("CALLGATE_MEMORY", "")


def without_password(place: str) -> str:
    """A journal's place as it may be shown: what libpq asks for else comes from `PGPASSWORD` or `.pgpass`."""
    return _PASSWORD.sub(lambda found: found[1] or "", place).rstrip("?&") if is_url(place) else place


class WithOlderBlobs:
    """The large results of a journal, and those that an older callgate kept in a folder instead.

    Args:
        place: The journal: a file, in whose folder they were, or an address; then they were in `.callgate`.
    """

    def __init__(self, own: BlobStore, place: str) -> None:
        self._own = own
        folder = (Path(".callgate") if is_url(place) else Path(place).parent) / "blobs"
        self._older = DirectoryBlobs(folder) if folder.is_dir() else None

    @property
    def files(self) -> tuple[str, ...]:
        """See `callgate.protocols.OnDisk`."""
        own = self._own.files if isinstance(self._own, OnDisk) else ()
        return own if self._older is None else (*own, *self._older.files)

    def put(self, data: bytes) -> str:
        return self._own.put(data)

    def get(self, digest: str) -> bytes | None:
        found = self._own.get(digest)
        return self._older.get(digest) if found is None and self._older is not None else found


def stored_blobs(reader: Reader, place: str) -> BlobStore | None:
    """The large results of a journal that is read; None where it keeps none."""
    return WithOlderBlobs(reader.blobs, place) if isinstance(reader, HoldsBlobs) else None


class CommandJournal(Struct, frozen=True, kw_only=True):
    """What one command writes to."""

    journal: Journal
    blobs: BlobStore
    name: str
    """What commands call it by; empty: in memory, gone with the command."""
    path: Path | None
    """None: not in a file."""

    @classmethod
    def open(cls, place: str) -> CommandJournal:
        """Open the journal at `place` and what stands beside it.

        Raises:
            UsageError: It cannot be written; says why and what to give instead.
        """
        if place == MEMORY:
            return cls(journal=MemoryJournal(), blobs=MemoryBlobs(), name="", path=None)
        refuse_odd_text(journal=place)
        if is_url(place):
            from callgate._journal import PostgresJournal

            journal = PostgresJournal(place)
            return cls(journal=journal, blobs=WithOlderBlobs(journal.blobs, place), name=without_password(place), path=None)
        path = Path(place)
        try:
            file = SqliteJournal(path)
        except UsageError as error:
            if not isinstance(error.__cause__, OSError):
                raise
            raise UsageError(f"{error} Give another file with --journal, or {MEMORY}.") from error
        return cls(journal=file, blobs=WithOlderBlobs(file.blobs, place), name=str(path), path=path)

    def show_command(self, identity: str) -> str:
        """The command that shows more about a call or a run."""
        if not self.name:
            return "in memory, gone now; keep one with --journal FILE"
        return f"callgate log show {identity}{self._option()}"

    def result_command(self, call: str) -> str:
        """The command that prints the whole result of a call."""
        return f"callgate log result {call}{self._option()}" if self.name else "not kept (--record :memory:)"

    def _option(self) -> str:
        return "" if self.name == default_journal() else f" --journal {shlex.quote(self.name)}"
