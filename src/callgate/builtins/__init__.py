"""Built-in tools: files, symbol definitions, commands, web pages, and the rest of results that were cut.

Each function creates the tools of one kind, ready for a registry. A kind's modules are imported when its function is
called. Built-in tools are ordinary tools: their calls pass through the same stages and policies as all others. Knows
nothing of engines.

`files`, `command`, `fetch`, `symbols` and `stored_results` have the tools. `_workspaces` finds the workspace of a call; `_text_search`,
`_text_pages` and `_mime` serve the file tools, `_run_program` the command, `_urls` and `_http_get` the fetch. `_symbol_search` uses
`_python_symbols` and `_treesitter_symbols` for the `_languages`. `_regex` and other work that could hang runs in a `_worker_process`.
`_tool_failures` makes results of failures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from callgate.builtins._text_search import TextIndex
    from callgate.protocols import BlobStore
    from callgate.tools import Tool

__all__ = ["command_tools", "fetch_tool", "result_tools", "symbol_tools", "workspace_tools"]


def workspace_tools(*, index: TextIndex | None = None) -> list[Tool]:
    """Return tools that read, write, edit, list, glob and grep files of `scope.workspace`, and nothing outside it.

    Args:
        index: Makes `grep_files` faster; the results stay the same (`callgate.memory.Memory.index`).
    """
    from callgate.builtins.files import FileTools

    return FileTools(index).tools()


def symbol_tools(*, index: TextIndex | None = None) -> list[Tool]:
    """Return the tool that finds where something is defined in the source files of `scope.workspace`.

    Args:
        index: Makes the search faster; the results stay the same (`callgate.memory.Memory.index`).
    """
    from callgate.builtins.symbols import SymbolTools

    return SymbolTools(index).tools()


def command_tools() -> list[Tool]:
    """Return the tool that runs a command in `scope.workspace`. A command can do whatever its process can: control it with policy rules."""
    from callgate.builtins.command import run_command

    return [run_command]


def fetch_tool(*, allow: Iterable[str] = ()) -> Tool:
    """Return the tool that fetches a page from a public address with GET.

    Args:
        allow: Addresses allowed in addition to public ones: `host:port` as in the URL, or a network like `10.1.0.0/16`.
    """
    from callgate.builtins.fetch import Fetcher

    return Fetcher(allow=allow).tool()


def result_tools(blobs: BlobStore) -> list[Tool]:
    """Return the tools that read and search the whole of results that were too large to show in full."""
    from callgate.builtins.stored_results import ResultTools

    return ResultTools(blobs).tools()
