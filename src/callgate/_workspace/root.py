"""`Root`: a folder, held open, and the only ways from it to anything below.

Opened once: whatever later takes the folder's name is not used. Text is checked first (`path_text`), the opening itself keeps inside
(`open_beneath`). Knows files only as descriptors; what may be done with them is `Workspace`'s.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from callgate._workspace import open_beneath as beneath
from callgate._workspace import path_text as paths
from callgate._workspace.own_files import OwnFiles
from callgate._workspace.path_errors import PathNotFound, PathRefused, Rule, from_os_error
from callgate._workspace.protected_names import is_own

__all__ = ["Root", "Spot", "told"]

_MAX_LINKS = 40

Spot = tuple[int, str, Callable[[], None]]
"""Where a path is an entry: the open folder, the name in it, and a check to make just before the name is used."""


class Root:
    """A folder held open."""

    def __init__(self, root: str, opener: beneath.Opener, own: tuple[str, ...] = ()) -> None:
        self._fd = -1
        given = os.path.abspath(root)
        try:
            self._fd = os.open(given, beneath.LOOK | os.O_DIRECTORY | os.O_CLOEXEC)
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
        """Whether the folder is gone for good; one that was only renamed is still this root."""
        return os.fstat(self._fd).st_nlink == 0

    def is_own(self, path: str) -> bool:
        """Whether this name below the root, as a walk found it, is callgate's own."""
        return self._own.has(path)

    def real_name(self, path: str) -> str:
        rest = self.rest(path)
        with told(path):
            return beneath.real_name(self._fd, rest)

    def open(self, rest: str, flags: int) -> int:
        """Open text that `rest` or a walk gave; raises OSError, or PathRefused where it leads to callgate's own files."""
        fd = self._opener(self._fd, rest, flags, 0)
        try:
            self._own.refuse(rest, fd, lambda: os.path.join(self.path, beneath.real_name(self._fd, rest)))
        except BaseException:
            os.close(fd)
            raise
        return fd

    def rest(self, path: str) -> str:
        """The text of `path` below the root, checked as text."""
        rule = paths.fault(path)
        if rule is not None:
            raise PathRefused(path, "too_long" if rule == "too_long" else "name")
        rest = paths.below(path, self._roots)
        if rest is None:
            raise PathRefused(path, "outside")
        if is_own(rest):
            raise PathRefused(path, "own")
        return rest

    def take(self, path: str, flags: int, otherwise: Rule | None = None) -> int:
        """Open `path`; the caller closes it. `otherwise`: the rule to name where it is no directory."""
        rest = self.rest(path)
        with told(path):
            try:
                return self.open(rest, flags)
            except NotADirectoryError as error:
                if otherwise is None:
                    raise
                raise PathRefused(path, otherwise) from error

    @contextmanager
    def opened(self, path: str, flags: int, otherwise: Rule | None = None) -> Iterator[int]:
        fd = self.take(path, flags, otherwise)
        try:
            with told(path):
                yield fd
        finally:
            os.close(fd)

    @contextmanager
    def spot(self, path: str, *, make: bool = False, follow: bool = True) -> Iterator[Spot]:
        """Where `path` is an entry.

        Args:
            make: Make missing folders on the way, and refuse names that nobody should make.
            follow: Whether a link as last name is followed, within the root.
        """
        rest = self.rest(path)
        with told(path):
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
        """Make the missing ones of these folders, each beneath the root, and open the last."""
        for end in range(1, len(names) + 1):
            with suppress(FileExistsError):
                folder = self.open("/".join(names[: end - 1]) or ".", beneath.DIRECTORY)
                try:
                    if not paths.is_plain(names[end - 1]) and not _exists(names[end - 1], folder):
                        raise PathNotFound(path, f" (no folder {paths.shown(names[end - 1])}; '~', '$' and URLs are not expanded)")
                    os.mkdir(names[end - 1], dir_fd=folder)
                finally:
                    os.close(folder)
        return self.open("/".join(names), beneath.DIRECTORY)

    def _check_still(self, path: str, parent: str, folder: int) -> None:
        """The folder must still be where the path says: it may have been moved out of the root since it was opened."""
        again = self.open(parent, beneath.LOOK | os.O_DIRECTORY)
        try:
            same = os.path.samestat(os.fstat(again), os.fstat(folder))
        finally:
            os.close(again)
        if not same:
            raise PathRefused(path, "moved")


@contextmanager
def told(path: str) -> Iterator[None]:
    """Turn what the operating system says into a refusal that names the path."""
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
