"""Find out whether a project ignores a path: by `.gitignore` files, `.git/info/exclude`, `node_modules` and similar names.

The project is the workspace: ignore files above its root and those of the user's configuration are not read. Paths are matched as in
searches. The answer is None if it cannot be computed, which rules treat as unknown. Reads the file system but does not change it.
"""

from __future__ import annotations

import os
from functools import cached_property

from callgate._engine_limits import RULE_IGNORE_FOLDERS
from callgate._workspace.ignored_files import IgnoredFiles
from callgate._workspace.workspace import Workspace

__all__ = ["ProjectIgnores"]

_MAX_LINKS = 40


class ProjectIgnores:
    """The ignore files of one workspace, each read once on first use.

    Args:
        root: The workspace's root folder.
    """

    def __init__(self, root: str) -> None:
        self._root = os.path.realpath(root)

    def ignores(self, path: str) -> bool | None:
        """Return whether `path`, as given to a tool, is ignored; None if unknown.

        For a link, both the link and its target count; if only one of them is ignored, the answer is None.
        """
        if "\0" in path:
            return None
        *links, target = _stations(os.path.join(self._root, path))
        if not self._is_inside(target):
            return None
        found = {self._state(link, directory=False) for link in links if self._is_inside(link)}
        if os.path.lexists(target):
            found.add(self._state(target, directory=os.path.isdir(target)))
        else:
            found |= {self._state(target, directory=directory) for directory in (True, False)}
        return found.pop() if len(found) == 1 else None

    def ignores_file(self, path: str) -> bool | None:
        """Return whether a file found by a walk, given by its real path relative to the root, is ignored; None if unknown."""
        return self._state(os.path.join(self._root, path), directory=False)

    def _state(self, path: str, *, directory: bool) -> bool | None:
        if path == self._root:
            return False
        below = os.path.relpath(path, self._root)
        return None if below.count("/") > RULE_IGNORE_FOLDERS else self._ignore.state(below, directory=directory)

    def _is_inside(self, path: str) -> bool:
        return path == self._root or path.startswith(self._root.rstrip("/") + "/")

    @cached_property
    def _ignore(self) -> IgnoredFiles:
        return Workspace(self._root).ignore()


def _stations(path: str) -> list[str]:
    """Return the real path of every link in an absolute path, in order, and of the final target.

    Raises:
        ValueError: The links form a circle.
    """
    found: list[str] = []
    at, names = "/", path.split("/")[::-1]
    while names:
        name = names.pop()
        if name in ("", "."):
            continue
        here = os.path.dirname(at) if name == ".." else os.path.join(at, name)
        if name != ".." and os.path.islink(here):
            found.append(here)
            if len(found) > _MAX_LINKS:
                raise ValueError("more links than a file system follows")
            target = os.readlink(here)
            at = "/" if target.startswith("/") else at
            names.extend(target.split("/")[::-1])
        else:
            at = here
    return [*found, at]
