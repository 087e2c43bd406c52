"""`find_symbol`: find where a class, function, method or constant is defined. A plain function, run in a thread; read-only.

Covers Python files, and with the extra `symbols` those of the languages in `_languages`; use `grep_files` for all others.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from callgate.builtins._symbol_search import Match, SymbolSearch
from callgate.builtins._text_search import Search, TextIndex
from callgate.builtins._tool_failures import CannotDo, Result, failures_as_results
from callgate.builtins._workspaces import Workspaces
from callgate.calls import Scope
from callgate.tools import Tool, ToolContext, tool

__all__ = ["SymbolTools"]

_MOST_CHARS = 200


class SymbolTools:
    """The tool `find_symbol`, and the workspaces that it keeps open between calls.

    Args:
        index: Makes searches faster. Without it, every source file is read.
    """

    def __init__(self, index: TextIndex | None = None) -> None:
        self._workspaces = Workspaces()
        self._index = index

    def tools(self) -> list[Tool]:
        return [tool(category="safe_chain", effect="none", reads=self._key)(self.find_symbol)]

    def _key(self, arguments: Mapping[str, object], scope: Scope) -> tuple[str, ...]:
        return (f"file:{self._workspaces.of(scope.workspace).normalise(str(arguments.get('path', '.')))}",)

    @failures_as_results
    def find_symbol(
        self,
        context: ToolContext,
        name: str,
        path: str = ".",
        match: Match = "exact",
        ignore_case: bool = False,
        max_symbols: int = 50,
    ) -> Result:
        """Find where something is defined: classes, functions, methods, types, constants and other assigned names.

        Searches Python files, and files in C, C++, C#, Go, Java, JavaScript, PHP, Ruby, Rust and TypeScript whose
        grammars are installed.

        Args:
            name: The name, such as `close`, or with the class around it, such as `Desk.close`.
            path: The file or folder to search, relative to the workspace.
            match: Whether `name` is the whole name, its beginning, or any part of it.
            ignore_case: Ignore the difference between upper and lower case.
            max_symbols: The maximum number of symbols to return, up to 200.
        """
        name = name.replace("::", ".")
        last = name.rpartition(".")[2]
        if not _is_name(last) or len(name) > _MOST_CHARS:
            raise CannotDo(f"`name` has to be a name, or a class and a name with a dot between, of at most {_MOST_CHARS} characters.")
        if not sys.executable:
            raise CannotDo("Sources cannot be parsed here. Search for the text of the definition (grep_files).")
        files = Search(
            self._workspaces.of(context.workspace, context.own_files),
            stopped=lambda: context.signal.aborted,
            may_visit=context.may_visit,
            index=self._index,
        )
        most = max(1, min(max_symbols, 200))
        return SymbolSearch(files).run(name, path, match=match, ignore_case=ignore_case, most=most)


def _is_name(word: str) -> bool:
    """Return whether `word` is a name in any language, including `$scope`, `#limit` and `closed?`."""
    return word.removeprefix("#").rstrip("?!").replace("$", "_").isidentifier()
