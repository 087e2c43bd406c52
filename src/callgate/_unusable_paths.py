"""Turn operating system errors about a path into a `UsageError` with the cause and the next step.

Used by everything that stores something in a file. Knows nothing of what is stored.
"""

from __future__ import annotations

import errno
import os
import pwd
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from callgate.errors import UsageError

__all__ = ["check_path", "displayed", "expanded", "path_error", "read_regular_file", "refused_paths", "resolved"]

_LONGEST: Final = 200
_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_SYMLINKS: Final = "its symbolic links lead in a circle"
_CAUSES: Final = {
    errno.EROFS: ("its file system is read-only", "Give one that can be written to."),
    errno.ELOOP: (_SYMLINKS, "Repair the links, or give another path."),
    errno.ENAMETOOLONG: ("the name is too long for its file system, with the suffix that is added to it", "Give a shorter one."),
    errno.EISDIR: ("it is a folder", "Give a file in it."),
    errno.ENODEV: ("it is a pipe or a device, and no file", "Give a file."),
    errno.ENOSPC: ("the disk is full", "Make room, or give a path on another disk."),
    errno.EDQUOT: ("the user's share of the disk is used up", "Make room, or give a path on another disk."),
    errno.EFBIG: ("this process may not write files of that size", "Raise its limit (ulimit -f)."),
    errno.EMFILE: (
        "this process has too many files open",
        "Raise its limit (ulimit -n), or close what leaves them open, such as engines that are not used any more.",
    ),
}


def check_path(owner: str, path: object, *, in_memory: str, on_server: str) -> None:
    """Check that a value which should name a file is text or a `PathLike`, and not an address or `:memory:`.

    Args:
        owner: What takes the path, as the user writes it.
        in_memory: What to write for something that is kept in memory, as a sentence.
        on_server: What to write for a PostgreSQL server, as a sentence.

    Raises:
        UsageError: It is something else; the message never shows an address, which may have a password.
    """
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise UsageError(f"{owner} was given {path!r:.80}, which is not a path. Give the path of a file as text, such as 'calls.db'.")
    if not text:
        raise UsageError(f"{owner} was given an empty path. Give the path of a file, such as 'calls.db'.")
    if text == ":memory:" or (text.startswith("file:") and "memory" in text):
        raise UsageError(f"{owner} was given {displayed(text)!r}, which names no file: it would be lost with the process. {in_memory}")
    if text.startswith(("postgresql://", "postgres://")):
        raise UsageError(f"{owner} was given the address of a PostgreSQL server. {on_server}")
    if text.startswith("file:") or _ADDRESS.match(text):
        raise UsageError(f"{owner} was given an address that begins with '{text.partition(':')[0]}:'. Give the path of the file alone.")


def displayed(path: str | os.PathLike[str]) -> str:
    """Return a path for a message: shortened, with control characters escaped."""
    text = os.fspath(path)
    text = text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]}…{text[-_LONGEST // 2 :]}"
    return text if text.isprintable() else ascii(text)


def expanded(path: str | os.PathLike[str]) -> Path:
    """Return the path with a `~user` or `~` at its beginning replaced by the home folder.

    A name that begins with `~` but names no user is unchanged.
    """
    return Path(os.path.expanduser(path))


def read_regular_file(path: str | os.PathLike[str], most_bytes: int = -1) -> bytes:
    """Return the beginning of a file that is neither a pipe nor a device; reading those could block for ever.

    Args:
        most_bytes: How much is read at most; -1: all.

    Raises:
        OSError: It cannot be read; with `ENODEV` if it is something else.
    """
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.ENODEV, _CAUSES[errno.ENODEV][0])
        return file.read(most_bytes)


def resolved(path: str | os.PathLike[str], use: str) -> Path:
    """Return the path without symbolic links, so that two names of one file give the same path.

    Args:
        use: What the path is for, as in "cannot be used as a journal".

    Raises:
        UsageError: It cannot be a path.
    """
    with refused_paths(path, use):
        found = expanded(path).resolve()
        try:
            found.stat()
        except OSError as error:
            if error.errno == errno.ELOOP:  # from Python 3.13 on, resolve() does not report loops
                raise
        return found


@contextmanager
def refused_paths(path: str | os.PathLike[str], use: str) -> Iterator[None]:
    """Raise a `UsageError` for an `OSError` of the block that is about the path.

    Args:
        use: What the path is for, as in "cannot be used as a journal".
    """
    try:
        yield
    except OSError as error:
        raise path_error(path, use, error) from error
    except ValueError as error:  # Python refuses the path before the system sees it
        if "null" not in str(error):
            raise
        raise UsageError(f"{displayed(path)} cannot be used as {use}: its name has a NUL character. Give another path.") from error
    except RuntimeError as error:
        if "ymlink loop" not in str(error):
            raise
        raise path_error(path, use, OSError(errno.ELOOP, "")) from error


def path_error(path: str | os.PathLike[str], use: str, error: OSError) -> UsageError:
    """Return the `UsageError` for an `OSError` about a path."""
    cause, then = _cause(path, error)
    return UsageError(f"{displayed(path)} cannot be used as {use}: {cause}. {then}")


def _cause(path: str | os.PathLike[str], error: OSError) -> tuple[str, str]:
    where = f" ({displayed(error.filename)})" if error.filename and os.fspath(error.filename) != os.fspath(path) else ""
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{_user_name()} has no right to it{where}", "Give that user the right, or give another path."
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return f"{displayed(_parent_file(Path(path)))} is a file and no folder", "Give a path in a folder."
    if error.errno == errno.ENOENT and (missing := _missing_folder(Path(path))) is not None:
        return f"the folder {displayed(missing)} does not exist", "Create it, or correct the path."
    if error.errno in _CAUSES:
        return _CAUSES[error.errno]
    return f"{error.strerror or error}{where}", "Check the disk, or give another path."


def _missing_folder(path: Path) -> Path | None:
    """Return the first parent of the path that does not exist."""
    return next((parent for parent in reversed(path.parents) if not parent.exists()), None)


def _parent_file(path: Path) -> Path:
    """Return the first parent of the path that exists and is not a folder."""
    for parent in reversed(path.parents):
        with suppress(OSError):
            if parent.exists() and not parent.is_dir():
                return parent
    return path.parent


def _user_name() -> str:
    with suppress(KeyError):
        return f"the user {pwd.getpwuid(os.geteuid()).pw_name}"
    return f"the user with the number {os.geteuid()}"
