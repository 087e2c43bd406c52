"""Put whole content under a name: all of it or nothing, whatever happens meanwhile.

The content goes to a new file beside the target, to disk, and then takes the name in one step. A reader sees the old content or the
new, never a part. Works in an open directory only: it cannot be led elsewhere by a path.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress

from callgate._workspace.beneath import rename_new

__all__ = ["draft_name", "put"]


def draft_name(word: str) -> str:
    """What a file is called that has not its name yet."""
    return f".callgate-{word}.tmp"


def put(
    folder: int,
    name: str,
    chunks: Iterable[bytes],
    *,
    like: os.stat_result | None = None,
    mode: int | None = None,
    replace: bool = True,
    sync: bool = True,
    still_there: Callable[[], None] = lambda: None,
    draft: str = "",
) -> int:
    """Write `chunks` as the file `name` in the open directory `folder`; returns the size.

    Args:
        like: Keep this file's mode, and its owner where the process may.
        mode: Of a file that is new; None: what the umask leaves of 0o666.
        replace: Whether an existing name is replaced; else FileExistsError.
        sync: Whether the content and the name survive a power cut once this returns.
        still_there: Called just before the name is taken; raises to give up.
        draft: What the new file is called until then, for whoever comes after a kill; empty: any name.
    """
    draft = draft or draft_name(secrets.token_hex(8))
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666, dir_fd=folder)
    try:
        try:
            size = _fill(fd, chunks)
            _dress(fd, like, mode)
            if sync:
                os.fsync(fd)
        finally:
            os.close(fd)
        still_there()
        if replace:
            os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
        else:
            rename_new(folder, draft, folder, name)
    except BaseException:
        with suppress(OSError):
            os.unlink(draft, dir_fd=folder)
        raise
    if sync:
        os.fsync(folder)
    return size


def _fill(fd: int, chunks: Iterable[bytes]) -> int:
    size = 0
    for chunk in chunks:
        rest = memoryview(chunk)
        size += len(rest)
        while rest:
            rest = rest[os.write(fd, rest) :]
    return size


def _dress(fd: int, like: os.stat_result | None, mode: int | None) -> None:
    if like is not None:
        now = os.fstat(fd)
        if (now.st_uid, now.st_gid) != (like.st_uid, like.st_gid):
            with suppress(PermissionError):
                os.fchown(fd, like.st_uid, like.st_gid)
        os.fchmod(fd, like.st_mode & 0o7777)
    elif mode is not None:
        os.fchmod(fd, mode & 0o7777)
