"""A secret that a gateway keeps beside its journal, so that what it has sealed is valid after a restart, too."""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import stat
import tempfile
from pathlib import Path
from typing import Final

from callgate._unusable_paths import displayed, read_regular_file
from callgate.errors import UsageError

__all__ = ["exposed_secret", "kept_secret"]

_NAME: Final = "gateway.key"
_BYTES: Final = 32


def kept_secret(folder: Path) -> bytes:
    """Return the secret in this folder; make one that only its owner can read, if there is none.

    Raises:
        UsageError: The file cannot be used.
    """
    path = folder / _NAME
    try:
        if not path.exists():
            _make(path)
        secret = read_regular_file(path)
    except OSError as error:
        raise UsageError(f"The key of the gateway {displayed(path)} cannot be used: {error.strerror}. Correct or delete it.") from error
    if len(secret) < _BYTES:
        raise UsageError(f"The key of the gateway {displayed(path)} is shorter than {_BYTES} bytes. Delete it, and a new one is made.")
    return secret


def exposed_secret(folder: Path) -> str:
    """Return a sentence that the secret in this folder is readable by other users; empty if it is not, or if there is none."""
    path = folder / _NAME
    try:
        mode = path.stat().st_mode
    except OSError:
        return ""
    if not mode & (stat.S_IRGRP | stat.S_IROTH):
        return ""
    return f"The key of the gateway {displayed(path)} can be read by other users. Run: chmod 600 {shlex.quote(displayed(path))}"


def _make(path: Path) -> None:
    """Write a new secret to the file, unless another process is faster."""
    handle, new = tempfile.mkstemp(dir=path.parent, prefix=_NAME)  # only its owner can read it
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(_BYTES))
        with contextlib.suppress(FileExistsError):
            os.link(new, path)
    finally:
        os.unlink(new)
