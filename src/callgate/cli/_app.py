"""The commands and their words, as cyclopts reads them; each hands over to the module that does the work.

Here are help texts and exit codes, nothing else. A callgate error becomes one sentence on standard error.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, CycloptsError, Parameter

import callgate
from callgate.cli import _exits
from callgate.cli._consoles import say
from callgate.cli._inbox_app import add_inbox
from callgate.cli._memory_app import memory_app
from callgate.cli._record import default_journal, default_memory
from callgate.cli._replay_words import replay as replay_words
from callgate.cli._resume_words import resume as resume_words
from callgate.cli._run_words import run as run_words
from callgate.cli._streams import guarded
from callgate.cli._undo_app import add_undo
from callgate.cli._words import Actor, AsJson, CausedBy, Field, Journal, Kind, MemoryFile, Run, Since, ToolName, Tools, Until
from callgate.errors import CallgateError

if TYPE_CHECKING:
    from callgate.cli._log_query import LogOptions

__all__ = ["app", "run"]

_EXITS = """
Exit codes: 0 ok · 1 the call or run failed, or what was checked does not hold · 2 wrong usage · 3 the outcome is unknown, check before
you repeat it · 4 a human has to decide · 5 the run's budget is used up · 6 a recorded run would have gone another way · 130 interrupted.
"""

app = App(
    name="callgate",
    help="The tool-call engine for LLM agents: every call checked, stoppable, never twice, all on record.\n\n"
    "Begin with `callgate demo`, then `callgate call list_files`, `callgate run TASK`, then `callgate log list`.",
    help_epilogue=_EXITS,
    version=callgate.__version__,
    default_parameter=Parameter(show_default=False),
    help_format="markdown",
)
tools_app = App(name="tools", help="What a model could call: the tools, and their schemas.")
log_app = App(name="log", help="What happened: the journal's calls and events. Reads only; several may look while one writes.")
app.command(tools_app)
app.command(log_app)
app.command(memory_app)
add_undo(app)
add_inbox(app)

app.command(run_words, name="run")
app.command(resume_words, name="resume")
app.command(replay_words, name="replay")


def run(words: list[str]) -> int:
    """Carry out one command line; the exit code."""
    logging.getLogger("callgate").addHandler(logging.NullHandler())  # the screen says it already
    with guarded() as (output, _):
        if output is None:
            say("Standard output is closed, so nothing could be shown. Nothing was done. Leave it open, or send it to /dev/null.", "red")
            return _exits.USAGE
        code = _carry_out(words)
        output.flush()
        if output.lost is None or isinstance(output.lost, BrokenPipeError):  # a reader who has seen enough is no failure
            return code
        say(f"The output could not be written: {output.lost.strerror}. What was done is in the journal: `callgate log list`.", "red")
        return code or _exits.FAILED


def _carry_out(words: list[str]) -> int:
    try:
        command, bound, _ = app.parse_args(words, exit_on_error=False, print_error=False)
        return int(command(*bound.args, **bound.kwargs) or 0)
    except CycloptsError as error:
        say(f"{error}".strip(), "red")
        say("`callgate --help` and `callgate COMMAND --help` show what there is.")
        return _exits.USAGE
    except CallgateError as error:
        say(str(error), "red")
        return _exits.USAGE
    except KeyboardInterrupt:
        return _exits.INTERRUPTED


@app.command
def call(
    tool: str,
    /,
    *arguments: Annotated[str, Parameter(allow_leading_hyphen=True)],
    tools: Tools = None,
    workspace: str = ".",
    policy: str = "",
    journal: Journal = None,
    memory: MemoryFile = None,
    run: Annotated[str, Parameter(name="--run")] = "",
    key: str = "",
    timeout: float | None = None,
    repair: Annotated[bool, Parameter(negative="")] = False,
    actor: str = "",
    principal: str = "",
    undo: bool = True,
    json: AsJson = False,
) -> int:
    """Make one call, through the whole route: checked, judged, run, recorded.

    The result's text goes to standard output; progress and everything about the result go to standard error.

    ```
    callgate call read_file path=README.md limit=20
    callgate call run_command '{"command": ["git", "status"]}' --policy rules.toml
    callgate call remember text="The refund desk closes at five." --memory memory.db
    callgate call refund amount=12 order=A7 --tools crm.py --run case-7 --key refund-A7
    ```

    Parameters
    ----------
    tool
        The tool's name.
    arguments
        One JSON object, or `key=value` (made what the schema asks for, where nothing is lost), or `key:=JSON`, or `@file`, or `-`.
    tools
        Where tools come from.
    workspace
        The folder that file tools and commands are confined to. Default: the current one.
    policy
        A TOML file of rules; without one, every valid call may run.
    run
        The run this call belongs to. Default: one of its own.
    key
        Names this very call: handed in again with the same run and key, it gives the stored result and runs nothing.
    timeout
        Seconds for the whole call. Default: `TOOL_EXECUTION_TIMEOUT_MS`, or 300.
    repair
        Repair malformed JSON arguments, and note it. Cut-off ones are refused either way.
    actor
        Whom the tool acts as, where it needs somebody.
    principal
        Who is asking.
    undo
        Keep what the call changes in the workspace, for `callgate undo`. Default: it is kept.
    """
    from callgate.cli._arguments import read_arguments
    from callgate.cli._call import CallOptions
    from callgate.cli._call import call as make

    return make(
        CallOptions(
            tool=tool,
            arguments=read_arguments(arguments),
            tools=tuple(tools or ("builtin",)),
            workspace=workspace,
            journal=journal or default_journal(),
            memory=memory or default_memory(),
            policy=policy,
            run=run,
            key=key,
            timeout_s=timeout,
            repair=repair,
            actor=actor,
            principal=principal,
            undo=undo,
            json=json,
        )
    )


@tools_app.command(name="list")
def tools_list(*, tools: Tools = None, json: AsJson = False) -> int:
    """List tools: name, effect, category, runner, whether they declare what they touch.

    ```
    callgate tools list --tools builtin --tools crm.py
    ```
    """
    from callgate.cli._tools import list_tools

    return list_tools(tools or ["builtin"], as_json=json)


@tools_app.command(name="show")
def tools_show(name: str, /, *, tools: Tools = None, json: AsJson = False) -> int:
    """Show one tool: what the engine knows of it, and the schema that a model gets.

    ```
    callgate tools show run_command
    ```
    """
    from callgate.cli._tools import show_tool

    return show_tool(name, tools or ["builtin"], as_json=json)


@log_app.command(name="list")
def log_list(
    *,
    journal: Journal = None,
    run: Run = None,
    kind: Kind = None,
    tool: ToolName = None,
    actor: Actor = None,
    since: Since = None,
    until: Until = None,
    field: Field = None,
    caused_by: CausedBy = None,
    after: int = 0,
    limit: int | None = None,
    json: AsJson = False,
) -> int:
    """List calls, the newest last: when, which, how it ended, how long it took, by which rule.

    ```
    callgate log list --tool run_command --since 2h
    callgate log list --field failure_class=timeout
    callgate log list --json | jq 'select(.status != "ok")'
    ```

    Parameters
    ----------
    after
        Only calls that came after this event.
    limit
        So many of the newest. Default: 1000.
    """
    from callgate.cli._log import list_calls

    return list_calls(_options(journal, run, kind, tool, actor, since, until, field, caused_by, after=after, limit=limit, json=json))


@log_app.command(name="show")
def log_show(
    id: str,
    /,
    *,
    journal: Journal = None,
    run: Run = None,
    kind: Kind = None,
    tool: ToolName = None,
    field: Field = None,
    json: AsJson = False,
) -> int:
    """Show every event of one call or one run, each under what caused it.

    ```
    callgate log show 0/3
    callgate log show demo --kind call.verdict
    ```

    Parameters
    ----------
    id
        A call's id, or its end where that names one call, or a run's id.
    """
    from callgate.cli._log import show

    return show(id, _options(journal, run, kind, tool, field=field, json=json))


@log_app.command(name="tree")
def log_tree(id: str, /, *, journal: Journal = None, kind: Kind = None, limit: int | None = None, json: AsJson = False) -> int:
    """Show what followed from what, in any run: beneath a call, a run, or one event.

    ```
    callgate log tree case-7
    callgate log tree 12
    ```

    Parameters
    ----------
    id
        A call's id, or its end where that names one call, or a run's id, or an event's position.
    limit
        At most so many events. Default: 2000.
    """
    from callgate.cli._log import tree

    return tree(id, _options(journal, kind=kind, limit=limit, json=json))


@log_app.command(name="follow")
def log_follow(
    *,
    journal: Journal = None,
    run: Run = None,
    kind: Kind = None,
    tool: ToolName = None,
    actor: Actor = None,
    field: Field = None,
    after: int | None = None,
    json: AsJson = False,
) -> int:
    """Show events as they are written. Ctrl-C ends.

    ```
    callgate log follow --after 0 --kind call.completed
    ```

    Parameters
    ----------
    after
        Begin after this event; 0 is everything. Default: only what is new.
    """
    from callgate.cli._log import follow

    return follow(_options(journal, run, kind, tool, actor, field=field, after=after, json=json))


@log_app.command(name="stats")
def log_stats(
    *,
    journal: Journal = None,
    run: Run = None,
    tool: ToolName = None,
    actor: Actor = None,
    since: Since = None,
    until: Until = None,
    json: AsJson = False,
) -> int:
    """Show how long calls took, how they ended, and what the cache and early starts saved, per tool.

    ```
    callgate log stats --since 1d
    ```
    """
    from callgate.cli._log_report import stats

    return stats(_options(journal, run, None, tool, actor, since, until, json=json))


@log_app.command(name="verify")
def log_verify(*, journal: Journal = None, tail: int | None = None, json: AsJson = False) -> int:
    """Check that nothing in the journal was changed, left out or put in: every hash, number and cause.

    ```
    callgate log verify
    ```

    Parameters
    ----------
    tail
        Only so many of the last events, which is quick however long the journal is. Default: all.
    """
    from callgate.cli._log_report import verify_chain

    return verify_chain(_options(journal, json=json), tail)


@log_app.command(name="export")
def log_export(
    *,
    journal: Journal = None,
    to: str | None = None,
    run: Run = None,
    kind: Kind = None,
    tool: ToolName = None,
    actor: Actor = None,
    since: Since = None,
    until: Until = None,
    field: Field = None,
    caused_by: CausedBy = None,
    after: int = 0,
    limit: int | None = None,
) -> int:
    """Write events as lines of JSON, each body byte for byte.

    ```
    callgate log export --run case-7 --to case-7.jsonl
    ```

    Parameters
    ----------
    to
        A file that is not there yet. Default: standard output.
    after
        Only events after this one.
    limit
        At most so many. Default: all.
    """
    from callgate.cli._log_report import export

    return export(_options(journal, run, kind, tool, actor, since, until, field, caused_by, after=after, limit=limit), to)


def _options(
    journal: str | None,
    run: str | None = None,
    kind: str | None = None,
    tool: str | None = None,
    actor: str | None = None,
    since: str | None = None,
    until: str | None = None,
    field: str | None = None,
    caused_by: int | None = None,
    *,
    after: int | None = None,
    limit: int | None = None,
    json: bool = False,
) -> LogOptions:
    from callgate.cli._log_query import LogOptions

    return LogOptions(
        journal=journal or default_journal(),
        run=run,
        kind=kind,
        tool=tool,
        actor=actor,
        since=since,
        until=until,
        field=field,
        caused_by=caused_by,
        after=after,
        limit=limit,
        json=json,
    )


@app.command
def doctor(*, json: AsJson = False) -> int:
    """Show what this machine has and how far each guarantee holds on it; 1 if something needed is broken.

    ```
    callgate doctor
    ```
    """
    from callgate.cli._doctor import doctor as examine

    return examine(as_json=json)


@app.command
def demo(
    name: str = "",
    /,
    *,
    dir: Annotated[str | None, Parameter(name="--dir")] = None,
    list: Annotated[bool, Parameter(name="--list", negative="")] = False,
    json: AsJson = False,
) -> int:
    """Watch it work: a small repository with a failing test is repaired by tool calls, and everything that goes wrong on the way.

    ```
    callgate demo
    callgate demo stop
    callgate demo --dir ~/my-project
    ```

    Parameters
    ----------
    name
        One demonstration; `--list` names them. Default: the main one.
    dir
        Run the read-only part on this folder. Changes nothing in it.
    list
        Name the demonstrations.
    """
    from callgate.cli._demo import demo as show
    from callgate.cli._demo import list_demos

    return list_demos(as_json=json) if list else show(name or ("folder" if dir else "repair"), dir, as_json=json)
