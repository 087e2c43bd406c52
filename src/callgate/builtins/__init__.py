"""Tools that come with callgate: files, definitions, commands, pages, and the rest of a large result.

Each function makes the tools of one kind, ready for a registry; nothing is loaded before it is called. They are ordinary tools: the
same route, the same rules. Knows nothing of engines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from callgate.builtins._search import TextIndex
    from callgate.protocols import BlobStore
    from callgate.tools import Tool

__all__ = ["command_tools", "fetch_tool", "result_tools", "symbol_tools", "workspace_tools"]


def workspace_tools(*, index: TextIndex | None = None) -> list[Tool]:
    """Read, write, edit, list, glob and grep files of `scope.workspace`, and nothing outside it.

    Args:
        index: Makes `grep_files` faster and changes nothing else (`callgate.memory.Memory.index`).
    """
    from callgate.builtins.files import FileTools

    return FileTools(index).tools()


def symbol_tools(*, index: TextIndex | None = None) -> list[Tool]:
    """Find where something is defined in the Python files of `scope.workspace`.

    Args:
        index: Makes it faster and changes nothing else (`callgate.memory.Memory.index`).
    """
    from callgate.builtins.symbols import SymbolTools

    return SymbolTools(index).tools()


def command_tools() -> list[Tool]:
    """Run a command in `scope.workspace`. A command can do whatever the process may: judge it by rules."""
    from callgate.builtins.command import run_command

    return [run_command]


def fetch_tool(*, allow: Iterable[str] = ()) -> Tool:
    """GET a page from a public address.

    Args:
        allow: What is reachable beside public addresses: `host:port` as a URL names it, or a network like `10.1.0.0/16`.
    """
    from callgate.builtins.fetch import Fetcher

    return Fetcher(allow=allow).tool()


def result_tools(blobs: BlobStore) -> list[Tool]:
    """Read and search results that were too large to show whole."""
    from callgate.builtins.results import ResultTools

    return ResultTools(blobs).tools()
