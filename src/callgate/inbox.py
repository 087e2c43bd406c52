"""Tell a run something from another process: answer its questions, stop it, kill it. The door to a journal's inbox.

A row is put beside the record, and whoever works on the run folds it in within a moment: as an event of its own, once, and does it. Where
nobody works on the run it waits for whoever does next. Everything is checked against the record first, so that what makes no sense is
refused here and not there. Runs nothing, and needs no engine.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import DecodeError, Struct

from callgate._clock import SystemClock
from callgate._journal import Reader, open_reader
from callgate._journal.outside import outside
from callgate._json import decode
from callgate._pipeline.again import Question, Reading
from callgate._pipeline.record import decode_reason
from callgate.errors import UsageError
from callgate.events import Event
from callgate.queries import EventQuery

__all__ = ["Fate", "Posted", "Waiting", "approve", "deny", "fate", "kill", "stop", "waiting"]

_MOST = 1_000
_LOOK_S = 0.05


class Waiting(Struct, frozen=True, kw_only=True):
    """A call that waits for a human."""

    approval: str
    """Names the question; the uid of the call."""
    run: str
    tool: str
    arguments: str
    """As they came, up to the record's limit."""
    question: str
    asked_ns: int
    """When, in UTC nanoseconds."""
    expires_ns: int
    """Until when it may be answered."""
    held_by: str
    """Who works on its run; empty for nobody."""


class Posted(Struct, frozen=True, kw_only=True):
    """A row in a journal's inbox."""

    id: int
    run: str
    held_by: str
    """Who will fold it in; empty where nobody works on the run, and it waits for whoever does next."""


class Fate(Struct, frozen=True, kw_only=True):
    """What became of a row."""

    position: int = 0
    """Of the event that it became; 0: it still waits."""
    refused: str = ""
    """Why it was not done."""


def waiting(journal: str | Path) -> list[Waiting]:
    """The questions that nobody has answered and that have not expired, the oldest first.

    Args:
        journal: Its file, or its `postgresql://` address.

    Raises:
        UsageError: There is none, or it cannot be read.
    """
    with _reading(journal) as reader, outside(journal) as beside:
        asked = list(reader.find(EventQuery(kinds=("call.suspended",), newest_first=True, limit=_MOST)))
        open_ones = {run: _questions(reader, run) for run in {event.run for event in asked}}
        now = SystemClock.wall_ns()
        return [
            _told(reader, event, question, beside.holder(event.run))
            for event in reversed(asked)
            if (question := open_ones[event.run].get(event.call)) is not None and question.allowed is None and question.expires_at > now
        ]


def approve(journal: str | Path, approval: str, *, by: str, reason: str = "") -> Posted:
    """Let the call that asked run, once, with the arguments that it asked with.

    Args:
        journal: Its file, or its `postgresql://` address.
        approval: Of the question; `waiting` lists them.
        by: Who says so; goes on record.
        reason: The same.

    Raises:
        UsageError: No such question is open.
    """
    return _answer(journal, "approve", approval, by, reason)


def deny(journal: str | Path, approval: str, *, by: str, reason: str = "") -> Posted:
    """Refuse the call that asked; the model is told when its run goes on. Takes back a yes that no call has used. As `approve` else."""
    return _answer(journal, "deny", approval, by, reason)


def stop(journal: str | Path, run: str, *, by: str, reason: str = "") -> Posted:
    """Let a run end soon: a pass of the model ends now, a call that runs is the last.

    Args:
        journal: Its file, or its `postgresql://` address.
        run: Its id.
        by: Who says so; goes on record.
        reason: The same, and what the run says of its end.

    Raises:
        UsageError: No such run is on record, or it is over.
    """
    return _end(journal, "stop", run, by, reason)


def kill(journal: str | Path, run: str, *, by: str, reason: str = "") -> Posted:
    """End a run now, its tools with it. As `stop` else."""
    return _end(journal, "kill", run, by, reason)


def fate(journal: str | Path, letter: int, *, wait_s: float = 0.0) -> Fate:
    """What became of a row, once it is folded in or the wait is over."""
    until = time.monotonic() + wait_s
    with _reading(journal) as reader, outside(journal) as beside:
        while not (position := beside.folded(letter)) and time.monotonic() < until:
            time.sleep(_LOOK_S)
        for event in reader.find(EventQuery(after=position - 1, limit=1)) if position else ():
            return Fate(position=position, refused=decode_reason(event.body).reason if event.kind == "inbox.refused" else "")
    return Fate()


def _answer(journal: str | Path, kind: str, approval: str, by: str, reason: str) -> Posted:
    with _reading(journal) as reader:
        asked = list(reader.find(EventQuery(call=approval, kinds=("call.suspended",), limit=1)))
        if not asked:
            raise UsageError(f"No question '{approval[:80]}' is on record in {_shown(journal)}. `callgate approvals` lists what waits.")
        run = asked[0].run
        _refuse_closed(kind, approval, _questions(reader, run).get(approval))
    return _posted(journal, kind, run, approval, by, reason)


def _refuse_closed(kind: str, approval: str, question: Question | None) -> None:
    if question is None:
        raise UsageError(f"The question '{approval[:80]}' was answered, and its call has gone on. Nothing is left to say.")
    if question.allowed is not None and not (question.allowed and kind == "deny"):
        said = "yes" if question.allowed else "no"
        raise UsageError(f"The question '{approval[:80]}' was answered with {said} already, by {question.by[:80] or 'somebody'}.")
    if question.expires_at <= SystemClock.wall_ns():
        raise UsageError(f"The question '{approval[:80]}' has expired. When its run goes on, the call asks again.")


def _end(journal: str | Path, kind: str, run: str, by: str, reason: str) -> Posted:
    with _reading(journal) as reader:
        last = list(reader.find(EventQuery(run=run, newest_first=True, limit=1)))
        if not last:
            raise UsageError(f"No run '{run[:80]}' is on record in {_shown(journal)}. `callgate log list` shows the runs.")
        ended = list(reader.find(EventQuery(run=run, kinds=("run.began", "run.resumed", "run.ended"), newest_first=True, limit=1)))
    for event in ended:
        status = decode(event.body).get("turn_status") if event.kind == "run.ended" else "waiting"
        if status != "waiting":
            raise UsageError(f"Run '{run[:80]}' is over: it ended '{status}'. There is nothing to {kind}.")
    if not ended:
        with outside(journal) as beside:
            if not beside.holder(run):
                raise UsageError(f"Nobody works on run '{run[:80]}', and it is no agent's that could go on. There is nothing to {kind}.")
    return _posted(journal, kind, run, run, by, reason)


def _posted(journal: str | Path, kind: str, run: str, target: str, by: str, reason: str) -> Posted:
    if not by.strip():
        raise UsageError("Say who it is that wants this: give `by` a name.")
    with outside(journal) as beside:
        letter = beside.post(run, kind, target, by, reason, SystemClock.wall_ns())
        return Posted(id=letter, run=run, held_by=beside.holder(run))


def _questions(reader: Reader, run: str) -> dict[str, Question]:
    reading = Reading(run, remember=0)
    reading.take(reader.find(EventQuery(run=run)))
    return reading.questions


def _told(reader: Reader, event: Event, question: Question, holder: str) -> Waiting:
    tool = arguments = ""
    for one in reader.find(EventQuery(call=event.call, kinds=("call.received", "call.verdict"))):
        body = decode(one.body)
        tool = str(body.get("tool") or body.get("name") or tool)
        arguments = str(body["arguments"]) if one.kind == "call.received" and "arguments" in body else arguments
    return Waiting(
        approval=question.approval_id,
        run=event.run,
        tool=tool,
        arguments=arguments,
        question=decode_reason(event.body).reason,
        asked_ns=event.at_ns,
        expires_ns=question.expires_at,
        held_by=holder,
    )


@contextmanager
def _reading(journal: str | Path) -> Iterator[Reader]:
    reader = open_reader(journal)
    try:
        yield reader
    except DecodeError as error:
        raise UsageError(f"{_shown(journal)} has an event that cannot be read: {error}. `callgate log verify` names it.") from error
    finally:
        reader.close()


def _shown(journal: str | Path) -> str:
    return str(journal).partition("?")[0].rpartition("@")[2]
