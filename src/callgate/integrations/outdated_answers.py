"""Whether a yes that a human gave through a framework still answers the engine's question about the call.

A framework keeps its own answers. Meanwhile the question may have expired, the tool may have changed, or somebody may have answered in the
engine's journal. The journal takes precedence: a yes counts only for the question that the human has seen. Must not know any framework.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from callgate._json import decode
from callgate._run_state.approvals import older_binding
from callgate._run_state.event_bodies import Received, approval_id_of, decode_reason, question_of, verdict_of
from callgate.calls import Scope, Suspended
from callgate.errors import PausedByTool
from callgate.event_queries import EventQuery
from callgate.events import Event
from callgate.integrations.journaled_calls import (
    events_of,
    is_in_message,
    made_for_same,
    read_journal,
    recorded_call_id,
    with_received,
)
from callgate.protocols import Journal

__all__ = ["EARLIER_QUESTION", "questions_about", "why_outdated"]

_MOST = 1_000
EARLIER_QUESTION = (
    "The answer was to an earlier question about this call, which has expired, was answered already, or was about an older tool, other"
    " arguments or another user."
)


async def why_outdated(journal: Journal, name: str, call_id: str, scope: Scope, asked: Suspended) -> str:
    """Return why a yes to the call is not an answer to the question that the engine asks now; empty if it is.

    Args:
        asked: The outcome of the call, which was made again with the yes.
    """

    def find() -> str:
        return _why_outdated(journal, name, call_id, scope, asked)

    return await read_journal(journal, find)


def questions_about(journal: Journal, name: str, call_id: str, run: str) -> Iterator[tuple[Event, Received]]:
    """Yield the events by which the engine has asked about calls with this id, in whatever message, this time included, with the calls."""
    query = EventQuery(run=run, tool=name, kinds=("call.suspended",), newest_first=True, limit=_MOST)
    return ((event, call) for event, call in with_received(journal, journal.find(query)) if call.id == recorded_call_id(call_id))


def _why_outdated(journal: Journal, name: str, call_id: str, scope: Scope, asked: Suspended) -> str:
    found = [(event, call) for event, call in questions_about(journal, name, call_id, scope.run) if event.call != asked.uid]
    questions, earlier = [event for event, _ in found], [event for event, call in found if is_in_message(call, scope)]
    if asked.uid == asked.approval_id:  # unless it is outdated, the framework has asked a question of its own
        return EARLIER_QUESTION if _is_outdated(journal, _used_questions(journal, scope.run, name), asked, questions, earlier) else ""
    same = [event for event in earlier if approval_id_of(event) == asked.approval_id]
    refused = _latest_refusal(journal, scope.run, {asked.approval_id, *(event.call for event in same)})
    if refused is None or any(event.position > refused.position for event in same):
        return ""
    body = decode(refused.body)
    return f"The answer of {body['details'].get('by') or 'somebody'} could not be used, so no other one was taken. {body['reason']}"


def _is_outdated(journal: Journal, used: Mapping[str, str], asked: Suspended, questions: Sequence[Event], earlier: Sequence[Event]) -> bool:
    """Return whether a yes was to one of the questions before the engine's new one.

    Args:
        used: See `_used_questions`.
        earlier: Those of the questions that were about the call in the same message.
    """
    (now,) = journal.find(EventQuery(call=asked.uid, kinds=("call.suspended",), limit=1))
    unused = [event for event in questions if approval_id_of(event) not in used]
    return (
        any(event in earlier for event in unused)
        or any(not made_for_same(journal, event.call, asked.uid) for event in earlier)
        or any(_has_let_run(journal, event, used, now) for event in questions)
        or _has_other_arguments(journal, now, unused)
    )


def _has_other_arguments(journal: Journal, now: Event, questions: Sequence[Event]) -> bool:
    """Return whether there are questions that were not denied, but no open one about a call with the tool and the arguments of this one.

    The host may have rebuilt the message of the call, which then has another id.
    """
    denied = _denied_questions(journal, questions)
    others = [event for event in questions if approval_id_of(event) not in denied]
    same = [event for event in others if _bound_to(event) == _bound_to(now) and question_of(event).expires_at > now.at_ns]
    return bool(others) and not same


def _denied_questions(journal: Journal, questions: Sequence[Event]) -> set[str]:
    """Return the ids of those questions whose latest answer is a no."""
    answers = events_of(journal, map(approval_id_of, questions), "approval.answered")
    latest = {event.call: decode_reason(event.body).status for event in answers}
    return {approval_id for approval_id, status in latest.items() if status == "refused"}


def _bound_to(question: Event) -> str:
    return older_binding(str((decode_reason(question.body).details or {}).get("binding", "")))


def _used_questions(journal: Journal, run: str, name: str) -> dict[str, str]:
    """Return the ids of the questions whose yes has let a call of the tool start, each with the id of that call."""
    started = journal.find(EventQuery(run=run, tool=name, kinds=("call.started",), newest_first=True, limit=_MOST))
    return {verdict.approval: event.call for event in started if (verdict := verdict_of(event)) is not None}


def _has_let_run(journal: Journal, question: Event, used: Mapping[str, str], now: Event) -> bool:
    """Return whether the yes to a question about the same tool and arguments has let a call run that has not paused the framework's run.

    The host may have rebuilt the message of the call, so that the engine asks about it once more.
    """
    uid = used.get(approval_id_of(question))
    if uid is None or _bound_to(question) != _bound_to(now):
        return False
    raised = journal.find(EventQuery(call=uid, kinds=("call.raised",), newest_first=True, limit=1))
    return not any(decode(event.body)["exception"] == PausedByTool.__name__ for event in raised)


def _latest_refusal(journal: Journal, run: str, questions: set[str]) -> Event | None:
    """Return the latest answer of another process to a question that could not be used, unless a later answer has replaced it.

    Args:
        questions: The ids by which the question can be answered.
    """
    for event in journal.find(EventQuery(run=run, kinds=("inbox.refused",), newest_first=True, limit=_MOST)):
        details = decode_reason(event.body).details or {}
        if details.get("target") in questions and "replaced_by" not in details:
            return event
    return None
