"""The words of `callgate memory`, as cyclopts reads them; `_memory` does the work."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App

from callgate.cli._journal_location import default_journal
from callgate.cli._options import SearchOptions
from callgate.cli._shared_options import AsJson, Flag, Journal, OwnMemory, Tools, own_memory

__all__ = ["memory_app"]

memory_app = App(name="memory", help="What was remembered: search it, and make it again from a journal.")


@memory_app.command(name="search")
def memory_search(*words: str, options: SearchOptions | None = None) -> int:
    """Find notes, calls and pieces of files by words, the best first; 1 if there are none.

    ```
    callgate memory search refund desk --kind note
    callgate memory search zebra --principal ann --since 7d
    ```

    Parameters
    ----------
    words
        In any order; no syntax.
    """
    from callgate.cli._memory import search

    return search(" ".join(words), options or SearchOptions())


@memory_app.command(name="status")
def memory_status(*, memory: OwnMemory = "", json: AsJson = False) -> int:
    """Show what there is, and what is still to be done."""
    from callgate.cli._memory import status

    return status(memory or own_memory(), as_json=json)


@memory_app.command(name="rebuild")
def memory_rebuild(
    *,
    memory: OwnMemory = "",
    journal: Journal = "",
    files: Annotated[bool, Flag] = False,
    tools: Tools = ("builtin",),
) -> int:
    """Make it again from a journal: notes, and what calls came to.

    ```
    rm .callgate/memory.db
    callgate memory rebuild --files
    ```

    Parameters
    ----------
    files
        Also the files that calls wrote, as they are now, with whatever secrets they hold.
    tools
        Where the tools came from: they say which files their calls write.
    """
    from callgate.cli._memory import rebuild

    return rebuild(memory or own_memory(), journal or default_journal(), tools, files=files)
