"""The virtual environments of plugins, in the user's cache folder, and the records that name them.

Each environment is a folder that is never changed once it is complete. A record beside it names it: the record is written last and
replaced as a whole, so a half-built environment is never used. Its name has a hash of the plugin's folder, of what the plugin requires, and
of the engine's Python and callgate. Builds and removes nothing.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import sys
import sysconfig
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from callgate._version import __version__
from callgate.errors import UsageError
from callgate.plugins._tool_cache import cache_folder
from callgate.plugins.manifest import PluginManifest

__all__ = [
    "ENVIRONMENT_FOLDER",
    "InstalledEnvironment",
    "environment_mark",
    "environment_name",
    "environment_of",
    "environments_folder",
    "find_environment",
    "has_environment",
    "is_usable",
    "make_folder",
    "read_records",
    "write_record",
]

_MAX_BYTES = 1_048_576
ENVIRONMENT_FOLDER = re.compile(r"(?P<name>[\w.\-]+-[0-9a-f]{20})-[0-9a-f]{8}")
"""The name of an environment's folder: the name of its record, and a random part."""
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


def environment_of(manifest: PluginManifest) -> InstalledEnvironment | None:
    """Return the environment that a plugin needs, whether or not it still works; None if there is none."""
    return find_environment(environment_name(manifest)) if manifest.environment is not None else None


def find_environment(name: str) -> InstalledEnvironment | None:
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
        found = environment_of(manifest)
        return found.folder if found is not None and is_usable(found) else ""
    return ""


def has_environment(manifest: PluginManifest) -> bool:
    """Return whether the environment of a plugin that requires one is installed and works."""
    return bool(environment_mark(manifest))


def write_record(environment: InstalledEnvironment) -> None:
    """Write the record of an environment, which replaces an earlier one with the same name."""
    written = environment.path / "record.tmp"
    with written.open("wb") as file:
        file.write(msgspec.json.encode(environment))
        file.flush()
        os.fsync(file.fileno())
    os.replace(written, environments_folder() / f"{environment.name}.json")


def read_records() -> list[InstalledEnvironment]:
    """Return all environments that are complete.

    Raises:
        UsageError: Their folder cannot be read, or may have been written by another user.
    """
    root = environments_folder()
    paths = sorted(root.glob("*.json")) if _may_be_read(root) else []
    return [found for path in paths if (found := _read(path)) is not None]


def _read(path: Path) -> InstalledEnvironment | None:
    try:
        if path.stat().st_size > _MAX_BYTES:
            return None
        found = msgspec.json.decode(path.read_bytes(), type=InstalledEnvironment)
    except (FileNotFoundError, msgspec.MsgspecError, ValueError):
        return None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}. Check its permissions.") from error
    ours = found.name == path.stem and (named := ENVIRONMENT_FOLDER.fullmatch(found.folder)) and named["name"] == found.name
    return found if ours and (path.parent / found.folder).is_dir() else None


def _may_be_read(root: Path) -> bool:
    """Return whether there is a folder of environments.

    Raises:
        UsageError: It cannot be read, or another user could have put an environment there.
    """
    try:
        _refuse_folder_of_others(root)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise UsageError(f"The folder {root} cannot be read: {error.strerror}. Check its permissions, or set XDG_CACHE_HOME.") from error
    return True


def _refuse_folder_of_others(root: Path) -> None:
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
        _refuse_folder_of_others(root)
    except OSError as error:
        raise UsageError(
            f"The folder {root} cannot be made: {error.strerror}. Set XDG_CACHE_HOME to a folder that can be written."
        ) from error
    return root
