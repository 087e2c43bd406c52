"""Define the options of each command, with the help text below each option.

cyclopts creates instances of these classes from the command line; they must be dataclasses. Imports nothing of the
engine, so that `--help` is fast. The module that uses an option checks its value.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Annotated, Literal

from cyclopts import Parameter

from callgate._tool_loading import FORMS
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
    Plugins,
    Principal,
    Run,
    Servers,
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
    "GateFile",
    "InboxOptions",
    "LogOptions",
    "Paths",
    "RedoOptions",
    "ReplayOptions",
    "ResumeOptions",
    "RunOptions",
    "SearchOptions",
    "ServeOptions",
    "UndoOptions",
    "Workspace",
]

Answers = Annotated[tuple[str, ...], Flag]
Hidden = Parameter(parse=False)
Paths = Annotated[
    tuple[str, ...], Parameter(name="--path", help="Only paths that match this glob, such as `src/**`. May be repeated.", negative="")
]
Excluded = Annotated[
    tuple[str, ...],
    Parameter(name="--exclude", help="Leave out paths that match this glob, such as `build/**`. May be repeated.", negative=""),
]
Workspace = Annotated[str, Parameter(help="The workspace of the calls. Default: the current folder.")]
Undo = Annotated[bool, Parameter(negative="--no-undo")]


def _own_model() -> str:
    return os.environ.get("CALLGATE_MODEL", "")


def _record(help: str) -> Parameter:
    where = "Default: `CALLGATE_JOURNAL`, or `.callgate/journal.db` here."
    return Parameter(name=["--record", "--journal"], converter=given_or(default_journal), help=f"The journal's file{help} {where}")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of `callgate run`."""

    model: Annotated[str, Parameter(converter=given_or(_own_model))] = field(default_factory=_own_model)
    """`provider:model`, such as `openai:gpt-5`; the key comes from the environment. Default: `CALLGATE_MODEL`."""
    base_url: str = ""
    """The URL of a server with OpenAI's chat completions API, or another URL of the provider's API."""
    tools: Tools = ("builtin",)
    mcp: Servers = ()
    plugin: Plugins = ()
    workspace: str = "."
    """The folder that file tools and commands are confined to. Default: the current one."""
    rules: str | None = None
    """A TOML file of rules. Without one, calls that only read run, and you are asked about all others."""
    judge: str | None = None
    """`provider:model` of a model that judges calls before they run: those with effects or the verdict `judge`."""
    record: Annotated[str, _record("; `:memory:` keeps no file.")] = field(default_factory=default_journal)
    memory: MemoryFile = field(default_factory=default_memory)
    system: str = ""
    """Instructions for the model, or `@FILE` to read them from."""
    preset: Literal["agent", "chat", "tick", "worker"] = "agent"
    """The bounds and rules of the loop: `agent`, `chat`, `tick` or `worker`."""
    max_iterations: int | None = None
    """How many messages with calls the model may send. Default: the preset's."""
    text_calls: Literal["auto", "fallback", "always", "never"] = "auto"
    """When to read calls from the model's text: `fallback` if a message has no structured calls, `always` for models without tool calls."""
    yes: Annotated[bool, Flag] = False
    """Answer yes to every question. A call that a rule denies stays denied."""
    chat: Annotated[bool, Flag] = False
    """Continue the conversation with what you type next; Ctrl-D ends it."""
    undo: Undo = True
    """Keep what calls change in the workspace, for `callgate undo`."""
    json: AsJson = False


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ResumeOptions(RunOptions):
    """Options of `callgate resume`.

    The journal has the workspace but no code and no keys, so these must be given again.
    """

    model: str = ""
    """`provider:model`. Default: the run's model."""
    base_url: str = ""
    """The URL of a server with OpenAI's chat completions API, or another URL of the provider's API. Not recorded: give it again."""
    tools: Annotated[
        tuple[str, ...],
        Parameter(help=f"Where tools come from: {FORMS}. May be repeated. Not recorded: give them again. Default: `builtin`.", negative=""),
    ] = ("builtin",)
    workspace: Annotated[str, Hidden] = "."
    record: Annotated[str, _record(", which must exist.")] = field(default_factory=default_journal)
    system: str = ""
    """Instructions for the model, or `@FILE` to read them from. Not recorded: give them again."""
    max_iterations: int | None = None
    """How many messages with calls the model may send in the whole run. Default: the preset's."""
    chat: Annotated[bool, Hidden] = False


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class CallOptions:
    """Options of `callgate call`."""

    tools: Tools = ("builtin",)
    workspace: str = "."
    """The folder that file tools and commands are confined to. Default: the current one."""
    policy: str = ""
    """A TOML file of rules. Without one, every valid call runs."""
    journal: Journal = field(default_factory=default_journal)
    memory: MemoryFile = field(default_factory=default_memory)
    run: str = ""
    """The run that the call belongs to; `last` is the newest. Default: a new run."""
    key: str = ""
    """The idempotency key: a second call with the same run and key returns the stored result and runs nothing."""
    timeout: float | None = None
    """Time limit of the whole call, in seconds. Default: `TOOL_EXECUTION_TIMEOUT_MS`, or 300."""
    repair: Annotated[bool, Flag] = False
    """Repair malformed JSON arguments and note the repair. Incomplete arguments are always refused."""
    actor: str = ""
    """The actor, for tools that need one."""
    principal: str = ""
    """The principal on whose behalf the call is made."""
    undo: bool = True
    """Keep what the call changes in the workspace, for `callgate undo`. Default: yes."""
    json: AsJson = False


GateFile = Annotated[
    str,
    Parameter(
        name="--config", help="The configuration file. Default: `gate.toml` here, if it exists and neither --mcp nor --tools is given."
    ),
]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """Options of `callgate serve`. Lists are added to those of the file; other values replace the file's."""

    config: GateFile = ""
    mcp: Servers = ()
    tools: Annotated[
        tuple[str, ...], Parameter(help=f"A source of Python tools: {FORMS}. May be repeated. Default: none.", negative="")
    ] = ()
    rules: Annotated[tuple[str, ...], Flag] = ()
    """A TOML file of rules. May be repeated. Without one, every valid call runs."""
    journal: str = ""
    """The journal's file; a `postgresql://` address names one on a server. Default: the file's, or `CALLGATE_JOURNAL`, or
    `.callgate/journal.db` here."""
    workspace: str = ""
    """The folder that file tools and commands are confined to. Default: the file's, or the current one."""
    http: Annotated[tuple[str, ...] | None, Parameter(consume_multiple=True, negative="")] = None
    """Serve streamable HTTP instead of standard input and output; `HOST:PORT` is where. Default: the file's, or `127.0.0.1:8765`."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ReplayOptions:
    """Options of `callgate replay`."""

    policy: Annotated[str, Parameter(name=["--policy", "--rules"])] = ""
    """A TOML file of rules to judge the recorded calls by."""
    tools: Tools = ()
    model: str = ""
    """`provider:model` of a model to compare: each pass sends it the recorded conversation.

    Its calls are not started.
    """
    base_url: str = ""
    """The URL of a server with OpenAI's chat completions API, or another URL of the provider's API."""
    export: str = ""
    """Write the run as a new pytest file, with its data beside it."""
    journal: Journal = field(default_factory=default_journal)
    json: AsJson = False


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class InboxOptions:
    """Options of the commands that send a message to a run."""

    reason: str = ""
    """The reason; it is recorded and may be shown to the model."""
    by: str = ""
    """Who sends the message; it is recorded. Default: your login name."""
    wait: float = 5.0
    """How many seconds to wait until the process that works on the run has received the message. Default: 5."""
    journal: Journal = field(default_factory=default_journal)
    json: AsJson = False


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ApproveOptions(InboxOptions):
    """Options of `callgate approve`."""

    arguments: Annotated[str, Parameter(allow_leading_hyphen=True)] = ""
    """Run the call with these arguments instead: one JSON object with all of them, `@file`, or `-` for standard input."""
    leave_out: Annotated[bool, Flag] = False
    """Accept that `--arguments` lacks arguments of the call, which then runs without them."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class UndoOptions:
    """Options of `callgate undo`."""

    paths: Paths = ()
    exclude: Excluded = ()
    workspace: Workspace = "."
    journal: Annotated[str, Parameter(converter=given_or(default_journal))] = field(default_factory=default_journal)
    """The journal that records the undo. Default: `CALLGATE_JOURNAL`, or `.callgate/journal.db` here."""
    dry_run: Annotated[bool, Flag] = False
    """Check and show everything; change nothing."""
    interrupted: Annotated[bool, Flag] = False
    """Include calls whose end is not recorded because the engine was killed."""
    json: AsJson = False


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RedoOptions(UndoOptions):
    """Options of `callgate redo`."""

    interrupted: Annotated[bool, Hidden] = False


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """Options of `callgate log list`."""

    journal: Journal = field(default_factory=default_journal)
    run: Run = None
    kind: Kind = None
    tool: ToolName = None
    actor: Actor = None
    principal: Principal = None
    since: Since = None
    until: Until = None
    field: Field = None
    caused_by: CausedBy = None
    after: int | None = None
    """Only calls received after this event."""
    limit: int | None = None
    """Only the newest calls or events, at most this many. Default: 1000."""
    json: AsJson = False


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ExportOptions(LogOptions):
    """Options of `callgate log export`."""

    after: int | None = None
    """Only events after this one."""
    limit: int | None = None
    """At most this many events. Default: all."""
    json: Annotated[bool, Hidden] = False


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """Options of `callgate memory search`."""

    memory: OwnMemory = field(default_factory=own_memory)
    principal: str = ""
    """The principal whose memory is searched. Default: passages without a principal."""
    actor: Actor = None
    conversation: str | None = None
    """Only passages of this conversation."""
    tool: ToolName = None
    run: Run = None
    kind: str | None = None
    """Only passages of this kind: `note`, `call` or `file`."""
    since: Since = None
    until: Until = None
    limit: int = 10
    """At most this many, up to 50. Default: 10."""
    json: AsJson = False
