"""A run as its record tells it: the conversation, what was spent, what was left open. Pure reading; starts nothing and asks nobody.

The conversation is made as the loop makes it, by the same `History`, from messages and from the ends of their calls. A run that goes on
where another one of its conversation ended begins with what that one had. Must not know how a run is resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from callgate._json import canonical, decode
from callgate._pipeline.record import clean, decode_reason, decode_result
from callgate._pipeline.unfinished import Unfinished, unfinished_calls
from callgate.agent.exits import Exits, as_signal
from callgate.agent.history import History
from callgate.agent.intake import BROKEN_OFF
from callgate.agent.record import Answered, Began, Blobs, Compacted, Ended, Executed, Said, read_body
from callgate.agent.restart import Added
from callgate.agent.results import Beside, Pending, Signal, Spent
from callgate.agent.settings import Prices
from callgate.calls import Part, Suspended, Text, ToolResult
from callgate.decide import REFUSED_BY_LOOP
from callgate.errors import UsageError
from callgate.events import TERMINAL, Event
from callgate.messages import AssistantMessage, ToolCall, UserMessage
from callgate.models.events import Usage

__all__ = ["OpenMessage", "Recalled", "Record", "broken_off", "interrupted", "question_of", "recall"]

_began = msgspec.json.Decoder(Began).decode
_answered = msgspec.json.Decoder(Answered).decode
_executed = msgspec.json.Decoder(Executed).decode


class Record(Protocol):
    """Where events are read from."""

    def read(self, *, run: str | None = None, after: int = 0, limit: int | None = None) -> Iterable[Event]: ...


class OpenMessage(Struct, kw_only=True):
    """A message whose calls have not all ended, or not been committed."""

    body: Answered
    calls: list[str]
    """The uid of each of its calls that the engine was handed, in order; a later call has none."""
    beside: Beside
    """What the message had before its calls waited."""

    @property
    def message(self) -> AssistantMessage:
        assert self.body.message is not None
        return self.body.message

    @property
    def again(self) -> bool:
        """Whether its calls had waited for a human, so that the message was counted before."""
        return self.body.status == "waiting"


Round = tuple[Sequence[ToolCall], Sequence[ToolResult | None], Sequence[bytes]]
"""The calls of one message, their results before the loop added anything, and their final arguments as canonical JSON."""


class Recalled(Struct, kw_only=True):
    """One run, up to its last event."""

    run: str
    began: Began
    history: History
    iteration: int = 0
    """Of the next pass."""
    passes: list[Usage | None] = field(default_factory=list)
    rounds: int = 0
    """Messages with calls."""
    calls: int = 0
    signals: list[Signal] = field(default_factory=list)
    results: list[ToolResult] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    open: OpenMessage | None = None
    pending: Pending | None = None
    """What waits for a human."""
    ended: str = ""
    """How it ended; empty where it did not."""
    ends: dict[str, Event] = field(default_factory=dict)
    """The end of each call, by uid."""
    unfinished: dict[str, Unfinished] = field(default_factory=dict)
    finals: dict[str, bytes] = field(default_factory=dict)
    """The final arguments of each call that was approved, by uid."""
    told: list[Round] = field(default_factory=list)
    errors: int = 0
    """Failed calls since the last success or restart."""
    added: list[Part] = field(default_factory=list)
    """What calls have added to the context of the turn."""
    restarted: set[str] = field(default_factory=set)
    """Which kinds of context have been added."""
    last: int = 0
    """The position of its latest event of the loop."""
    wall_ns: int = 0

    def spent(self, prices: Prices | None) -> Spent:
        """What the run has used."""
        used = [usage for usage in self.passes if usage is not None]
        return Spent(
            iterations=self.rounds,
            calls=self.calls,
            passes=len(self.passes),
            input_tokens=sum(usage.input_tokens for usage in used),
            output_tokens=sum(usage.output_tokens for usage in used),
            cached_tokens=sum(usage.cached_tokens for usage in used),
            cost=sum(prices.of(usage) for usage in used) if prices is not None else 0.0,
            wall_s=self.wall_ns / 1e9,
        )


def recall(journal: Record, blobs: Blobs, run: str, *, see: Callable[[Event, Recalled], None] | None = None) -> Recalled:
    """Read a run of an agent.

    Args:
        see: Told each event of the loop, with the run as it was before it.

    Raises:
        UsageError: The record has no such run, or a part of it is gone or damaged.
    """
    try:
        segments = _segments(journal, blobs, run)
        history = History()
        for segment in segments[:-1]:
            history = _Reading(blobs, history).whole(segment).history
        recalled = _Reading(blobs, history, see).whole(segments[-1])
        recalled.unfinished = unfinished_calls(segments[-1])
    except msgspec.DecodeError as error:
        raise UsageError(
            f"The record of run '{run[:80]}' is not of the shape that it should have: {error}. `callgate log verify` names the first event"
            " that does not hold."
        ) from error
    return recalled


def interrupted(event: Event) -> str:
    """What to tell a model of a call that was broken off with its engine; empty where its end left no trace in the conversation."""
    reason = decode_reason(event.body)
    if reason.status == "not_started":
        return f"It was not started: {reason.reason}. Nothing happened; it may be sent again."
    if reason.status == "unknown":
        return f"It was broken off: {reason.reason}. It may have taken effect; check the real state before you repeat it."
    return ""


def _segments(journal: Record, blobs: Blobs, run: str) -> list[list[Event]]:
    """The events of the run, behind those of the runs that its conversation had before."""
    segments: list[list[Event]] = []
    until: int | None = None
    while True:
        events = [event for event in journal.read(run=run) if until is None or event.position <= until]
        begins = [index for index, event in enumerate(events) if event.kind == "run.began"]
        if not begins:
            raise UsageError(_missing(run, earlier=bool(segments)))
        segments.insert(0, events[begins[-1] :])
        began = _began(_body(segments[0][0], blobs))
        if not began.after:
            return segments
        until = began.after
        found = next(iter(journal.read(after=until - 1, limit=1)), None)
        if found is None or not found.position == until < segments[0][0].position:
            raise UsageError(_missing(run, earlier=True))
        run = found.run


def _missing(run: str, *, earlier: bool) -> str:
    if earlier:
        return f"Run '{run[:80]}' cannot be resumed: what its conversation had before it is no longer on record. Start it anew."
    return f"No run '{run[:80]}' of an agent is on record here. `callgate log list` shows the runs; give the journal that has it."


def _body(event: Event, blobs: Blobs) -> bytes:
    body = read_body(event.body, blobs)
    if not body:
        raise UsageError(
            f"Event {event.position} of run '{event.run[:80]}' is kept outside the journal, and is gone from there. Give the blob store"
            " that the run was recorded with."
        )
    return body


class _Reading:
    """The record of one run, event by event."""

    def __init__(self, blobs: Blobs, history: History, see: Callable[[Event, Recalled], None] | None = None) -> None:
        self._blobs = blobs
        self._see = see
        self._history = history
        self._causes: set[int] = set()
        """The events that the calls of the open phase are caused by."""
        self._handed_in: list[str] = []
        """Those calls, in order."""
        self._dropped: set[str] = set()
        self._since_ns = 0

    def whole(self, events: Sequence[Event]) -> Recalled:
        began = _began(_body(events[0], self._blobs))
        for message in began.history:
            self._history.add(message)
        if began.task is not None:
            self._history.add(began.task)
        run = Recalled(run=events[0].run, began=began, history=self._history, iteration=began.scope.iteration, last=events[0].position)
        self._since_ns = events[0].at_ns
        for event in events[1:]:
            self._take(run, event)
        run.wall_ns += max(0, events[-1].at_ns - self._since_ns) if not run.ended else 0
        if run.open is not None:
            run.open.calls = [uid for uid in self._handed_in if uid not in self._dropped]
        return run

    def _take(self, run: Recalled, event: Event) -> None:
        kind = event.kind
        if kind.startswith("call."):
            self._call(run, event)
            return
        if kind == "emission.discarded":
            self._dropped.update(str(uid) for uid in _listed(event))
            return
        if not kind.startswith(("run.", "phase.")):
            return
        if self._see is not None:
            self._see(event, run)
        run.last = event.position
        match kind:
            case "phase.began":
                self._causes, self._handed_in, run.open = {event.position}, [], None
            case "phase.answered":
                self._message(run, event)
            case "phase.executed":
                self._commit(run, _executed(_body(event, self._blobs)))
            case "run.message":
                said = msgspec.json.decode(_body(event, self._blobs), type=Said)
                run.history.add(UserMessage(said.content or said.text))
            case "run.compacted":
                run.history.rewrite(msgspec.json.decode(_body(event, self._blobs), type=Compacted).messages)
            case "run.resumed":
                self._resumed(run, event)
            case "run.ended":
                run.ended = msgspec.json.decode(_body(event, self._blobs), type=Ended).turn_status
                run.wall_ns += max(0, event.at_ns - self._since_ns)

    def _resumed(self, run: Recalled, event: Event) -> None:
        again = _began(_body(event, self._blobs))
        if again.history:
            run.history.rewrite(again.history)
        if not run.ended:
            run.wall_ns += max(0, event.at_ns - self._since_ns)
        self._since_ns, run.ended = event.at_ns, ""
        self._causes.add(event.position)

    def _call(self, run: Recalled, event: Event) -> None:
        if event.kind in TERMINAL:
            run.ends[event.call] = event
        elif event.kind == "call.verdict":
            run.finals[event.call] = _final(event)
        elif event.kind == "call.received" and event.parents and event.parents[0] in self._causes:
            self._handed_in.append(event.call)

    def _message(self, run: Recalled, event: Event) -> None:
        body = _answered(_body(event, self._blobs))
        if body.status == "waiting":
            self._causes, self._handed_in = set(), []
            run.iteration = body.iteration
        else:
            run.passes.append(body.usage)
        self._causes.add(event.position)
        message = body.message
        if message is None:
            return
        if message.text and body.status != "waiting":
            run.texts.append(message.text)
        if body.executes:
            beside = run.pending.beside if body.status == "waiting" and run.pending is not None else Beside(text=message.text)
            run.open, run.pending = OpenMessage(body=body, calls=[], beside=beside), None
        else:
            exits = _exits(run)
            meant = [(call, exits.meant(call.name)) for call in message.calls]
            run.signals += [as_signal(call, body.iteration, name) for call, name in meant if name is not None]
            run.history.answer(message)

    def _commit(self, run: Recalled, executed: Executed) -> None:
        if run.open is None:
            return
        opened, run.open = run.open, None
        calls = opened.message.calls
        exits = _exits(run)
        given: list[ToolResult | None] = []
        results: list[ToolResult | None] = []
        for place, (call, uid) in enumerate(zip(calls, executed.calls, strict=False)):
            if not uid:
                run.signals.append(as_signal(call, opened.body.iteration, exits.meant(call.name) or ""))
            given.append(_result(call, run.ends.get(uid), ""))
            results.append(_result(call, run.ends.get(uid), executed.hints.get(str(place), "")))
        run.history.commit(opened.message, results)
        run.told.append((calls[: len(given)], given, [run.finals.get(uid, b"") for uid in executed.calls]))
        _count(run, [run.ends.get(uid) for uid in executed.calls], results)
        _enrich(run, executed.added)
        answered = [result for result in results if result is not None]
        run.results += answered
        run.calls += sum(result.code not in REFUSED_BY_LOOP for result in answered)
        run.rounds += not opened.again
        run.iteration = opened.body.iteration + 1
        beside = replace(opened.beside, results=(*opened.beside.results, *answered))
        run.pending = _pending(opened.body, calls, [run.ends.get(uid) for uid in executed.calls], run.began, beside)


def _exits(run: Recalled) -> Exits:
    return Exits((tool.name for tool in run.began.exits), run.began.tools)


def _final(event: Event) -> bytes:
    arguments = decode(event.body).get("arguments")
    return canonical(arguments) if isinstance(arguments, dict) else b""


def _count(run: Recalled, ends: Sequence[Event | None], results: Sequence[ToolResult | None]) -> None:
    for end, result in zip(ends, results, strict=False):
        if result is not None:
            run.errors = 0 if result.success else run.errors + 1
        elif end is not None and end.kind == "call.restarted":
            run.errors = 0


def _enrich(run: Recalled, added: Added | None) -> None:
    if added is None:
        return
    run.restarted |= set(added.kinds)
    run.added += added.parts


def _listed(event: Event) -> Sequence[object]:
    listed = (decode_reason(event.body).details or {}).get("calls")
    return listed if isinstance(listed, list) else ()


def _result(call: ToolCall, end: Event | None, hint: str) -> ToolResult | None:
    """What the conversation has of a call's end, with what the loop added."""
    if end is None:
        return None
    if end.kind == "call.completed":
        result = decode_result(end.body)
        return replace(result, content=(*result.content, Text(text=hint))) if hint else result
    return broken_off(call, end, hint) if end.kind == "call.aborted" and hint else None


def broken_off(call: ToolCall, end: Event, told: str) -> ToolResult:
    """The result that stands for a call which was broken off with its engine."""
    unknown = decode_reason(end.body).status == "unknown"
    return ToolResult(
        id=call.id,
        uid=end.call,
        name=call.name,
        status="unknown" if unknown else "error",
        content=(Text(text=told),),
        error=told,
        failure_class="outcome_unknown" if unknown else "not_started",
        code=BROKEN_OFF,
    )


def _pending(body: Answered, calls: Sequence[ToolCall], ends: Sequence[Event | None], began: Began, beside: Beside) -> Pending | None:
    waiting = [index for index, end in enumerate(ends) if end is not None and end.kind == "call.suspended"]
    if not waiting or body.message is None:
        return None
    return Pending(
        message=AssistantMessage(parts=tuple(calls[index] for index in waiting), api=body.message.api),
        closed=tuple(body.closed[index] for index in waiting),
        iteration=body.iteration,
        approvals=tuple(question_of(end) for end in ends if end is not None and end.kind == "call.suspended"),
        exposed=began.exposed,
        lost=tuple(place for place, index in enumerate(waiting) if index in body.lost),
        beside=beside,
    )


def question_of(end: Event) -> Suspended:
    """The question of a suspended call."""
    reason = decode_reason(end.body)
    details = reason.details or {}
    expires_at = details.get("expires_at")
    return Suspended(str(details.get("approval", "")), expires_at if isinstance(expires_at, int) else 0, clean(reason.reason), end.call)
