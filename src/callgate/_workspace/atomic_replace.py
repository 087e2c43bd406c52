"""Put whole content under a name: all of it or nothing, whatever happens meanwhile.

The content goes to a draft, to disk, and then takes the name in one step. A reader sees the old content or the new, never a part. Works
in an open directory only: it cannot be led elsewhere by a path.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress

from callgate._workspace.extended_attributes import attributes, set_attributes
from callgate._workspace.staged_file import new_staged_file

__all__ = ["like", "put"]

Dress = Callable[[int], None]
"""Gives an open file its owner, mode and whatever else is not its content."""


def put(
    folder: int,
    name: str,
    chunks: Iterable[bytes],
    *,
    dress: Dress = lambda _: None,
    replace: bool = True,
    sync: bool = True,
    still_there: Callable[[], None] = lambda: None,
) -> int:
    """Write `chunks` as the file `name` in the open directory `folder`; returns the size.

    Args:
        dress: Called once the content is there; without one the file has what the umask leaves of 0o666.
        replace: Whether an existing name is replaced; else FileExistsError.
        sync: Whether the content and the name survive a power cut once this returns.
        still_there: Called just before the name is taken; raises to give up.
    """
    with new_staged_file(folder, name) as draft:
        size = _fill(draft.fd, chunks)
        dress(draft.fd)
        if sync:
            os.fsync(draft.fd)
        still_there()
        draft.take_name(replace=replace)
    if sync:
        os.fsync(folder)
    return size


def like(folder: int, name: str) -> Dress:
    """What a file that takes another's place gets of it: mode, attributes, and the owner where the process may."""
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    noted = dict[str, bytes]()
    with suppress(PermissionError):
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, dir_fd=folder)
        try:
            noted = attributes(fd)
        finally:
            os.close(fd)
    noted.pop("security.capability", None)  # as in any write: what a program may do goes with its bytes

    def dress(fd: int) -> None:
        now = os.fstat(fd)
        if (now.st_uid, now.st_gid) != (found.st_uid, found.st_gid):
            with suppress(PermissionError):
                os.fchown(fd, found.st_uid, found.st_gid)
        set_attributes(fd, noted)
        os.fchmod(fd, found.st_mode & 0o7777)

    return dress


def _fill(fd: int, chunks: Iterable[bytes]) -> int:
    size = 0
    for chunk in chunks:
        rest = memoryview(chunk)
        size += len(rest)
        while rest:
            rest = rest[os.write(fd, rest) :]
    return size
