"""Write a file atomically: after an interruption, the file has either its old content or the whole new content.

The content is written to a staged file, flushed to disk, and renamed in one step, so a reader never sees a part of it.
All names are relative to an open directory, so that no path can lead out of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress

from callgate._workspace.extended_attributes import attributes, set_attributes
from callgate._workspace.staged_file import new_staged_file

__all__ = ["metadata_from", "put"]

SetMetadata = Callable[[int], None]
"""Sets the owner, the mode and the extended attributes of an open file."""


def put(
    folder: int,
    name: str,
    chunks: Iterable[bytes],
    *,
    set_metadata: SetMetadata = lambda _: None,
    replace: bool = True,
    sync: bool = True,
    still_there: Callable[[], None] = lambda: None,
) -> int:
    """Write `chunks` to the file `name` in the open directory `folder`; return the file's size in bytes.

    Args:
        set_metadata: Called after the content is written. By default the file has mode 0o666 less the umask.
        replace: Whether to replace an existing file. If False and the file exists, raise FileExistsError.
        sync: Whether to flush the content and the name to disk before returning, so that they survive a power cut.
        still_there: Called just before the rename. May raise to prevent it.
    """
    with new_staged_file(folder, name) as staged:
        size = _fill(staged.fd, chunks)
        set_metadata(staged.fd)
        if sync:
            os.fsync(staged.fd)
        still_there()
        staged.take_name(replace=replace)
    if sync:
        os.fsync(folder)
    return size


def metadata_from(folder: int, name: str) -> SetMetadata:
    """Return a function that gives a new file the mode, attributes and, if permitted, owner of the file `name`."""
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    noted = dict[str, bytes]()
    with suppress(PermissionError):
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, dir_fd=folder)
        try:
            noted = attributes(fd)
        finally:
            os.close(fd)
    noted.pop("security.capability", None)  # as with any write: capabilities belong to the old content

    def set_metadata(fd: int) -> None:
        now = os.fstat(fd)
        if (now.st_uid, now.st_gid) != (found.st_uid, found.st_gid):
            with suppress(PermissionError):
                os.fchown(fd, found.st_uid, found.st_gid)
        set_attributes(fd, noted)
        os.fchmod(fd, found.st_mode & 0o7777)

    return set_metadata


def _fill(fd: int, chunks: Iterable[bytes]) -> int:
    size = 0
    for chunk in chunks:
        rest = memoryview(chunk)
        size += len(rest)
        while rest:
            rest = rest[os.write(fd, rest) :]
    return size
