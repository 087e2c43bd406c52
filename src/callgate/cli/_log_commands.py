"""The words of `callgate log`, as cyclopts reads them; `_log` and `_log_report` do the work."""

from __future__ import annotations

from cyclopts import App

from callgate.cli._journal_location import default_journal
from callgate.cli._options import ExportOptions, LogOptions
from callgate.cli._shared_options import Actor, AsJson, Field, Journal, Kind, Run, Since, ToolName, Until

__all__ = ["log_app"]

log_app = App(name="log", help="What happened: the journal's calls and events. Reads only; several may look while one writes.")


@log_app.command(name="list")
def log_list(*, options: LogOptions | None = None) -> int:
    """List calls, the newest last: when, which, how it ended, how long it took, by which rule.

    ```
    callgate log list --tool run_command --since 2h
    callgate log list --field failure_class=timeout
    callgate log list --json | jq 'select(.status != "ok")'
    ```
    """
    from callgate.cli._log import list_calls
    from callgate.cli._log_query import with_run

    return list_calls(with_run(options or LogOptions()))


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
    """Show every event of one call or one run, each under what caused it.

    ```
    callgate log show 0/3
    callgate log show demo --kind call.verdict
    ```

    Parameters
    ----------
    id
        A call's id, or its end where that names one call, or a run's id, or `last` for the newest run.
    """
    from callgate.cli._log import show
    from callgate.cli._log_query import with_run

    options = LogOptions(journal=journal or default_journal(), run=run, kind=kind, tool=tool, field=field, json=json)
    return show(id, with_run(options))


@log_app.command(name="result")
def log_result(id: str, /, *, journal: Journal = "") -> int:
    """Print the whole result of one call, as it was before any of it was left out for the model or the screen.

    ```
    callgate log result 0/3
    callgate log result 0/3 | jq -r .stdout
    ```

    Exit codes: 0 printed · 1 the call has no result, or the whole of it is lost · 2 there is no such call.

    Parameters
    ----------
    id
        A call's id, or its end where that names one call.
    """
    from callgate.cli._log_result import show_result

    return show_result(id, LogOptions(journal=journal or default_journal()))


@log_app.command(name="tree")
def log_tree(id: str, /, *, journal: Journal = "", kind: Kind = None, limit: int | None = None, json: AsJson = False) -> int:
    """Show what followed from what, in any run: beneath a call, a run, or one event.

    ```
    callgate log tree case-7
    callgate log tree 12
    ```

    Parameters
    ----------
    id
        A call's id, or its end where that names one call, or a run's id, or `last` for the newest run, or an event's position.
    limit
        At most so many events. Default: 2000.
    """
    from callgate.cli._log import tree

    return tree(id, LogOptions(journal=journal or default_journal(), kind=kind, limit=limit, json=json))


@log_app.command(name="follow")
def log_follow(
    *,
    journal: Journal = "",
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
    from callgate.cli._log_query import with_run

    options = LogOptions(
        journal=journal or default_journal(), run=run, kind=kind, tool=tool, actor=actor, field=field, after=after, json=json
    )
    return follow(with_run(options))


@log_app.command(name="stats")
def log_stats(
    *,
    journal: Journal = "",
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
    from callgate.cli._log_query import with_run
    from callgate.cli._log_report import stats

    options = LogOptions(journal=journal or default_journal(), run=run, tool=tool, actor=actor, since=since, until=until, json=json)
    return stats(with_run(options))


@log_app.command(name="verify")
def log_verify(*, journal: Journal = "", tail: int | None = None, json: AsJson = False) -> int:
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

    return verify_chain(LogOptions(journal=journal or default_journal(), json=json), tail)


@log_app.command(name="export")
def log_export(*, to: str | None = None, options: ExportOptions | None = None) -> int:
    """Write events as lines of JSON, each body byte for byte.

    ```
    callgate log export --run case-7 --to case-7.jsonl
    ```

    Parameters
    ----------
    to
        A file that is not there yet. Default: standard output.
    """
    from callgate.cli._log_query import with_run
    from callgate.cli._log_report import export

    return export(with_run(options or ExportOptions()), to)
