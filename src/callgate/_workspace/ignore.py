"""Which files a search passes over: version control's own, installed packages, and what `.gitignore` files name.

Reads each folder's `.gitignore` once. A pattern that could take long to match is not applied, because the file comes from the same
folder as everything else: a stranger may have written it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

__all__ = ["SKIPPED", "Ignore"]

SKIPPED: frozenset[str] = frozenset(
    {".git", ".hg", ".svn", ".bzr", "node_modules", ".venv", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".tox", ".nox"}
)
"""Folders that are never searched, whatever `.gitignore` says. Listing or reading them by name still works."""

_MAX_PATTERNS = 2_000
_MAX_STARS = 3
_STARS = re.compile(r"\*+")

ReadText = Callable[[str], str]
"""A file's text by its path below the root; empty where there is none or it cannot be used."""


class Ignore:
    """Answers for one tree; remembers each folder's rules for as long as it lives."""

    def __init__(self, read: ReadText) -> None:
        self._read = read
        self._specs: dict[str, GitIgnoreSpec | None] = {}

    def ignores(self, path: str, *, directory: bool) -> bool:
        """Whether a search passes over `path` (`a/b`, below the root), by itself or because it passes over a folder above it."""
        names = path.split("/")
        return any(
            self._one("/".join(names[: end + 1]), directory=directory or end + 1 < len(names)) for end in range(len(names)) if names[end]
        )

    def one(self, path: str, *, directory: bool) -> bool:
        """The same, where the folders above are known not to be passed over."""
        return self._one(path, directory=directory)

    def _one(self, path: str, *, directory: bool) -> bool:
        if path.rpartition("/")[2] in SKIPPED:
            return True
        folder = path.rpartition("/")[0]
        while True:
            spec = self._spec(folder)
            if spec is not None:
                inner = path[len(folder) + 1 :] if folder else path
                found = spec.check_file(inner + "/" if directory else inner).include
                if found is not None:
                    return found
            if not folder:
                return False
            folder = folder.rpartition("/")[0]

    def _spec(self, folder: str) -> GitIgnoreSpec | None:
        if folder not in self._specs:
            text = self._read(f"{folder}/.gitignore" if folder else ".gitignore")
            self._specs[folder] = _compile(text) if text else None
        return self._specs[folder]


def _compile(text: str) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec

    usable = (line for line in text.splitlines()[:_MAX_PATTERNS] if _is_quick(line))
    return GitIgnoreSpec.from_lines(line for line in usable if _is_valid(line))


def _is_quick(line: str) -> bool:
    """Few stars in each name: matching stays polynomial of a low degree."""
    return (
        len(line) <= 500
        and len(_STARS.findall(line)) <= 2 * _MAX_STARS
        and all(len(_STARS.findall(name)) <= _MAX_STARS for name in line.split("/"))
    )


def _is_valid(line: str) -> bool:
    from pathspec import GitIgnoreSpec

    try:
        GitIgnoreSpec.from_lines([line])
    except ValueError:
        return False
    return True
