"""Summarise calls from their events: one summary per call, in the order of arrival.

Used by `callgate log` and the demonstrations. Pure and tolerant: unknown event kinds are skipped, and fields that are missing, null or of
another type count as absent. Must not know where events are stored.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct, field

from callgate.events import TERMINAL, Event

__all__ = ["STATUS_OF_KIND", "CallSummary", "body_of", "settle", "summarise", "verdict_in", "without_process"]

_HUGE = 1e300
STATUS_OF_KIND = {"call.restarted": "restarted", "call.aborted": "aborted", "call.suspended": "asked"}
"""The status of a call by the kind of its last event, where no result says it."""


class CallSummary(Struct, kw_only=True):
    """One call, from its first event to the last known one."""

    uid: str
    run: str
    position: int
    """Position of its first event."""
    at_ns: int
    began: float
    """Monotonic seconds of the process that wrote it, like `starts` and `ended`."""
    tool: str = ""
    name: str = ""
    """The name as the model wrote it; `tool` is the resolved tool."""
    origin: str = ""
    principal: str = ""
    """On whose behalf the call was made; empty if it was nobody's."""
    id: str = ""
    """The call id that the model or the host gave."""
    arguments: str = ""
    """The final arguments as JSON: those of its latest verdict, with which it ran if it ran; as received if no verdict is recorded."""
    received: str = ""
    """The arguments as received."""
    status: str = "open"
    """`ok`, `error`, `unknown`, `asked`, `aborted`, `restarted`, or `open` while no end is recorded."""
    settled: str = ""
    """`happened` or `not_happened`, if the unknown outcome was settled."""
    settled_by: str = ""
    """The operator who settled the outcome; empty if the tool did."""
    late: str = ""
    """How the tool ended after the call had ended, such as `returned` or `raised`; empty if it did not. Its answer was discarded."""
    late_answer: str = ""
    """That answer: the value as JSON, or the error; empty if an older callgate has not recorded it."""
    late_ns: int = 0
    """When that was, in UTC nanoseconds."""
    abandoned: bool = False
    """Whether the tool's code still ran, and could not be stopped, when the call ended."""
    question: str = ""
    """The call that asked the question for which it waited: itself, or an earlier one that it repeats. Empty if it did not wait."""
    answer: str = ""
    """`allowed` or `refused`, if the question that the call asked was answered; empty otherwise. The call that then ran is another one."""
    earlier_call: str = ""
    """The call whose outcome decides about this one: this one was refused because of it, or got its result. Empty if there is none."""
    failure_class: str = ""
    code: str = ""
    error: str = ""
    effect: str = ""
    effect_key: str = ""
    """The key of its effect, as the tool gets it; empty if the tool declares none."""
    runner: str = ""
    writer: str = ""
    """The engine that started its last attempt, as the journal names it; empty if that is not recorded."""
    rule: str = ""
    timeout_s: float = 0.0
    """Timeout of the last attempt."""
    attempts: int = 0
    starts: list[float] = field(default_factory=list)
    ended: float | None = None
    bytes: int = 0
    truncated: bool = False
    blob: str = ""
    cached: str = ""
    replayed: bool = False
    command_end: str = ""
    """How the command of an `ok` call ended, unless with exit code 0."""
    notes: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    result: dict[str, Any] = field(default_factory=dict)
    """The body of `call.completed`."""

    @property
    def duration_ms(self) -> float:
        """Milliseconds from the call's arrival to its end; 0 while it has not ended."""
        return max(0.0, self.ended - self.began) * 1000 if self.ended is not None else 0.0

    @property
    def overdue_s(self) -> float:
        """Seconds between the last attempt's deadline and the call's end; negative if it ended before."""
        return self.ended - self.starts[-1] - self.timeout_s if self.ended is not None and self.starts else 0.0

    @property
    def arguments_changed(self) -> bool:
        """Whether its final arguments differ from those received: a human, a hook or a policy changed them, or validation did."""
        try:
            return self.arguments != self.received and bool(json.loads(self.arguments) != json.loads(self.received or "{}"))
        except (ValueError, RecursionError):
            return self.arguments != self.received

    @property
    def short(self) -> str:
        """The last part of its uid: iteration and number within the run."""
        return "/".join(self.uid.rsplit("/", 2)[1:])


def body_of(event: Event) -> dict[str, Any]:
    """Return the event's body; empty if it is not a JSON object."""
    try:
        body = json.loads(event.body, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}


def verdict_in(kind: str, body: Mapping[str, Any]) -> bool:
    """Return whether an event with this body records a verdict: a verdict event, or a start with its verdict."""
    return kind == "call.verdict" or (kind == "call.started" and isinstance(body.get("verdict"), str))


def summarise(events: Iterable[Event]) -> list[CallSummary]:
    """Return a summary of each call, in the order of their first events."""
    calls: dict[str, CallSummary] = {}
    for event in events:
        if not event.call or not event.kind.startswith("call."):
            if event.kind == "fact.settled" and event.call in calls:
                settle(calls[event.call], event)
            elif event.kind == "approval.answered":
                body = body_of(event)
                if event.call in calls:
                    calls[event.call].answer = _text(body, "status")
                _end_denied(calls, body)
            continue
        call = calls.get(event.call)
        if call is None:
            call = CallSummary(uid=event.call, run=event.run, position=event.position, at_ns=event.at_ns, began=event.mono)
            calls[event.call] = call
        _tell(call, event, body_of(event))
    return list(calls.values())


def settle(call: CallSummary, fact: Event) -> None:
    """Set what a `fact.settled` says about the outcome of the call, or of the earlier call that decides about it."""
    body = body_of(fact)
    details = body.get("details")
    call.settled = _text(body, "status")
    call.settled_by = (_text(details, "by") if isinstance(details, dict) else "") or call.settled_by


def _end_denied(calls: Mapping[str, CallSummary], body: Mapping[str, Any]) -> None:
    """Set the status of calls that wait for this answer, if it is a denial that the host itself reported to the model."""
    details = body.get("details")
    if not isinstance(details, dict) or details.get("told") is not True:
        return
    for call in calls.values():
        if call.status == "asked" and call.question == _text(details, "approval"):
            call.status, call.failure_class, call.code = "error", "denied", "human_denied"
            call.error = f"{_text(body, 'reason', 'a human')} said no: {_text(details, 'reason')}".removesuffix(": ")


def without_process(call: CallSummary) -> None:
    """Set the status of a call without a recorded end, because the process that ran it has ended."""
    if call.status != "open":
        return
    if call.starts and call.effect != "none":
        call.status, call.failure_class = "unknown", "outcome_unknown"
        call.error = "its process ended before it answered; it may have taken effect"
    else:
        call.status, call.error = "aborted", "its process ended before it answered; nothing was changed"


def _tell(call: CallSummary, event: Event, body: Mapping[str, Any]) -> None:
    call.kinds.append(event.kind)
    if verdict_in(event.kind, body):
        call.tool, call.rule = _text(body, "tool", call.tool), _text(body, "rule")
        call.notes = _notes(body)
        call.arguments = _as_json_text(body.get("arguments")) or call.arguments
    match event.kind:
        case "call.received":
            call.tool, call.origin, call.received = _text(body, "name"), _text(body, "origin"), _text(body, "arguments")
            call.arguments = call.received
            call.id, call.name = _text(body, "id"), call.tool
            call.principal = _text_in(body.get("scope"), "principal")
        case "call.started":
            call.starts.append(event.mono)
            call.attempts = max(call.attempts, event.attempt)
            call.effect, call.runner, call.writer = (_text(body, key) for key in ("effect", "runner", "writer"))
            call.settled = call.settled_by = ""  # what was said of an earlier start
            call.effect_key = _text(body, "effect_key")
            call.timeout_s = _number(body, "timeout_s")
        case "call.replayed":
            call.earlier_call = _text_in(body.get("details"), "uid")
        case "call.completed":
            _complete(call, body)
        case "call.late":
            call.late, call.late_ns = _text(body, "status"), event.at_ns
            call.late_answer = _late_answer(body.get("details"))
        case kind if kind in STATUS_OF_KIND:
            call.status, call.error = STATUS_OF_KIND[kind], _text(body, "reason")
            call.question = (_text_in(body.get("details"), "approval") or call.uid) if kind == "call.suspended" else call.question
            if kind == "call.aborted" and "unknown" in (body.get("status"), _text_in(body.get("details"), "status")):
                call.status, call.failure_class = "unknown", "outcome_unknown"
    if event.kind in TERMINAL:
        call.ended = event.mono


def _complete(call: CallSummary, body: Mapping[str, Any]) -> None:
    found = body.get("metadata")
    meta = found if isinstance(found, dict) else {}
    call.result = dict(body)
    call.tool, call.status = _text(body, "name", call.tool), _text(body, "status")
    call.failure_class, call.code, call.error = (_text(body, key) for key in ("failure_class", "code", "error"))
    call.rule, call.blob, call.cached = _text(meta, "rule", call.rule), _text(meta, "blob"), _text(meta, "cached")
    call.bytes, call.truncated = int(_number(meta, "bytes")), meta.get("truncated") is True
    call.command_end = _text(meta, "command_end")
    structured = body.get("structured")
    call.earlier_call = call.earlier_call or _text_in(structured, "earlier_call")
    call.abandoned = isinstance(structured, dict) and structured.get("abandoned") is True
    call.replayed = meta.get("replayed") is True or meta.get("joined") is True
    call.notes = _notes(meta) or call.notes


def _as_json_text(arguments: object) -> str:
    """Return recorded arguments as JSON; empty if they are not an object."""
    return json.dumps(arguments, ensure_ascii=False, separators=(",", ":")) if isinstance(arguments, dict) else ""


def _text_in(details: object, key: str) -> str:
    return _text(details, key) if isinstance(details, dict) else ""


def _late_answer(details: object) -> str:
    """Return what a tool answered after its call had ended, as text."""
    if not isinstance(details, dict):
        return ""
    if "value" in details:
        return json.dumps(details["value"], ensure_ascii=False, separators=(",", ":"))
    return _text(details, "error") or _text(details, "not_recorded")


def _notes(body: Mapping[str, Any]) -> list[str]:
    notes = body.get("notes")
    return [f"{_text(note, 'kind')}: {_text(note, 'text')}" for note in notes if isinstance(note, dict)] if isinstance(notes, list) else []


def _text(body: Mapping[str, Any], key: str, other: str = "") -> str:
    """Return the text under this key, or `other`."""
    value = body.get(key)
    if value is None or value == "":
        return other
    return value if isinstance(value, str) else json.dumps(value)


def _number(body: Mapping[str, Any], key: str) -> float:
    """Return the finite number under this key, or 0."""
    value = body.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < _HUGE:
        return 0.0
    return float(value)
