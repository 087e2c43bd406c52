"""Define `callgate memory` for cyclopts; `_search_memory` does the work."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App

from callgate.cli._command_options import SearchOptions
from callgate.cli._journal_location import default_journal
from callgate.cli._shared_options import AsJson, Flag, Journal, OwnMemory, Tools, own_memory

__all__ = ["memory_app"]

memory_app = App(name="memory", help="Search a memory, and rebuild it from a journal.")


@memory_app.command(name="search")
def memory_search(*words: str, options: SearchOptions | None = None) -> int:
    """Find notes, calls and parts of files by words, the best first; exit code 1 if there are none.

    ```
    callgate memory search refund desk --kind note
    callgate memory search zebra --principal ann --since 7d
    ```

    Parameters
    ----------
    words
        Search words, in any order; there is no query syntax.
    """
    from callgate.cli._search_memory import search

    return search(" ".join(words), options or SearchOptions())


@memory_app.command(name="status")
def memory_status(*, memory: OwnMemory = "", json: AsJson = False) -> int:
    """Show what the memory holds and what is still to be read or embedded."""
    from callgate.cli._search_memory import status

    return status(memory or own_memory(), as_json=json)


@memory_app.command(name="rebuild")
def memory_rebuild(
    *,
    memory: OwnMemory = "",
    journal: Journal = "",
    files: Annotated[bool, Flag] = False,
    tools: Tools = ("builtin",),
) -> int:
    """Rebuild the memory from a journal: notes and results of calls.

    ```
    rm .callgate/memory.db
    callgate memory rebuild --files
    ```

    Parameters
    ----------
    files
        Also read the files that calls wrote, as they are now, with any secrets in them.
    tools
        The sources of the tools, which declare the files that their calls write.
    """
    from callgate.cli._search_memory import rebuild

    return rebuild(memory or own_memory(), journal or default_journal(), tools, files=files)
