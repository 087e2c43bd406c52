"""Find text in the files of a workspace, within limits.

Patterns are literal by default. A regular expression is matched in a child process (`_regex`), because Python's engine may never finish
and holds the interpreter lock meanwhile.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Literal, Protocol

from callgate._workspace import DirectoryEntry, PathRefused, Workspace
from callgate._workspace.listing import Glob
from callgate.builtins._regex import Matcher
from callgate.builtins._text_pages import PAGE_BYTES, decode_text, is_binary, snippet
from callgate.builtins._tool_failures import CannotDo, Result

__all__ = ["MAX_FILE", "Search", "SearchResult", "TextIndex", "describe_withheld", "make_finder"]

MAX_FILE = 4_194_304
"""The largest file that is searched, in bytes."""
_MAX_TOTAL = 268_435_456
_MAX_GLOB = 4_096
_AROUND = 120
_DOTTED_I = "\u0130"
"""The only character whose lower case has another length. It is compared as it is."""

Find = Callable[[str, int], list[tuple[int, int]]]
"""Takes a text and the maximum number of matches. Returns the start and end of each match."""


class SearchResult(Protocol):
    """What an index knows about the files of one search."""

    def judge(self, entry: DirectoryEntry) -> Literal["read", "pass", "skip"]:
        """Return whether to `read` the file, `pass` it because it cannot match, or `skip` it as not searchable.

        If in doubt, return `read`.
        """
        ...

    def close(self) -> None:
        """End the search."""
        ...


class TextIndex(Protocol):
    """An index that excludes files from a search without reading them. The results are the same as without it."""

    def look(self, workspace: Workspace, pattern: str) -> SearchResult | None:
        """Begin a search for this text, ignoring case. Return None if the index cannot help. Never raises."""
        ...


def make_finder(pattern: str, *, regex: bool, ignore_case: bool, stack: ExitStack) -> Find:
    """Return the function that finds `pattern`. If it needs a child process, closing `stack` ends that process."""
    if regex:
        return stack.enter_context(Matcher(pattern, ignore_case=ignore_case)).find
    return lambda text, most: _literal(text, pattern, ignore_case, most)


def _literal(text: str, piece: str, ignore_case: bool, most: int) -> list[tuple[int, int]]:
    where, sought = (_lower(text), _lower(piece)) if ignore_case else (text, piece)
    found: list[tuple[int, int]] = []
    at = where.find(sought)
    while at >= 0 and len(found) < most:
        found.append((at, at + len(sought)))
        at = where.find(sought, at + max(1, len(sought)))
    return found


def _lower(text: str) -> str:
    """Return the text in lower case, with each character at its place."""
    return _DOTTED_I.join(part.lower() for part in text.split(_DOTTED_I))


class Search:
    """One search over a workspace.

    Args:
        stopped: Returns whether to end early.
        may_visit: Returns whether policy rules let this call read the file with this path and size.
        index: Makes the search faster. Without it, every file is read.
    """

    def __init__(
        self,
        workspace: Workspace,
        *,
        stopped: Callable[[], bool],
        may_visit: Callable[[str, int], bool] = lambda path, size_bytes: True,
        index: TextIndex | None = None,
    ) -> None:
        self._workspace = workspace
        self._stopped = stopped
        self._may_visit = may_visit
        self._index = index
        self._look: SearchResult | None = None
        self._skipped = 0
        self._searched = 0
        self._withheld = 0
        self._cut = False

    def run(self, pattern: str, path: str, *, glob: str | None, regex: bool, ignore_case: bool, most: int) -> Result:
        matches: list[Result] = []
        size = 0
        with ExitStack() as stack:
            find = make_finder(pattern, regex=regex, ignore_case=ignore_case, stack=stack)
            wanted = _path_filter(glob) if glob else _any
            for name, text in self.texts(None if regex else pattern, path, wanted, stack):
                for number, line in _lines(text, find(text, most * 4)):
                    size += len(name) + len(line.encode("utf-8", "replace"))
                    if len(matches) == most or size > PAGE_BYTES:
                        return {"matches": matches, **self.counted(truncated=True)}
                    matches.append({"path": name, "line": number, "text": line})
        return {"matches": matches, **self.counted(truncated=False)}

    def counted(self, *, truncated: bool) -> Result:
        """Return the result fields that say how many files were searched and skipped, and whether more may match."""
        counted: Result = {"truncated": truncated or self._cut, "files_searched": self._searched, "files_skipped": self._skipped}
        return counted | describe_withheld(self._withheld)

    def texts(self, pattern: str | None, path: str, wanted: Callable[[str], bool], stack: ExitStack) -> Iterator[tuple[str, str]]:
        """Yield the path and text of each file that may match, ordered by path.

        Binary, too large and unreadable files are skipped and counted.

        Args:
            pattern: The text to find, in any case; None for a regular expression.
            wanted: Returns whether to search the file with this path.
            stack: Ends the index's search when it is closed.
        """
        if self._index is not None and pattern is not None:
            self._look = self._index.look(self._workspace, pattern)
            if self._look is not None:
                stack.callback(self._look.close)
        total = 0
        for name, entry in self._names(path):
            if self._stopped() or total > _MAX_TOTAL:
                self._cut = True
                return
            if not wanted(name):
                continue
            if entry is not None and not self._may_visit(name, entry.size or 0):
                self._withheld += 1
                continue
            known = self._look.judge(entry) if self._look is not None and entry is not None else "read"
            if known == "skip":
                self._skipped += 1
                continue
            if known == "pass" and entry is not None:
                total += entry.size or 0
                self._searched += 1
                continue
            try:
                data = self._workspace.read_bytes(name, limit=MAX_FILE)
            except PathRefused:
                self._skipped += 1
                continue
            if is_binary(data):
                self._skipped += 1
                continue
            total += len(data)
            self._searched += 1
            yield name, decode_text(data)[0]

    def _names(self, path: str) -> Iterator[tuple[str, DirectoryEntry | None]]:
        if self._workspace.kind(path) == "file":
            yield self._workspace.normalise(path), None
            return
        with self._workspace.folder(path):
            for entry in self._workspace.walk(path):
                if entry is None:
                    self._cut = True
                elif entry.kind == "file":
                    yield entry.path, entry


def describe_withheld(count: int) -> Result:
    """Return the result fields that report files withheld by policy rules. Empty if there are none."""
    return {"files_withheld": count, "note": "Rules keep some files from this call. Do not look for another way to them."} if count else {}


def _path_filter(glob: str) -> Callable[[str], bool]:
    if len(glob) > _MAX_GLOB:
        raise CannotDo(f"The glob has {len(glob):,} characters; {_MAX_GLOB:,} is the limit. Use a shorter one.")
    return Glob(glob).matches


def _any(path: str) -> bool:
    return True


def _lines(text: str, spans: list[tuple[int, int]]) -> list[tuple[int, str]]:
    """Return the number (from 1) and text of each line in which a match starts, without duplicates.

    Long lines are cut.
    """
    ends = [at for at, char in enumerate(text) if char == "\n"] if spans else []
    found: dict[int, str] = {}
    for start, end in spans:
        number = bisect.bisect_left(ends, start)
        if number in found:
            continue
        first = ends[number - 1] + 1 if number else 0
        last = ends[number] if number < len(ends) else len(text)
        line = text[first:last].rstrip("\r")
        found[number] = line if len(line) <= 3 * _AROUND else snippet(line, start - first, min(end, last) - first, _AROUND)
    return [(number + 1, line) for number, line in found.items()]
