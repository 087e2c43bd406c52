"""Deny tools access to callgate's own files: the folder `.callgate`, and an engine's files elsewhere.

The opened file is checked, not the path as written, because links, `..` and other spellings lead to the same file.
Files with several names (hard links) are compared by inode. Commands are not restricted: they can reach whatever their
process can.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress

from callgate._workspace.path_errors import PathRefused
from callgate._workspace.protected_names import is_own

__all__ = ["OwnFiles"]

_OPENED = "/proc/self/fd"


class OwnFiles:
    """The files that belong to callgate.

    Args:
        root: The real path of the workspace. In the path of the root itself, `.callgate` is an ordinary name.
        paths: Absolute paths of an engine's files and folders. A folder that contains the root is an ordinary one.
    """

    def __init__(self, root: str, paths: tuple[str, ...] = ()) -> None:
        self._root = root.rstrip("/") + "/"
        real = map(os.path.realpath, paths)
        self._paths = frozenset(path for path in real if not self._root.startswith(path.rstrip("/") + "/"))

    def refuse(self, path: str, fd: int, otherwise: Callable[[], str]) -> None:
        """Raise `PathRefused` if the open file or folder belongs to callgate.

        Args:
            otherwise: Returns the real path. Used if the system cannot tell the path of a descriptor.
        """
        if self._is(_real_path(fd, otherwise)) or self._is_linked(os.fstat(fd)):
            raise PathRefused(path, "own")

    def refuse_name(self, path: str, folder: int, name: str, otherwise: Callable[[], str]) -> None:
        """Raise `PathRefused` if `name` in the open folder belongs to callgate. The name need not exist."""
        if self._is(os.path.join(_real_path(folder, otherwise), name)):
            raise PathRefused(path, "own")

    def has(self, path: str) -> bool:
        """Return whether `path` belongs to callgate. It must be a path below the root that a walk has found."""
        return self._is(self._root + path)

    def _is(self, real: str) -> bool:
        if is_own(f"{real}/".removeprefix(self._root)):
            return True
        return any(real == own or real.startswith(own + "/") for own in self._paths)

    def _is_linked(self, found: os.stat_result) -> bool:
        """Return whether the file is a hard link to one of the engine's own files."""
        if not stat.S_ISREG(found.st_mode) or found.st_nlink < 2:
            return False
        for own in self._paths:
            with suppress(OSError):
                if os.path.samestat(found, os.stat(own)):
                    return True
        return False


def _real_path(fd: int, otherwise: Callable[[], str]) -> str:
    try:
        return os.readlink(f"{_OPENED}/{fd}").removesuffix(" (deleted)")
    except OSError:
        return otherwise()
