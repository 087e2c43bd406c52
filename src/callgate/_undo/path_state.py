"""Observe the state of a path: its kind, content, mode, attributes, times and owner, or its absence.

Links are never followed.

Every folder on the way is opened by its own name and must be a real folder, because a path through a link may not be
the path that was observed before. Content is read only in order to store or compare it. Knows nothing of calls or undo.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from msgspec import Struct

from callgate._workspace.extended_attributes import attributes

__all__ = ["ABSENT", "Keep", "Seen", "Signature", "State", "are_same", "describe_state", "look", "opened_parent", "sees", "signature"]

Keep = Callable[[bytes], str]
"""Takes bytes, and returns their blob name. May store the bytes."""
Signature = tuple[int, ...]
"""Numbers from `stat` that change whenever a file changes.

These are the device, inode, mode, owner and group, link count, size, mtime and ctime.

The signature of a folder has only the numbers up to the owner and group. Signatures are compared with later ones of the
same path and are never stored in a commit.
"""
_TRIES = 3
_REPLACED = (errno.ENOENT, errno.ELOOP, errno.EINVAL)
"""The errors of opening or reading what was removed or replaced since it was observed."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class State(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of one path at one moment."""

    kind: Literal["absent", "file", "link", "directory", "special"] = "absent"
    blob: str = ""
    """The name of the blob with a file's content or a link's target."""
    mode: int = 0
    """All twelve permission bits; 0 for links."""
    size: int = 0
    mtime_ns: int = 0
    """The modification time. 0 for folders, because every change inside a folder changes its time."""
    uid: int = 0
    gid: int = 0
    attributes: dict[str, bytes] = {}
    """Extended attributes and access lists of a file or folder; see `attributes`."""
    why: str = ""
    """Why the content was not stored: `too_large`, `unreadable`, `changing`, `hard_link`, `special`. Empty if it was stored."""


ABSENT = State()
_SHUT = State(kind="special", why="unreadable")
"""The state of a path in a folder that this process is not permitted to read."""


class Seen(Struct, frozen=True, kw_only=True):
    """The observation of one path."""

    signature: Signature
    state: State
    settled: bool


def are_same(one: State, other: State) -> bool:
    """Return whether two states have the same kind, content, mode and attributes.

    States without stored content are never the same.

    Times and owner are not compared.
    """
    return _compared_fields(one) == _compared_fields(other) and not one.why and not other.why


def _compared_fields(state: State) -> tuple[object, ...]:
    return state.kind, state.blob, state.mode, state.attributes


def describe_state(state: State) -> str:
    """Return a state in words, for messages."""
    match state.kind:
        case "absent":
            return "nothing"
        case "file":
            content = state.blob[:10] or state.why.replace("_", " ")
            return f"a file of {state.size:,} bytes, mode {state.mode:o}, {content}{_describe_attributes(state)}"
        case "link":
            return f"a link, {state.blob[:10]}"
        case "directory":
            return f"a folder, mode {state.mode:o}{_describe_attributes(state)}"
    return "what may not be looked at" if state.why == "unreadable" else "something that is not a file"


def _describe_attributes(state: State) -> str:
    noted = [f"{name} {hashlib.sha256(value).hexdigest()[:10]}" for name, value in state.attributes.items()]
    return f", attributes {', '.join(noted)}" if noted else ""


@contextmanager
def opened_parent(root: int, path: str) -> Iterator[tuple[int, str]]:
    """Open the folder that contains `path`.

    Yield its descriptor and the last name of the path. Do not follow links on the way.

    Raises:
        FileNotFoundError: A folder on the way is missing.
        NotADirectoryError: Something on the way is not a folder, or is a link.
    """
    *folders, name = path.split("/")
    held = os.open(".", _FOLDER, dir_fd=root)
    try:
        for folder in folders:
            try:
                below = os.open(folder, _FOLDER, dir_fd=held)
            except OSError as error:
                if error.errno == errno.ELOOP:
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from error
                raise
            os.close(held)
            held = below
        yield held, name
    finally:
        os.close(held)


def sees(root: int, path: str, keep: Keep, limit: int) -> tuple[Signature, State]:
    """Return the signature and state of `path` below the open folder `root`.

    The state is `ABSENT` if a folder on the way is missing or is not a folder any more.
    """
    try:
        with opened_parent(root, path) as (folder, name):
            return look(folder, name, keep, limit)
    except (FileNotFoundError, NotADirectoryError):
        return (), ABSENT
    except PermissionError:
        return (), _SHUT


def look(folder: int, name: str, keep: Keep, limit: int) -> tuple[Signature, State]:
    """Return the signature and state of the entry `name` in an open folder. A file above `limit` bytes is not read."""
    for _ in range(_TRIES):
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return (), ABSENT
        state = _state(folder, name, found, keep, limit)
        if state is not None:
            return signature(found), state
    return signature(found), _plain(found, "file", why="changing")


def signature(found: os.stat_result) -> Signature:
    fields = (found.st_dev, found.st_ino, found.st_mode, found.st_uid, found.st_gid)
    if stat.S_ISDIR(found.st_mode):
        return fields
    return (*fields, found.st_nlink, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _state(folder: int, name: str, found: os.stat_result, keep: Keep, limit: int) -> State | None:
    """Return the state; None if the file changed while it was read."""
    if stat.S_ISDIR(found.st_mode):
        noted = _attributes_of_folder(folder, name)
        return State(kind="directory", mode=stat.S_IMODE(found.st_mode), uid=found.st_uid, gid=found.st_gid, attributes=noted)
    if stat.S_ISLNK(found.st_mode):
        target = _target(folder, name)
        if target is None:
            return None
        return State(kind="link", blob=keep(target), size=len(target), mtime_ns=found.st_mtime_ns, uid=found.st_uid, gid=found.st_gid)
    if not stat.S_ISREG(found.st_mode):
        return _plain(found, "special", why="special")
    if found.st_size > limit:
        return _plain(found, "file", why="too_large")
    if found.st_nlink > 1:
        return _plain(found, "file", why="hard_link")
    try:
        read = _read(folder, name, found)
    except PermissionError:
        return _plain(found, "file", why="unreadable")
    return None if read is None else _plain(found, "file", blob=keep(read[0]), noted=read[1])


def _plain(
    found: os.stat_result, kind: Literal["file", "special"], *, blob: str = "", noted: dict[str, bytes] | None = None, why: str = ""
) -> State:
    return State(
        kind=kind,
        blob=blob,
        mode=stat.S_IMODE(found.st_mode),
        size=found.st_size,
        mtime_ns=found.st_mtime_ns,
        uid=found.st_uid,
        gid=found.st_gid,
        attributes=noted or {},
        why=why,
    )


def _attributes_of_folder(folder: int, name: str) -> dict[str, bytes]:
    try:
        fd = os.open(name, _FOLDER, dir_fd=folder)
    except OSError:
        return {}
    try:
        return attributes(fd)
    finally:
        os.close(fd)


def _target(folder: int, name: str) -> bytes | None:
    """Return the target of a link; None if there is no such link any more."""
    try:
        return os.fsencode(os.readlink(name, dir_fd=folder))
    except OSError as error:
        if error.errno in _REPLACED:
            return None
        raise


def _read(folder: int, name: str, found: os.stat_result) -> tuple[bytes, dict[str, bytes]] | None:
    """Return the whole content and the attributes; None if the file changed meanwhile."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, dir_fd=folder)
    except OSError as error:
        if error.errno in _REPLACED:
            return None
        raise
    with os.fdopen(fd, "rb") as file:
        before = os.fstat(fd)
        if signature(before) != signature(found):
            return None
        data, noted = file.read(found.st_size + 1), attributes(fd)
        return (data, noted) if signature(os.fstat(fd)) == signature(before) and len(data) == found.st_size else None
