"""Options that several commands share, as cyclopts reads them."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from callgate._specs import FORMS

__all__ = ["Actor", "AsJson", "CausedBy", "Field", "Journal", "Kind", "MemoryFile", "Run", "Since", "ToolName", "Tools", "Until"]

Journal = Annotated[
    str | None,
    Parameter(
        help="The journal's file; a `postgresql://` address names one on a server; `:memory:` keeps none."
        " Default: `CALLGATE_JOURNAL`, or `.callgate/journal.db` here."
    ),
]
MemoryFile = Annotated[
    str | None,
    Parameter(
        name="--memory",
        help="The memory's file: what calls come to is remembered there, and `builtin` has `remember`, `recall` and `forget`."
        " Default: `CALLGATE_MEMORY`, or none.",
    ),
]
Tools = Annotated[list[str] | None, Parameter(help=f"Where tools come from: {FORMS}. May be repeated. Default: `builtin`.", negative="")]
AsJson = Annotated[bool, Parameter(name="--json", help="Write strict JSON, for programs.", negative="")]
Run = Annotated[str | None, Parameter(help="Only this run.")]
Kind = Annotated[str | None, Parameter(help="Only events of this kind, or calls that have one, as `call.started`.")]
Actor = Annotated[str | None, Parameter(help="Only calls that were made for this actor.")]
Since = Annotated[str | None, Parameter(help="Only from this time on: `2026-11-20T14:30`, or `15m`, `2h`, `3d` for so long ago.")]
Until = Annotated[str | None, Parameter(help="Only before this time.")]
Field = Annotated[str | None, Parameter(help="Only events whose body has this value at this path: `status=error`, `metadata.attempts=2`.")]
CausedBy = Annotated[int | None, Parameter(help="Only what followed from this event.")]
ToolName = Annotated[str | None, Parameter(help="Only calls of this tool.")]
