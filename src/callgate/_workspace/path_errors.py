"""The two errors for paths that cannot be used. Their messages address the model.

A message contains the path as given (escaped, shortened), the rule that it breaks, and the next step. It contains no
file content and no link target, because the model sees it.
"""

from __future__ import annotations

import errno
import os
from typing import Literal

from callgate._workspace.path_text import quoted_path
from callgate.errors import CallgateError

__all__ = ["PathNotFound", "PathRefused", "Rule", "from_os_error"]

Rule = Literal[
    "outside",
    "name",
    "too_long",
    "directory",
    "not_directory",
    "special",
    "hard_link",
    "loop",
    "moved",
    "exists",
    "not_empty",
    "too_large",
    "permission",
    "device",
    "not_found",
    "own",
]

_TEXTS: dict[Rule, str] = {
    "outside": "leads outside the workspace. Use a path relative to the workspace's root, without '..' or links that leave it",
    "name": "is not a usable name. Use plain characters: no control characters, nothing that reads as '..'",
    "too_long": "is too long. A name takes at most 255 bytes of UTF-8, a path 4,095",
    "directory": "is a directory. Name a file in it; list_files shows what is there",
    "not_directory": "is not a directory",
    "special": "is not a regular file. Only files, directories and links inside the workspace can be used",
    "hard_link": "has a second name elsewhere (hard link), so a write could change a file outside. Copy it and write the copy",
    "loop": "is a chain of links without an end. Name the file itself",
    "moved": "was moved while it was used; nothing was written. Try again when nothing else changes these folders",
    "exists": "exists already. Choose another name, or delete it first",
    "not_empty": "is a directory that is not empty. Delete what it holds first",
    "too_large": "is too large",
    "permission": "may not be used: the operating system refused it (permission). Use another path",
    "device": "could not be used: the file system failed",
    "own": "belongs to callgate, which keeps its record there. No tool may use it. Work with the other files",
    "not_found": "does not exist in the workspace. Paths are taken literally and case matters; list_files or glob_files shows what exists",
}


class PathRefused(CallgateError):
    """This path may not be used in this way. The model must use another path.

    Args:
        path: The path as it was given.
        rule: The stable name of the rule that the path breaks.
        detail: Text to append to the rule's message, such as a limit.
    """

    code = "path_refused"

    def __init__(self, path: str, rule: Rule, detail: str = "") -> None:
        super().__init__(f"{quoted_path(path)} {_TEXTS[rule]}{detail}.")
        self.path = path
        self.rule = rule


class PathNotFound(PathRefused):
    """There is nothing at this path. The model must look up what exists."""

    code = "path_not_found"

    def __init__(self, path: str, detail: str = "") -> None:
        super().__init__(path, "not_found", detail)


_RULES: dict[int, Rule] = {
    errno.EXDEV: "outside",
    errno.ELOOP: "loop",
    errno.ENAMETOOLONG: "too_long",
    errno.EISDIR: "directory",
    errno.ENXIO: "special",
    errno.ENODEV: "special",
    errno.EEXIST: "exists",
    errno.ENOTEMPTY: "not_empty",
    errno.EACCES: "permission",
    errno.EPERM: "permission",
    errno.EROFS: "permission",
    errno.EAGAIN: "moved",
    errno.EFBIG: "too_large",
}


def from_os_error(path: str, error: OSError) -> PathRefused:
    """Return the refusal for an `OSError` about `path`."""
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return PathNotFound(path)
    rule = _RULES.get(error.errno or 0)
    if rule is None:
        return PathRefused(path, "device", f" ({os.strerror(error.errno or errno.EIO)}). Nothing was changed")
    return PathRefused(path, rule)
