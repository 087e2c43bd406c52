"""Which files a project ignores: version control's own, installed packages, and what `.gitignore` files and `.git/info/exclude` name.

Reads each folder's `.gitignore` once. A pattern that could take long to match is not applied, because the file comes from the same
folder as everything else: a stranger may have written it. A search passes over what is known to be ignored; a rule asks `state`, which
says where that cannot be known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct

from callgate._workspace.gitignore import IgnorePattern, pattern

__all__ = ["SKIPPED", "IgnoredFiles"]

SKIPPED: frozenset[str] = frozenset(
    {".git", ".hg", ".svn", ".bzr", "node_modules", ".venv", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".tox", ".nox"}
)
"""Folders that are never searched, whatever `.gitignore` says. Listing or reading them by name still works."""

_EXCLUDE = ".git/info/exclude"
_MAX_PATTERNS = 2_000
_MAX_CHARS = 500
_MAX_CHOICES = 2
_MAX_SLOW = 100

ReadText = Callable[[str], str | None]
"""A file's text by its path below the root; empty where there is none, None where there is one that cannot be used."""


class _IgnorePatterns(Struct, frozen=True):
    """What one ignore file says."""

    last_first: tuple[IgnorePattern, ...]
    whole: bool
    """Whether every line of it is applied."""

    def says(self, path: str, *, directory: bool) -> bool | None:
        """Whether the last pattern that matches ignores `path`; None where none matches."""
        return next((one.ignores for one in self.last_first if one.matches(path, directory=directory)), None)


_NOTHING = _IgnorePatterns((), True)
_UNUSABLE = _IgnorePatterns((), False)


class IgnoredFiles:
    """Answers for one tree; remembers each folder's patterns for as long as it lives.

    Args:
        read: Reads an ignore file.
        exclude: Whether `.git/info/exclude` counts.
    """

    def __init__(self, read: ReadText, *, exclude: bool = True) -> None:
        self._read = read
        self._exclude = exclude
        self._known: dict[str, _IgnorePatterns] = {}

    def ignores(self, path: str, *, directory: bool) -> bool:
        """Whether `path` (`a/b`, below the root) is known to be ignored, by itself or because a folder above it is."""
        return any(self.one(name, directory=is_folder) for name, is_folder in _names(path, directory=directory))

    def one(self, path: str, *, directory: bool) -> bool:
        """The same, where the folders above are known not to be ignored."""
        if path.rpartition("/")[2] in SKIPPED:
            return True
        return next(
            (found for patterns, inner in self._about(path) if (found := patterns.says(inner, directory=directory)) is not None), False
        )

    def state(self, path: str, *, directory: bool) -> bool | None:
        """As `ignores`; None where that cannot be known, because an ignore file that decides about it cannot be used as a whole."""
        found = [self._state_of_one(name, directory=is_folder) for name, is_folder in _names(path, directory=directory)]
        return True if True in found else None if None in found else False

    def _state_of_one(self, path: str, *, directory: bool) -> bool | None:
        if path.rpartition("/")[2] in SKIPPED:
            return True
        for patterns, inner in self._about(path):
            if not patterns.whole:
                return None
            found = patterns.says(inner, directory=directory)
            if found is not None:
                return found
        return False

    def _about(self, path: str) -> Iterator[tuple[_IgnorePatterns, str]]:
        """The ignore files that may name `path`, the nearest first, each with the path below its folder."""
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
            self._known[file] = _UNUSABLE if text is None else _compiled(text) if text else _NOTHING
        return self._known[file]


def _names(path: str, *, directory: bool) -> Iterator[tuple[str, bool]]:
    """The path of each folder above, outermost first, and of `path` itself; with whether it is a folder."""
    names = path.split("/")
    for end in range(1, len(names) + 1):
        if names[end - 1]:
            yield "/".join(names[:end]), directory or end < len(names)


def _compiled(text: str) -> _IgnorePatterns:
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
    """How many places of a pattern leave a choice where they end: the time that matching takes grows with the path to that power.

    One star within a name leaves none; each further one does, and so does each `**` between slashes.
    """
    if line.startswith("#"):
        return 0
    if len(line) > _MAX_CHARS:
        return _MAX_CHOICES + 1
    names = line.rstrip().split("/")
    return sum(1 if name == "**" else max(0, name.count("*") - 1) for name in names)
