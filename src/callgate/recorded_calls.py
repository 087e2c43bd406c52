"""Find tool calls in a journal: final arguments, result, cause and phase, with one query.

The entries are computed from the calls' events, also for calls that were denied, invalid or never started. Only reads. Accepts incomplete
events like `_call_summary` does. Must not know where events are stored.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from callgate._call_summary import CallSummary, body_of, summarise, verdict_in
from callgate.calls import CurrentToolCall, ToolResult
from callgate.event_queries import EventQuery
from callgate.events import Event

__all__ = ["CallVerdict", "FindsEvents", "ToolCallEntry", "find_tool_calls", "latest_tool_call"]

_TOGETHER = 200
_EVERY_CALL = EventQuery()


class FindsEvents(Protocol):
    """A journal, or a reader of one."""

    def find(self, query: EventQuery) -> Iterable[Event]: ...


class CallVerdict(Struct, frozen=True, kw_only=True):
    """One verdict on a call."""

    verdict: str
    """`allow`, `deny`, `ask` or `modify`."""
    rule: str = ""
    hook: str = ""
    reason: str = ""
    arguments: dict[str, Any] | None = None
    """The arguments of the verdict; for `modify`, the new ones. None if an older journal does not have them."""


class ToolCallEntry(Struct, frozen=True, kw_only=True):
    """One call of a tool, read from its events."""

    uid: str
    run: str
    phase: str = ""
    """The phase of the run; empty if its scope had none."""
    principal: str = ""
    """On whose behalf the call was made; empty if it was nobody's."""
    tool: str = ""
    """The tool's name; the name in the call if no tool was found."""
    id: str = ""
    """The call's id, from the model or the host."""
    arguments: dict[str, Any] | None = None
    """The final arguments: validated, coerced, with defaults, changed by hooks and policies. As received if the call was refused before
    validation; None if they are not a JSON object."""
    received: str = ""
    """The arguments as received, up to the journal's limit."""
    verdicts: tuple[CallVerdict, ...] = ()
    status: str = "open"
    """`ok`, `error`, `unknown`, `asked`, `aborted`, `restarted`, or `open` if no end is recorded."""
    result: ToolResult | None = None
    """The result without redacted or withheld parts; None if the call has none."""
    reason: str = ""
    """Why the call did not succeed or ended without a result."""
    caused_by: int = 0
    """The position of the event that caused the call; 0 for none."""
    parent: str = ""
    """The uid of the call whose tool made it."""
    position: int = 0
    """The position of its first event."""
    at_ns: int = 0
    """When the call was received, in UTC nanoseconds."""
    duration_ms: float = 0.0


def find_tool_calls(journal: FindsEvents, query: EventQuery = _EVERY_CALL) -> list[ToolCallEntry]:
    """Return the calls that have a matching event, in the order of their arrival.

    Args:
        journal: The journal or a reader. If it is on a server, this blocks: call it in a thread.
        query: `limit` counts calls: the first ones, or the last with `newest_first`. By default only the first event of a call is matched;
            `kinds` matches events of these kinds, and `field` all events of the call.
    """
    kinds = query.kinds or (("call.",) if query.field is not None else ("call.received",))
    found = journal.find(replace(query, kinds=kinds, limit=None))
    uids = list(_first_ids(found, query.limit))
    entries: list[ToolCallEntry] = []
    for first in range(0, len(uids), _TOGETHER):
        entries += _entries(journal.find(EventQuery(calls=tuple(uids[first : first + _TOGETHER]), kinds=("call.", "approval."))))
    return sorted(entries, key=lambda entry: entry.position)


def latest_tool_call(journal: FindsEvents, conversation: str) -> CurrentToolCall | None:
    """Return the latest successful call of a conversation, or None. A repeated call has the arguments of the first one."""
    if not conversation:
        return None
    ended = EventQuery(conversation=conversation, kinds=("call.completed",), field=("status", "ok"), newest_first=True, limit=1)
    for end in journal.find(ended):
        events = list(journal.find(EventQuery(call=end.call)))
        entry, received = _entries(events)[0], _bodies(events, "call.received")
        first = next((uid for uid in map(_first_uid, _bodies(events, "call.replayed")) if uid), "")
        ran = _entries(journal.find(EventQuery(call=first))) if first and not entry.verdicts else []
        current = msgspec.json.decode(end.body, type=CurrentToolCall)
        parameters = (ran[0] if ran else entry).arguments or {}
        return replace(current, parameters=parameters, reasoning=_text(received[0], "reasoning") if received else "")
    return None


def _bodies(events: Iterable[Event], kind: str) -> list[dict[str, Any]]:
    return [body_of(event) for event in events if event.kind == kind]


def _first_uid(body: Mapping[str, Any]) -> str:
    """Return the uid of the first call, according to the body of `call.replayed`."""
    details = body.get("details")
    return _text(details, "uid") if isinstance(details, dict) else ""


def _first_ids(events: Iterable[Event], most: int | None) -> Iterator[str]:
    """Yield the ids of the first `most` different calls of these events."""
    seen: set[str] = set()
    for event in events:
        if most is not None and len(seen) >= most:
            return
        if event.call and event.call not in seen:
            seen.add(event.call)
            yield event.call


class _Facts(Struct):
    """Collects the facts from a call's events that its summary does not have."""

    phase: str = ""
    caused_by: int = 0
    parent: str = ""
    verdicts: list[CallVerdict] = field(default_factory=list)


def _entries(events: Iterable[Event]) -> list[ToolCallEntry]:
    kept = list(events)
    facts: dict[str, _Facts] = {}
    for event in kept:
        known = facts.setdefault(event.call, _Facts())
        if event.kind == "call.received":
            _apply_received(known, event)
        elif verdict_in(event.kind, body := body_of(event)):
            known.verdicts.append(_verdict(body))
    return [_entry(call, facts[call.uid]) for call in summarise(kept)]


def _apply_received(facts: _Facts, event: Event) -> None:
    body = body_of(event)
    scope = body.get("scope")
    facts.phase = _text(scope, "phase") if isinstance(scope, dict) else ""
    facts.parent = _text(body, "parent")
    facts.caused_by = event.parents[0] if event.parents else 0


def _verdict(body: Mapping[str, Any]) -> CallVerdict:
    arguments = body.get("arguments")
    return CallVerdict(
        verdict=_text(body, "verdict"),
        rule=_text(body, "rule"),
        hook=_text(body, "hook"),
        reason=_text(body, "reason"),
        arguments=arguments if isinstance(arguments, dict) else None,
    )


def _entry(call: CallSummary, facts: _Facts) -> ToolCallEntry:
    judged = [verdict.arguments for verdict in facts.verdicts if verdict.arguments is not None]
    return ToolCallEntry(
        uid=call.uid,
        run=call.run,
        phase=facts.phase,
        principal=call.principal,
        tool=call.tool,
        id=call.id,
        arguments=judged[-1] if judged else _as_object(call.received),
        received=call.received,
        verdicts=tuple(facts.verdicts),
        status=call.status,
        result=_result(call.result),
        reason=call.error,
        caused_by=facts.caused_by,
        parent=facts.parent,
        position=call.position,
        at_ns=call.at_ns,
        duration_ms=call.duration_ms,
    )


def _as_object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _result(body: Mapping[str, Any]) -> ToolResult | None:
    try:
        return msgspec.convert(body, ToolResult) if body else None
    except msgspec.ValidationError:
        return None


def _text(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    return value if isinstance(value, str) else ""
