"""Find where something is defined in the source files of a workspace, within limits.

An index narrows the search to files that contain the name; the results are the same as without it. These files are
parsed in a child process: Python files by Python's parser (`_python_symbols`), files of other languages by their
tree-sitter grammars (`_treesitter_symbols`) if these are installed.
"""

from __future__ import annotations

import inspect
import json
import math
import re
from collections.abc import Callable
from contextlib import ExitStack
from typing import Literal

from callgate.builtins import _python_symbols as _outline
from callgate.builtins import _treesitter_symbols as _tags
from callgate.builtins._languages import Language, language_of, parser_request
from callgate.builtins._text_pages import PAGE_BYTES
from callgate.builtins._text_search import Search
from callgate.builtins._tool_failures import Result
from callgate.builtins._worker_process import BUDGET_S, WorkerProcess, WorkerProcessEnded, WorkerProcessLate

__all__ = ["Match", "SymbolSearch"]

Match = Literal["exact", "prefix", "substring"]
_SUFFIXES = (".py", ".pyi")
_DEFINED = re.compile(r"(?:def|class|type)[\s\\]++(\w++)|\b(\w++)[\s\\)]*+[:=,\])]")
"""Matches every name that a Python file defines, and also some other names.

Runs in time linear in the text's length.
"""
_FILE_S = 3.0
"""Time limit in seconds for parsing one file that is not Python: the time may grow faster than its size."""
_EXTRA = "pip install 'callgate[symbols]'"
_CODE = f"""
outlines, tags = {{}}, {{}}
exec({inspect.getsource(_outline)!r}, outlines)
while True:
    asked, _, source = read().partition(b"\\n")
    if asked:
        tags or exec({inspect.getsource(_tags)!r}, tags)
        answer(tags["tagged"](json.loads(asked), source.removeprefix(b"\\xef\\xbb\\xbf")))
    else:
        answer(outlines["outline"](source.decode("utf-8", "replace").removeprefix("\\ufeff")))
"""


class SymbolSearch:
    """One search for definitions.

    Args:
        files: Reads the files.
        budget_s: The total time for parsing, for all files together.
    """

    def __init__(self, files: Search, *, budget_s: float = BUDGET_S) -> None:
        self._files = files
        self._budget_s = budget_s
        self._child: WorkerProcess | None = None
        self._broken: list[str] = []
        self._late = False
        self._parser_requests: dict[Language, dict[str, object] | None] = {}
        self._unread: dict[str, int] = {}

    def run(self, name: str, path: str, *, match: Match, ignore_case: bool, most: int) -> Result:
        inside, _, last = name.rpartition(".")
        found: list[Result] = []
        size = 0
        with ExitStack() as stack:
            stack.callback(self._end)
            fits = _name_predicate(last, match, ignore_case=ignore_case)
            has = _text_predicate(last, match, ignore_case=ignore_case)
            for file, text in self._files.texts(last, path, self._can_parse, stack):
                for symbol in (
                    self._outline_file(file, text) if (_may_define(text, fits) if file.endswith(_SUFFIXES) else has(text)) else ()
                ):
                    if not fits(str(symbol[0])) or not _is_within(str(symbol[2]), inside, ignore_case=ignore_case):
                        continue
                    one = _symbol_result(symbol, file)
                    size += len(json.dumps(one))
                    if len(found) == most or size > PAGE_BYTES:
                        return self._result(found, truncated=True)
                    found.append(one)
                if self._late:
                    break
        return self._result(found, truncated=self._late)

    def _result(self, found: list[Result], *, truncated: bool) -> Result:
        counted = self._files.counted(truncated=truncated)
        notes = ["Some files have mistakes; what could be read of them counts."] if self._broken else []
        if self._unread:
            counted["files_not_readable"] = sum(self._unread.values())
            notes.append(f"{counted['files_not_readable']} files in {', '.join(sorted(self._unread))} were not looked at: {_EXTRA}")
        note = {"note": " ".join(notes)} if notes else {}
        return {"symbols": found, **counted, "files_with_mistakes": self._broken[:10], **note}

    def _can_parse(self, file: str) -> bool:
        """Return whether the file can be parsed here.

        Count it if it cannot only because its grammar is not installed.
        """
        if file.endswith(_SUFFIXES):
            return True
        language = language_of(file)
        if language is None:
            return False
        if language not in self._parser_requests:
            self._parser_requests[language] = parser_request(language)
        if self._parser_requests[language] is None:
            self._unread[language.title] = self._unread.get(language.title, 0) + 1
            return False
        return True

    def _outline_file(self, file: str, text: str) -> list[list[object]]:
        try:
            if self._child is None:
                self._child = WorkerProcess(_CODE, budget_s=self._budget_s)
            language = None if file.endswith(_SUFFIXES) else language_of(file)
            asked = json.dumps(self._parser_requests[language]) if language else ""
            symbols, whole = json.loads(
                self._child.ask(f"{asked}\n{text}".encode("utf-8", "replace"), most_s=_FILE_S if language else math.inf)
            )
        except WorkerProcessEnded:
            self._end()
            symbols, whole = [], False
        except WorkerProcessLate:
            self._late = True
            return []
        if not whole:
            self._broken.append(file)
        return list(symbols)

    def _end(self) -> None:
        if self._child is not None:
            self._budget_s = max(0.0, self._child.left_s)
            self._child.close()
            self._child = None


def _name_predicate(name: str, match: Match, *, ignore_case: bool) -> Callable[[str], bool]:
    """Return a predicate for names that match the request."""
    asked = name.lower() if ignore_case else name

    def fits(other: str) -> bool:
        given = other.lower() if ignore_case else other
        return given == asked if match == "exact" else given.startswith(asked) if match == "prefix" else asked in given

    return fits


def _may_define(text: str, fits: Callable[[str], bool]) -> bool:
    """Return False if the text certainly defines no name that `fits`.

    May return True if the text only uses such a name.
    """
    return any(fits(found[1] or found[2]) for found in _DEFINED.finditer(text))


def _text_predicate(name: str, match: Match, *, ignore_case: bool) -> Callable[[str], bool]:
    """Return a predicate for texts, in any language, that contain a name that matches the request."""
    before, after = "" if match == "substring" else r"(?<!\w)", r"(?!\w)" if match == "exact" else ""
    sought = re.compile(before + re.escape(name.lower() if ignore_case else name) + after)
    return lambda text: sought.search(text.lower() if ignore_case else text) is not None


def _is_within(within: str, inside: str, *, ignore_case: bool) -> bool:
    """Return whether a symbol is in the requested class.

    Args:
        within: The classes around the symbol, such as `Outer.Inner`.
        inside: The requested class, with or without the classes around it; empty: any.
    """
    if ignore_case:
        within, inside = within.lower(), inside.lower()
    return not inside or within == inside or within.endswith(f".{inside}")


def _symbol_result(symbol: list[object], file: str) -> Result:
    name, kind, inside, line, signature = symbol
    shown: Result = {"name": f"{inside}.{name}" if inside else name, "kind": kind, "at": f"{file}:{line}", "signature": signature}
    return shown
