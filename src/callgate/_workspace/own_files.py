"""Keep callgate's own files out of every tool's reach: the folder `.callgate`, and the files of an engine that are somewhere else.

Asked about what was opened and not about what was written: a link, `..` or another spelling of a name leads to the same file. A file that
has a second name (a hard link) is compared by what it is. Says nothing of commands, which reach whatever their process may.
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
    """What belongs to callgate.

    Args:
        root: The real path of the workspace; above it, `.callgate` is a name like any other.
        paths: Files and folders of an engine, absolute.
    """

    def __init__(self, root: str, paths: tuple[str, ...] = ()) -> None:
        self._root = root.rstrip("/") + "/"
        self._paths = frozenset(os.path.realpath(path) for path in paths)

    def refuse(self, path: str, fd: int, otherwise: Callable[[], str]) -> None:
        """Raise `PathRefused` where the open file or folder is callgate's own.

        Args:
            otherwise: Gives its real path, where the system does not say what is open.
        """
        if self._is(_real_path(fd, otherwise)) or self._is_linked(os.fstat(fd)):
            raise PathRefused(path, "own")

    def refuse_name(self, path: str, folder: int, name: str, otherwise: Callable[[], str]) -> None:
        """The same for a name in an open folder, which need not exist."""
        if self._is(os.path.join(_real_path(folder, otherwise), name)):
            raise PathRefused(path, "own")

    def has(self, path: str) -> bool:
        """Whether this name below the root, as a walk found it, is callgate's own."""
        return self._is(self._root + path)

    def _is(self, real: str) -> bool:
        if is_own(f"{real}/".removeprefix(self._root)):
            return True
        return any(real == own or real.startswith(own + "/") for own in self._paths)

    def _is_linked(self, found: os.stat_result) -> bool:
        """Whether it is one of these files under another name."""
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
