"""Read questions to humans and their answers from the record, whichever engine of the journal wrote it.

An engine knows the questions of the runs that it holds. Another engine may have taken a run whose lease was offered, and answered its
questions since. Answers nothing and acquires no lease.
"""

from __future__ import annotations

from callgate._run_state.approvals import Question
from callgate._run_state.event_bodies import approval_id_of
from callgate._run_state.run_recovery import RunReader
from callgate.protocols import Journal

__all__ = ["open_question", "question_with_answer"]

_KINDS = ("call.suspended", "approval.answered", "approval.closed", "inbox.refused")


def question_with_answer(journal: Journal, approval_id: str) -> Question | None:
    """Return a question and its latest answer, also if a call has used the answer up; None if it was never asked, or is closed.

    Args:
        approval_id: The id of the question, or the uid of a call that was handed in again and waits for its answer.
    """
    events = list(journal.read(call=approval_id))
    asked = next((event for event in events if event.kind == "call.suspended"), None)
    if asked is None:
        return None
    if approval_id_of(asked) != approval_id:
        return question_with_answer(journal, approval_id_of(asked))
    reading = RunReader(asked.run, remember=0)
    reading.take(event for event in events if event.kind in _KINDS)
    return reading.questions.get(approval_id)


def open_question(journal: Journal, approval_id: str, now_ns: int) -> Question | None:
    """Return a question that no call has used up and that has not expired, with its answer; None if there is none.

    Args:
        approval_id: The id of the question.
        now_ns: The time, in UTC nanoseconds.
    """
    question = question_with_answer(journal, approval_id)
    if question is None or question.approval_id != approval_id:
        return None
    if question.told:
        return None
    if question.allowed is not None:
        reading = RunReader(question.run, remember=0)
        reading.take(journal.read(run=question.run))
        question = reading.questions.get(approval_id)
    expired = question is not None and question.expires_at <= now_ns and question.allowed is not False
    return None if expired else question
