"""Convert the recorded events of one call to what the conversation contains: a result, a question, or a note.

The note replaces the result of a call that was aborted when its engine ended. Pure: takes events, reads no journal.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from callgate._json import canonical, decode
from callgate._run_state.event_bodies import decode_reason, decode_result, question_of, verdict_of
from callgate.agent.message_calls import BROKEN_OFF
from callgate.agent.run_recorder import PhaseAnsweredBody, RunBeganBody
from callgate.agent.run_result import CommittedMessage, PendingCalls
from callgate.calls import Answered, Text, ToolResult
from callgate.emission import EndedCall
from callgate.errors import CallNotStarted
from callgate.events import Event
from callgate.messages import AssistantMessage, ToolCall

__all__ = ["broken_off_result", "end_of_cancelled_call", "final_of", "is_killed", "note_of_broken_off", "pending_at", "result_at"]


def note_of_broken_off(event: Event) -> str:
    """Return the note for the model about a call that was aborted when its engine ended.

    Empty if nothing about the call is reported to the model.
    """
    reason = decode_reason(event.body)
    return _interruption_text(reason.reason, unknown=reason.status == "unknown") if reason.status in ("not_started", "unknown") else ""


def _interruption_text(why: str, *, unknown: bool) -> str:
    if not unknown:
        return str(CallNotStarted.because(why))
    return f"It was broken off: {why}. It may have taken effect; check the real state before you repeat it."


def is_killed(event: Event, *, by_user: bool = False) -> bool:
    """Return whether the call was aborted after it had started, so that it may have taken effect.

    Args:
        by_user: Whether to leave out a call that was aborted when its engine or its caller ended.
    """
    if event.kind != "call.aborted":
        return False
    reason = decode_reason(event.body)
    if by_user and reason.status == "unknown":
        return False
    return "unknown" in (reason.status, (reason.details or {}).get("status"))


def result_at(call: ToolCall, end: Event | None, hint: str) -> ToolResult | None:
    """Return the result of a call as the conversation contains it, with the loop's hint; None if it has no result."""
    if end is None:
        return None
    if end.kind == "call.completed":
        result = decode_result(end.body)
        return replace(result, content=(*result.content, Text(text=hint))) if hint else result
    return broken_off_result(call, end, hint) if end.kind == "call.aborted" and hint else None


def broken_off_result(call: ToolCall, end: Event, text: str) -> ToolResult:
    """Return the result of a call that was aborted when its engine or its caller ended."""
    return _make_broken_off_result(call, end.call, text, unknown=decode_reason(end.body).status == "unknown")


def end_of_cancelled_call(call: ToolCall, end: EndedCall) -> EndedCall:
    """Return the end of a call whose run was cancelled, with the result that the model reads in the conversation's next run."""
    if end.outcome is not None or not end.uid:
        return end
    text = _interruption_text("the run was cancelled", unknown=end.in_doubt)
    return replace(end, outcome=Answered(_make_broken_off_result(call, end.uid, text, unknown=end.in_doubt)))


def _make_broken_off_result(call: ToolCall, uid: str, text: str, *, unknown: bool) -> ToolResult:
    return ToolResult(
        id=call.id,
        uid=uid,
        name=call.name,
        status="unknown" if unknown else "error",
        content=(Text(text=text),),
        error=text,
        failure_class="outcome_unknown" if unknown else "not_started",
        code=BROKEN_OFF,
    )


def pending_at(
    body: PhaseAnsweredBody, calls: Sequence[ToolCall], ends: Sequence[Event | None], began: RunBeganBody, whole: CommittedMessage
) -> PendingCalls | None:
    waiting = [index for index, end in enumerate(ends) if end is not None and end.kind == "call.suspended"]
    if not waiting or body.message is None:
        return None
    return PendingCalls(
        message=AssistantMessage(parts=tuple(calls[index] for index in waiting), api=body.message.api),
        closed=tuple(body.closed[index] for index in waiting),
        iteration=body.iteration,
        approvals=tuple(question_of(end) for end in ends if end is not None and end.kind == "call.suspended"),
        exposed=began.exposed,
        lost=tuple(place for place, index in enumerate(waiting) if index in body.lost),
        whole=whole,
    )


def final_of(event: Event) -> bytes | None:
    """Return the arguments that the tool got, as canonical JSON; None if the event has no verdict.

    Empty if the verdict did not allow the call.
    """
    verdict = verdict_of(event)
    if verdict is None:
        return None
    arguments = decode(verdict.arguments)
    return canonical(arguments) if verdict.verdict == "allow" and isinstance(arguments, dict) else b""
