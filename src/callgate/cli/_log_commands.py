"""Define `callgate log` for cyclopts; `_show_log` and `_log_report` do the work."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App

from callgate.cli._command_options import ExportOptions, LogOptions
from callgate.cli._journal_location import default_journal
from callgate.cli._shared_options import Actor, AsJson, Field, Flag, Journal, Kind, Principal, Run, Since, ToolName, Until

__all__ = ["log_app"]

log_app = App(name="log", help="Show the journal's calls and events. Only reads, also while other processes write.")


@log_app.command(name="list")
def log_list(*, arguments: Annotated[bool, Flag] = False, options: LogOptions | None = None) -> int:
    """List calls, the newest last, with time, tool, status, duration and rule.

    ```
    callgate log list --tool run_command --since 2h
    callgate log list --principal alice --field failure_class=timeout --arguments
    callgate log list --json | jq 'select(.status != "ok")'
    ```

    Parameters
    ----------
    arguments
        Also show the arguments with which each call ran, as recorded, cut to 80 characters.
    """
    from callgate.cli._log_query import with_run
    from callgate.cli._show_log import list_calls

    return list_calls(with_run(options or LogOptions()), arguments=arguments)


@log_app.command(name="show")
def log_show(
    id: str,
    /,
    *,
    journal: Journal = "",
    run: Run = None,
    kind: Kind = None,
    tool: ToolName = None,
    field: Field = None,
    json: AsJson = False,
) -> int:
    """Show every event of one call or run, indented under its cause.

    ```
    callgate log show 0/3
    callgate log show demo --kind call.verdict
    ```

    Parameters
    ----------
    id
        A call's id, the end of a call's id or the beginning of an id if it is unique, a run's id, or `last` for the newest run.
    """
    from callgate.cli._log_query import with_run
    from callgate.cli._show_log import show

    options = LogOptions(journal=journal or default_journal(), run=run, kind=kind, tool=tool, field=field, json=json)
    return show(id, with_run(options))


@log_app.command(name="result")
def log_result(id: str, /, *, journal: Journal = "") -> int:
    """Print the whole result of one call, including the parts that the model and the screen were not shown.

    ```
    callgate log result 0/3
    callgate log result 0/3 | jq -r .stdout
    ```

    Exit codes: 0 printed · 1 the call has no result, or its whole result is no longer stored · 2 there is no such call.

    Parameters
    ----------
    id
        A call's id, or the last part of one, such as `0/3`, if only one id ends with it, or the beginning of one.
    """
    from callgate.cli._log_result import show_result

    return show_result(id, LogOptions(journal=journal or default_journal()))


@log_app.command(name="tree")
def log_tree(id: str, /, *, journal: Journal = "", kind: Kind = None, limit: int | None = None, json: AsJson = False) -> int:
    """Show what a call, a run or an event caused, in any run, as a tree.

    ```
    callgate log tree case-7
    callgate log tree 12
    ```

    Parameters
    ----------
    id
        A call's id, the end of a call's id or the beginning of an id if it is unique, a run's id, `last` for the newest run, or an event's
        position.
    limit
        At most this many events. Default: 2000.
    """
    from callgate.cli._show_log import tree

    return tree(id, LogOptions(journal=journal or default_journal(), kind=kind, limit=limit, json=json))


@log_app.command(name="follow")
def log_follow(
    *,
    journal: Journal = "",
    run: Run = None,
    kind: Kind = None,
    tool: ToolName = None,
    actor: Actor = None,
    principal: Principal = None,
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
        Start after this event; 0 shows all events. Default: only new events.
    """
    from callgate.cli._log_query import with_run
    from callgate.cli._show_log import follow

    options = LogOptions(
        journal=journal or default_journal(),
        run=run,
        kind=kind,
        tool=tool,
        actor=actor,
        principal=principal,
        field=field,
        after=after,
        json=json,
    )
    return follow(with_run(options))


@log_app.command(name="stats")
def log_stats(
    *,
    journal: Journal = "",
    run: Run = None,
    tool: ToolName = None,
    actor: Actor = None,
    principal: Principal = None,
    since: Since = None,
    until: Until = None,
    json: AsJson = False,
) -> int:
    """Show durations, outcomes, and the time saved by the cache and early starts, per tool.

    ```
    callgate log stats --since 1d
    ```
    """
    from callgate.cli._log_query import with_run
    from callgate.cli._log_report import stats

    place = journal or default_journal()
    options = LogOptions(journal=place, run=run, tool=tool, actor=actor, principal=principal, since=since, until=until, json=json)
    return stats(with_run(options))


@log_app.command(name="verify")
def log_verify(*, journal: Journal = "", tail: int | None = None, json: AsJson = False) -> int:
    """Check every hash, number and cause, to find events that were changed, removed or inserted.

    ```
    callgate log verify
    ```

    Parameters
    ----------
    tail
        Check only this many of the last events, which is fast for a journal of any length. Default: all.
    """
    from callgate.cli._log_report import verify_chain

    return verify_chain(LogOptions(journal=journal or default_journal(), json=json), tail)


@log_app.command(name="export")
def log_export(*, to: str | None = None, options: ExportOptions | None = None) -> int:
    """Write events as lines of JSON, with each body byte for byte.

    ```
    callgate log export --run case-7 --to case-7.jsonl
    ```

    Parameters
    ----------
    to
        A file that does not exist yet. Default: standard output.
    """
    from callgate.cli._log_query import with_run
    from callgate.cli._log_report import export

    return export(with_run(options or ExportOptions()), to)
