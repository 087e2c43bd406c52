"""Questions to a human and their answers. They are held in memory; those that another process asked are loaded from the run's record.

An approval is valid for one call: one version of a tool, certain final arguments, run, conversation and principal. Identical calls of a
message have questions of their own, except those with the same key of their effect: they share one. An approval is used up by the call
that uses it, and it expires. A denial does not expire, and is valid for the call whatever the version of its tool; it is used up at once
if the host itself reports it to the model. Its id is the uid of the call that was suspended for it, so that it can be found in the record.
This module neither waits nor writes; it wakes the tasks that wait for an answer.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from msgspec import Struct

from callgate._clock import Clock
from callgate._run_state.event_bodies import has_made_id, joined_texts
from callgate.calls import Note
from callgate.errors import ApprovalNeeded, CallDenied, UsageError
from callgate.stage_types import ValidatedCall

__all__ = [
    "BY_ENGINE",
    "REFUSED_BY_ANSWER",
    "Answer",
    "Approvals",
    "Question",
    "binding",
    "human_denial",
    "older_binding",
    "same_call",
]

BY_ENGINE: Final = "callgate"
"""Who has closed a question of which a wrapper knows that the answer was not about it."""
ANSWER_UNUSABLE: Final = "answer_unusable"
"""The code of a call whose question was closed so."""
REFUSED_BY_ANSWER: Final = frozenset({"human_denied", ANSWER_UNUSABLE})
"""The codes of calls that ended with the answer to their question, be it a human's no."""


class Answer(Struct, frozen=True, kw_only=True):
    """A human's answer to a question."""

    allow: bool
    by: str = ""
    reason: str = ""
    arguments: bytes = b""
    """The arguments with which the call runs instead of its own, as canonical JSON; empty for its own."""
    notes: tuple[Note, ...] = ()
    """How these arguments were converted."""
    told: bool = False
    """Whether the host itself reports the denial to the model, so that no call has to."""


class Question(Struct, kw_only=True):
    """A question to a human about one call, and the answer."""

    approval_id: str
    """The uid of the call that was suspended for the question."""
    run: str
    binding: str
    expires_at: int
    """When the question expires, in UTC nanoseconds."""
    same_call: str = ""
    """See `same_call`; empty if it is not recorded."""
    message: str = ""
    """The id of the call's message; empty if it has none, or if it is not recorded."""
    doubt: str = ""
    """The uid of an earlier identical call whose outcome is unknown, which the question mentions; empty if there is none."""
    restored: bool = False
    """Whether it was read from the record, and its call was not made again since."""
    allowed: bool | None = None
    """None until it is answered."""
    by: str = ""
    reason: str = ""
    arguments: bytes = b""
    """The arguments with which the human allowed the call instead of its own, as canonical JSON; empty for its own."""
    told: bool = False
    """Whether the host itself has reported the denial to the model, so that the answer is used up."""
    refused: str = ""
    """Who gave other arguments that could not be used, and why; empty if no answer was refused."""
    answered_at: int = 0
    """The position of the answer's event, if the answer was given in this process."""
    closed: bool = False
    """Whether its call has ended or started without the answer."""

    def move_to(self, later: Question) -> None:
        """Be about a later, equal call from now on."""
        self.binding, self.same_call, self.message, self.restored = later.binding, later.same_call, later.message, later.restored

    def take(self, answer: Answer) -> None:
        """Set the answer."""
        self.allowed, self.by, self.reason, self.arguments = answer.allow, answer.by, answer.reason, answer.arguments
        self.told = answer.told

    def take_refusal(self, by: str, why: str) -> None:
        """Set that an answer with other arguments could not be used. The question stays open."""
        if self.allowed is None:
            self.refused = f"the answer of {by or 'somebody'} could not be used: {why}"

    def is_answered_with(self, answer: Answer) -> bool:
        """Return whether the question already has this answer."""
        return self.allowed is answer.allow and self.arguments == answer.arguments

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


def human_denial(tool: str, *, approval_id: str, by: str, reason: str) -> CallDenied:
    """Return the error for a call that a human has denied, or whose question a wrapper has closed because the answer was not about it."""
    if by == BY_ENGINE:
        text = f"{tool} was not run, because no human has allowed this call: {reason.rstrip('.')}."
        return CallDenied(text, code=ANSWER_UNUSABLE, approval=approval_id)
    why = f"{by or 'a human'} said no{': ' if reason else ''}{reason.rstrip('.')}"
    end = "" if why.endswith(("!", "?")) else "."
    return CallDenied(
        f"{tool} was denied: {why}{end} Do not try it again; go on without it, or say what you would need it for.",
        code="human_denied",
        approval=approval_id,
    )


def binding(call: ValidatedCall, encoded: bytes) -> str:
    """Return a text that identifies what an approval of this call is bound to: three hashes with colons between them.

    The first is that of the tool, the run, the principal and the arguments, the second that of the conversation. The
    third, of the message and the call's id, tells identical calls from each other. An id that the engine made is left out.
    """
    scope = call.scope
    parts = (call.tool.identity, scope.run, scope.principal, scope.actor, scope.workspace)
    digest = hashlib.sha256(joined_texts(parts))
    digest.update(b"\x00" + encoded)
    return f"{digest.hexdigest()}:{_short_hash(scope.conversation)}:{_short_hash(scope.message_id, _question_target(call))}"


def same_call(call: ValidatedCall, encoded: bytes) -> str:
    """Return a hash that identifies this call whatever the version of its tool. A denial is bound to it.

    Identical calls of a message differ by their ids, as in `binding`.
    """
    scope = call.scope
    call_id = _question_target(call)
    parts = (call.tool.name, scope.run, scope.principal, scope.actor, scope.workspace, scope.conversation, scope.message_id, call_id)
    return hashlib.sha256(joined_texts(parts) + b"\x00" + encoded).hexdigest()


def _question_target(call: ValidatedCall) -> str:
    """Return the id of the call that a question about this one is about; empty if the engine made it."""
    call_id = call.asked_with or call.raw.id
    return "" if has_made_id(call_id) else call_id


def _short_hash(*parts: str) -> str:
    return hashlib.sha256(joined_texts(parts)).hexdigest()[:16]


def older_binding(bound_to: str) -> str:
    """Return a binding as older journals have it: without the hashes of the conversation and the call."""
    return bound_to.partition(":")[0]


def _equal_calls(bound_to: str) -> str:
    """Return the part of a binding that equal calls of a conversation share."""
    return bound_to.rpartition(":")[0] + ":"


def _is_equal_in_other_message(question: Question, other: Question) -> bool:
    """Return whether two questions are about equal calls of a conversation that are in messages with different ids."""
    equal = question.binding.startswith(_equal_calls(other.binding))
    return equal and "" not in (question.message, other.message) and question.message != other.message


def _is_asked_again(question: Question, asked: Question) -> bool:
    """Return whether an open question is about what a later message asks, with the same earlier call in doubt, if there is one."""
    return question.doubt == asked.doubt and _is_equal_in_other_message(question, asked)


class Approvals:
    """The questions of one engine, by id."""

    def __init__(self, clock: Clock, life_s: float, *, most: int = 10_000) -> None:
        self._clock = clock
        self._life_ns = int(life_s * 1e9)
        self._most = most
        self._questions: dict[str, Question] = {}
        self.answered: dict[str, Question] = {}
        """The answered questions that are not used up, by the hash of their calls."""
        self._denied: dict[str, Question] = {}
        """The denied ones among them, by `Question.same_call`."""
        self.by_call: dict[str, Question] = {}
        """The latest question about each call that is not used up, by `Question.same_call`."""
        self._watches: dict[str, set[asyncio.Event]] = {}
        """Set when a question of the run is answered or dropped, by run."""

    def ask(self, approval_id: str, run: str, needed: ApprovalNeeded, message: str) -> Question:
        """Open a question, or return the open one for the same call.

        An open question that was read from the record, and whose call was not made again since, becomes the question about an equal call of
        another message: a loop that asks its model again after a restart does not hand in the earlier message, and nobody is asked twice.

        Args:
            needed: Says what a human has to decide.
            message: See `Question.message`.
        """
        self._forget_expired()
        now = self._clock.wall_ns()
        asked = Question(
            approval_id=approval_id,
            run=run,
            binding=needed.binding,
            same_call=needed.same_call,
            message=message,
            doubt=needed.doubt,
            expires_at=now + self._life_ns,
        )
        questions = self._questions.values()
        for question in questions:
            if question.binding in (asked.binding, older_binding(asked.binding)) and question.waits(now):
                question.restored = False
                return question
        earlier = next((one for one in questions if one.restored and one.waits(now) and _is_asked_again(one, asked)), None)
        if earlier is not None:
            self.by_call.pop(earlier.same_call, None)
            earlier.move_to(asked)
        kept = earlier or asked
        self._questions[kept.approval_id] = self.by_call[kept.same_call] = kept
        return kept

    def restore(self, questions: Iterable[Question]) -> None:
        """Add the questions from a run's record."""
        for question in (one for one in questions if not one.told):
            kept = self._questions.setdefault(question.approval_id, question)
            self.by_call[kept.same_call] = kept
            self._keep_answer(kept)

    def answer(self, question: Question, answer: Answer, position: int) -> None:
        """Apply an answer that was recorded at this position."""
        question.take(answer)
        question.answered_at = position
        if question.told:
            self.drop(question.approval_id)
        else:
            self._keep_answer(question)
            self._note_change(question.run)

    def _keep_answer(self, question: Question) -> None:
        if question.allowed is not None:
            self.answered[question.binding] = question
        if question.allowed is False and question.same_call:
            self._denied[question.same_call] = question

    @contextmanager
    def watch(self, run: str) -> Iterator[asyncio.Event]:
        """Yield an event that is set when a question of the run is answered or dropped, or the engine is closed."""
        changed = asyncio.Event()
        self._watches.setdefault(run, set()).add(changed)
        try:
            yield changed
        finally:
            self._watches[run].discard(changed)
            if not self._watches[run]:
                del self._watches[run]

    def wake_all(self) -> None:
        """Set the events of all that watch questions, because the engine is closed."""
        for run in list(self._watches):
            self._note_change(run)

    def _note_change(self, run: str) -> None:
        for changed in self._watches.get(run, ()):
            changed.set()

    def forget(self, run: str) -> None:
        """Forget the run's questions, because another engine may have resumed the run: only the record has their current state."""
        for approval_id in [key for key, question in self._questions.items() if question.run == run]:
            self.drop(approval_id)

    def find(self, approval_id: str) -> Question | None:
        """Return the question with this id, unless it is used up or has expired."""
        self._forget_expired()
        return self._questions.get(approval_id)

    def get(self, approval_id: str) -> Question:
        """Return the question with this id, answered or not.

        Raises:
            UsageError: It never existed, has expired, or was used up.
        """
        question = self.find(approval_id)
        if question is None:
            raise UsageError(
                f"No approval '{approval_id!s:.80}' is open: it was used up, has expired, or never existed. Give the"
                " `approval_id` of a Suspended outcome; where it is used up or has expired, submit the call again."
            )
        return question

    def get_answerable(self, approval_id: str, *, allow: bool, at_ns: int = 0) -> Question:
        """Return the question with this id if it can be answered.

        Args:
            at_ns: When the answer was sent, in UTC nanoseconds; 0: now. A no counts if the question had not expired by then.

        Raises:
            UsageError: No such question is open: it never existed, has expired, was used up, or was answered.
        """
        question = None if allow or not at_ns else self._questions.get(approval_id)
        now_ns = self._clock.wall_ns() if question is None else at_ns
        question = question or self.get(approval_id)
        question.refuse_closed(allow=allow, now_ns=now_ns)
        return question

    def find_answer_to(self, call: ValidatedCall, encoded: bytes) -> Question | None:
        """Return the question about exactly this call if it is answered and not used up, otherwise None."""
        if not self.answered:
            return None
        self._forget_expired()
        bound_to = binding(call, encoded)
        exact = self.answered.get(bound_to)
        if exact is None and self._denied:
            exact = self._denied.get(same_call(call, encoded))
        return exact or self._find_answer(bound_to)

    def spend(self, bound_to: str) -> Question | None:
        """Use up an approval that is bound to this hash, and return it; None if there is none."""
        if not self.answered:
            return None
        self._forget_expired()
        question = self._find_answer(bound_to)
        if question is None or not question.allowed:
            return None
        self.drop(question.approval_id)
        return question

    def withdraw_equal(self, denied: Question) -> list[Question]:
        """Drop the unused approvals of equal calls of other messages, because a human has denied this one later, and return them."""
        allowed = [question for question in self.answered.values() if question.allowed and _is_equal_in_other_message(question, denied)]
        for question in allowed:
            self.drop(question.approval_id)
        return allowed

    def is_outdated(self, same_call: str, doubt: str) -> bool:
        """Return whether the open question about a call mentions another earlier call than this one, or none."""
        question = self.by_call.get(same_call)
        return question is not None and question.allowed is None and question.doubt != doubt

    def of_other_versions(self, asked: Question) -> list[Question]:
        """Return the questions about the same call of other versions of its tool. A yes to one of them does not count for this version."""
        same = [one for one in self._questions.values() if one.same_call == asked.same_call] if asked.same_call else []
        return [one for one in same if older_binding(one.binding) != older_binding(asked.binding)]

    def close(self, call: ValidatedCall, encoded: bytes) -> Question | None:
        """Close the question about this call, answered or not, and return it; None if there is none.

        The call ends or starts without the answer. A later answer to the question must not reach another, identical call.
        """
        question = self.by_call.get(same_call(call, encoded))
        if question is None:
            return None
        question.closed = True
        self.drop(question.approval_id)
        return question

    def _find_answer(self, bound_to: str) -> Question | None:
        """Return the answer to a call: its own, or else that of an identical call of its conversation, unless its own question is open."""
        exact = self.answered.get(bound_to)
        if exact is not None or not self.answered:
            return exact
        now = self._clock.wall_ns()
        if any(question.binding == bound_to and question.waits(now) for question in self._questions.values()):
            return None
        equal = _equal_calls(bound_to)
        return self.answered.get(older_binding(bound_to)) or next(
            (question for key, question in self.answered.items() if key.startswith(equal) and question.expires_at > now), None
        )

    def _forget_expired(self) -> None:
        now = self._clock.wall_ns()
        expired = [key for key, question in self._questions.items() if question.expires_at <= now and question.allowed is not False]
        surplus = list(self._questions)[: max(0, len(self._questions) - self._most)]
        for key in {*expired, *surplus}:
            self.drop(key)

    def drop(self, approval_id: str) -> None:
        """Remove a question, because it is used up, has expired, or could not be recorded and so was never asked."""
        question = self._questions.pop(approval_id, None)
        if question is None:
            return
        if self.answered.get(question.binding) is question:
            del self.answered[question.binding]
        for by_call in (self._denied, self.by_call):
            if by_call.get(question.same_call) is question:
                del by_call[question.same_call]
        self._note_change(question.run)
