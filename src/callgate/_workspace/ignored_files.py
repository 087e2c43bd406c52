"""Decide which files a project ignores: version control, installed packages, and what ignore files name.

The ignore files are `.gitignore` in every folder and `.git/info/exclude`. Each is read once. A pattern that could take
long to match is not applied, because the file is as untrusted as the rest of the folder. A search leaves out only what
is certainly ignored. Policy rules call `state`, which returns None if this is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct

from callgate._workspace.gitignore import IgnorePattern, pattern

__all__ = ["SKIPPED", "IgnoredFiles"]

SKIPPED: frozenset[str] = frozenset(
    {".git", ".hg", ".svn", ".bzr", "node_modules", ".venv", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".tox", ".nox"}
)
"""Folders that are never searched, whatever `.gitignore` says. They can still be listed and read by name."""

_EXCLUDE = ".git/info/exclude"
_MAX_PATTERNS = 2_000
_MAX_CHARS = 500
_MAX_CHOICES = 2
_MAX_SLOW = 100

ReadText = Callable[[str], str | None]
"""Takes a path below the root. Returns the file's text; empty if there is no file, None if it cannot be used."""


class _IgnorePatterns(Struct, frozen=True):
    """The patterns of one ignore file."""

    last_first: tuple[IgnorePattern, ...]
    whole: bool
    """Whether all lines of the file are applied."""

    def verdict(self, path: str, *, directory: bool) -> bool | None:
        """Return whether the last matching pattern ignores `path`; None if no pattern matches."""
        return next((one.ignores for one in self.last_first if one.matches(path, directory=directory)), None)


_NOTHING = _IgnorePatterns((), True)
_UNUSABLE = _IgnorePatterns((), False)


class IgnoredFiles:
    """Decides which paths of one tree are ignored. Caches the patterns of each folder.

    Args:
        read: Reads an ignore file.
        exclude: Whether to apply `.git/info/exclude`.
    """

    def __init__(self, read: ReadText, *, exclude: bool = True) -> None:
        self._read = read
        self._exclude = exclude
        self._known: dict[str, _IgnorePatterns] = {}

    def ignores(self, path: str, *, directory: bool) -> bool:
        """Return whether `path` (`a/b`, below the root), or a folder above it, is certainly ignored."""
        return any(self.ignores_entry(name, directory=is_folder) for name, is_folder in _names(path, directory=directory))

    def ignores_entry(self, path: str, *, directory: bool) -> bool:
        """Return whether `path` itself is certainly ignored. Does not check the folders above it."""
        if path.rpartition("/")[2] in SKIPPED:
            return True
        return next(
            (found for patterns, inner in self._about(path) if (found := patterns.verdict(inner, directory=directory)) is not None), False
        )

    def state(self, path: str, *, directory: bool) -> bool | None:
        """Return whether `path`, or a folder above it, is ignored.

        Return None if this is unknown, because a relevant ignore file cannot be fully applied.
        """
        found = [self._state_of_one(name, directory=is_folder) for name, is_folder in _names(path, directory=directory)]
        return True if True in found else None if None in found else False

    def _state_of_one(self, path: str, *, directory: bool) -> bool | None:
        if path.rpartition("/")[2] in SKIPPED:
            return True
        for patterns, inner in self._about(path):
            if not patterns.whole:
                return None
            found = patterns.verdict(inner, directory=directory)
            if found is not None:
                return found
        return False

    def _about(self, path: str) -> Iterator[tuple[_IgnorePatterns, str]]:
        """Yield the ignore files that may match `path`, nearest first, each with the path relative to its folder."""
        folder = path.rpartition("/")[0]
        while folder:
            yield self._patterns(f"{folder}/.gitignore"), path[len(folder) + 1 :]
            folder = folder.rpartition("/")[0]
        yield self._patterns(".gitignore"), path
        if self._exclude:
            yield self._patterns(_EXCLUDE), path

    def _patterns(self, file: str) -> _IgnorePatterns:
        if file not in self._known:
            text = self._read(file)
            self._known[file] = _UNUSABLE if text is None else _compile_patterns(text) if text else _NOTHING
        return self._known[file]


def _names(path: str, *, directory: bool) -> Iterator[tuple[str, bool]]:
    """Yield each parent folder of `path`, outermost first, then `path` itself.

    Each comes with whether it is a folder.
    """
    names = path.split("/")
    for end in range(1, len(names) + 1):
        if names[end - 1]:
            yield "/".join(names[:end]), directory or end < len(names)


def _compile_patterns(text: str) -> _IgnorePatterns:
    lines = [line.removesuffix("\r") for line in text.removeprefix("\ufeff").split("\n")]
    usable: list[str] = []
    slow = 0
    for line in lines[:_MAX_PATTERNS]:
        choices = _choices(line)
        slow += choices >= _MAX_CHOICES
        if choices <= _MAX_CHOICES and (choices < _MAX_CHOICES or slow <= _MAX_SLOW) and "\0" not in line:
            usable.append(line)
    found = [one for line in reversed(usable) if (one := pattern(line)) is not None]
    return _IgnorePatterns(tuple(found), len(usable) == len(lines))


def _choices(line: str) -> int:
    """Return the number of wildcards whose end is ambiguous: matching time grows with the path's length to that power.

    The first star within a name is not ambiguous; each further one is, and so is each `**` between slashes.
    """
    if line.startswith("#"):
        return 0
    if len(line) > _MAX_CHARS:
        return _MAX_CHOICES + 1
    names = line.rstrip().split("/")
    return sum(1 if name == "**" else max(0, name.count("*") - 1) for name in names)
