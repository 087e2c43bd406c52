"""Write the events of one call to the record. Each event is caused by the call's previous one.

The values come from the call's state, which also keeps the position of its latest event. The verdict `allow` is not an event of its own: it
is written together with the start, or before the next other event of the call. Decides nothing.
"""

from __future__ import annotations

from contextlib import suppress

from msgspec import Raw
from msgspec.structs import replace

from callgate._json import plain_bytes
from callgate._pipeline.call_state import CallState
from callgate._pipeline.validate import ModifiedCall
from callgate._run_state.approvals import REFUSED_BY_ANSWER
from callgate._run_state.event_bodies import (
    MOST_CHARS,
    MOST_RAW,
    AttemptFailed,
    Raised,
    Reason,
    ReceivedCall,
    Started,
    Verdict,
    arguments_hash,
)
from callgate.errors import CallDenied, RecordFailed
from callgate.events import Body, Draft
from callgate.protocols import Execution
from callgate.stage_types import ApprovedCall, ValidatedCall

__all__ = [
    "judged_arguments",
    "keep_approval",
    "record_attempt",
    "record_change",
    "record_claim",
    "record_denial",
    "record_end",
    "record_event",
    "record_exception",
    "record_failed_attempt",
    "record_received",
    "record_verdict",
]


def record_event(state: CallState, kind: str, body: Body, attempt: int = 0) -> int:
    """Write an event of the call, and return its position."""
    if state.unrecorded_allow is not None:
        _record_allow(state, state.unrecorded_allow)
    parents = (state.last,) if state.last else ()
    state.last = position = state.recorder.write(
        Draft(kind=kind, run=state.scope.run, body=body, call=state.uid, attempt=attempt, parents=parents)
    )
    return position


def record_end(state: CallState, kind: str, body: Body) -> int:
    """Record the end of the call. If it has ended already, the first end stays."""
    if state.ended:
        return state.last
    if state.unrecorded_allow is not None:
        _record_allow(state, state.unrecorded_allow)
    parents = (state.last,) if state.last else ()
    state.last = position = state.recorder.write(Draft(kind=kind, run=state.scope.run, body=body, call=state.uid, parents=parents))
    state.ended = True
    return position


def record_received(state: CallState) -> None:
    """Record that the call was received, or that it was resumed together with its run."""
    state.on_record = True
    raw, arguments = state.raw, state.arguments
    kind: str = "call.received"
    body: Body
    if state.unfinished is not None:
        kind = "call.resumed"
        body = Reason(reason="its run was resumed", status="not_started" if state.unfinished.unstarted else "started")
    else:
        body = ReceivedCall(raw, arguments, state.facts, state.parent.uid if state.parent else "", state.recorder.redactor)
        short = type(arguments) is str and len(arguments) <= MOST_RAW and len(raw.reasoning) <= MOST_CHARS
        if not short or raw.beside is not None:
            body = body.encode()  # what is long is cut now, and not kept until somebody reads it
    parents = (state.last,) if state.last else ()
    state.last = state.recorder.write(Draft(kind=kind, run=state.scope.run, body=body, call=state.uid, parents=parents))


# Verdicts


def judged_arguments(state: CallState) -> bytes:
    """Return the arguments that the gate judges, as JSON; `null` without any, or if a policy has put in what is not JSON."""
    return b"null" if state.judged is None else _arguments_json(state.judged)


def _arguments_json(call: ValidatedCall) -> bytes:
    try:
        return plain_bytes(call.arguments)
    except Exception:
        return b"null"


def record_verdict(
    state: CallState,
    verdict: str,
    tool: str,
    *,
    rule: str = "",
    reason: str = "",
    hook: str = "",
    judgments: tuple[object, ...] = (),
    approval: str = "",
    key: str = "",
) -> None:
    """Record a verdict on the arguments that the gate judges.

    Args:
        key: The key of the call, if the verdict is repeated when the same call is handed in again.
    """
    identity, server = ("", "") if state.judged is None else (state.judged.tool.identity, state.judged.tool.server)
    body = Verdict(
        verdict=verdict,
        tool=tool,
        server=server,
        rule=rule,
        reason=reason,
        identity=identity,
        arguments=Raw(judged_arguments(state)),
        hook=hook,
        judgments=judgments,
        approval=approval,
        key=key,
        asked_hash=state.asked_hash if key else "",
    )
    record_event(state, "call.verdict", body)


def record_change(state: CallState, change: ModifiedCall) -> None:
    """Record that the gate continues with other arguments."""
    state.judged = change.call
    state.edited = state.edited or bool(change.approval)
    name = change.call.tool.name
    key = state.key if change.approval and state.asked_hash else ""
    record_verdict(state, "modify", name, rule=change.rule, reason=change.reason, hook=change.hook, approval=change.approval, key=key)


def record_denial(state: CallState, error: CallDenied, tool: str) -> None:
    """Record that a policy, a hook or a human denied the call."""
    by = error.details or {}
    rule, hook = (str(by.get(one, "")) for one in ("rule", "hook"))
    key = state.key if error.code in REFUSED_BY_ANSWER else ""
    judgments, approval = error.judgments, error.approval
    record_verdict(state, "deny", tool, rule=rule, reason=str(error), hook=hook, judgments=judgments, approval=approval, key=key)


def keep_approval(state: CallState, approved: ApprovedCall) -> None:
    """Keep the approved call; its verdict is recorded together with its start."""
    if approved.call.tool.effect != "none":
        unchanged = state.asked_hash and approved.encoded == state.encoded
        state.final_hash = state.asked_hash if unchanged else arguments_hash(approved.encoded)
    state.encoded = approved.encoded
    state.unrecorded_allow = approved


def _record_allow(state: CallState, approved: ApprovedCall) -> None:
    """Record the verdict `allow` of a call that does not start, such as one that is answered from the cache."""
    tool = approved.call.tool
    body = Verdict(
        verdict="allow",
        tool=tool.name,
        server=tool.server,
        rule=approved.rule,
        identity=tool.identity,
        arguments=Raw(approved.arguments_json),
        notes=approved.call.notes,
        approval=approved.approval,
        judgments=approved.judgments,
        key=approved.key if approved.approval and state.asked_hash else "",
        asked_hash=state.asked_hash if approved.approval else "",
    )
    draft = Draft(kind="call.verdict", run=state.scope.run, body=body, call=state.uid, parents=(state.last,))
    state.last = state.recorder.write(draft)
    state.unrecorded_allow = None


# Attempts


def record_attempt(state: CallState, approved: ApprovedCall, attempt: int, timeout_s: float, *, claims: bool = False) -> None:
    """Record the intent to enter the tool's code, together with the verdict `allow` if that is not recorded yet."""
    tool = approved.call.tool
    has_effect = tool.effect != "none"
    body = Started(
        tool=tool.name,
        effect=tool.effect,
        key=approved.key,
        effect_key=approved.effect_key,
        runner=tool.runner,
        timeout_s=timeout_s,
        server=tool.server,
        asked_hash=state.asked_hash,
        arguments_hash=state.final_hash,
        claims=has_effect and claims,
        writer=state.recorder.identity if has_effect else "",
        tick=state.tick,
    )
    if state.unrecorded_allow is not None:
        body = replace(
            body,
            verdict="allow",
            rule=approved.rule,
            identity=tool.identity,
            arguments=Raw(approved.arguments_json),
            notes=approved.call.notes,
            approval=approved.approval,
            judgments=approved.judgments,
        )
    state.doubtful = False
    state.attempt, state.nested_numbers = attempt, None
    numbered = attempt if state.unfinished is None else _attempt_number(state, attempt)
    draft = Draft(kind="call.started", run=state.scope.run, body=body, call=state.uid, attempt=numbered, parents=(state.last,))
    state.last = state.recorder.write(draft)
    state.unrecorded_allow = None


async def record_claim(state: CallState, attempt: int, worker: str = "") -> None:
    """Record that a runner outside this process is about to enter the tool's code.

    The runner must wait until this returns.

    Args:
        worker: The process that will run the code, as `process_identity` names it; empty if it is not on this
            machine.

    Raises:
        RecordFailed: The claim could not be recorded.
    """
    body = Reason(reason="a worker has it", details={"worker": worker} if worker else None)
    await state.recorder.durable(record_event(state, "call.claimed", body, _attempt_number(state, attempt)))
    state.started = True


def _attempt_number(state: CallState, attempt: int) -> int:
    """Return the attempt's number among all attempts, including those of earlier processes."""
    return attempt if state.unfinished is None else attempt + state.unfinished.attempts


def record_exception(state: CallState, attempt: int, execution: Execution) -> None:
    """Record the exception of a tool, and log it for the tool's author.

    If hooks may withhold the result, only the type of the exception is recorded and logged.
    """
    if state.withholds:
        execution = replace(execution, error="", traceback="")
    name = state.raw.name if state.judged is None else state.judged.tool.name
    state.recorder.log.debug("Tool %s raised %s (%s)\n%s", name, execution.error_type, state.uid, execution.traceback)
    with suppress(RecordFailed):  # the end of the call fails in the same way and reports it
        record_event(state, "call.raised", Raised.of(execution, state.recorder.redactor), _attempt_number(state, attempt))


def record_failed_attempt(state: CallState, attempt: int, execution: Execution, wait_s: float) -> None:
    """Record that an attempt failed and that another one follows."""
    state.attempt = 0
    if state.withholds:
        execution = replace(execution, error=execution.error_type)
    body = AttemptFailed.of(execution, wait_s, state.recorder.redactor)
    record_event(state, "call.attempt_failed", body, _attempt_number(state, attempt))
