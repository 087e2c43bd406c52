"""Store a recorded run outside its journal, in one file of lines that contains everything that a replay reads.

The first line names the format. Each further line is an event with its unchanged body, or a large body with its hash.
Data that the journal does not have, because it was secret or too large, is missing here too.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Raw, Struct

from callgate._json import canonical
from callgate.agent.run_recorder import BlobReader
from callgate.errors import UsageError
from callgate.event_queries import EventQuery, select
from callgate.events import Event
from callgate.replay.rebuild_run import EventSource, Replay, blobs_with

__all__ = ["RunFile"]

_FORMAT = 1


class _FileHead(Struct, frozen=True, kw_only=True):
    callgate_run: int
    run: str


class _FileLine(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line: an event or a large body."""

    position: int = 0
    run: str = ""
    seq: int = 0
    kind: str = ""
    call: str = ""
    attempt: int = 0
    parents: tuple[int, ...] = ()
    at_ns: int = 0
    mono: float = 0.0
    epoch: int = 0
    version: int = 1
    body: Raw = Raw(b"{}")
    text: str = ""
    base64: str = ""


class RunFile:
    """The events and large bodies that a replay of one run reads."""

    def __init__(self, run: str, events: Iterable[Event], blobs: Iterable[bytes]) -> None:
        self.run = run
        self._events = sorted(events, key=lambda event: event.position)
        self._blobs = {hashlib.sha256(body).hexdigest(): body for body in blobs}

    @classmethod
    def of(cls, journal: EventSource, run: str, blobs: BlobReader | None = None) -> RunFile:
        """Rebuild a run and keep everything that is read for it.

        Raises:
            UsageError: The run cannot be rebuilt.
        """
        watched = _CopyingReader(journal, blobs or blobs_with(journal))
        Replay.of(watched, run, watched)
        return cls(run, watched.events.values(), watched.blobs)

    def find(self, query: EventQuery, /) -> Iterable[Event]:
        return select(self._events, query)

    def get(self, digest: str) -> bytes | None:
        return self._blobs.get(digest)

    def encode(self) -> bytes:
        """Return the content of the file: one JSON value per line."""
        lines = [canonical(_FileHead(callgate_run=_FORMAT, run=self.run))]
        for event in self._events:
            fields = {name: getattr(event, name) for name in _FileLine.__struct_fields__ if hasattr(event, name)}
            lines.append(canonical(_FileLine(**{**fields, "body": Raw(event.body)})))
        lines += [_blob_line(body) for body in self._blobs.values()]
        return b"".join(line + b"\n" for line in lines)

    @classmethod
    def load(cls, path: str | Path) -> RunFile:
        """Read a recorded run from its file.

        Raises:
            UsageError: The file cannot be read, or is not a recorded run in this version's format.
        """
        try:
            head, *lines = Path(path).read_bytes().splitlines()
            first = msgspec.json.decode(head, type=_FileHead)
            told = [msgspec.json.decode(line, type=_FileLine) for line in lines]
        except OSError as error:
            raise UsageError(f"The recorded run {path} cannot be read: {error.strerror}. Export the run again.") from error
        except (ValueError, msgspec.DecodeError) as error:
            raise UsageError(f"{path} is not a recorded run: {error}. Export the run again.") from error
        if first.callgate_run != _FORMAT:
            raise UsageError(f"{path} has format {first.callgate_run}; this version reads {_FORMAT}. Export the run again.")
        return cls(first.run, [_event(line) for line in told if line.kind], [_body(line) for line in told if not line.kind])


def _event(line: _FileLine) -> Event:
    fields = {name: getattr(line, name) for name in _FileLine.__struct_fields__ if name in Event.__struct_fields__}
    return Event(**{**fields, "body": bytes(line.body)})


def _blob_line(body: bytes) -> bytes:
    try:
        return canonical(_FileLine(text=body.decode()))
    except UnicodeDecodeError:
        return canonical(_FileLine(base64=base64.b64encode(body).decode()))


def _body(line: _FileLine) -> bytes:
    return line.text.encode() if line.text else base64.b64decode(line.base64)


class _CopyingReader:
    """Reads a journal and its large bodies, and keeps a copy of everything read."""

    def __init__(self, journal: EventSource, blobs: BlobReader | None) -> None:
        self._journal = journal
        self._blobs = blobs
        self.events: dict[int, Event] = {}
        self.blobs: list[bytes] = []

    def find(self, query: EventQuery, /) -> Iterable[Event]:
        found = list(self._journal.find(query))
        self.events |= {event.position: event for event in found}
        return found

    def get(self, digest: str) -> bytes | None:
        body = self._blobs.get(digest) if self._blobs is not None else None
        if body is not None and body not in self.blobs:
            self.blobs.append(body)
        return body
