"""`Root`: an open folder, and the only ways to open what is below it.

The folder is opened once; a folder that gets its name later is not used. The text of a path is checked first
(`path_text`), then `open_beneath` opens it inside the root. Works with descriptors only; `Workspace` defines the
operations on files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from callgate._workspace import open_beneath as beneath
from callgate._workspace import path_text as paths
from callgate._workspace.path_errors import PathNotFound, PathRefused, Rule, from_os_error
from callgate._workspace.protected_names import is_own
from callgate._workspace.protected_own_files import OwnFiles

__all__ = ["EntryLocation", "Root", "translate_os_errors"]

_MAX_LINKS = 40

EntryLocation = tuple[int, str, Callable[[], None]]
"""The location of a directory entry: the open parent folder, the name in it, and a check.

The check must be called just before the name is used.
"""


class Root:
    """The root folder of a workspace. It stays open."""

    def __init__(self, root: str, opener: beneath.Opener, own: tuple[str, ...] = ()) -> None:
        self._fd = -1
        given = os.path.abspath(root)
        try:
            self._fd = os.open(given, beneath.PATH_ONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise PathRefused(given, "not_directory", ". A workspace's root must be an existing folder") from error
        self.path = os.path.realpath(given)
        self._roots = (given, self.path)
        self._opener = opener
        self._own = OwnFiles(self.path, own)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    __del__ = close

    @property
    def deleted(self) -> bool:
        """Whether the folder was deleted; a renamed folder is still this root."""
        return os.fstat(self._fd).st_nlink == 0

    def is_own(self, path: str) -> bool:
        """Return whether `path` belongs to callgate. It must be a path below the root that a walk has found."""
        return self._own.has(path)

    def real_name(self, path: str) -> str:
        rest = self.rest(path)
        with translate_os_errors(path):
            return beneath.real_name(self._fd, rest)

    def open(self, rest: str, flags: int) -> int:
        """Open a path that was returned by `rest` or found by a walk.

        Raises:
            OSError: The path cannot be opened.
            PathRefused: The path leads to callgate's own files.
        """
        fd = self._opener(self._fd, rest, flags, 0)
        try:
            self._own.refuse(rest, fd, lambda: os.path.join(self.path, beneath.real_name(self._fd, rest)))
        except BaseException:
            os.close(fd)
            raise
        return fd

    def rest(self, path: str) -> str:
        """Check the text of `path` and return its part below the root."""
        rule = paths.fault(path)
        if rule is not None:
            raise PathRefused(path, "too_long" if rule == "too_long" else "name")
        rest = paths.below(path, self._roots)
        if rest is None:
            raise PathRefused(path, "outside")
        if is_own(rest):
            raise PathRefused(path, "own")
        return rest

    def open_path(self, path: str, flags: int, otherwise: Rule | None = None) -> int:
        """Open `path`. The caller must close the descriptor.

        Args:
            otherwise: The rule that `PathRefused` names if something on the path is not a directory. Default: the usual
                rule for this error.
        """
        rest = self.rest(path)
        with translate_os_errors(path):
            try:
                return self.open(rest, flags)
            except NotADirectoryError as error:
                if otherwise is None:
                    raise
                raise PathRefused(path, otherwise) from error

    @contextmanager
    def opened(self, path: str, flags: int, otherwise: Rule | None = None) -> Iterator[int]:
        fd = self.open_path(path, flags, otherwise)
        try:
            with translate_os_errors(path):
                yield fd
        finally:
            os.close(fd)

    @contextmanager
    def locate(self, path: str, *, make: bool = False, follow: bool = True) -> Iterator[EntryLocation]:
        """Yield the location of `path` as a directory entry.

        Args:
            make: Whether to create missing parent folders, and to refuse names that must not be created.
            follow: Whether to follow a link that is the last name, within the root.
        """
        rest = self.rest(path)
        with translate_os_errors(path):
            for _ in range(_MAX_LINKS):
                parent, name = paths.split(rest)
                if not name:
                    raise PathRefused(path, "directory")
                folder = self._folder(path, parent, make=make)
                try:
                    if make and paths.reads_as_dotdot(name) and not _exists(name, folder):
                        raise PathRefused(path, "name")
                    target = _link(name, folder) if follow else None
                    self._own.refuse_name(path, folder, name, lambda: os.path.join(self.path, beneath.real_name(self._fd, parent)))  # noqa: B023
                    if target is None:
                        yield folder, name, lambda: self._check_still(path, parent, folder)  # noqa: B023
                        return
                finally:
                    os.close(folder)
                if target.startswith("/"):
                    raise PathRefused(path, "outside")
                rest = f"{parent}/{target}"
            raise PathRefused(path, "loop")

    def _folder(self, path: str, parent: str, *, make: bool) -> int:
        try:
            return self.open(parent, beneath.DIRECTORY)
        except FileNotFoundError:
            names = [name for name in parent.split("/") if name not in ("", ".")]
            if not make or ".." in names:
                raise
            return self._make(path, names)

    def _make(self, path: str, names: list[str]) -> int:
        """Create the missing folders of `names`, each beneath the root. Open and return the last one."""
        for end in range(1, len(names) + 1):
            with suppress(FileExistsError):
                folder = self.open("/".join(names[: end - 1]) or ".", beneath.DIRECTORY)
                try:
                    if not paths.is_plain(names[end - 1]) and not _exists(names[end - 1], folder):
                        raise PathNotFound(path, f" (no folder {paths.quoted_path(names[end - 1])}; '~', '$' and URLs are not expanded)")
                    os.mkdir(names[end - 1], dir_fd=folder)
                finally:
                    os.close(folder)
        return self.open("/".join(names), beneath.DIRECTORY)

    def _check_still(self, path: str, parent: str, folder: int) -> None:
        """Raise `PathRefused` if the folder is no longer at its path: it may have been moved out of the root since it was opened."""
        again = self.open(parent, beneath.PATH_ONLY | os.O_DIRECTORY)
        try:
            same = os.path.samestat(os.fstat(again), os.fstat(folder))
        finally:
            os.close(again)
        if not same:
            raise PathRefused(path, "moved")


@contextmanager
def translate_os_errors(path: str) -> Iterator[None]:
    """Convert an `OSError` raised in the block to a `PathRefused` that names `path`."""
    try:
        yield
    except OSError as error:
        raise from_os_error(path, error) from error


def _link(name: str, folder: int) -> str | None:
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError:
        return None


def _exists(name: str, folder: int) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    return True
