"""Questions to a human and their answers. They are held in memory; those that another process asked are loaded from the run's record.

An approval is valid for one version of a tool, certain final arguments, one run and one principal. It is used up by the call that uses it,
and it expires. Its id is the uid of the call that was suspended for it, so that it can be found in the record. This module neither waits
nor writes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from msgspec import Struct

from callgate._clock import Clock
from callgate.call_stages import ValidatedCall
from callgate.errors import UsageError

__all__ = ["Approvals", "Question", "binding"]


class Question(Struct, kw_only=True):
    """A question to a human about one call, and the answer."""

    approval_id: str
    """The uid of the call that was suspended for the question."""
    run: str
    binding: str
    expires_at: int
    """UTC nanoseconds."""
    allowed: bool | None = None
    """None until it is answered."""
    by: str = ""
    answered_at: int = 0
    """The position of the answer's event, if the answer was given in this process."""

    def waits(self, now_ns: int) -> bool:
        """Return whether the question still has to be answered."""
        return self.allowed is None and now_ns < self.expires_at

    def refuse_closed(self, *, allow: bool, now_ns: int) -> None:
        """Check that the answer would still have an effect.

        A question can be answered once; a yes can be withdrawn until a call has used it.

        Raises:
            UsageError: The question was answered or has expired.
        """
        if self.allowed is not None and (allow or not self.allowed):
            said = "yes" if self.allowed else "no"
            raise UsageError(f"The question '{self.approval_id[:80]}' was answered with {said} already, by {self.by[:80] or 'somebody'}.")
        if self.expires_at <= now_ns:
            raise UsageError(f"The question '{self.approval_id[:80]}' has expired. When its run goes on, the call asks again.")


def binding(call: ValidatedCall, encoded: bytes) -> str:
    """Return one hash of everything that an approval of this call is bound to."""
    scope = call.scope
    parts = (call.tool.identity, scope.run, scope.principal, scope.actor, scope.workspace)
    digest = hashlib.sha256("\x00".join(parts).encode())
    digest.update(b"\x00" + encoded)
    return digest.hexdigest()


class Approvals:
    """The questions of one engine, by id."""

    def __init__(self, clock: Clock, life_s: float, *, most: int = 10_000) -> None:
        self._clock = clock
        self._life_ns = int(life_s * 1e9)
        self._most = most
        self._questions: dict[str, Question] = {}

    def ask(self, approval_id: str, run: str, bound_to: str) -> Question:
        """Open a question, or return the open one for the same call."""
        self._forget_expired()
        now = self._clock.wall_ns()
        for question in self._questions.values():
            if question.binding == bound_to and question.waits(now):
                return question
        expires_at = now + self._life_ns
        question = Question(approval_id=approval_id, run=run, binding=bound_to, expires_at=expires_at)
        self._questions[approval_id] = question
        return question

    def withdraw(self, approval_id: str) -> None:
        """Forget a question that could not be recorded, and so was never asked."""
        self._questions.pop(approval_id, None)

    def restore(self, questions: Iterable[Question]) -> None:
        """Add the questions from a run's record."""
        for question in questions:
            self._questions.setdefault(question.approval_id, question)

    def forget(self, run: str) -> None:
        """Forget the run's questions, because another engine may have resumed the run: only the record has their current state."""
        for approval_id in [key for key, question in self._questions.items() if question.run == run]:
            del self._questions[approval_id]

    def find(self, approval_id: str) -> Question | None:
        """Return the question with this id, unless it is used up or has expired."""
        self._forget_expired()
        return self._questions.get(approval_id)

    def to_answer(self, approval_id: str, *, allow: bool) -> Question:
        """Return the question with this id if it can be answered.

        Raises:
            UsageError: No such question is open: it never existed, has expired, was used up, or was answered.
        """
        question = self.find(approval_id)
        if question is None:
            raise UsageError(
                f"No approval '{approval_id!s:.80}' is open: its call has gone on, it has expired, or it never existed."
                " Send the call again."
            )
        question.refuse_closed(allow=allow, now_ns=self._clock.wall_ns())
        return question

    def spend(self, bound_to: str) -> Question | None:
        """Use up an approval that is bound to this hash, and return it; None if there is none."""
        if not self._questions:
            return None
        self._forget_expired()
        for approval_id, question in self._questions.items():
            if question.allowed and question.binding == bound_to:
                return self._questions.pop(approval_id)
        return None

    def _forget_expired(self) -> None:
        now = self._clock.wall_ns()
        expired = [key for key, question in self._questions.items() if question.expires_at <= now]
        surplus = list(self._questions)[: max(0, len(self._questions) - self._most)]
        for key in {*expired, *surplus}:
            del self._questions[key]
