"""Load a run from its record: the conversation, the used resources, and the calls that are still open. Only reads.

The conversation is built by `History`, the same class that the loop uses, from the recorded messages and the ends of
their calls. If the run continued a conversation that an earlier run recorded, that run is loaded first, up to the
position that the first event of the later run names. Must not know how a run is resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import msgspec
from msgspec import Struct, field

from callgate._run_state.event_bodies import decode_reason, question_of
from callgate._run_state.run_recovery import UnfinishedCall, unfinished_calls
from callgate.agent.exit_tools import ExitTools, as_signal
from callgate.agent.history import History, commit_message
from callgate.agent.loop_settings import Prices
from callgate.agent.recorded_results import final_of, is_killed, pending_at, result_at
from callgate.agent.run_recorder import (
    BlobReader,
    PhaseAnsweredBody,
    PhaseExecutedBody,
    RunBeganBody,
    RunCompactedBody,
    RunEndedBody,
    RunMessageBody,
    read_body,
)
from callgate.agent.run_result import CommittedMessage, PendingCalls, Signal, Spent
from callgate.calls import Part, ToolResult
from callgate.errors import UsageError
from callgate.events import TERMINAL, Event
from callgate.loop_decision import REFUSED_BY_LOOP, REPEATED
from callgate.messages import AssistantMessage, ToolCall, UserMessage
from callgate.models.model_events import Usage

__all__ = ["EventReader", "LoadedRun", "RecordedRound", "UncommittedMessage", "load_run", "load_turn"]


class EventReader(Protocol):
    """Reads events of a journal."""

    def read(self, *, run: str | None = None, after: int = 0, limit: int | None = None) -> Iterable[Event]: ...


class UncommittedMessage(Struct, kw_only=True):
    """A message whose calls have not all ended, or whose calls were not committed."""

    body: PhaseAnsweredBody
    calls: list[str]
    """The uids of the calls that were handed to the engine, in order. Calls after the last of these have no uid yet."""
    whole: CommittedMessage | None = None
    """The message as it is in the conversation, if this message contains only those of its calls that waited for a
    human; else None.
    """

    @property
    def message(self) -> AssistantMessage:
        assert self.body.message is not None
        return self.body.message

    @property
    def again(self) -> bool:
        """Whether these calls waited for a human before. The message has then already been counted as an iteration."""
        return self.whole is not None


class RecordedRound(Struct, frozen=True, kw_only=True):
    """The calls of one message that have ended."""

    calls: Sequence[ToolCall]
    results: Sequence[ToolResult | None]
    """The result of each call, without the loop's hints; None for a call without a result."""
    finals: Sequence[bytes]
    """The final arguments of each call, as canonical JSON."""


class LoadedRun(Struct, kw_only=True):
    """One run, up to its last event."""

    run: str
    began: RunBeganBody
    history: History
    iteration: int = 0
    """The iteration of the next pass."""
    passes: list[Usage | None] = field(default_factory=list)
    iterations: int = 0
    """The number of messages with calls."""
    calls: int = 0
    signals: list[Signal] = field(default_factory=list)
    results: list[ToolResult] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    open: UncommittedMessage | None = None
    pending: PendingCalls | None = None
    """The calls that wait for a human."""
    ended: str = ""
    """The status with which the run ended; empty if it has not ended."""
    ends: dict[str, Event] = field(default_factory=dict)
    """The event that ended each call, by the call's uid."""
    unfinished: dict[str, UnfinishedCall] = field(default_factory=dict)
    finals: dict[str, bytes] = field(default_factory=dict)
    """The final arguments of each call with a verdict, by the call's uid; empty bytes if the call was not allowed."""
    rounds: list[RecordedRound] = field(default_factory=list)
    errors: int = 0
    """The number of failed calls since the last success or restart."""
    added: list[Part] = field(default_factory=list)
    """The context that calls have added to the turn."""
    restarted: set[str] = field(default_factory=set)
    """The types of context that have been added."""
    last: int = 0
    """The position of the run's latest event that the loop wrote."""
    wall_ns: int = 0

    def spent(self, prices: Prices | None) -> Spent:
        """Return the resources that the run has used."""
        used = [usage for usage in self.passes if usage is not None]
        return Spent(
            iterations=self.iterations,
            calls=self.calls,
            passes=len(self.passes),
            input_tokens=sum(max(0, usage.input_tokens) for usage in used),
            output_tokens=sum(max(0, usage.output_tokens) for usage in used),
            cached_tokens=sum(max(0, usage.cached_tokens) for usage in used),
            cost=sum(max(0.0, prices.of(usage)) for usage in used) if prices is not None else 0.0,
            wall_s=self.wall_ns / 1e9,
        )


_began = msgspec.json.Decoder(RunBeganBody).decode
_answered = msgspec.json.Decoder(PhaseAnsweredBody).decode
_executed = msgspec.json.Decoder(PhaseExecutedBody).decode


def load_run(journal: EventReader, blobs: BlobReader, run: str, *, see: Callable[[Event, LoadedRun], None] | None = None) -> LoadedRun:
    """Load a run of an agent.

    Args:
        journal: The journal that has the run.
        blobs: The store of large bodies.
        run: The id of the run.
        see: Called with each event that the loop wrote, and with the run as it was before that event.

    Raises:
        UsageError: The journal has no such run, or a part of its record is missing or damaged.
    """
    try:
        segments = _segments(journal, blobs, run)
        history = History()
        for segment in segments[:-1]:
            history = _RunReader(segment[0], blobs, history).read(segment[1:]).history
        loaded = _RunReader(segments[-1][0], blobs, history, see).read(segments[-1][1:])
        loaded.unfinished = unfinished_calls(segments[-1])
    except msgspec.DecodeError as error:
        raise UsageError(
            f"The record of run '{run[:80]}' is not of the shape that it should have: {error}. `callgate log verify` names the first event"
            " that does not hold."
        ) from error
    return loaded


def load_turn(events: Sequence[Event], blobs: BlobReader) -> LoadedRun | None:
    """Load the latest turn among the events of a run, without the conversation before it; None if no agent has worked on the run."""
    began = next((index for index in reversed(range(len(events))) if events[index].kind == "run.began"), None)
    return None if began is None else _RunReader(events[began], blobs, History()).read(events[began + 1 :])


def _segments(journal: EventReader, blobs: BlobReader, run: str) -> list[list[Event]]:
    """Return one list of events for each run of the conversation up to this run, oldest first."""
    segments: list[list[Event]] = []
    until: int | None = None
    while True:
        events = [event for event in journal.read(run=run) if until is None or event.position <= until]
        begins = [index for index, event in enumerate(events) if event.kind == "run.began"]
        if not begins:
            raise UsageError(_why_missing(run, earlier=bool(segments)))
        segments.insert(0, events[begins[-1] :])
        began = _began(_body(segments[0][0], blobs))
        if not began.after:
            return segments
        until = began.after
        found = next(iter(journal.read(after=until - 1, limit=1)), None)
        if found is None or not found.position == until < segments[0][0].position:
            raise UsageError(_why_missing(run, earlier=True))
        run = found.run


def _why_missing(run: str, *, earlier: bool) -> str:
    if earlier:
        return f"Run '{run[:80]}' cannot be resumed: what its conversation had before it is no longer on record. Start it anew."
    return f"No run '{run[:80]}' of an agent is on record here. `callgate log list` shows the runs; give the journal that has it."


def _body(event: Event, blobs: BlobReader) -> bytes:
    body = read_body(event.body, blobs)
    if not body:
        raise UsageError(
            f"Event {event.position} of run '{event.run[:80]}' is kept outside the journal, and is gone from there. Give the blob store"
            " that the run was recorded with; of a journal in a file, put the folder `<journal>.blobs` back beside it."
        )
    return body


class _RunReader:
    """Reads the record of one run, event by event.

    Args:
        began: The run's first event.
        blobs: The store of large bodies.
        history: The conversation before the run. Modified.
        see: Called with each event that the loop wrote, and with the run as it was before that event.
    """

    def __init__(self, began: Event, blobs: BlobReader, history: History, see: Callable[[Event, LoadedRun], None] | None = None) -> None:
        body = _began(_body(began, blobs))
        for message in body.history:
            history.add(message)
        if body.task is not None:
            history.add(body.task)
        self._blobs = blobs
        self._see = see
        self._run = LoadedRun(run=began.run, began=body, history=history, iteration=body.scope.iteration, last=began.position)
        self._exits = ExitTools((tool.name for tool in body.exits), body.tools)
        self._causes: set[int] = set()
        """The positions of the events that cause the calls of the current phase."""
        self._handed_in: list[str] = []
        """The uids of the calls of the current phase, in order."""
        self._dropped: set[str] = set()
        """The uids of calls that were discarded with their message."""
        self._since_ns = began.at_ns
        """When the run began, or was last resumed."""

    def read(self, events: Sequence[Event]) -> LoadedRun:
        """Read all further events of the run."""
        for event in events:
            self._read_event(event)
        run = self._run
        if events and not run.ended:
            self._add_wall_time(events[-1])
        run.history.recorded = run.last
        if run.open is not None:
            run.open.calls = [uid for uid in self._handed_in if uid not in self._dropped]
            ends = [run.ends.get(uid) for uid in run.open.calls]
            made = [call for call in run.open.message.calls if self._exits.meant(call.name) is None]
            run.history.killed += [call for call, end in zip(made, ends, strict=False) if end is not None and is_killed(end, by_user=True)]
        return run

    def _read_event(self, event: Event) -> None:
        if event.kind.startswith("call."):
            self._read_call(event)
        elif event.kind == "emission.discarded":
            self._dropped.update(str(uid) for uid in _calls_in_reason(event))
        elif event.kind.startswith(("run.", "phase.")):
            if self._see is not None:
                self._see(event, self._run)
            self._run.last = event.position
            self._read_loop_event(event)

    def _read_call(self, event: Event) -> None:
        if event.kind in TERMINAL:
            self._run.ends[event.call] = event
        elif (final := final_of(event)) is not None:
            self._run.finals[event.call] = final
        elif event.kind == "call.received" and event.parents and event.parents[0] in self._causes:
            self._handed_in.append(event.call)

    def _read_loop_event(self, event: Event) -> None:
        run = self._run
        match event.kind:
            case "phase.began":
                self._causes, self._handed_in, run.open = {event.position}, [], None
                run.history.killed.clear()  # the model was told before this pass
            case "phase.answered":
                self._read_answer(event)
            case "phase.executed":
                self._commit_calls(_executed(_body(event, self._blobs)))
            case "run.message":
                said = msgspec.json.decode(_body(event, self._blobs), type=RunMessageBody)
                run.history.add(UserMessage(said.content or said.text))
            case "run.compacted":
                run.history.rewrite(msgspec.json.decode(_body(event, self._blobs), type=RunCompactedBody).messages)
            case "run.resumed":
                self._read_resumption(event)
            case "run.ended":
                run.ended = msgspec.json.decode(_body(event, self._blobs), type=RunEndedBody).turn_status
                self._add_wall_time(event)

    def _read_resumption(self, event: Event) -> None:
        again = _began(_body(event, self._blobs))
        if again.history:
            self._run.history.restart_from(again.history)
        if not self._run.ended:
            self._add_wall_time(event)
        self._since_ns, self._run.ended = event.at_ns, ""
        self._causes.add(event.position)

    def _read_answer(self, event: Event) -> None:
        run, body = self._run, _answered(_body(event, self._blobs))
        waited, message = body.status == "waiting", body.message
        if waited:
            self._causes, self._handed_in = set(), []
            run.iteration = body.iteration
        else:
            run.passes.append(body.usage)
        self._causes.add(event.position)
        if message is None:
            return
        if message.text and not waited:
            run.texts.append(message.text)
        if body.executes:
            whole = run.pending.whole if waited and run.pending is not None else None
            run.open, run.pending = UncommittedMessage(body=body, calls=[], whole=whole), None
        else:
            meant = [(call, self._exits.meant(call.name)) for call in message.calls]
            run.signals += [as_signal(call, body.iteration, name) for call, name in meant if name is not None]
            run.history.answer(message)

    def _commit_calls(self, body: PhaseExecutedBody) -> None:
        """Commit the open message with the recorded ends of its calls, as the loop did."""
        run = self._run
        if run.open is None:
            return
        opened, run.open = run.open, None
        calls, iteration = opened.message.calls, opened.body.iteration
        if len(body.calls) != len(calls):
            raise msgspec.ValidationError(f"{len(body.calls)} ends for a message of {len(calls)} calls")
        for call, uid in zip(calls, body.calls, strict=True):
            if not uid:
                run.signals.append(as_signal(call, iteration, self._exits.meant(call.name) or ""))
        ends = [run.ends.get(uid) for uid in body.calls]
        shown = [result_at(call, end, body.hints.get(str(place), "")) for place, (call, end) in enumerate(zip(calls, ends, strict=True))]
        asked = [question_of(end) if end is not None and end.kind == "call.suspended" else None for end in ends]
        both = [question or result for question, result in zip(asked, shown, strict=True)]
        whole = commit_message(run.history, opened.whole, opened.message, both, run.results)
        each = zip(calls, ends, shown, strict=True)
        run.history.killed += [call for call, end, result in each if end and result is None and is_killed(end)]
        results = [result_at(call, end, "") for call, end in zip(calls, ends, strict=True)]
        run.rounds.append(RecordedRound(calls=calls, results=results, finals=[run.finals.get(uid, b"") for uid in body.calls]))
        self._count_errors(ends, shown)
        if body.added is not None:
            run.restarted.update(body.added.kinds)
            run.added += body.added.parts
        reserved = 0 if opened.again else sum(1 for uid in body.calls if uid)
        run.calls += reserved - sum(result is not None and result.code in REFUSED_BY_LOOP for result in shown)
        run.iterations += not opened.again
        run.iteration = iteration + 1
        run.pending = pending_at(opened.body, calls, ends, run.began, whole)

    def _count_errors(self, ends: Sequence[Event | None], results: Sequence[ToolResult | None]) -> None:
        run = self._run
        for end, result in zip(ends, results, strict=True):
            if result is not None and not _repeats_data(result):
                run.errors = 0 if result.success else run.errors + 1
            elif end is not None and end.kind == "call.restarted":
                run.errors = 0

    def _add_wall_time(self, until: Event) -> None:
        self._run.wall_ns += max(0, until.at_ns - self._since_ns)


def _repeats_data(result: ToolResult) -> bool:
    """Return whether the result refuses a repeated call whose earlier result was data.

    Such a refusal is not counted as a failure.
    """
    facts = result.structured if result.code == REPEATED else None
    return isinstance(facts, dict) and facts.get("repeated") == "data"


def _calls_in_reason(event: Event) -> Sequence[object]:
    listed = (decode_reason(event.body).details or {}).get("calls")
    return listed if isinstance(listed, list) else ()
