"""`Workspace`: all operations on files below one root folder.

Every operation opens files through `Root` and checks what it opened, so that no path, link or race leads outside. A
read does not detect a hard link to a file outside of the root. A write to a file with several hard links is refused.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import BinaryIO

from callgate._workspace import open_beneath as beneath
from callgate._workspace.atomic_replace import metadata_from, put
from callgate._workspace.ignored_files import IgnoredFiles
from callgate._workspace.listing import DirectoryEntry, Glob, Kind, Listing, entries, kind_of, walk
from callgate._workspace.path_errors import PathNotFound, PathRefused
from callgate._workspace.protected_names import is_protected
from callgate._workspace.root_folder import Root, translate_os_errors

__all__ = ["MAX_READ", "MAX_VISITED", "Workspace"]

MAX_READ = 67_108_864
"""The largest number of bytes of one file that is read into memory."""
MAX_VISITED = 100_000
"""The largest number of entries that one walk visits."""
_CHUNK = 1_048_576


class Workspace:
    """Access to the files below one root folder.

    Args:
        root: An existing folder. It is opened now; a folder that gets its name later is not used.
        sync: Whether writes are flushed to disk before they return, so that they survive a power cut.
        opener: How paths are opened beneath the root. Default: the strongest way that the system supports.
        own: Absolute paths of callgate's own files, which are refused. Files in a folder `.callgate` are always
            refused.

    Every method takes paths relative to the root, or absolute ones that begin with the root. It raises `PathRefused`,
    or its subclass `PathNotFound`, if a path cannot be used. Safe to use from several threads.
    """

    def __init__(
        self, root: str | os.PathLike[str], *, sync: bool = True, opener: beneath.Opener | None = None, own: tuple[str, ...] = ()
    ) -> None:
        self._beneath = Root(os.fspath(root), opener or beneath.best_opener(), own)
        self._sync = sync
        self.editing = threading.RLock()
        """Held while a file is read and written back, so that no edit is lost between threads."""

    def __enter__(self) -> Workspace:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def root(self) -> str:
        """The folder's real path when it was opened; for display only."""
        return self._beneath.path

    @property
    def deleted(self) -> bool:
        """Whether the root was deleted; a renamed folder is still this workspace."""
        return self._beneath.deleted

    def close(self) -> None:
        """Close the root. Idempotent."""
        self._beneath.close()

    def normalise(self, path: str) -> str:
        """Return the canonical path below the root, with links resolved, such as `src/app.py`; empty for the root.

        The path need not exist.
        """
        return self._beneath.real_name(path)

    def inside(self, path: str) -> bool:
        """Return whether `path` is in this workspace. It need not exist."""
        try:
            self.normalise(path)
        except PathRefused:
            return False
        return True

    def ignored(self, path: str) -> bool:
        """Return whether searches leave `path` out."""
        name = self.normalise(path)
        return bool(name) and self.ignore().ignores(name, directory=self.kind(path) == "directory")

    def protected(self, path: str) -> bool:
        """Return whether `path` has a name of a file that makes other programs run code or contains secrets.

        Checks the path as written and with links resolved.
        """
        if is_protected(path):
            return True
        try:
            return is_protected(self.normalise(path))
        except PathRefused:
            return False

    def size(self, path: str) -> int | None:
        """Return the file's size in bytes, or None if it is not a file."""
        try:
            found = self.stat(path)
        except PathNotFound:
            return None
        return found.st_size if stat.S_ISREG(found.st_mode) else None

    def kind(self, path: str) -> Kind | None:
        """Return the kind of the file or folder at `path`, following links; None if it does not exist."""
        try:
            return kind_of(self.stat(path))
        except PathNotFound:
            return None

    def stat(self, path: str) -> os.stat_result:
        """Return the `os.stat_result` of the file or folder at `path`, following links.

        Does not open it for reading.
        """
        with self._beneath.opened(path, beneath.PATH_ONLY) as fd:
            return os.fstat(fd)

    def open_read(self, path: str) -> BinaryIO:
        """Open a regular file for reading. Fifos and devices are refused, so this never blocks."""
        self._regular(path, self.stat(path))
        fd = self._beneath.open_path(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            self._regular(path, os.fstat(fd))
            return os.fdopen(fd, "rb")
        except BaseException:
            os.close(fd)
            raise

    def read_bytes(self, path: str, *, limit: int = MAX_READ) -> bytes:
        """Return the content of a file. A file larger than `limit` bytes is refused without reading it."""
        with self.open_read(path) as file:
            size = os.fstat(file.fileno()).st_size
            with translate_os_errors(path):
                data = file.read(limit + 1) if size <= limit else b""
            if size > limit or len(data) > limit:
                raise PathRefused(path, "too_large", f": {max(size, len(data)):,} bytes, and {limit:,} is the limit. Read a part of it")
            return data

    def list_dir(self, path: str = ".") -> Listing:
        """List the names in a folder. Links are listed as links."""
        with self._beneath.opened(path, beneath.DIRECTORY, "not_directory") as fd:
            found, cut = entries(fd, self.normalise(path))
        return Listing(entries=tuple(entry for entry in found if not self._beneath.is_own(entry.path)), truncated=cut)

    def walk(
        self, path: str = ".", *, depth: int = 64, limit: int = MAX_VISITED, everything: bool = False, shallow: bool = False
    ) -> Iterator[DirectoryEntry | None]:
        """Yield the entries below a folder in order, without callgate's own.

        If there are more than `limit`, yield None last.

        Args:
            depth: 1 yields only the folder's own entries.
            everything: Include what searches leave out.
            shallow: Include the folders that searches leave out, but not their contents.
        """
        ignore = self.ignore()
        start = self.normalise(path)

        def own(entry: DirectoryEntry) -> bool:
            return self._beneath.is_own(entry.path)

        def passed(entry: DirectoryEntry) -> bool:
            return own(entry) or ignore.ignores_entry(entry.path, directory=entry.kind == "directory")

        with translate_os_errors(path):
            yield from walk(
                lambda folder: self._beneath.open(folder, beneath.DIRECTORY | os.O_NOFOLLOW),
                start,
                depth=depth,
                most=limit,
                passes_over=own if everything or shallow else passed,
                descends=(lambda entry: not passed(entry)) if shallow else lambda _: True,
            )

    def glob(self, pattern: str, *, limit: int = 1_000) -> Listing:
        """Return the files and links whose path below the root matches the glob. `**` spans folders.

        Files that searches leave out are not returned.
        """
        rest = self._beneath.rest(pattern)
        if ".." in rest.split("/"):
            raise PathRefused(pattern, "outside")
        glob = Glob(rest)
        found: list[DirectoryEntry] = []
        if glob.start and self.kind(glob.start) != "directory":
            return Listing(entries=(), truncated=False)
        for entry in self.walk(glob.start or "."):
            if entry is None or len(found) == limit:
                return Listing(entries=tuple(found), truncated=True)
            if entry.kind in ("file", "link") and glob.matches(entry.path):
                found.append(entry)
        return Listing(entries=tuple(found), truncated=False)

    def write_bytes(self, path: str, data: bytes) -> bool:
        """Replace the content of a file atomically and keep its mode.

        Create missing folders. Return whether the file is new.
        """
        with self._beneath.locate(path, make=True) as (folder, name, still_there):
            new = self._target(path, folder, name) is None
            set_metadata = (lambda _: None) if new else metadata_from(folder, name)
            put(folder, name, [data], set_metadata=set_metadata, sync=self._sync, still_there=still_there)
            return new

    def create(self, path: str, data: bytes = b"") -> None:
        """Create a file with this content atomically. An existing path is refused."""
        with self._beneath.locate(path, make=True, follow=False) as (folder, name, still_there):
            put(folder, name, [data], replace=False, sync=self._sync, still_there=still_there)

    def append(self, path: str, data: bytes) -> bool:
        """Append `data` to a file. Create the file if it is missing. Return whether the file is new."""
        with self._beneath.locate(path, make=True) as (folder, name, still_there):
            new = self._target(path, folder, name) is None
            still_there()
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
            fd = os.open(name, flags, 0o666, dir_fd=folder)
            try:
                self._writable(path, os.fstat(fd))
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(fd, rest) :]
                if self._sync:
                    os.fsync(fd)
            finally:
                os.close(fd)
            return new

    def mkdir(self, path: str) -> None:
        """Create a folder and its missing parents. An existing path is refused."""
        with self._beneath.locate(path.rstrip("/") or path, make=True, follow=False) as (folder, name, still_there):
            still_there()
            os.mkdir(name, dir_fd=folder)

    def delete(self, path: str) -> None:
        """Remove a file, an empty folder or a link. The target of a link is never removed."""
        with self._beneath.locate(path.rstrip("/") or path, follow=False) as (folder, name, still_there):
            kind = kind_of(os.stat(name, dir_fd=folder, follow_symlinks=False))
            if kind == "special":
                raise PathRefused(path, "special")
            still_there()
            if kind == "directory":
                os.rmdir(name, dir_fd=folder)
            else:
                os.unlink(name, dir_fd=folder)

    def rename(self, path: str, target: str) -> None:
        """Rename a file, link or folder. An existing target is refused."""
        with self._beneath.locate(path.rstrip("/") or path, follow=False) as (folder, name, still_there):
            if kind_of(os.stat(name, dir_fd=folder, follow_symlinks=False)) == "special":
                raise PathRefused(path, "special")
            with self._beneath.locate(target.rstrip("/") or target, make=True, follow=False) as (new_folder, new_name, new_still_there):
                still_there()
                new_still_there()
                try:
                    beneath.rename_new(folder, name, new_folder, new_name)
                except OSError as error:
                    if error.errno != errno.EXDEV:
                        raise
                    raise PathRefused(target, "device", " (it is another file system: copy and delete instead)") from error

    def copy(self, path: str, target: str) -> int:
        """Copy a file with its content and mode, and return its size in bytes. An existing target is refused."""
        with self.open_read(path) as source, self._beneath.locate(target, make=True, follow=False) as (folder, name, still_there):
            mode = os.fstat(source.fileno()).st_mode & 0o777
            chunks = iter(lambda: source.read(_CHUNK), b"")
            set_metadata = partial(os.fchmod, mode=mode)
            return put(folder, name, chunks, set_metadata=set_metadata, replace=False, sync=self._sync, still_there=still_there)

    @contextmanager
    def folder(self, path: str = ".") -> Iterator[int]:
        """Open a folder of the workspace, for example to start a command in it. Yield its descriptor."""
        with self._beneath.opened(path, beneath.DIRECTORY, "not_directory") as fd:
            yield fd

    def _target(self, path: str, folder: int, name: str) -> os.stat_result | None:
        """Return the status of the file that a write would replace; None if there is no file.

        Anything but a regular file without further hard links is refused.
        """
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return None
        return self._writable(path, found)

    def _writable(self, path: str, found: os.stat_result) -> os.stat_result:
        self._regular(path, found)
        if found.st_nlink > 1:
            raise PathRefused(path, "hard_link")
        return found

    @staticmethod
    def _regular(path: str, found: os.stat_result) -> None:
        if stat.S_ISDIR(found.st_mode):
            raise PathRefused(path, "directory")
        if not stat.S_ISREG(found.st_mode):
            raise PathRefused(path, "special")

    def ignore(self) -> IgnoredFiles:
        """Return an `IgnoredFiles` that applies the current ignore files below the root."""
        return IgnoredFiles(self._text)

    def _text(self, path: str) -> str | None:
        """Return an ignore file's text; empty if it does not exist, None if it cannot be used.

        Bytes that are not UTF-8 become surrogates, as in file names.
        """
        try:
            return self.read_bytes(path, limit=_CHUNK).decode("utf-8", "surrogateescape")
        except PathRefused as refused:
            return "" if refused.rule in ("not_found", "not_directory") else None
