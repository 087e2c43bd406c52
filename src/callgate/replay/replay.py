"""A run, made again from its record alone: what the model saw and said, each call with its verdict and result, and the end.

`Replay.of` reads events and large bodies and has nothing else: no engine, no tool, no model, no place to write to. What it makes is held
against the hashes that the record has of what the model was shown; the first difference is named, and so is everything that the record
does not hold. Nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import msgspec
from msgspec import Struct

from callgate._hash_chain import is_as_written
from callgate._json import canonical
from callgate._pipeline.record import clean
from callgate.agent.recall import Recalled, recall
from callgate.agent.record import Answered, Began, Blobs, Ended, Executed, PhaseBegan, read_body
from callgate.agent.results import Signal
from callgate.calls import ToolResult
from callgate.errors import UsageError
from callgate.events import TERMINAL, Event
from callgate.messages import AssistantMessage, Message, SystemMessage
from callgate.protocols import HoldsBlobs
from callgate.queries import EventQuery
from callgate.replay.calls import ReplayedCall, calls_of

__all__ = ["EventSource", "RecordedPass", "Replay", "ReplayDifference", "RunEnd", "blobs_with"]


class EventSource(Protocol):
    """Where a record is read from: a journal, or a reader beside one."""

    def find(self, query: EventQuery, /) -> Iterable[Event]: ...


class ReplayDifference(Struct, frozen=True, kw_only=True):
    """Where the record and what is made of it do not agree."""

    position: int
    """Of the event that says otherwise."""
    what: str
    recorded: str
    rebuilt: str

    def __str__(self) -> str:
        return f"Event {self.position}: {self.what}: the record says {self.recorded}, and it makes {self.rebuilt}."


class RecordedPass(Struct, frozen=True, kw_only=True):
    """One pass of the model."""

    position: int
    """Of the event with which it began."""
    iteration: int
    messages: tuple[Message, ...]
    """What the model was shown: the system text, if any, and the conversation."""
    status: str = ""
    """How the pass ended; empty where the record has no end."""
    answer: AssistantMessage | None = None
    """What it said, as the conversation keeps it."""
    closed: tuple[str, ...] = ()
    executes: bool = False
    """Whether its calls were handed to the engine."""
    finish: str = ""
    reason: str = ""
    """Why it is not whole."""
    shown: str = ""
    """The hash of the conversation, as the record has it."""


class RunEnd(Struct, frozen=True, kw_only=True):
    """How the run ended."""

    status: str = "open"
    """`completed`, `waiting`, `stopped` or `failed`; `open` where the record has no end."""
    turn_status: str = ""
    reason: str = ""
    text: str = ""


class Replay(Struct, frozen=True, kw_only=True):
    """One run, made again."""

    run: str
    began: Began | None
    """How an agent's run began; None for the calls of an engine without an agent."""
    messages: tuple[Message, ...]
    """The conversation after the run."""
    passes: tuple[RecordedPass, ...]
    calls: tuple[ReplayedCall, ...]
    """Every call of the run, in the order in which they came."""
    results: tuple[ToolResult, ...]
    """As the loop, or the engine's caller, got them."""
    signals: tuple[Signal, ...]
    end: RunEnd
    differences: tuple[ReplayDifference, ...]
    """Where the record does not make what it says was; empty where the run is as it was."""
    gaps: tuple[str, ...]
    """What the record does not hold, a sentence each."""
    answers: tuple[tuple[str, bool, str], ...] = ()
    """What humans answered: the approval, whether it was allowed, and who."""

    @classmethod
    def of(cls, journal: EventSource, run: str, blobs: Blobs | None = None) -> Replay:
        """Make a run again. Starts nothing and writes nothing.

        Args:
            journal: What has its events.
            run: Its id: an agent's run, or an engine's.
            blobs: Where large bodies and results are; None: where the journal keeps them, if it does.

        Raises:
            UsageError: The record has no such run, a part of it is gone, or it is not of the shape that it should have.
        """
        source, kept = _ReadOnlyJournal(journal), blobs or blobs_with(journal) or _NoBlobs()
        events = list(source.read(run=run))
        if not events:
            raise UsageError(f"No run '{run[:80]}' is on record here. `callgate log list` shows the runs; give the journal that has it.")
        begins = [index for index, event in enumerate(events) if event.kind == "run.began"]
        return _agents(source, kept, run, events[begins[-1] :]) if begins else _bare(kept, run, events)

    def encode(self) -> bytes:
        """Everything that was made again, as canonical JSON: two records of the same run give the same bytes."""
        return canonical(self)


def blobs_with(journal: EventSource) -> Blobs | None:
    """The large bodies and results that a journal keeps itself."""
    return journal.blobs if isinstance(journal, HoldsBlobs) else None


class _NoBlobs:
    def get(self, digest: str) -> bytes | None:
        return None


class _ReadOnlyJournal:
    """A journal, with nothing but reading."""

    def __init__(self, journal: EventSource) -> None:
        self._find = journal.find

    def read(self, *, run: str | None = None, after: int = 0, limit: int | None = None) -> Iterable[Event]:
        return self._find(EventQuery(run=run, after=after, limit=limit))


def _bare(blobs: Blobs, run: str, events: list[Event]) -> Replay:
    calls = calls_of(events)
    return Replay(
        run=run,
        began=None,
        messages=(),
        passes=(),
        calls=calls,
        results=tuple(call.result for call in calls if call.result is not None and not call.parent),
        signals=(),
        end=RunEnd(),
        differences=_altered(events),
        gaps=_missing(calls, blobs),
        answers=_answers(events),
    )


def _agents(source: _ReadOnlyJournal, blobs: Blobs, run: str, events: list[Event]) -> Replay:
    watch = _PassWatch(blobs)
    recalled = recall(source, blobs, run, see=watch.see)
    calls, end = calls_of(events), _end(events, blobs)
    text = recalled.texts[-1] if recalled.texts else ""
    differences = (*watch.differences, *_unended(events, blobs), *_other_text(events, text, blobs))
    return Replay(
        run=run,
        began=recalled.began,
        messages=tuple(recalled.history.messages),
        passes=tuple(watch.passes),
        calls=calls,
        results=tuple(recalled.results),
        signals=tuple(recalled.signals),
        end=msgspec.structs.replace(end, text=text) if end.status == "completed" else end,
        differences=differences or _altered(events),
        gaps=(*watch.gaps, *_missing(calls, blobs)),
        answers=_answers(events),
    )


class _PassWatch:
    """Takes down each pass while a run is recalled, and holds what it was shown against the record."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._system = ""
        self.passes: list[RecordedPass] = []
        self.differences: list[ReplayDifference] = []
        self.gaps: list[str] = []

    def see(self, event: Event, run: Recalled) -> None:
        if event.kind == "run.resumed":
            self._system = ""  # another process may go on, and writes its own
        elif event.kind == "phase.began":
            self._begins(event, run)
        elif event.kind == "phase.answered" and self.passes:
            body = msgspec.json.decode(read_body(event.body, self._blobs), type=Answered)
            if body.lost:
                self._gap(f"Event {event.position}: a secret was taken out of {len(body.lost)} calls of this message.")
            if body.status != "waiting":
                last = {"status": body.status, "answer": body.message, "closed": body.closed, "executes": body.executes}
                self.passes[-1] = msgspec.structs.replace(self.passes[-1], **last, finish=body.finish, reason=body.reason)

    def _begins(self, event: Event, run: Recalled) -> None:
        body = msgspec.json.decode(read_body(event.body, self._blobs), type=PhaseBegan)
        self._system = self._system if body.system is None else body.system
        head = (SystemMessage(self._system),) if self._system else ()
        shown = tuple(run.history.messages)
        made = RecordedPass(position=event.position, iteration=body.iteration, messages=(*head, *shown), shown=body.shown)
        self.passes.append(made)
        if body.added:
            self._gap(f"Event {event.position}: behind the conversation the model saw context that a tool brought, which is kept nowhere.")
        if not body.shown:
            self._gap("The record has no hashes of what the model was shown: it is from before there were any, so nothing was compared.")
        elif not self.differences and body.shown != run.history.shown().digest():
            self.differences.append(_other(event, body, len(shown), run))

    def _gap(self, text: str) -> None:
        if text not in self.gaps:
            self.gaps.append(text)


def _other(event: Event, body: PhaseBegan, made: int, run: Recalled) -> ReplayDifference:
    return ReplayDifference(
        position=event.position,
        what=f"what the model was shown in pass {body.iteration + 1}",
        recorded=f"{body.messages} messages with hash {body.shown[:12]}",
        rebuilt=f"{made} messages with hash {run.history.shown().digest()[:12]}",
    )


def _unended(events: list[Event], blobs: Blobs) -> list[ReplayDifference]:
    """Calls that a message was committed with, and that have no end on record."""
    ended = {event.call for event in events if event.kind in TERMINAL}
    found = []
    for event in events:
        if event.kind == "phase.executed":
            body = msgspec.json.decode(read_body(event.body, blobs), type=Executed)
            found += [
                ReplayDifference(position=event.position, what=f"the end of call {uid}", recorded="that it has ended", rebuilt="no end")
                for uid in body.calls
                if uid and uid not in ended
            ]
    return found


def _altered(events: list[Event]) -> tuple[ReplayDifference, ...]:
    """The first event whose content is not what was written, for what no later event says otherwise."""
    for event in events:
        if not is_as_written(event):
            return (
                ReplayDifference(
                    position=event.position, what=f"the content of {event.kind}", recorded=f"hash {event.hash[:12]}", rebuilt="another"
                ),
            )
    return ()


def _end(events: list[Event], blobs: Blobs) -> RunEnd:
    last = next((event for event in reversed(events) if event.kind in ("run.ended", "run.resumed")), None)
    if last is None or last.kind != "run.ended":
        return RunEnd()
    body = msgspec.json.decode(read_body(last.body, blobs), type=Ended)
    return RunEnd(status=body.status, turn_status=body.turn_status, reason=body.reason, text=body.text)


def _other_text(events: list[Event], text: str, blobs: Blobs) -> list[ReplayDifference]:
    end = _end(events, blobs)
    if end.status != "completed" or clean(text) == end.text:
        return []
    return [ReplayDifference(position=events[-1].position, what="the run's answer", recorded=repr(end.text[:80]), rebuilt=repr(text[:80]))]


def _missing(calls: Iterable[ReplayedCall], blobs: Blobs) -> tuple[str, ...]:
    """What is gone of the calls, or never was on record."""
    found = [f"Call {call.uid} is not on record as it came: {call.lost}." for call in calls if call.lost]
    for call in calls:
        digest = call.result.metadata.blob if call.result is not None else None
        if call.result is not None and digest and blobs.get(digest) is None:
            size = call.result.metadata.bytes
            found.append(f"The whole result of call {call.uid} ({size} bytes) is gone; what the model saw of it is on record.")
    return tuple(found)


def _answers(events: Iterable[Event]) -> tuple[tuple[str, bool, str], ...]:
    found = []
    for event in events:
        if event.kind == "approval.answered":
            body = msgspec.json.decode(event.body)
            found.append((event.call, body.get("status") == "allowed", str(body.get("reason", ""))))
    return tuple(found)
