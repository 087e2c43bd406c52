"""Open the command line's journal: `.callgate/journal.db` in the current folder by default.

The journal is in the project's folder, so that `callgate log` finds it there and two projects never wait for each
other. This folder also contains large results and the persistent cache. A `postgresql://` address names a journal on a
server, which stores its large results too. Results that an older callgate stored in `.callgate/` can still be read.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

from msgspec import Struct

from callgate._blob_store import DirectoryBlobs, MemoryBlobs
from callgate._journal import JournalReader, MemoryJournal, SqliteJournal, is_url
from callgate.cli._call_arguments import refuse_odd_text
from callgate.errors import UsageError
from callgate.protocols import BlobStore, HoldsBlobs, Journal, OnDisk

__all__ = [
    "MEMORY",
    "CommandJournal",
    "WithOlderBlobs",
    "default_journal",
    "default_memory",
    "journal_option",
    "stored_blobs",
    "without_password",
]

MEMORY = ":memory:"
_VARIABLE = "CALLGATE_JOURNAL"
_PASSWORD = re.compile(r"(://[^:@/?]*):[^@/?]*(?=@)|(?<=[?&])password=[^&]*&?")


def default_journal() -> str:
    """Return `CALLGATE_JOURNAL`, or `.callgate/journal.db` in the current folder."""
    return os.environ.get(_VARIABLE) or os.path.join(".callgate", "journal.db")


def default_memory() -> str:
    """Return `CALLGATE_MEMORY`; empty if it is not set."""
    return os.environ.get("CALLGATE_MEMORY", "")


def without_password(place: str) -> str:
    """Return a journal's path or address without its password, so that it can be shown."""
    return _PASSWORD.sub(lambda found: found[1] or "", place).rstrip("?&") if is_url(place) else place


class WithOlderBlobs:
    """A journal's blob store that also reads from the folder in which an older callgate stored blobs.

    Args:
        place: The journal's file or address. The older folder is beside the file, or in `.callgate` for an address.
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


def stored_blobs(reader: JournalReader, place: str) -> BlobStore | None:
    """Return the blob store of a journal that is opened for reading; None if the journal has none."""
    return WithOlderBlobs(reader.blobs, place) if isinstance(reader, HoldsBlobs) else None


class CommandJournal(Struct, frozen=True, kw_only=True):
    """The journal and blob store of one command."""

    journal: Journal
    blobs: BlobStore
    name: str
    """The path or address to give to other commands; empty for a journal in memory."""
    path: Path | None
    """The journal's file; None if the journal is on a server or in memory."""

    @classmethod
    def open(cls, place: str) -> CommandJournal:
        """Open the journal at `place` and its blob store.

        Raises:
            UsageError: The journal cannot be written.
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
        """Return the command that shows the events of a call or run.

        For a journal in memory, return a text that says it is not kept.
        """
        if not self.name:
            return "in memory and not kept; use --journal FILE to keep it"
        return f"callgate log show {identity}{self._option()}"

    def result_command(self, call: str) -> str:
        """Return the command that prints a call's whole result.

        For a journal in memory, return a text that says it is not kept.
        """
        return f"callgate log result {call}{self._option()}" if self.name else "not kept (--record :memory:)"

    def _option(self) -> str:
        return journal_option(self.name)


def journal_option(place: str) -> str:
    """Return the option that names this journal, with a leading space. Return an empty text for the default journal."""
    return "" if place == default_journal() else f" --journal {shlex.quote(without_password(place))}"
