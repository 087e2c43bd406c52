"""Remove the environments of plugins that nobody needs, and what builds have left.

One that a process uses, or that is being built, stays.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from callgate.plugins._environment_locks import claim_use, try_lock
from callgate.plugins._environments import ENVIRONMENT_FOLDER, InstalledEnvironment, environments_folder, find_environment

__all__ = ["remove_environment", "remove_lock_file", "sweep", "sweep_all"]


def remove_environment(environment: InstalledEnvironment) -> bool:
    """Remove an environment and its record; return whether it is gone. One that a process uses or that is being built stays."""
    with _lock(environment.name) as locked:
        if not locked or find_environment(environment.name) != environment:
            return False
        use = claim_use(environment.path)
        if use is None:
            return False
        (environments_folder() / f"{environment.name}.json").unlink(missing_ok=True)
        _remove(environment.path, use)
        remove_lock_file(environment.name)
        return True


def sweep(name: str) -> None:
    """Remove what no record names and no process uses of this name: remains of builds, and what was replaced. The caller holds its lock."""
    current = find_environment(name)
    for place in _folders():
        if _name_of(place) == name and (current is None or place.name != current.folder):
            _remove_unused(place)


def sweep_all() -> list[str]:
    """Remove what no record names, no process uses and no build works at; return the names of these folders."""
    gone: list[str] = []
    for place in _folders():
        with _lock(_name_of(place)) as locked:
            current = find_environment(_name_of(place))
            if locked and (current is None or current.folder != place.name) and _remove_unused(place):
                gone.append(place.name)
    for lock in environments_folder().glob("*.lock"):
        with _lock(lock.stem) as locked:
            if locked:
                remove_lock_file(lock.stem)
    return gone


def _folders() -> list[Path]:
    root = environments_folder()
    return [place for place in sorted(root.iterdir()) if ENVIRONMENT_FOLDER.fullmatch(place.name)] if root.is_dir() else []


def _name_of(place: Path) -> str:
    return place.name.rpartition("-")[0]


def _remove_unused(place: Path) -> bool:
    use = claim_use(place)
    if use is None:
        return False
    _remove(place, use)
    return True


def _remove(place: Path, use: int) -> None:
    shutil.rmtree(place, ignore_errors=True)
    if use >= 0:
        os.close(use)


@contextmanager
def _lock(name: str) -> Iterator[bool]:
    """Try to take the lock of a name during the block; yield whether it was taken."""
    fd = try_lock(name)
    try:
        yield fd >= 0
    finally:
        if fd >= 0:
            os.close(fd)


def remove_lock_file(name: str) -> None:
    """Remove the file of a lock that the caller holds, if nothing has this name any more."""
    if find_environment(name) is None and not any(_name_of(place) == name for place in _folders()):
        (environments_folder() / f"{name}.lock").unlink(missing_ok=True)
