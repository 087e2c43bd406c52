"""`EnvironmentRequirements`: what a plugin in Python needs in a virtual environment of its own, as its manifest says.

Wrong entries are refused here, before anything is installed: an entry must be a requirement or a folder, never an option of pip. Which
versions fit is decided by pip alone.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from callgate._server_processes.shown_command import shown_word
from callgate._unusable_paths import read_regular_file
from callgate._version import __version__
from callgate.errors import UsageError

__all__ = ["EnvironmentRequirements", "checked_requirements"]

_MAX_BYTES = 1_048_576
_FOLDER = re.compile(r"(\.[^\[\]]*)(\[[\w.,\- ]*\])?")
"""A folder in the plugin's folder, and extras: `.`, `./shared`, `.[pdf]`."""
_PROJECTS = ("pyproject.toml", "setup.py")


class EnvironmentRequirements(Struct, frozen=True, kw_only=True):
    """The Python version and packages that the environment of a plugin must have."""

    requires: tuple[str, ...] = ()
    """Requirements such as `httpx>=0.28`, and folders of packages in the plugin's folder, such as `.`."""
    requirements_file: str = ""
    """The name of a requirements file in the plugin's folder; empty if there is none."""
    python: str = ""
    """Which versions of Python it may have, such as `>=3.12`; empty: those that callgate supports."""

    @property
    def folders(self) -> tuple[str, ...]:
        """The entries of `requires` that are folders, without their extras."""
        return tuple(found[1] for one in self.requires if (found := _FOLDER.fullmatch(one)))

    @property
    def pip_words(self) -> tuple[str, ...]:
        """The requirements as arguments of pip. Folders are installed as editable, so that changes in the plugin's folder take effect."""
        return tuple(word for one in self.requires for word in (("--editable", one) if one.startswith(".") else (one,)))

    @property
    def shown(self) -> str:
        """The requirements for a person, without credentials."""
        named = [shown_word(one) for one in self.requires] + [self.requirements_file] * bool(self.requirements_file)
        return ", ".join([*named, *([f"Python {self.python}"] if self.python else [])]) or "callgate alone"

    def fingerprint(self, folder: Path) -> str:
        """Return a hash that changes when the plugin in `folder` requires something else. Reads the files that are named."""
        files = [self.requirements_file] if self.requirements_file else []
        files += [f"{name}/{project}" for name in self.folders for project in _PROJECTS if (folder / name / project).is_file()]
        parts: list[object] = [self.requires, self.python]
        parts += [(name, hashlib.sha256(read_regular_file(folder / name)).hexdigest()) for name in files]
        return hashlib.sha256(json.dumps(parts).encode("utf-8", "surrogatepass")).hexdigest()


def checked_requirements(
    folder: Path, requires: Sequence[str] | None, requirements_file: str | None, python: str | None
) -> EnvironmentRequirements | None:
    """Return what a manifest requires, or None if it says nothing of an environment.

    Raises:
        UsageError: A value cannot be used. The message names the key.
    """
    if requires is None and requirements_file is None and python is None:
        return None
    if requires is not None and requirements_file is not None:
        raise UsageError("plugin.requires and plugin.requirements_file are both given; give one of them.")
    for entry in requires or ():
        _check_entry(folder, entry)
    if requirements_file is not None:
        _check_file(folder, requirements_file)
    if python is not None:
        _check_python(python)
    return EnvironmentRequirements(requires=tuple(requires or ()), requirements_file=requirements_file or "", python=python or "")


def _check_entry(folder: Path, entry: str) -> None:
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    if entry.startswith("."):
        _check_folder(folder, entry)
        return
    try:
        wanted = Requirement(entry)
    except InvalidRequirement as error:
        why, entry = str(error).split("\n", 1)[0], shown_word(entry)[:120]
        raise UsageError(f'plugin.requires has {entry!r}, which is not a requirement such as "httpx>=0.28": {why}.') from error
    if canonicalize_name(wanted.name) == "callgate" and (wanted.url or not wanted.specifier.contains(__version__, prereleases=True)):
        raise UsageError(
            f"plugin.requires has {shown_word(entry)[:120]!r}, but every environment has callgate {__version__}, as the engine. "
            "Leave it out, or change its version."
        )


def _check_folder(folder: Path, entry: str) -> None:
    found = _FOLDER.fullmatch(entry)
    place = folder / found[1] if found else folder
    if not found or "\0" in entry or not place.resolve().is_relative_to(folder.resolve()):
        raise UsageError(f'plugin.requires has {entry[:120]!r}; a folder of a package must be in the plugin\'s folder, such as ".".')
    if not any((place / name).is_file() for name in _PROJECTS):
        raise UsageError(f"plugin.requires has {entry[:120]!r}, but this folder has no pyproject.toml.")


def _check_file(folder: Path, name: str) -> None:
    try:
        path = folder / name
        if not name or not path.resolve().is_relative_to(folder.resolve()):
            raise UsageError(f"plugin.requirements_file is {name[:120]!r}; it must be a file in the plugin's folder.")
        size = path.stat().st_size
        read_regular_file(path, _MAX_BYTES)
    except (OSError, ValueError) as error:
        raise UsageError(f"plugin.requirements_file is {name[:120]!r}, which cannot be read: {error}.") from error
    if size > _MAX_BYTES:
        raise UsageError(f"plugin.requirements_file is {name[:120]!r}, which has {size} bytes; the maximum is {_MAX_BYTES}.")


def _check_python(python: str) -> None:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        fits = bool(SpecifierSet(python))
    except InvalidSpecifier:
        fits = False
    if not fits:
        raise UsageError(f'plugin.python is {python[:80]!r}, which says no versions; write them as ">=3.11" or "==3.12.*".')
