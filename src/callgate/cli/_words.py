"""Options that several commands share, as cyclopts reads them."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from callgate.cli._specs import FORMS

__all__ = ["AsJson", "Journal", "Kind", "Run", "ToolName", "Tools"]

Journal = Annotated[
    str | None,
    Parameter(help="The journal's file; `:memory:` keeps none. Default: `CALLGATE_JOURNAL`, or `.callgate/journal.db` here."),
]
Tools = Annotated[list[str] | None, Parameter(help=f"Where tools come from: {FORMS}. May be repeated. Default: `builtin`.", negative="")]
AsJson = Annotated[bool, Parameter(name="--json", help="Write strict JSON, for programs.", negative="")]
Run = Annotated[str | None, Parameter(help="Only this run.")]
Kind = Annotated[str | None, Parameter(help="Only events of this kind, or calls that have one, as `call.started`.")]
ToolName = Annotated[str | None, Parameter(help="Only calls of this tool.")]
