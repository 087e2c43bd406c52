"""The locks of a plugin's environment: one under its name while it is built or removed, and one in its folder while processes use it.

Both are locks of files, which the system releases when their process ends. A process that uses an environment shares the lock of its
folder; who removes it claims that lock. Builds and removes nothing.
"""

from __future__ import annotations

import fcntl
import os
import shlex
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from callgate._server_processes.server_errors import NotSent
from callgate.errors import UsageError
from callgate.plugins._environments import InstalledEnvironment, environment_of, environments_folder, is_usable
from callgate.plugins.manifest import PluginManifest

__all__ = ["HeldEnvironment", "claim_use", "hold_environment", "make_use_lock", "try_lock"]

_USE = "callgate-in-use.lock"


class HeldEnvironment(Struct, frozen=True, kw_only=True, eq=False):
    """An environment that cannot be removed until it is released."""

    environment: InstalledEnvironment
    lock: int

    def release(self) -> None:
        os.close(self.lock)

    @property
    def variables(self) -> Mapping[str, str]:
        """The variables of a process that uses it: its programs come first, as if it were activated."""
        path = os.environ.get("PATH", os.defpath)
        return {"VIRTUAL_ENV": str(self.environment.path), "PATH": f"{self.environment.programs}{os.pathsep}{path}"}


def hold_environment(label: str, manifest: PluginManifest) -> HeldEnvironment | None:
    """Return the environment of a plugin, held, or None if the plugin has none of its own.

    Raises:
        NotSent: It is not installed, or no longer works. The message names the command that installs it.
    """
    if manifest.environment is None:
        return None
    command = f"Run `callgate plugin install {shlex.quote(str(manifest.folder))}`"
    try:
        found = environment_of(manifest)
        lock = share_use(found.path) if found is not None else -1
    except (OSError, UsageError) as error:
        raise _missing_error(f"The environment of {label} cannot be used: {str(error).removesuffix('.')}.") from error
    if found is None or lock < 0:
        raise _missing_error(
            f"{_capitalise(label)} needs an environment ({manifest.environment.shown:.300}) that is not installed. {command}."
        )
    if not is_usable(found):
        os.close(lock)
        raise _missing_error(f"{_capitalise(label)} has an environment whose Python {found.python} is gone. {command}.")
    return HeldEnvironment(environment=found, lock=lock)


def _missing_error(text: str) -> NotSent:
    return NotSent(text, code="environment_missing", retryable=False)


def _capitalise(label: str) -> str:
    return label[0].upper() + label[1:]


def try_lock(name: str) -> int:
    """Return a descriptor that holds the lock under which an environment is built or removed; -1 if another process holds it."""
    path = environments_folder() / f"{name}.lock"
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with suppress(BlockingIOError, FileNotFoundError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(fd), os.stat(path)):
                return fd
            os.close(fd)  # it was removed by who held it before
            continue
        os.close(fd)
        return -1


def share_use(place: Path) -> int:
    """Return a descriptor that says that the environment is used; -1 if there is none, or it is being removed."""
    fd = _lock_of_use(place, os.O_RDONLY, fcntl.LOCK_SH)
    return -1 if fd is None else fd


def claim_use(place: Path) -> int | None:
    """Return a descriptor that locks an environment against use; -1 if it has no lock file, None if a process uses it."""
    return _lock_of_use(place, os.O_RDWR, fcntl.LOCK_EX)


def _lock_of_use(place: Path, access: int, kind: int) -> int | None:
    """Return a descriptor that locks the file for the use of an environment, -1 if there is none; None if another lock excludes it."""
    try:
        fd = os.open(place / _USE, access | os.O_CLOEXEC)
    except FileNotFoundError:
        return -1
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def make_use_lock(place: Path) -> None:
    """Write the file by which users of an environment are seen."""
    (place / _USE).touch(0o600)
