"""The words of `callgate approvals`, `approve`, `deny`, `stop` and `kill`, as cyclopts reads them."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from callgate.cli._record import default_journal
from callgate.cli._words import AsJson, Journal

__all__ = ["add_inbox"]

By = Annotated[str, Parameter(help="Who says so; goes on record. Default: your login name.")]
Reason = Annotated[str, Parameter(help="Why; goes on record, and the run or the model may be told.")]
Wait = Annotated[float, Parameter(name="--wait", help="Seconds to wait until whoever works on the run has taken it in. Default: 5.")]


def add_inbox(app: App) -> None:
    for command in (approvals, approve, deny, stop, kill):
        app.command(command)


def approvals(*, journal: Journal = None, json: AsJson = False) -> int:
    """List the calls that wait for a human.

    ```
    callgate approvals
    ```
    """
    from callgate.cli._inbox import list_waiting

    return list_waiting(journal or default_journal(), json=json)


def approve(approval: str, /, *, reason: Reason = "", by: By = "", wait: Wait = 5.0, journal: Journal = None, json: AsJson = False) -> int:
    """Let a call that waits run, once, exactly as it was asked for. From any terminal, whether or not its run is being worked on.

    ```
    callgate approve run-0198c2/0/1
    ```

    Exit codes: 0 said · 1 whoever works on the run refused it · 2 no such question is open.

    Parameters
    ----------
    approval
        The question, as `callgate approvals` names it.
    """
    return _tell("approve", approval, reason, by, wait, journal, json=json)


def deny(approval: str, /, *, reason: Reason = "", by: By = "", wait: Wait = 5.0, journal: Journal = None, json: AsJson = False) -> int:
    """Refuse a call that waits. The model is told when its run goes on.

    ```
    callgate deny run-0198c2/0/1 --reason 'wrong account'
    ```

    Exit codes: 0 said · 1 whoever works on the run refused it · 2 no such question is open.

    Parameters
    ----------
    approval
        The question, as `callgate approvals` names it.
    """
    return _tell("deny", approval, reason, by, wait, journal, json=json)


def stop(run: str, /, *, reason: Reason = "", by: By = "", wait: Wait = 5.0, journal: Journal = None, json: AsJson = False) -> int:
    """Let a run end soon, whichever process works on it: the model's pass ends now, a call that runs is the last.

    ```
    callgate stop run-0198c2
    ```

    Exit codes: 0 said · 1 whoever works on the run refused it · 2 there is nothing to stop.

    Parameters
    ----------
    run
        The run's id; `callgate log list` shows it.
    """
    return _tell("stop", run, reason, by, wait, journal, json=json)


def kill(run: str, /, *, reason: Reason = "", by: By = "", wait: Wait = 5.0, journal: Journal = None, json: AsJson = False) -> int:
    """End a run now and its tools with it, whichever process works on it.

    ```
    callgate kill run-0198c2
    ```

    Exit codes: 0 said · 1 whoever works on the run refused it · 2 there is nothing to kill.

    Parameters
    ----------
    run
        The run's id; `callgate log list` shows it.
    """
    return _tell("kill", run, reason, by, wait, journal, json=json)


def _tell(what: str, target: str, reason: str, by: str, wait: float, journal: str | None, *, json: bool) -> int:
    from callgate.cli._inbox import Words, tell

    return tell(Words(what=what, target=target, reason=reason, by=by, wait_s=wait, journal=journal or default_journal(), json=json))
