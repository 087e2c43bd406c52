"""The words of `callgate memory`, as cyclopts reads them; `_memory` does the work."""

from __future__ import annotations

import os
from typing import Annotated

from cyclopts import App, Parameter

from callgate.cli._record import default_journal, default_memory
from callgate.cli._words import Actor, AsJson, Journal, Run, Since, ToolName, Tools, Until

__all__ = ["memory_app"]

Place = Annotated[
    str | None, Parameter(name="--memory", help="The memory's file. Default: `CALLGATE_MEMORY`, or `.callgate/memory.db` here.")
]

memory_app = App(name="memory", help="What was remembered: search it, and make it again from a journal.")


@memory_app.command(name="search")
def memory_search(
    *words: str,
    memory: Place = None,
    principal: str = "",
    actor: Actor = None,
    conversation: str | None = None,
    tool: ToolName = None,
    run: Run = None,
    kind: str | None = None,
    since: Since = None,
    until: Until = None,
    limit: int = 10,
    json: AsJson = False,
) -> int:
    """Find notes, calls and pieces of files by words, the best first; 1 if there are none.

    ```
    callgate memory search refund desk --kind note
    callgate memory search zebra --principal ann --since 7d
    ```

    Parameters
    ----------
    words
        In any order; no syntax.
    principal
        Whose memory. Default: what nobody in particular remembered.
    conversation
        Only of this conversation.
    kind
        Only `note`, `call` or `file`.
    limit
        At most so many, up to 50. Default: 10.
    """
    from callgate.cli._memory import SearchOptions, search

    options = SearchOptions(
        words=" ".join(words),
        memory=memory or _default(),
        principal=principal,
        actor=actor,
        conversation=conversation,
        tool=tool,
        run=run,
        kind=kind,
        since=since,
        until=until,
        limit=limit,
        json=json,
    )
    return search(options)


@memory_app.command(name="status")
def memory_status(*, memory: Place = None, json: AsJson = False) -> int:
    """Show what there is, and what is still to be done."""
    from callgate.cli._memory import status

    return status(memory or _default(), as_json=json)


@memory_app.command(name="rebuild")
def memory_rebuild(
    *,
    memory: Place = None,
    journal: Journal = None,
    files: Annotated[bool, Parameter(negative="")] = False,
    tools: Tools = None,
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

    return rebuild(memory or _default(), journal or default_journal(), tuple(tools or ("builtin",)), files=files)


def _default() -> str:
    return default_memory() or os.path.join(".callgate", "memory.db")
