"""The entry of each tool call in the record: final arguments, result, cause and phase, by one query.

Derived from the call's events, for calls that ran and for those that were denied, invalid or never started alike. Pure reading, and as
tolerant as `_call_summary` is. Must not know where events are kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from callgate._call_summary import CallSummary, body_of, summarise
from callgate.calls import ToolResult
from callgate.events import Event
from callgate.queries import EventQuery

__all__ = ["CallVerdict", "FindsEvents", "ToolCallEntry", "find_tool_calls"]

_TOGETHER = 200
_EVERY_CALL = EventQuery()


class FindsEvents(Protocol):
    """A journal, or what reads one from beside its engine."""

    def find(self, query: EventQuery) -> Iterable[Event]: ...


class CallVerdict(Struct, frozen=True, kw_only=True):
    """What the gate said of a call, once."""

    verdict: str
    """`allow`, `deny`, `ask` or `modify`."""
    rule: str = ""
    hook: str = ""
    reason: str = ""
    arguments: dict[str, Any] | None = None
    """What the verdict is about; of `modify`, the new arguments. None where an older record does not say."""


class ToolCallEntry(Struct, frozen=True, kw_only=True):
    """One call of a tool, from its record."""

    uid: str
    run: str
    phase: str = ""
    """The phase of the run that it belongs to; empty where its scope named none."""
    tool: str = ""
    """The resolved name; as it came where no tool has it."""
    id: str = ""
    """The model's, or the host's."""
    arguments: dict[str, Any] | None = None
    """The final ones: validated, coerced, with defaults, changed by hooks and policies. As they came, where the call was refused before
    they were valid; None where they are no JSON object."""
    received: str = ""
    """The arguments as they came, up to the record's limit."""
    verdicts: tuple[CallVerdict, ...] = ()
    status: str = "open"
    """`ok`, `error`, `unknown`, `asked`, `aborted`, `restarted`, or `open` while no end is recorded."""
    result: ToolResult | None = None
    """As everybody saw it, without what was redacted or withheld; None where the call has none."""
    reason: str = ""
    """Why it did not succeed, or ended without a result."""
    caused_by: int = 0
    """The position of the event that caused it; 0: none."""
    parent: str = ""
    """The uid of the call whose tool made it."""
    position: int = 0
    """Of its first event."""
    at_ns: int = 0
    """When it came, in UTC nanoseconds."""
    duration_ms: float = 0.0


def find_tool_calls(journal: FindsEvents, query: EventQuery = _EVERY_CALL) -> list[ToolCallEntry]:
    """The entries of all calls of which an event is as asked, in the order in which they came.

    Args:
        journal: Where it is on a server, this waits for it: call it in a thread then.
        query: `limit` counts calls, the first ones, or the last with `newest_first`. `kinds` picks calls by the events that they have; by
            default, a call is asked about as it came, and `field` looks into all of its events.
    """
    kinds = query.kinds or (("call.",) if query.field is not None else ("call.received",))
    found = journal.find(replace(query, kinds=kinds, limit=None))
    uids = list(_first(found, query.limit))
    entries: list[ToolCallEntry] = []
    for first in range(0, len(uids), _TOGETHER):
        entries += _entries(journal.find(EventQuery(calls=tuple(uids[first : first + _TOGETHER]), kinds=("call.",))))
    return sorted(entries, key=lambda entry: entry.position)


def _first(events: Iterable[Event], most: int | None) -> Iterator[str]:
    """The first so many different calls of these events."""
    seen: set[str] = set()
    for event in events:
        if most is not None and len(seen) >= most:
            return
        if event.call and event.call not in seen:
            seen.add(event.call)
            yield event.call


class _Facts(Struct):
    """What the events of one call say that its summary does not."""

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
            _received(known, event)
        elif event.kind == "call.verdict":
            known.verdicts.append(_verdict(body_of(event)))
    return [_entry(call, facts[call.uid]) for call in summarise(kept)]


def _received(facts: _Facts, event: Event) -> None:
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
        tool=call.tool,
        id=call.id,
        arguments=judged[-1] if judged else _object(call.arguments),
        received=call.arguments,
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


def _object(text: str) -> dict[str, Any] | None:
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
