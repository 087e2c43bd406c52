"""Store the files that calls wrote: read a file, redact its text, cut it into passages and store these.

The whole text is redacted before it is cut, so that a secret that spans a cut is found. Only text files in the call's
workspace and within the limits are stored; files that searches skip and files whose names contain secrets are not. The
passages of removed files are deleted. Knows nothing of journals.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

import msgspec

from callgate._secret_redaction import Redactor
from callgate._workspace import DirectoryEntry, PathRefused, Workspace, stamp_of
from callgate.builtins._text_pages import decode_text, is_binary
from callgate.errors import UsageError
from callgate.memory.journal_read_positions import ChangeCause, ChangedFile
from callgate.memory.memory_limits import MemoryLimits
from callgate.memory.passage import Passage, PassageStore
from callgate.memory.text_chunks import chunks

__all__ = ["FilePassages", "file_origin", "marks_again", "without_secrets"]

log = logging.getLogger("callgate")
_TICK_NS = 50_000_000
_COARSE_TICK_NS = 2_000_000_000
"""How far timestamps of a file system that stores whole seconds may lag behind the clock, in nanoseconds."""
_text = msgspec.json.Decoder(dict[str, str]).decode


def file_origin(workspace: str, path: str) -> str:
    return f"file:{workspace}\n{path}"


def without_secrets(redactor: Redactor | None, text: str) -> str:
    """Return the redacted text, or the unchanged text if there is no redactor."""
    if redactor is None:
        return text
    return _text(redactor.redact(msgspec.json.encode({"text": text})))["text"]


class FilePassages:
    """Stores passages of the files that may have changed."""

    def __init__(self, store: PassageStore, limits: MemoryLimits, redactor: Redactor | None = None) -> None:
        self._store = store
        self._limits = limits
        self.redactor = redactor

    def update(self, mark: ChangedFile) -> None:
        """Update the passages of the files at the path of a mark.

        Raises:
            UsageError: The workspace does not exist.
        """
        with Workspace(mark.workspace, sync=False) as workspace:
            kind = workspace.kind(mark.path or ".")
            if kind == "file":
                self._keep(workspace, mark.path, mark)
            else:
                self._update_below(workspace, mark, there=kind == "directory")
        if self._store.count("file", mark.cause.principal) > self._limits.pieces:
            self._store.trim("file", mark.cause.principal, self._limits.pieces)

    def _update_below(self, workspace: Workspace, mark: ChangedFile, *, there: bool) -> None:
        """Update the passages of all files in a folder. If the path no longer exists, delete its passages."""
        held = self._store.files(mark.workspace)
        for path in self._changed_files(workspace, mark, held) if there else ():
            self._keep(workspace, path, mark)
        gone = [path for path in held if _is_within(path, mark.path) and workspace.kind(path) != "file"]
        if gone:
            self._store.keep({file_origin(mark.workspace, path): () for path in gone})

    def _keep(self, workspace: Workspace, path: str, mark: ChangedFile) -> None:
        self._store.keep({file_origin(mark.workspace, path): self._passages(workspace, path, mark)})

    def _changed_files(self, workspace: Workspace, mark: ChangedFile, held: dict[str, str]) -> Iterator[str]:
        """Yield the files in a folder that the call may have written, up to a limit."""
        found = 0
        moved = set(held.values())
        for entry in workspace.walk(mark.path or "."):
            if entry is None or entry.kind != "file" or held.get(entry.path) == entry.stamp:
                continue
            if entry.stamp not in moved and not _is_new(entry, mark):
                continue
            found += 1
            if found > self._limits.files_per_call:
                log.warning(
                    "Memory: %s changed more than %d files; the rest is not remembered.", mark.cause.tool, self._limits.files_per_call
                )
                return
            yield entry.path

    def _passages(self, workspace: Workspace, path: str, mark: ChangedFile) -> list[Passage]:
        text, stamp = self._read(workspace, path)
        if not text:
            return []
        cause = mark.cause
        origin = file_origin(mark.workspace, path)
        return [
            Passage(
                origin=origin,
                kind="file",
                text=chunk.text,
                at_ns=mark.since_ns,
                principal=cause.principal,
                actor=cause.actor,
                conversation=cause.conversation,
                run=cause.run,
                call=cause.call,
                tool=cause.tool,
                workspace=mark.workspace,
                path=path,
                line=chunk.line,
                stamp=stamp,
                redacted=self.redactor is not None,
            )
            for chunk in chunks(without_secrets(self.redactor, text))
        ]

    def _read(self, workspace: Workspace, path: str) -> tuple[str, str]:
        """Return the file's text and its stamp; both are empty for a file that is not stored."""
        if workspace.protected(path) or workspace.ignored(path) or self.has_secret_name(path):
            return "", ""
        try:
            stamp = stamp_of(workspace.stat(path))
            data = workspace.read_bytes(path, limit=self._limits.file_bytes)
        except PathRefused:
            return "", ""
        return ("", "") if is_binary(data) else (decode_text(data)[0], stamp)

    def has_secret_name(self, path: str) -> bool:
        """Return whether the redactor would change the path."""
        return without_secrets(self.redactor, path) != path

    def is_current(self, passage: Passage) -> bool:
        """Return whether the file is unchanged since the passage was stored."""
        try:
            with Workspace(passage.workspace, sync=False) as workspace:
                return stamp_of(workspace.stat(passage.path)) == passage.stamp
        except (PathRefused, UsageError):
            return False


def marks_again(passages: Iterable[Passage]) -> list[ChangedFile]:
    """Return marks for the files of these passages, so that they are read again.

    The call that wrote them stays the same.
    """
    files = {(one.workspace, one.path): one for one in passages}
    return [
        ChangedFile(
            workspace=one.workspace,
            path=one.path,
            since_ns=one.at_ns,
            cause=ChangeCause(
                call=one.call,
                run=one.run,
                tool=one.tool,
                principal=one.principal,
                actor=one.actor,
                conversation=one.conversation,
                redacted=one.redacted,
            ),
        )
        for one in files.values()
    ]


def _is_new(entry: DirectoryEntry, mark: ChangedFile) -> bool:
    """Return whether the file was changed since the call was received, by its ctime, which programs cannot set."""
    changed_ns = int(entry.stamp.rpartition(":")[2] or 0)
    return changed_ns >= mark.since_ns - (_TICK_NS if changed_ns % 1_000_000_000 else _COARSE_TICK_NS)


def _is_within(path: str, folder: str) -> bool:
    return not folder or path == folder or path.startswith(f"{folder}/")
