"""Rebuild a run from its journal: what the model saw and said, each call with its verdict and result, and the end.

`Replay.of` only reads events and large bodies; it has no engine, tool or model. It compares the rebuilt conversation with the recorded
hashes of what the model was shown. It reports the first difference and everything that is not recorded. Nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import msgspec
from msgspec import Struct

from callgate._hash_chain import is_as_written
from callgate._json import canonical
from callgate._run_state.event_bodies import clean, decode_reason
from callgate.agent.recorded_run import LoadedRun, load_run
from callgate.agent.run_recorder import (
    BlobReader,
    PhaseAnsweredBody,
    PhaseBeganBody,
    PhaseExecutedBody,
    RunBeganBody,
    RunEndedBody,
    read_body,
)
from callgate.agent.run_result import Signal
from callgate.calls import ToolResult
from callgate.errors import UsageError
from callgate.event_queries import EventQuery
from callgate.events import TERMINAL, Event
from callgate.messages import AssistantMessage, Message, SystemMessage
from callgate.protocols import HoldsBlobs
from callgate.replay.run_calls import ReplayedCall, calls_of

__all__ = ["EventSource", "RecordedPass", "Replay", "ReplayDifference", "RunEnd", "blobs_with"]


class EventSource(Protocol):
    """A source of events: a journal or a reader of one."""

    def find(self, query: EventQuery, /) -> Iterable[Event]: ...


class ReplayDifference(Struct, frozen=True, kw_only=True):
    """A difference between the journal and the rebuilt run."""

    position: int
    """The position of the event that differs."""
    what: str
    recorded: str
    rebuilt: str

    def __str__(self) -> str:
        return f"Event {self.position}: {self.what}: recorded is {self.recorded}, rebuilt is {self.rebuilt}."


class RecordedPass(Struct, frozen=True, kw_only=True):
    """One pass of the model."""

    position: int
    """The position of its first event."""
    iteration: int
    messages: tuple[Message, ...]
    """The messages that the model was shown: the system text, if any, and the conversation."""
    status: str = ""
    """The status of the pass; empty without a recorded end."""
    answer: AssistantMessage | None = None
    """The model's message as the conversation contains it."""
    closed: tuple[str, ...] = ()
    executes: bool = False
    """Whether its calls were given to the engine."""
    finish: str = ""
    reason: str = ""
    """Why the pass is incomplete."""
    shown: str = ""
    """The recorded hash of the conversation."""


class RunEnd(Struct, frozen=True, kw_only=True):
    """How the run ended."""

    status: str = "open"
    """`completed`, `waiting`, `stopped` or `failed`; `open` without a recorded end."""
    turn_status: str = ""
    reason: str = ""
    text: str = ""


class Replay(Struct, frozen=True, kw_only=True):
    """One rebuilt run."""

    run: str
    began: RunBeganBody | None
    """The first event of an agent's run; None for calls of an engine without an agent."""
    messages: tuple[Message, ...]
    """The conversation after the run."""
    passes: tuple[RecordedPass, ...]
    calls: tuple[ReplayedCall, ...]
    """Every call of the run, in the order of arrival."""
    results: tuple[ToolResult, ...]
    """The results, as the agent loop or the engine's caller got them."""
    signals: tuple[Signal, ...]
    end: RunEnd
    differences: tuple[ReplayDifference, ...]
    """The differences from the recorded hashes; empty if the rebuilt run is exact."""
    gaps: tuple[str, ...]
    """What is not recorded, one sentence each."""
    answers: tuple[tuple[str, bool, str], ...] = ()
    """The answers to approvals: the approval, whether it was allowed, and by whom."""
    answer_details: Mapping[str, Mapping[str, object]] = {}
    """What was said with an answer, by approval: its `reason`, and the `arguments` with which the call was allowed instead of its own."""

    @classmethod
    def of(cls, journal: EventSource, run: str, blobs: BlobReader | None = None) -> Replay:
        """Rebuild a run. Starts nothing and writes nothing.

        Args:
            journal: The journal with the run's events.
            run: The id of an agent's or an engine's run.
            blobs: The store of large bodies and results; None for the journal's own.

        Raises:
            UsageError: The journal has no such run, a part of it is missing, or an event has the wrong fields.
        """
        source, kept = _ReadOnlyJournal(journal), blobs or blobs_with(journal) or _NoBlobs()
        events = list(source.read(run=run))
        if not events:
            raise UsageError(f"No run '{run[:80]}' is on record here. `callgate log list` shows the runs. Give the journal of this run.")
        begins = [index for index, event in enumerate(events) if event.kind == "run.began"]
        return _rebuild_agent_run(source, kept, run, events[begins[-1] :]) if begins else _rebuild_calls(kept, run, events)

    def encode(self) -> bytes:
        """Return the rebuilt run as canonical JSON: two journals of the same run give the same bytes."""
        return canonical(self)


def blobs_with(journal: EventSource) -> BlobReader | None:
    """Return the journal's own blob store, if it has one."""
    return journal.blobs if isinstance(journal, HoldsBlobs) else None


class _NoBlobs:
    def get(self, digest: str) -> bytes | None:
        return None


class _ReadOnlyJournal:
    """A journal without its methods for writing."""

    def __init__(self, journal: EventSource) -> None:
        self._find = journal.find

    def read(self, *, run: str | None = None, after: int = 0, limit: int | None = None) -> Iterable[Event]:
        return self._find(EventQuery(run=run, after=after, limit=limit))


def _rebuild_calls(blobs: BlobReader, run: str, events: list[Event]) -> Replay:
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
        differences=_find_altered_event(events),
        gaps=_describe_missing(calls, blobs),
        answers=_find_answers(events),
        answer_details=_find_answer_details(events),
    )


def _rebuild_agent_run(source: _ReadOnlyJournal, blobs: BlobReader, run: str, events: list[Event]) -> Replay:
    collector = _PassCollector(blobs)
    loaded = load_run(source, blobs, run, see=collector.see)
    calls, end = calls_of(events), _find_end(events, blobs)
    text = loaded.texts[-1] if loaded.texts else ""
    differences = (*collector.differences, *_find_unended_calls(events, blobs), *_compare_text(events, text, blobs))
    return Replay(
        run=run,
        began=loaded.began,
        messages=tuple(loaded.history.messages),
        passes=tuple(collector.passes),
        calls=calls,
        results=tuple(loaded.results),
        signals=tuple(loaded.signals),
        end=msgspec.structs.replace(end, text=text) if end.status == "completed" else end,
        differences=differences or _find_altered_event(events),
        gaps=(*collector.gaps, *_describe_missing(calls, blobs)),
        answers=_find_answers(events),
        answer_details=_find_answer_details(events),
    )


class _PassCollector:
    """Collects each pass while the run is loaded, and compares what the model was shown with the recorded hash."""

    def __init__(self, blobs: BlobReader) -> None:
        self._blobs = blobs
        self._system = ""
        self.passes: list[RecordedPass] = []
        self.differences: list[ReplayDifference] = []
        self.gaps: list[str] = []

    def see(self, event: Event, run: LoadedRun) -> None:
        if event.kind == "run.resumed":
            self._system = ""  # another process may resume the run and records its own
        elif event.kind == "phase.began":
            self._begin_pass(event, run)
        elif event.kind == "phase.answered" and self.passes:
            body = msgspec.json.decode(read_body(event.body, self._blobs), type=PhaseAnsweredBody)
            if body.lost:
                self._add_gap(f"Event {event.position}: secrets were removed from {len(body.lost)} calls of this message.")
            if body.status != "waiting":
                last = {"status": body.status, "answer": body.message, "closed": body.closed, "executes": body.executes}
                self.passes[-1] = msgspec.structs.replace(self.passes[-1], **last, finish=body.finish, reason=body.reason)

    def _begin_pass(self, event: Event, run: LoadedRun) -> None:
        body = msgspec.json.decode(read_body(event.body, self._blobs), type=PhaseBeganBody)
        self._system = self._system if body.system is None else body.system
        head = (SystemMessage(self._system),) if self._system else ()
        shown = tuple(run.history.messages)
        made = RecordedPass(position=event.position, iteration=body.iteration, messages=(*head, *shown), shown=body.shown)
        self.passes.append(made)
        if body.added:
            self._add_gap(f"Event {event.position}: after the conversation, the model was shown context from a tool, which is not stored.")
        if not body.shown:
            self._add_gap("The journal has no hashes of what the model was shown, because an older version wrote it; nothing was compared.")
        elif not self.differences and body.shown != run.history.prompt_hash().digest():
            self.differences.append(_shown_difference(event, body, len(shown), run))

    def _add_gap(self, text: str) -> None:
        if text not in self.gaps:
            self.gaps.append(text)


def _shown_difference(event: Event, body: PhaseBeganBody, made: int, run: LoadedRun) -> ReplayDifference:
    return ReplayDifference(
        position=event.position,
        what=f"what the model was shown in pass {body.iteration + 1}",
        recorded=f"{body.messages} messages with hash {body.shown[:12]}",
        rebuilt=f"{made} messages with hash {run.history.prompt_hash().digest()[:12]}",
    )


def _find_unended_calls(events: list[Event], blobs: BlobReader) -> list[ReplayDifference]:
    """Report calls of committed messages that have no recorded end."""
    ended = {event.call for event in events if event.kind in TERMINAL}
    found = []
    for event in events:
        if event.kind == "phase.executed":
            body = msgspec.json.decode(read_body(event.body, blobs), type=PhaseExecutedBody)
            found += [
                ReplayDifference(position=event.position, what=f"the end of call {uid}", recorded="that it has ended", rebuilt="no end")
                for uid in body.calls
                if uid and uid not in ended
            ]
    return found


def _find_altered_event(events: list[Event]) -> tuple[ReplayDifference, ...]:
    """Report the first event whose content does not match its hash."""
    for event in events:
        if not is_as_written(event):
            return (
                ReplayDifference(
                    position=event.position, what=f"the content of {event.kind}", recorded=f"hash {event.hash[:12]}", rebuilt="another"
                ),
            )
    return ()


def _find_end(events: list[Event], blobs: BlobReader) -> RunEnd:
    last = next((event for event in reversed(events) if event.kind in ("run.ended", "run.resumed")), None)
    if last is None or last.kind != "run.ended":
        return RunEnd()
    body = msgspec.json.decode(read_body(last.body, blobs), type=RunEndedBody)
    return RunEnd(status=body.status, turn_status=body.turn_status, reason=body.reason, text=body.text)


def _compare_text(events: list[Event], text: str, blobs: BlobReader) -> list[ReplayDifference]:
    end = _find_end(events, blobs)
    if end.status != "completed" or clean(text) == end.text:
        return []
    return [ReplayDifference(position=events[-1].position, what="the run's answer", recorded=repr(end.text[:80]), rebuilt=repr(text[:80]))]


def _describe_missing(calls: Iterable[ReplayedCall], blobs: BlobReader) -> tuple[str, ...]:
    """Return a sentence for each call that is not fully recorded, and for each whole result that is not stored."""
    found = [f"Call {call.uid} is not fully recorded: {call.lost}." for call in calls if call.lost]
    for call in calls:
        digest = call.result.metadata.blob if call.result is not None else None
        if call.result is not None and digest and blobs.get(digest) is None:
            size = call.result.metadata.bytes
            found.append(f"The whole result of call {call.uid} ({size} bytes) is no longer stored; what the model saw of it is recorded.")
    return tuple(found)


def _find_answers(events: Iterable[Event]) -> tuple[tuple[str, bool, str], ...]:
    found = []
    for event in events:
        if event.kind == "approval.answered":
            body = msgspec.json.decode(event.body)
            found.append((event.call, body.get("status") == "allowed", str(body.get("reason", ""))))
    return tuple(found)


def _find_answer_details(events: Iterable[Event]) -> dict[str, Mapping[str, object]]:
    answered = ((event.call, decode_reason(event.body).details or {}) for event in events if event.kind == "approval.answered")
    return {call: details for call, details in answered if details.keys() & {"reason", "arguments"}}
