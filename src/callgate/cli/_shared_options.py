"""Words that several commands share, as cyclopts reads them: each option and its sentence of help, once."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Annotated

from cyclopts import Parameter, Token

from callgate._tool_sources import FORMS
from callgate.cli._journal_location import default_journal, default_memory

__all__ = [
    "Actor",
    "AsJson",
    "CausedBy",
    "Field",
    "Flag",
    "Journal",
    "Kind",
    "MemoryFile",
    "OwnMemory",
    "Run",
    "Since",
    "ToolName",
    "Tools",
    "Until",
    "given_or",
    "own_memory",
]


def given_or(default: Callable[[], str]) -> Callable[[type, Sequence[Token]], str]:
    """Read an empty word as none: `--journal "$JOURNAL"` in a shell where there is no such variable."""
    return lambda _, tokens: tokens[0].value or default()


def own_memory() -> str:
    """`CALLGATE_MEMORY`, or `.callgate/memory.db` under the current folder."""
    return default_memory() or os.path.join(".callgate", "memory.db")


Flag = Parameter(negative="")
Journal = Annotated[
    str,
    Parameter(
        converter=given_or(default_journal),
        help="The journal's file; a `postgresql://` address names one on a server; `:memory:` keeps none."
        " Default: `CALLGATE_JOURNAL`, or `.callgate/journal.db` here.",
    ),
]
MemoryFile = Annotated[
    str,
    Parameter(
        name="--memory",
        converter=given_or(default_memory),
        help="The memory's file: what calls come to is remembered there, and `builtin` has `remember`, `recall` and `forget`."
        " Default: `CALLGATE_MEMORY`, or none.",
    ),
]
OwnMemory = Annotated[
    str,
    Parameter(
        name="--memory",
        converter=given_or(own_memory),
        help="The memory's file. Default: `CALLGATE_MEMORY`, or `.callgate/memory.db` here.",
    ),
]
Tools = Annotated[tuple[str, ...], Parameter(help=f"Where tools come from: {FORMS}. May be repeated. Default: `builtin`.", negative="")]
AsJson = Annotated[bool, Parameter(name="--json", help="Write strict JSON, for programs.", negative="")]
Run = Annotated[str | None, Parameter(help="Only this run; `last` is the newest.")]
Kind = Annotated[str | None, Parameter(help="Only events of this kind, or calls that have one, as `call.started`.")]
Actor = Annotated[str | None, Parameter(help="Only calls that were made for this actor.")]
Since = Annotated[str | None, Parameter(help="Only from this time on: `2026-11-20T14:30`, or `15m`, `2h`, `3d` for so long ago.")]
Until = Annotated[str | None, Parameter(help="Only before this time.")]
Field = Annotated[str | None, Parameter(help="Only events whose body has this value at this path: `status=error`, `metadata.attempts=2`.")]
CausedBy = Annotated[int | None, Parameter(help="Only what followed from this event.")]
ToolName = Annotated[str | None, Parameter(help="Only calls of this tool.")]
