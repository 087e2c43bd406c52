"""The virtual environments of plugins, in the user's cache folder: found, held while a process uses them, and removed.

Each environment is a folder that is never changed once it is complete. A record beside it names it: the record is written last and
replaced as a whole, so a half-built environment is never used. Its name has a hash of the plugin's folder, of what the plugin requires, and
of the engine's Python and callgate. Builds nothing.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shlex
import shutil
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from callgate._server_processes.server_errors import NotSent
from callgate._version import __version__
from callgate.errors import UsageError
from callgate.plugins._tool_cache import cache_folder
from callgate.plugins.manifest import PluginManifest

__all__ = [
    "HeldEnvironment",
    "InstalledEnvironment",
    "environment_mark",
    "environment_name",
    "environments_folder",
    "forget_lock",
    "has_environment",
    "held_environment",
    "installed",
    "installed_environment",
    "is_usable",
    "make_folder",
    "mark_usable",
    "put_record",
    "records",
    "remove_environment",
    "sweep",
    "sweep_all",
    "try_lock",
]

_USE = "callgate-in-use.lock"
_MAX_BYTES = 1_048_576
_FOLDER = re.compile(r"(?P<name>[\w.\-]+-[0-9a-f]{20})-[0-9a-f]{8}")
_WRITABLE_BY_OTHERS = 0o022


class InstalledEnvironment(Struct, frozen=True, kw_only=True):
    """A complete environment, as its record says."""

    name: str
    """The name of the record, without its suffix."""
    folder: str
    """The name of the folder that is the environment."""
    plugin: str
    plugin_folder: str
    requires: str
    """The plugin's requirements that it was built for, to be shown."""
    python: str
    """The version of its Python."""
    callgate: str
    packages: tuple[str, ...]
    """The installed packages, as `pip freeze` lists them."""

    @property
    def path(self) -> Path:
        return environments_folder() / self.folder

    @property
    def programs(self) -> Path:
        return self.path / "bin"

    @property
    def interpreter(self) -> Path:
        return self.programs / "python"


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


def environments_folder() -> Path:
    """Return the folder of all environments."""
    return cache_folder().parent / "plugin-environments"


def environment_name(manifest: PluginManifest) -> str:
    """Return the name of the environment that a plugin needs with this callgate and this Python. Reads the plugin's folder.

    Raises:
        OSError: A file that the manifest names cannot be read.
    """
    assert manifest.environment is not None
    ours = (sys.implementation.name, *map(str, sys.version_info[:2]), sysconfig.get_platform(), __version__)
    parts = (os.fspath(manifest.folder.resolve()), manifest.environment.fingerprint(manifest.folder), *ours)
    return f"{manifest.name}-{hashlib.sha256(os.fsencode(chr(0).join(parts))).hexdigest()[:20]}"


def installed_environment(manifest: PluginManifest) -> InstalledEnvironment | None:
    """Return the environment that a plugin needs, whether or not it still works; None if there is none."""
    return installed(environment_name(manifest)) if manifest.environment is not None else None


def installed(name: str) -> InstalledEnvironment | None:
    """Return the environment with this name, if it is complete.

    Raises:
        UsageError: The folder of the environments cannot be read, or may have been written by another user.
    """
    root = environments_folder()
    return _read(root / f"{name}.json") if _may_be_read(root) else None


def is_usable(environment: InstalledEnvironment) -> bool:
    """Return whether its Python still exists."""
    return os.access(environment.interpreter, os.X_OK)


def environment_mark(manifest: PluginManifest) -> str:
    """Return what changes when a plugin gets another environment; empty if it has none that works."""
    with suppress(UsageError):
        found = installed_environment(manifest)
        return found.folder if found is not None and is_usable(found) else ""
    return ""


def has_environment(manifest: PluginManifest) -> bool:
    """Return whether the environment of a plugin that requires one is installed and works."""
    return bool(environment_mark(manifest))


def held_environment(label: str, manifest: PluginManifest) -> HeldEnvironment | None:
    """Return the environment of a plugin, held, or None if the plugin has none of its own.

    Raises:
        NotSent: It is not installed, or no longer works. The message names the command that installs it.
    """
    if manifest.environment is None:
        return None
    command = f"Run `callgate plugin install {shlex.quote(str(manifest.folder))}`"
    try:
        found = installed_environment(manifest)
        lock = _share(found.path) if found is not None else -1
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


def put_record(environment: InstalledEnvironment) -> None:
    """Write the record of an environment, which replaces an earlier one with the same name."""
    written = environment.path / "record.tmp"
    with written.open("wb") as file:
        file.write(msgspec.json.encode(environment))
        file.flush()
        os.fsync(file.fileno())
    os.replace(written, environments_folder() / f"{environment.name}.json")


def records() -> list[InstalledEnvironment]:
    """Return all environments that are complete.

    Raises:
        UsageError: Their folder cannot be read, or may have been written by another user.
    """
    root = environments_folder()
    paths = sorted(root.glob("*.json")) if _may_be_read(root) else []
    return [found for path in paths if (found := _read(path)) is not None]


def remove_environment(environment: InstalledEnvironment) -> bool:
    """Remove an environment and its record; return whether it is gone. One that a process uses or that is being built stays."""
    with _lock(environment.name) as locked:
        if not locked or installed(environment.name) != environment:
            return False
        use = _claim(environment.path)
        if use is None:
            return False
        (environments_folder() / f"{environment.name}.json").unlink(missing_ok=True)
        _remove(environment.path, use)
        forget_lock(environment.name)
        return True


def sweep(name: str) -> None:
    """Remove what no record names and no process uses of this name: remains of builds, and what was replaced. The caller holds its lock."""
    current = installed(name)
    for place in _folders():
        if _name_of(place) == name and (current is None or place.name != current.folder):
            _remove_unused(place)


def sweep_all() -> list[str]:
    """Remove what no record names, no process uses and no build works at; return the names of these folders."""
    gone: list[str] = []
    for place in _folders():
        with _lock(_name_of(place)) as locked:
            current = installed(_name_of(place))
            if locked and (current is None or current.folder != place.name) and _remove_unused(place):
                gone.append(place.name)
    for lock in environments_folder().glob("*.lock"):
        with _lock(lock.stem) as locked:
            if locked:
                forget_lock(lock.stem)
    return gone


def _folders() -> list[Path]:
    root = environments_folder()
    return [place for place in sorted(root.iterdir()) if _FOLDER.fullmatch(place.name)] if root.is_dir() else []


def _name_of(place: Path) -> str:
    return place.name.rpartition("-")[0]


def _remove_unused(place: Path) -> bool:
    use = _claim(place)
    if use is None:
        return False
    _remove(place, use)
    return True


def _remove(place: Path, use: int) -> None:
    shutil.rmtree(place, ignore_errors=True)
    if use >= 0:
        os.close(use)


@contextmanager
def _lock(name: str) -> Iterator[bool]:
    """Try to take the lock of a name during the block; yield whether it was taken."""
    fd = try_lock(name)
    try:
        yield fd >= 0
    finally:
        if fd >= 0:
            os.close(fd)


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


def forget_lock(name: str) -> None:
    """Remove the file of a lock that the caller holds, if nothing has this name any more."""
    if installed(name) is None and not any(_name_of(place) == name for place in _folders()):
        (environments_folder() / f"{name}.lock").unlink(missing_ok=True)


def _share(place: Path) -> int:
    """Return a descriptor that says that the environment is used; -1 if there is none, or it is being removed."""
    fd = _lock_of_use(place, os.O_RDONLY, fcntl.LOCK_SH)
    return -1 if fd is None else fd


def _claim(place: Path) -> int | None:
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


def mark_usable(place: Path) -> None:
    """Write the file by which users of an environment are seen."""
    (place / _USE).touch(0o600)


def _read(path: Path) -> InstalledEnvironment | None:
    try:
        if path.stat().st_size > _MAX_BYTES:
            return None
        found = msgspec.json.decode(path.read_bytes(), type=InstalledEnvironment)
    except (FileNotFoundError, msgspec.MsgspecError, ValueError):
        return None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}. Check its permissions.") from error
    ours = found.name == path.stem and (named := _FOLDER.fullmatch(found.folder)) and named["name"] == found.name
    return found if ours and (path.parent / found.folder).is_dir() else None


def _may_be_read(root: Path) -> bool:
    """Return whether there is a folder of environments.

    Raises:
        UsageError: It cannot be read, or another user could have put an environment there.
    """
    try:
        _refuse_strange(root)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise UsageError(f"The folder {root} cannot be read: {error.strerror}. Check its permissions, or set XDG_CACHE_HOME.") from error
    return True


def _refuse_strange(root: Path) -> None:
    """Raise if another user could have put an environment there."""
    about = root.stat()
    if about.st_uid not in (os.geteuid(), 0) or about.st_mode & _WRITABLE_BY_OTHERS:
        raise UsageError(
            f"{root} belongs to another user or can be written by others, so its environments are not used. "
            f"Remove it, or run: chmod go-w {shlex.quote(str(root))}"
        )


def make_folder() -> Path:
    """Make the folder of all environments, for this user only, and return it.

    Raises:
        UsageError: It cannot be made, or another user can write to it.
    """
    root = environments_folder()
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        _refuse_strange(root)
    except OSError as error:
        raise UsageError(
            f"The folder {root} cannot be made: {error.strerror}. Set XDG_CACHE_HOME to a folder that can be written."
        ) from error
    return root
