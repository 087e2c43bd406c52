"""Open a path so that it cannot leave a directory. This is the only module that passes a path of a user to the system.

`open_by_kernel` uses Linux's `openat2` with RESOLVE_BENEATH and RESOLVE_NO_MAGICLINKS: `..`, absolute paths, links and
magic links that leave the root fail in one step, whatever is renamed meanwhile. `open_by_walk` is for other systems: it
opens one name at a time, follows only links that it has read itself, and keeps every parent open, so that `..` returns
to the directory it came from. It does not detect a folder that is moved out of the root during the walk; `strength`
reports this. Both raise `OSError`. EXDEV means that the path is outside of the root.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Literal

__all__ = ["DIRECTORY", "PATH_ONLY", "Opener", "best_opener", "open_by_kernel", "open_by_walk", "real_name", "rename_new", "strength"]

Opener = Callable[[int, str, int, int], int]
"""Takes `(root_fd, relative path, flags, mode)` and returns a descriptor, which is not inheritable."""

PATH_ONLY: int = getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK)
"""The flag to open a path only in order to examine it. Reads nothing and activates no device."""
DIRECTORY: int = os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK

_OPENAT2 = 437
_RENAMEAT2 = {"x86_64": 316, "aarch64": 276}
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_BENEATH = 0x08
_RENAME_NOREPLACE = 1
_TRIES = 16
_MAX_LINKS = 40


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


@cache
def _syscall() -> Callable[..., int]:
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    return call


def open_by_kernel(root: int, path: str, flags: int, mode: int = 0) -> int:
    """Open `path` beneath the directory `root`; the kernel checks every step."""
    how = _OpenHow(flags | os.O_CLOEXEC, mode if flags & os.O_CREAT else 0, _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS)
    if "\0" in path:  # C would end the path here
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    name = ctypes.c_char_p(os.fsencode(path))
    code = errno.EAGAIN
    for _ in range(_TRIES):  # EAGAIN: something was renamed while `..` was resolved, so the kernel could not be sure
        opened = _syscall()(ctypes.c_long(_OPENAT2), ctypes.c_int(root), name, ctypes.byref(how), ctypes.c_size_t(ctypes.sizeof(how)))
        if opened >= 0:
            return int(opened)
        code = ctypes.get_errno()
        if code not in (errno.EAGAIN, errno.EINTR):
            break
    raise OSError(code, os.strerror(code))


def open_by_walk(root: int, path: str, flags: int, mode: int = 0) -> int:
    """Open `path` beneath the directory `root`, one name at a time."""
    with _StepwiseOpen(root) as walk:
        name = walk.to_last(path, follow=not flags & os.O_NOFOLLOW and flags & (os.O_CREAT | os.O_EXCL) != os.O_CREAT | os.O_EXCL)
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=walk.here)


def real_name(root: int, path: str) -> str:
    """Return the canonical path of `path` below the root, with links resolved, such as `a/b`; empty for the root.

    Names that do not exist stay as they are.
    """
    with _StepwiseOpen(root) as walk:
        try:
            name = walk.to_last(path, follow=True)
        except FileNotFoundError:
            if ".." in walk.todo:
                raise
            name = "/".join(part for part in reversed(walk.todo) if part not in ("", "."))
        return "/".join(part for part in (*walk.names, name) if part != ".")


class _StepwiseOpen:
    """Walks down from a root and holds every directory on the way open."""

    def __init__(self, root: int) -> None:
        self._held = [os.dup(root)]
        self.names: list[str] = []
        self.todo: list[str] = []
        self._links = 0

    def __enter__(self) -> _StepwiseOpen:
        return self

    def __exit__(self, *_: object) -> None:
        for held in self._held:
            os.close(held)

    @property
    def here(self) -> int:
        return self._held[-1]

    def to_last(self, path: str, *, follow: bool) -> str:
        """Walk to the directory that contains the last name of `path`, and return that name.

        Return `.` if the path ends at that directory itself.
        """
        if path.startswith("/"):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        self.todo = path.split("/")[::-1]
        while self.todo:
            name = self.todo[-1]
            if name in ("", ".", ".."):
                self.todo.pop()
                self._leave_folder(name)
            elif (follow or len(self.todo) > 1) and self._follow_link(name):
                pass
            elif len(self.todo) == 1:
                return name
            else:
                self._enter_folder(name)
        return "."

    def _leave_folder(self, name: str) -> None:
        if name != "..":
            return
        if not self.names:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        self.names.pop()
        os.close(self._held.pop())

    def _enter_folder(self, name: str) -> None:
        self._held.append(os.open(name, PATH_ONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.here))
        self.names.append(name)
        self.todo.pop()

    def _follow_link(self, name: str) -> bool:
        """Replace a link in the remaining path by its target; return False if `name` is not a link."""
        try:
            target = os.readlink(name, dir_fd=self.here)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT):
                return False
            raise
        self._links += 1
        if self._links > _MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        if target.startswith("/"):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        self.todo.pop()
        self.todo.extend(reversed(target.split("/")))
        return True


@cache
def strength() -> Literal["kernel", "walk"]:
    """Return how paths are confined on this system.

    `kernel`: by openat2, without a race. `walk`: a folder that is moved out of the root meanwhile is not detected.
    """
    if not sys.platform.startswith("linux") or platform.machine() not in _RENAMEAT2:
        return "walk"
    with suppress(OSError):
        here = os.open(".", PATH_ONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.close(open_by_kernel(here, ".", PATH_ONLY | os.O_DIRECTORY))
        finally:
            os.close(here)
        return "kernel"
    return "walk"


def best_opener() -> Opener:
    return open_by_kernel if strength() == "kernel" else open_by_walk


def rename_new(source_dir: int, source: str, target_dir: int, target: str) -> None:
    """Rename `source` to `target`; raise FileExistsError if `target` exists."""
    number = _RENAMEAT2.get(platform.machine()) if sys.platform.startswith("linux") else None
    if number is not None:
        names = (ctypes.c_char_p(os.fsencode(source)), ctypes.c_char_p(os.fsencode(target)))
        dirs = (ctypes.c_int(source_dir), ctypes.c_int(target_dir))
        if _syscall()(ctypes.c_long(number), dirs[0], names[0], dirs[1], names[1], ctypes.c_uint(_RENAME_NOREPLACE)) == 0:
            return
        code = ctypes.get_errno()
        if code not in (errno.ENOSYS, errno.EINVAL):
            raise OSError(code, os.strerror(code))
    with suppress(FileNotFoundError):
        os.stat(target, dir_fd=target_dir, follow_symlinks=False)
        raise OSError(errno.EEXIST, os.strerror(errno.EEXIST))
    os.rename(source, target, src_dir_fd=source_dir, dst_dir_fd=target_dir)
