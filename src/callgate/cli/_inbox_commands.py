"""Define `callgate approvals`, `approve`, `deny`, `settle`, `stop` and `kill` for cyclopts.

`_answer_approvals` and `_settle` do the work.
"""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from callgate.cli._command_options import ApproveOptions, InboxOptions
from callgate.cli._journal_location import default_journal
from callgate.cli._shared_options import AsJson, Journal

__all__ = ["add_inbox"]

Question = Annotated[str, Parameter(name="approval", help="The approval's id, as `callgate approvals` shows it, or its beginning.")]
OpenRun = Annotated[
    str, Parameter(name="run", help="The run's id, as `callgate log list` shows it, or its beginning, or `last` for the newest.")
]


def add_inbox(app: App) -> None:
    for command in (approvals, approve, deny, settle, stop, kill):
        app.command(command)


def approvals(*, journal: Journal = "", json: AsJson = False) -> int:
    """List the calls that wait for a human.

    ```
    callgate approvals
    ```
    """
    from callgate.cli._answer_approvals import list_waiting

    return list_waiting(journal or default_journal(), as_json=json)


def approve(approval: Question, /, *, options: ApproveOptions | None = None) -> int:
    """Approve a waiting call, once, with exactly its arguments or with others. Works whether or not a process works on the run.

    Other arguments are validated and judged like the call's own when the call runs, and the model is told.

    ```
    callgate approve run-0198c2/0/1
    callgate approve run-0198c2/0/1 --arguments '{"order": "A7", "amount": 5}'
    ```

    Exit codes: 0 sent · 1 refused by the process that works on the run · 2 no such question is open, or arguments of the call are missing.
    """
    from callgate.cli._answer_approvals import given_arguments, tell

    options = options or ApproveOptions()
    return tell("approve", approval, options, arguments=given_arguments(options.arguments), leave_out=options.leave_out)


def deny(approval: Question, /, *, options: InboxOptions | None = None) -> int:
    """Deny a waiting call. The model is told, with the reason, when the run continues or the call is made again.

    ```
    callgate deny run-0198c2/0/1 --reason 'wrong account'
    ```

    Exit codes: 0 sent · 1 refused by the process that works on the run · 2 no such question is open.
    """
    return _tell("deny", approval, options)


def settle(
    call: Annotated[
        str, Parameter(name="call", help="The call's id or its beginning. Without one, the calls that must be settled are listed.")
    ] = "",
    /,
    *,
    happened: Annotated[bool | None, Parameter(negative="--not-happened")] = None,
    options: InboxOptions | None = None,
) -> int:
    """Record whether a call with an unknown outcome took effect, after you have checked.

    Works whether or not a process works on the run. If the call did not happen, the same call may be sent again in its
    run. If it did, the next call like it returns this as its result and does not run. If its tool has a key of its effect,
    this holds for all calls with the key, in every run. Of a call with such a key that returned a success without its effect, say it with
    a reason, which frees the key.

    ```
    callgate settle
    callgate settle case-7/0/0 --not-happened --reason 'the bank has no such refund'
    ```

    Exit codes: 0 settled, sent or listed · 1 refused by the process that works on the run · 2 its outcome is not unknown.

    Parameters
    ----------
    happened
        Whether the call took effect.
    """
    from callgate.cli._settle import list_unsettled, settle_call

    if not call and happened is None:
        return list_unsettled(options or InboxOptions())
    return settle_call(call, happened, options or InboxOptions())


def stop(run: OpenRun, /, *, options: InboxOptions | None = None) -> int:
    """Stop a run, whichever process works on it: the model's message is ended, running calls finish, no further call starts.

    ```
    callgate stop run-0198c2
    ```

    Exit codes: 0 sent · 1 refused by the process that works on the run · 2 there is nothing to stop.
    """
    return _tell("stop", run, options)


def kill(run: OpenRun, /, *, options: InboxOptions | None = None) -> int:
    """Kill a run and its running tools, whichever process works on it.

    ```
    callgate kill run-0198c2
    ```

    Exit codes: 0 sent · 1 refused by the process that works on the run · 2 there is nothing to kill.
    """
    return _tell("kill", run, options)


def _tell(what: str, target: str, options: InboxOptions | None) -> int:
    from callgate.cli._answer_approvals import tell

    return tell(what, target, options or InboxOptions())
