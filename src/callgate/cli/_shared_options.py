"""Define the options that several commands share, with their help texts and checks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, Token

from callgate._tool_loading import FORMS
from callgate.cli._journal_location import default_journal, default_memory
from callgate.errors import UsageError
from callgate.policy import Rules
from callgate.policy.protected_files import rules_against_writing

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
    "Plugins",
    "Principal",
    "Run",
    "Servers",
    "Since",
    "ToolName",
    "Tools",
    "Until",
    "check_workspace",
    "given_or",
    "own_memory",
    "protected_configuration",
]


def given_or(default: Callable[[], str]) -> Callable[[type, Sequence[Token]], str]:
    """Return a converter that takes an empty word as the default, as from `--journal "$JOURNAL"` without that variable."""
    return lambda _, tokens: tokens[0].value or default()


def own_memory() -> str:
    """Return `CALLGATE_MEMORY`, or `.callgate/memory.db` in the current folder."""
    return default_memory() or os.path.join(".callgate", "memory.db")


def protected_configuration(files: Iterable[str | os.PathLike[str]], workspace: str, where: str) -> tuple[Rules, ...]:
    """Return the rules that keep file tools from writing these files, if they are in the workspace."""
    reason = "This file configures the command that makes this call. Only the person who gives the command changes it."
    return rules_against_writing(files, workspace=workspace, reason=reason, where=where)


def check_workspace(given: str) -> str:
    """Return the full path of the folder that `--workspace` names.

    Raises:
        UsageError: It is not a folder.
    """
    folder = Path(given)
    if not folder.is_dir():
        raise UsageError(f"The workspace {given} is not a folder. Give an existing one with --workspace.")
    return str(folder.resolve())


Flag = Parameter(negative="")
Journal = Annotated[
    str,
    Parameter(
        converter=given_or(default_journal),
        help="The journal's file; a `postgresql://` address names one on a server; `:memory:` keeps no file."
        " Default: `CALLGATE_JOURNAL`, or `.callgate/journal.db` here.",
    ),
]
MemoryFile = Annotated[
    str,
    Parameter(
        name="--memory",
        converter=given_or(default_memory),
        help="The memory's file: results of calls are stored in it, and `builtin` adds `remember`, `recall` and `forget`."
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
Tools = Annotated[tuple[str, ...], Parameter(help=f"A source of tools: {FORMS}. May be repeated. Default: `builtin`.", negative="")]
Servers = Annotated[
    tuple[str, ...],
    Parameter(
        name="--mcp",
        help="MCP servers whose tools are added: a configuration file such as `.mcp.json`, the name of a server in `.mcp.json` here, an "
        "address, or a command in quotes. May be repeated.",
        negative="",
    ),
]
Plugins = Annotated[
    tuple[str, ...],
    Parameter(
        name="--plugin",
        help="A plugin whose tools are added: its folder, or the name of an installed package that contains it. May be repeated.",
        negative="",
    ),
]
AsJson = Annotated[
    bool,
    Parameter(
        name="--json",
        help="Write JSON for programs: an object or an array in a line, or JSON Lines (one object in each line) for calls and events.",
        negative="",
    ),
]
Run = Annotated[str | None, Parameter(help="Only this run; `last` is the newest.")]
Kind = Annotated[str | None, Parameter(help="Only events of this kind, or calls with one, such as `call.started`.")]
Actor = Annotated[str | None, Parameter(help="Only calls that were made for this actor.")]
Principal = Annotated[str | None, Parameter(help="Only calls that were made on behalf of this principal.")]
Since = Annotated[str | None, Parameter(help="Only from this time on: `2026-11-20T14:30`, or a time ago: `15m`, `2h`, `3d`.")]
Until = Annotated[str | None, Parameter(help="Only before this time.")]
Field = Annotated[str | None, Parameter(help="Only events whose body has this value at this path: `status=error`, `metadata.attempts=2`.")]
CausedBy = Annotated[int | None, Parameter(help="Only events that this event caused.")]
ToolName = Annotated[str | None, Parameter(help="Only calls of this tool.")]
