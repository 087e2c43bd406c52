"""Record the state of every path in a folder, so that two states can be compared."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

__all__ = ["Facts", "differences", "facts"]

Facts = dict[str, list[int | str]]
"""By path: the mode, the modification time (0 for folders), and the content's hash or the link's target."""


def facts(folder: Path) -> Facts:
    found: Facts = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        time_ns = 0 if stat.S_ISDIR(status.st_mode) else status.st_mtime_ns
        found[str(path.relative_to(folder))] = [status.st_mode, time_ns, _content(path, status.st_mode)]
    return found


def differences(one: Facts, other: Facts) -> list[str]:
    """Return the paths that differ."""
    return sorted(path for path in one.keys() | other.keys() if one.get(path) != other.get(path))


def _content(path: Path, mode: int) -> str:
    if stat.S_ISLNK(mode):
        return os.readlink(path)
    return hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(mode) else ""
