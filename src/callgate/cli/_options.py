"""What may be typed: the options of each command, each once, with its sentence of help beneath it.

cyclopts reads these classes, which is why they are dataclasses: it makes one from the words and hands it to the command. Loads nothing of
the engine, so that `--help` is quick. What an option means, and whether its value makes sense, is said by the room that uses it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Annotated, Literal

from cyclopts import Parameter

from callgate._tool_sources import FORMS
from callgate.cli._journal_location import default_journal, default_memory
from callgate.cli._shared_options import (
    Actor,
    AsJson,
    CausedBy,
    Field,
    Flag,
    Journal,
    Kind,
    MemoryFile,
    OwnMemory,
    Run,
    Since,
    ToolName,
    Tools,
    Until,
    given_or,
    own_memory,
)

__all__ = [
    "Answers",
    "CallOptions",
    "Excluded",
    "ExportOptions",
    "InboxOptions",
    "LogOptions",
    "Paths",
    "RedoOptions",
    "ReplayOptions",
    "ResumeOptions",
    "RunOptions",
    "SearchOptions",
    "UndoOptions",
    "Workspace",
]

Answers = Annotated[tuple[str, ...], Flag]
Hidden = Parameter(parse=False)
Paths = Annotated[
    tuple[str, ...], Parameter(name="--path", help="Only paths that match this glob, as in `src/**`. May be repeated.", negative="")
]
Excluded = Annotated[
    tuple[str, ...],
    Parameter(name="--exclude", help="No path that matches this glob, as in `build/**`. May be repeated.", negative=""),
]
Workspace = Annotated[str, Parameter(help="The folder that the calls worked in. Default: the current one.")]
Undo = Annotated[bool, Parameter(negative="--no-undo")]


def _own_model() -> str:
    return os.environ.get("CALLGATE_MODEL", "")


def _record(help: str) -> Parameter:
    where = "Default: `CALLGATE_JOURNAL`, or `.callgate/journal.db` here."
    return Parameter(name=["--record", "--journal"], converter=given_or(default_journal), help=f"The journal's file{help} {where}")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """About one run."""

    model: Annotated[str, Parameter(converter=given_or(_own_model))] = field(default_factory=_own_model)
    """`provider:model`, as `openai:gpt-5`; its key comes from the environment. Default: `CALLGATE_MODEL`."""
    base_url: str = ""
    """The URL of a server that speaks OpenAI's chat completions, or of the provider's own API elsewhere."""
    tools: Tools = ("builtin",)
    workspace: str = "."
    """The folder that file tools and commands are confined to. Default: the current one."""
    rules: str | None = None
    """A TOML file of rules. Without one, calls that only read may run, and you are asked about the rest."""
    judge: str | None = None
    """`provider:model` of a model that judges calls with effects, and those with the verdict `judge` in the rules, before they run."""
    record: Annotated[str, _record("; `:memory:` keeps none.")] = field(default_factory=default_journal)
    memory: MemoryFile = field(default_factory=default_memory)
    system: str = ""
    """Instructions for the model, or `@FILE` to read them from."""
    preset: Literal["agent", "chat", "tick", "worker"] = "agent"
    """The bounds and rules of the loop: `agent`, `chat`, `tick` or `worker`."""
    max_iterations: int | None = None
    """How many messages with calls the model may send. Default: the preset's."""
    text_calls: Literal["auto", "fallback", "always", "never"] = "auto"
    """When calls are read from the model's text: `fallback` where a message has none of its own, `always` for models that take no tools."""
    yes: Annotated[bool, Flag] = False
    """Say yes to every question. What a rule denies stays denied."""
    chat: Annotated[bool, Flag] = False
    """Go on with what you say next, in the same conversation; Ctrl-D ends it."""
    undo: Undo = True
    """Keep what calls change, for `callgate undo`."""
    json: AsJson = False


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ResumeOptions(RunOptions):
    """About a run that goes on: code and keys are not on record, and the workspace is."""

    model: str = ""
    """`provider:model`. Default: the one that the run had."""
    base_url: str = ""
    """The URL of a server that speaks OpenAI's chat completions, or of the provider's own API elsewhere. Not on record: give it again."""
    tools: Annotated[
        tuple[str, ...],
        Parameter(
            help=f"Where tools come from: {FORMS}. May be repeated. Not on record: give them again. Default: `builtin`.", negative=""
        ),
    ] = ("builtin",)
    workspace: Annotated[str, Hidden] = "."
    record: Annotated[str, _record(", which must be there.")] = field(default_factory=default_journal)
    system: str = ""
    """Instructions for the model, or `@FILE` to read them from. Not on record: give them again."""
    max_iterations: int | None = None
    """How many messages with calls the model may send in all. Default: the preset's."""
    chat: Annotated[bool, Hidden] = False


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class CallOptions:
    """About one call."""

    tools: Tools = ("builtin",)
    workspace: str = "."
    """The folder that file tools and commands are confined to. Default: the current one."""
    policy: str = ""
    """A TOML file of rules; without one, every valid call may run."""
    journal: Journal = field(default_factory=default_journal)
    memory: MemoryFile = field(default_factory=default_memory)
    run: str = ""
    """The run this call belongs to; `last` is the newest on record. Default: one of its own."""
    key: str = ""
    """Names this very call: handed in again with the same run and key, it gives the stored result and runs nothing."""
    timeout: float | None = None
    """Seconds for the whole call. Default: `TOOL_EXECUTION_TIMEOUT_MS`, or 300."""
    repair: Annotated[bool, Flag] = False
    """Repair malformed JSON arguments, and note it. Cut-off ones are refused either way."""
    actor: str = ""
    """Whom the tool acts as, where it needs somebody."""
    principal: str = ""
    """Who is asking."""
    undo: bool = True
    """Keep what the call changes in the workspace, for `callgate undo`. Default: it is kept."""
    json: AsJson = False


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ReplayOptions:
    """About a run that is made again."""

    policy: Annotated[str, Parameter(name=["--policy", "--rules"])] = ""
    """A TOML file of rules, in the place of those that the run had."""
    tools: Tools = ()
    model: str = ""
    """`provider:model`; it is sent the recorded conversation at each pass, and nothing it asks for is started."""
    base_url: str = ""
    """The URL of a server that speaks OpenAI's chat completions, or of the provider's own API elsewhere."""
    export: str = ""
    """Write the run as a pytest file, which is not there yet, with its data beside it."""
    journal: Journal = field(default_factory=default_journal)
    json: AsJson = False


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class InboxOptions:
    """About a word to a run."""

    reason: str = ""
    """Why; goes on record, and the run or the model may be told."""
    by: str = ""
    """Who says so; goes on record. Default: your login name."""
    wait: float = 5.0
    """Seconds to wait until whoever works on the run has taken it in. Default: 5."""
    journal: Journal = field(default_factory=default_journal)
    json: AsJson = False


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class UndoOptions:
    """About changes that are taken back."""

    paths: Paths = ()
    exclude: Excluded = ()
    workspace: Workspace = "."
    journal: Annotated[str, Parameter(converter=given_or(default_journal))] = field(default_factory=default_journal)
    """The journal that is told. Default: `CALLGATE_JOURNAL`, or `.callgate/journal.db` here."""
    dry_run: Annotated[bool, Flag] = False
    """Check everything, change nothing."""
    interrupted: Annotated[bool, Flag] = False
    """Also calls whose end nobody saw, because the engine was killed."""
    json: AsJson = False


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RedoOptions(UndoOptions):
    """About changes that are made again."""

    interrupted: Annotated[bool, Hidden] = False


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """About what a journal has."""

    journal: Journal = field(default_factory=default_journal)
    run: Run = None
    kind: Kind = None
    tool: ToolName = None
    actor: Actor = None
    since: Since = None
    until: Until = None
    field: Field = None
    caused_by: CausedBy = None
    after: int | None = None
    """Only calls that came after this event."""
    limit: int | None = None
    """So many of the newest. Default: 1000."""
    json: AsJson = False


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ExportOptions(LogOptions):
    """About what is written down of a journal."""

    after: int | None = None
    """Only events after this one."""
    limit: int | None = None
    """At most so many. Default: all."""
    json: Annotated[bool, Hidden] = False


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """About passages of a memory."""

    memory: OwnMemory = field(default_factory=own_memory)
    principal: str = ""
    """Whose memory. Default: what nobody in particular remembered."""
    actor: Actor = None
    conversation: str | None = None
    """Only of this conversation."""
    tool: ToolName = None
    run: Run = None
    kind: str | None = None
    """Only `note`, `call` or `file`."""
    since: Since = None
    until: Until = None
    limit: int = 10
    """At most so many, up to 50. Default: 10."""
    json: AsJson = False
