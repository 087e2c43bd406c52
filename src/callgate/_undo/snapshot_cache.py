"""Save the last snapshot of a whole tree for the next process, which then reads only the files that have changed since.

The file may be lost or stale at any time: each entry counts only as long as the facts of its path are the same, and all of them only until
stored content is dropped.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress

import msgspec
from msgspec import Struct

from callgate._undo.objects import Objects
from callgate._undo.path_state import Seen

__all__ = ["load_seen", "save_seen"]

_FILE = "callgate.seen"
_DIGEST = 32
_FORM = 2
"""What is seen of a path has grown: what was remembered in another form is not whole."""


class _Saved(Struct, frozen=True, array_like=True):
    form: int
    pruned: int
    """Which prune of the store came last: it may have dropped what was seen before."""
    seen: dict[str, Seen]


_decode = msgspec.msgpack.Decoder(_Saved).decode


def load_seen(objects: Objects) -> dict[str, Seen]:
    """Return what was saved and can be trusted; nothing where the file is not whole."""
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
    """Save what was seen. All its content must be on disk."""
    settled = {path: one for path, one in seen.items() if one.settled}
    data = msgspec.msgpack.encode(_Saved(_FORM, objects.pruned, settled))
    with suppress(OSError):  # it only saves time
        objects.replace(_FILE, hashlib.sha256(data).digest() + data)
