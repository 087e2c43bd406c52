"""The words of `callgate approvals`, `approve`, `deny`, `stop` and `kill`, as cyclopts reads them; `_inbox` does the work."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from callgate.cli._journal_location import default_journal
from callgate.cli._options import InboxOptions
from callgate.cli._shared_options import AsJson, Journal

__all__ = ["add_inbox"]

Question = Annotated[str, Parameter(name="approval", help="The question, as `callgate approvals` names it.")]
OpenRun = Annotated[str, Parameter(name="run", help="The run's id, as `callgate log list` shows it, or `last` for the newest.")]


def add_inbox(app: App) -> None:
    for command in (approvals, approve, deny, stop, kill):
        app.command(command)


def approvals(*, journal: Journal = "", json: AsJson = False) -> int:
    """List the calls that wait for a human.

    ```
    callgate approvals
    ```
    """
    from callgate.cli._inbox import list_waiting

    return list_waiting(journal or default_journal(), json=json)


def approve(approval: Question, /, *, options: InboxOptions | None = None) -> int:
    """Let a call that waits run, once, exactly as it was asked for. From any terminal, whether or not its run is being worked on.

    ```
    callgate approve run-0198c2/0/1
    ```

    Exit codes: 0 said · 1 whoever works on the run refused it · 2 no such question is open.
    """
    return _tell("approve", approval, options)


def deny(approval: Question, /, *, options: InboxOptions | None = None) -> int:
    """Refuse a call that waits. The model is told when its run goes on.

    ```
    callgate deny run-0198c2/0/1 --reason 'wrong account'
    ```

    Exit codes: 0 said · 1 whoever works on the run refused it · 2 no such question is open.
    """
    return _tell("deny", approval, options)


def stop(run: OpenRun, /, *, options: InboxOptions | None = None) -> int:
    """Let a run end soon, whichever process works on it: the model's pass ends now, a call that runs is the last.

    ```
    callgate stop run-0198c2
    ```

    Exit codes: 0 said · 1 whoever works on the run refused it · 2 there is nothing to stop.
    """
    return _tell("stop", run, options)


def kill(run: OpenRun, /, *, options: InboxOptions | None = None) -> int:
    """End a run now and its tools with it, whichever process works on it.

    ```
    callgate kill run-0198c2
    ```

    Exit codes: 0 said · 1 whoever works on the run refused it · 2 there is nothing to kill.
    """
    return _tell("kill", run, options)


def _tell(what: str, target: str, options: InboxOptions | None) -> int:
    from callgate.cli._inbox import tell

    return tell(what, target, options or InboxOptions())
