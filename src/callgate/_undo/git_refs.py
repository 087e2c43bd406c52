"""Read and delete git refs. A ref is a file of its own or a line in `packed-refs`, which `git gc` writes."""

from __future__ import annotations

import os
from contextlib import suppress

__all__ = ["drop_ref", "read_ref"]

_PACKED = "packed-refs"


def read_ref(folder: str, name: str) -> str:
    """Return the object that the ref `name` of the repository at `folder` points to; empty if there is no such ref."""
    found = _text(os.path.join(folder, name)).strip()
    if found:
        return found
    lines = (line.partition(" ") for line in _text(os.path.join(folder, _PACKED)).splitlines())
    return next((value for value, _, ref in lines if ref == name), "")


def drop_ref(folder: str, name: str) -> None:
    """Delete the ref `name`, both its file and its line in `packed-refs`."""
    path = os.path.join(folder, _PACKED)
    lines = _text(path).splitlines(keepends=True)
    rest = [line for line in lines if line.rstrip("\n").partition(" ")[2] != name]
    if len(rest) != len(lines):
        draft = f"{path}.lock"
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w", encoding="utf-8") as file:
            file.writelines(rest)
        os.rename(draft, path)
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(folder, name))


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return ""
