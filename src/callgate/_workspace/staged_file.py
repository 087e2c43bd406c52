"""A file that has its content before it has its name.

Where the system can, it has no name at all until it is whole, so that nothing is left of a process that was killed. Else, and for the
moment in which it takes the place of another file, it has a name beside the target that follows from the target's. Its process holds it
by a lock: whoever writes the same file next, or comes after a kill, removes one that nobody holds.
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

_HELD = "/proc/self/fd"
_NO_NAMELESS = (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL, errno.ENOSYS)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def staged_name(name: str) -> str:
    """What the content for `name` is called where it needs a name of its own."""
    return f".callgate-{hashlib.sha256(os.fsencode(name)).hexdigest()[:16]}.tmp"


def drop_staged_file(folder: int, name: str) -> bool:
    """Remove the draft for `name` that a process left when it was killed; False where there is one that lives, or is none of ours."""
    called = staged_name(name)
    try:
        fd = os.open(called, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_called(fd, folder, called):
            os.unlink(called, dir_fd=folder)
        return True
    except OSError:
        return False
    finally:
        os.close(fd)


class StagedFile:
    """An open file that has no name yet, or none that lasts."""

    def __init__(self, folder: int, name: str) -> None:
        self._folder = folder
        self._name = name
        self._called = ""
        self.fd = self._opened()

    def take_name(self, *, replace: bool) -> None:
        """Become the file `name`.

        Raises:
            FileExistsError: There is one, and it is not to be replaced.
        """
        if not self._called:
            if not replace:
                self._link(self._name)
                return
            self._called = self._linked()
        if replace:
            os.rename(self._called, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        else:
            rename_new(self._folder, self._called, self._folder, self._name)
        self._called = ""

    def close(self) -> None:
        """Let go of it; without a name of its own it is gone."""
        if self._called:
            with suppress(OSError):
                os.unlink(self._called, dir_fd=self._folder)
        os.close(self.fd)

    def _opened(self) -> int:
        nameless = getattr(os, "O_TMPFILE", 0)
        if nameless and os.path.isdir(_HELD):
            try:
                fd = os.open(".", nameless | os.O_WRONLY | os.O_CLOEXEC, 0o666, dir_fd=self._folder)
            except OSError as error:
                if error.errno not in _NO_NAMELESS:
                    raise
            else:
                _hold(fd)
                return fd
        for called in self._names():
            with suppress(FileExistsError):
                fd = os.open(called, _NEW, 0o666, dir_fd=self._folder)
                if _hold(fd) and _is_called(fd, self._folder, called):
                    self._called = called
                    return fd
                os.close(fd)
        raise AssertionError("names never end")

    def _linked(self) -> str:
        for called in self._names():
            with suppress(FileExistsError):
                self._link(called)
                return called
        raise AssertionError("names never end")

    def _link(self, called: str) -> None:
        os.link(f"{_HELD}/{self.fd}", called, dst_dir_fd=self._folder)

    def _names(self) -> Iterator[str]:
        """The one that whoever comes next looks for; while somebody else holds that, any."""
        if drop_staged_file(self._folder, self._name):
            yield staged_name(self._name)
        while True:
            yield staged_name(secrets.token_hex(8))


@contextmanager
def new_staged_file(folder: int, name: str) -> Iterator[StagedFile]:
    """A draft of the file `name` in the open directory `folder`; gone after the block unless it took the name."""
    draft = StagedFile(folder, name)
    try:
        yield draft
    finally:
        draft.close()


def _hold(fd: int) -> bool:
    """Lock it, where the file system has locks; False where somebody else was first, who takes it for left behind."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _is_called(fd: int, folder: int, called: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(called, dir_fd=folder, follow_symlinks=False))
    except FileNotFoundError:
        return False
