"""Save the last snapshot of a whole tree, so that the next process reads only files that have changed since.

The saved file may be lost or outdated at any time. An entry is used only if the signature of its path is unchanged.
After stored content was pruned, no entry is used.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress

import msgspec
from msgspec import Struct

from callgate._undo.git_objects import Objects
from callgate._undo.path_state import Seen

__all__ = ["load_seen", "save_seen"]

_FILE = "callgate.seen"
_DIGEST = 32
_FORM = 2
"""The version of the file's format. A file of another version is ignored, because its entries may lack fields."""


class _Saved(Struct, frozen=True, array_like=True):
    form: int
    pruned: int
    """The value of `Objects.pruned` when the file was saved.

    If it has changed, content of the entries may have been deleted.
    """
    seen: dict[str, Seen]


_decode = msgspec.msgpack.Decoder(_Saved).decode


def load_seen(objects: Objects) -> dict[str, Seen]:
    """Return the saved observations by path; empty if the file is missing, damaged or outdated, or if the store was pruned since."""
    try:
        with open(os.path.join(objects.folder, _FILE), "rb") as file:
            data = file.read()
        if hashlib.sha256(data[_DIGEST:]).digest() != data[:_DIGEST]:
            return {}
        saved = _decode(data[_DIGEST:])
    except (OSError, msgspec.DecodeError):
        return {}
    return saved.seen if (saved.form, saved.pruned) == (_FORM, objects.pruned) else {}


def save_seen(objects: Objects, seen: dict[str, Seen]) -> None:
    """Save the settled observations: those that are valid until the signature changes.

    Their content must already be on disk.
    """
    settled = {path: one for path, one in seen.items() if one.settled}
    data = msgspec.msgpack.encode(_Saved(_FORM, objects.pruned, settled))
    with suppress(OSError):  # the cache only saves time
        objects.replace(_FILE, hashlib.sha256(data).digest() + data)
