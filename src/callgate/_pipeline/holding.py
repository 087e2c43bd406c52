"""The runs that one engine works on: who of its own is at work on them, and what happens when another engine has taken one over.

What another process wants of a run is taken in here: an answer to a question, a stop, a kill; each is recorded once, and one that makes no
sense with the reason why it was not done. One that came while nobody worked on the run is done when somebody begins.

A run that is lost ends here at once: its calls are killed, its conversation too, and nothing more of it can be recorded, because the
journal refuses. Beside the desk, which knows what is in a run. Knows no route and no loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

from msgspec import Struct, field

from callgate._pipeline.again import Question
from callgate._pipeline.flight import Flight
from callgate._pipeline.record import Reason, Writer, clean
from callgate._signals import Control
from callgate.errors import RecordFailed, UsageError
from callgate.events import Draft
from callgate.protocols import Letter

__all__ = ["Holding"]

log = logging.getLogger("callgate")
_MOST_LOST = 1_000
_ANSWERS = ("approve", "deny")
_ENDS = {"stop": "stopped", "kill": "killed"}


class Known(Protocol):
    """What the engine knows of its runs."""

    def knows(self, run: str) -> bool: ...
    def lost(self, run: str) -> None: ...
    def closing(self, approval_id: str) -> Question: ...
    def answered(self, question: Question, *, allow: bool, by: str, cause: int) -> int: ...


class _Work(Struct):
    """Who is at work on one run."""

    count: int = 0
    conversations: set[str] = field(default_factory=set)
    begun: bool = False
    """Whether it has its conversation to itself by now."""


class Holding:
    """Runs by id.

    Args:
        own: The engine's own run, which is held until the engine is closed.
        running: The calls that are under way.
        desk: What is known of runs.
    """

    def __init__(self, writer: Writer, control: Control, own: str, running: Callable[[], Iterable[Flight]], desk: Known) -> None:
        self._writer = writer
        self._journal = writer.journal
        self._control = control
        self._own = own
        self._running = running
        self._desk = desk
        self._letters: dict[str, list[Letter]] = {}
        """What waits until a run is known, or begins."""
        self._work: dict[str, _Work] = {}
        self._lost: dict[str, str] = {}

    def is_busy(self, run: str) -> bool:
        return run == self._own or run in self._work or any(flight.scope.run == run for flight in self._running())

    @contextmanager
    def at_work(self, run: str, conversation: str | None, *, alone: bool) -> Iterator[None]:
        """Say that somebody works on a run, for as long as the block lasts; others may have it then.

        Raises:
            UsageError: Somebody does already, and two at once may not be.
        """
        if alone and run in self._work:
            raise UsageError(f"Run '{run[:80]}' is being worked on already. Wait until that has ended, or kill its conversation.")
        self._lost.pop(run, None)
        work = self._work.setdefault(run, _Work())
        work.count += 1
        if conversation is not None:
            work.conversations.add(conversation)
        try:
            yield
        finally:
            work.count -= 1
            if not work.count:
                del self._work[run]
                if not self.is_busy(run):
                    self._letters.pop(run, None)  # the next one who has it is handed them again
                    self._journal.let_go(run)

    def why_lost(self, run: str) -> str:
        """Why nothing more can be done in a run; empty where it can."""
        return self._lost.get(run, "")

    def lost(self, run: str, why: str) -> None:
        """Somebody else has the run now."""
        log.error("%s", why)
        self._lost[run] = why
        while len(self._lost) > _MOST_LOST:
            del self._lost[next(iter(self._lost))]
        self._desk.lost(run)
        for flight in self._running():
            if flight.scope.run == run:
                flight.kill.fire(why)
        work = self._work.get(run)
        for conversation in work.conversations if work is not None else ():
            self._control.kill(conversation, why)

    # What other processes want

    def came(self, letter: Letter) -> None:
        self._letters.setdefault(letter.run, []).append(letter)
        self.take_in(letter.run)

    def begin(self, run: str) -> None:
        """A run of an agent has its conversation to itself now: what was wanted of it before is wanted still."""
        if run in self._work:
            self._work[run].begun = True
        self.take_in(run)

    def take_in(self, run: str) -> None:
        """Do what is wanted of a run, as far as it can be done by now."""
        if run not in self._letters or not self._desk.knows(run):
            return
        work = self._work.get(run)
        for letter in self._letters.pop(run):
            if letter.kind in _ENDS and work is not None and not work.begun:
                self._letters.setdefault(run, []).append(letter)
            else:
                self._do(letter)

    def _do(self, letter: Letter) -> None:
        said = f"{clean(letter.reason) or 'no reason given'} ({clean(letter.actor) or 'nobody named'})"
        try:
            if letter.kind in _ANSWERS:
                if letter.target.rsplit("/", 2)[0] != letter.run:
                    raise UsageError(f"The approval '{letter.target[:80]}' is none of this run's.")
                question = self._desk.closing(letter.target)
                if question.allowed and letter.kind == "approve":
                    raise UsageError(f"It was answered with yes already, by {question.by[:80] or 'somebody'}.")
                cause = self._record("inbox.taken", letter, said)
                self._desk.answered(question, allow=letter.kind == "approve", by=letter.actor, cause=cause)
                return
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
        except UsageError as refused:
            self._record("inbox.refused", letter, str(refused))
        except RecordFailed as error:
            log.error("%s", error)

    def _affected(self, letter: Letter) -> tuple[set[str], list[Flight]]:
        """The conversations that are the run's alone, and what else of it is under way.

        Raises:
            UsageError: There is nothing, or it is not known what is wanted.
        """
        if letter.kind not in _ENDS:
            raise UsageError(f"It is not known what '{letter.kind[:40]}' asks for. Known are: {', '.join((*_ANSWERS, *_ENDS))}.")
        work = self._work.get(letter.run)
        running = list(self._running())
        shared = {"", *(flight.scope.conversation for flight in running if flight.scope.run != letter.run)}
        mine = [flight for flight in running if flight.scope.run == letter.run]
        conversations = (work.conversations if work is not None else set()) | ({flight.scope.conversation for flight in mine} - shared)
        if not (conversations or mine):
            raise UsageError("Nothing of the run was at work.")
        return conversations, [flight for flight in mine if flight.scope.conversation not in conversations]

    def _record(self, kind: str, letter: Letter, reason: str) -> int:
        details = {"wanted": clean(letter.kind)[:40], "by": clean(letter.actor), "at_ns": letter.at_ns}
        parents = (letter.cause,) if letter.cause else ()
        body = Reason(reason=reason, details=details)
        return self._writer.write(Draft(kind=kind, run=letter.run, body=body, parents=parents, inbox=letter.id))
