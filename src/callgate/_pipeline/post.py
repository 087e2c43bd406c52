"""What other processes want of the runs that an engine works on: an answer to a question, a stop, a kill.

Each is recorded once, and one that makes no sense with the reason why it was not done. One that came while nobody worked on the run is done
when somebody begins. Beside the desk, which knows what was asked. Knows no route and no loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from callgate._abort_signals import Control
from callgate._pipeline.approvals import Question
from callgate._pipeline.flight import Flight
from callgate._pipeline.record import Reason
from callgate._pipeline.writer import Writer
from callgate.errors import RecordFailed, UsageError
from callgate.events import Draft
from callgate.protocols import InboxMessage

__all__ = ["KnowsRuns", "Post", "Questions"]

_ANSWERS = ("approve", "deny")
_ENDS = {"stop": "stopped", "kill": "killed"}


class KnowsRuns(Protocol):
    """What the engine knows of its runs."""

    def knows(self, run: str) -> bool: ...


class Questions(Protocol):
    """What was asked in them."""

    def to_answer(self, approval_id: str, *, allow: bool) -> Question: ...
    def answered(self, question: Question, *, allow: bool, by: str, cause: int) -> int: ...


class Work(Protocol):
    """Who is at work on one run."""

    conversations: set[str]
    begun: bool
    end_wanted: asyncio.Event


class Post:
    """Letters by run.

    Args:
        work: Who is at work on a run; None: nobody.
        running: The calls that are under way.
        known: What is known of runs.
        questions: What was asked in them.
    """

    def __init__(
        self,
        writer: Writer,
        control: Control,
        work: Callable[[str], Work | None],
        running: Callable[[], Iterable[Flight]],
        known: KnowsRuns,
        questions: Questions,
    ) -> None:
        self._writer = writer
        self._known = known
        self._control = control
        self._work = work
        self._running = running
        self._questions = questions
        self._letters: dict[str, list[InboxMessage]] = {}
        """What waits until a run is known, or begins."""

    def came(self, letter: InboxMessage) -> None:
        self._letters.setdefault(letter.run, []).append(letter)
        self.take_in(letter.run)

    def forget(self, run: str) -> None:
        """The next one who has the run is handed its letters again."""
        self._letters.pop(run, None)

    def take_in(self, run: str) -> None:
        """Do what is wanted of a run, as far as it can be done by now."""
        if run not in self._letters or not self._known.knows(run):
            return
        work = self._work(run)
        for letter in self._letters.pop(run):
            if letter.kind in _ENDS and work is not None and not work.begun:
                self._letters.setdefault(run, []).append(letter)
                work.end_wanted.set()
            else:
                self._do(letter)

    def _do(self, letter: InboxMessage) -> None:
        said = f"{self._writer.cut(letter.reason) or 'no reason given'} ({self._writer.cut(letter.actor) or 'nobody named'})"
        try:
            if letter.kind in _ANSWERS:
                self._answer(letter, said)
            else:
                self._end(letter, said)
        except UsageError as refused:
            self._record("inbox.refused", letter, str(refused))
        except RecordFailed as error:
            self._writer.log.error("%s", error)

    def _answer(self, letter: InboxMessage, said: str) -> None:
        if letter.target.rsplit("/", 2)[0] != letter.run:
            raise UsageError(f"The approval '{letter.target[:80]}' is none of this run's.")
        allow = letter.kind == "approve"
        question = self._questions.to_answer(letter.target, allow=allow)
        cause = self._record("inbox.taken", letter, said)
        self._questions.answered(question, allow=allow, by=letter.actor, cause=cause)

    def _end(self, letter: InboxMessage, said: str) -> None:
        conversations, flights = self._affected(letter)
        self._record("inbox.taken", letter, said)
        why = f"{_ENDS[letter.kind]} from another process: {said}"
        for conversation in conversations:
            end = self._control.kill if letter.kind == "kill" else self._control.stop
            end(conversation, why)
        for flight in flights:
            flight.stopped = why
            if letter.kind == "kill":
                flight.kill.fire(why)

    def _affected(self, letter: InboxMessage) -> tuple[set[str], list[Flight]]:
        """The conversations that are the run's alone, and what else of it is under way.

        Raises:
            UsageError: There is nothing, or it is not known what is wanted.
        """
        if letter.kind not in _ENDS:
            raise UsageError(f"It is not known what '{letter.kind[:40]}' asks for. Known are: {', '.join((*_ANSWERS, *_ENDS))}.")
        work = self._work(letter.run)
        running = list(self._running())
        shared = {"", *(flight.scope.conversation for flight in running if flight.scope.run != letter.run)}
        mine = [flight for flight in running if flight.scope.run == letter.run]
        conversations = (work.conversations if work is not None else set()) | ({flight.scope.conversation for flight in mine} - shared)
        if not (conversations or mine):
            raise UsageError("Nothing of the run was at work.")
        return conversations, [flight for flight in mine if flight.scope.conversation not in conversations]

    def _record(self, kind: str, letter: InboxMessage, reason: str) -> int:
        details = {"wanted": self._writer.cut(letter.kind, 40), "by": self._writer.cut(letter.actor), "at_ns": letter.at_ns}
        parents = (letter.cause,) if letter.cause else ()
        body = Reason(reason=reason, details=details)
        return self._writer.write(Draft(kind=kind, run=letter.run, body=body, parents=parents, inbox=letter.id))
