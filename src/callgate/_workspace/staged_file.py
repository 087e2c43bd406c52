"""A staged file: a new file that gets its final name only when its content is complete.

Where the system supports it, the file has no name until its content is complete, so that a killed process leaves
nothing behind. Otherwise, and at the moment in which it replaces another file, it has a temporary name beside the
target, derived from the target's name. The process that writes a staged file holds a lock on it. The next writer of the
same target removes a staged file that is not locked.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from callgate._workspace.open_beneath import rename_new

__all__ = ["StagedFile", "drop_staged_file", "new_staged_file", "staged_name"]

_OPEN_FILES = "/proc/self/fd"
_NO_UNNAMED_FILES = (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL, errno.ENOSYS)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def staged_name(name: str) -> str:
    """Return the temporary name of the staged file for `name`."""
    return f".callgate-{hashlib.sha256(os.fsencode(name)).hexdigest()[:16]}.tmp"


def drop_staged_file(folder: int, name: str) -> bool:
    """Remove the staged file that a killed process left for `name`.

    Return False if its process still runs or the file cannot be opened.
    """
    temporary = staged_name(name)
    try:
        fd = os.open(temporary, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _has_name(fd, folder, temporary):
            os.unlink(temporary, dir_fd=folder)
        return True
    except OSError:
        return False
    finally:
        os.close(fd)


class StagedFile:
    """An open file that has no name yet, or a temporary one."""

    def __init__(self, folder: int, name: str) -> None:
        self._folder = folder
        self._name = name
        self._temporary_name = ""
        self.fd = self._open_temporary()

    def take_name(self, *, replace: bool) -> None:
        """Give the file its final name.

        Raises:
            FileExistsError: The name exists and `replace` is False.
        """
        if not self._temporary_name:
            if not replace:
                self._link(self._name)
                return
            self._temporary_name = self._link_temporary()
        if replace:
            os.rename(self._temporary_name, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        else:
            rename_new(self._folder, self._temporary_name, self._folder, self._name)
        self._temporary_name = ""

    def close(self) -> None:
        """Close the file. Delete it unless it has its final name."""
        if self._temporary_name:
            with suppress(OSError):
                os.unlink(self._temporary_name, dir_fd=self._folder)
        os.close(self.fd)

    def _open_temporary(self) -> int:
        unnamed = getattr(os, "O_TMPFILE", 0)
        if unnamed and os.path.isdir(_OPEN_FILES):
            try:
                fd = os.open(".", unnamed | os.O_WRONLY | os.O_CLOEXEC, 0o666, dir_fd=self._folder)
            except OSError as error:
                if error.errno not in _NO_UNNAMED_FILES:
                    raise
            else:
                _lock(fd)
                return fd
        for temporary in self._names():
            with suppress(FileExistsError):
                fd = os.open(temporary, _NEW, 0o666, dir_fd=self._folder)
                if _lock(fd) and _has_name(fd, self._folder, temporary):
                    self._temporary_name = temporary
                    return fd
                os.close(fd)
        raise AssertionError("names never end")

    def _link_temporary(self) -> str:
        for temporary in self._names():
            with suppress(FileExistsError):
                self._link(temporary)
                return temporary
        raise AssertionError("names never end")

    def _link(self, name: str) -> None:
        os.link(f"{_OPEN_FILES}/{self.fd}", name, dst_dir_fd=self._folder)

    def _names(self) -> Iterator[str]:
        """Yield temporary names: first the derived one, unless another process uses it, then random ones."""
        if drop_staged_file(self._folder, self._name):
            yield staged_name(self._name)
        while True:
            yield staged_name(secrets.token_hex(8))


@contextmanager
def new_staged_file(folder: int, name: str) -> Iterator[StagedFile]:
    """Create a staged file for `name` in the open directory `folder`.

    After the block, delete it unless it has its final name.
    """
    staged = StagedFile(folder, name)
    try:
        yield staged
    finally:
        staged.close()


def _lock(fd: int) -> bool:
    """Lock the file if the file system supports locks.

    Return False if another process has locked it first, in order to remove it.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _has_name(fd: int, folder: int, name: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(name, dir_fd=folder, follow_symlinks=False))
    except FileNotFoundError:
        return False
