"""Queries for the events of a journal.

Every journal answers an `EventQuery`. `select` defines its meaning over a sequence of events; a database with an index must return the
same. Knows nothing of where events are stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

import msgspec
from msgspec import Struct

from callgate._option_checks import Options
from callgate.events import Event

__all__ = ["FACT_KINDS", "CallFacts", "EventQuery", "facts_of", "merged", "select"]


class EventQuery(Options, frozen=True, kw_only=True):
    """Selects events. A field that is not given does not restrict the selection."""

    run: str | None = None
    call: str | None = None
    """The uid of a call."""
    calls: tuple[str, ...] = ()
    """The uids of calls; events of any of them match. At most some hundreds."""
    tool: str | None = None
    """Events of the calls of this tool: its resolved name, or the name in the call if no tool was found."""
    actor: str | None = None
    """Events of the calls that were made for this actor."""
    principal: str | None = None
    """Events of the calls that were made on behalf of this principal."""
    conversation: str | None = None
    """Events of the calls that were made in this conversation."""
    kinds: tuple[str, ...] = ()
    """Any of these kinds; one that ends in a dot matches all kinds with this prefix."""
    since_ns: int | None = None
    """At or after this wall time, UTC nanoseconds."""
    until_ns: int | None = None
    """Before this wall time, UTC nanoseconds."""
    field: tuple[str, object] | None = None
    """A dotted path into the body and its value: `("metadata.cached", "tick")`. There is no index for it, so combine it with others."""
    caused_by: int | None = None
    """Only events that the event at this position caused, directly or indirectly."""
    after: int = 0
    """After this position."""
    before: int | None = None
    """Before this position; for the next page with `newest_first`."""
    limit: int | None = None
    newest_first: bool = False

    def holds(self, event: Event) -> bool:
        """Whether the event matches every field that can be checked without other events.

        These are all fields but `tool`, `actor`, `principal`, `conversation` and `caused_by`.
        """
        return (
            event.position > self.after
            and self.run in (None, event.run)
            and self.call in (None, event.call)
            and (not self.calls or event.call in self.calls)
            and self.is_of_kind(event.kind)
            and (self.before is None or event.position < self.before)
            and (self.since_ns is None or event.at_ns >= self.since_ns)
            and (self.until_ns is None or event.at_ns < self.until_ns)
            and (self.field is None or _has(event.body, *self.field))
        )

    def is_of_kind(self, kind: str) -> bool:
        """Whether events of this kind match the field `kinds`."""
        return not self.kinds or any(_of_kind(kind, wanted) for wanted in self.kinds)

    @property
    def derived(self) -> bool:
        """Whether matching an event needs other events, too."""
        return self.by_call or self.caused_by is not None

    @property
    def by_call(self) -> bool:
        """Whether matching needs facts about the event's call."""
        return not (self.tool is None and self.actor is None and self.principal is None and self.conversation is None)

    def is_about(self, facts: CallFacts | None) -> bool:
        """Whether events of a call with these facts match the fields `tool`, `actor`, `principal` and `conversation`."""
        return (
            facts is not None
            and self.tool in (None, facts.tool)
            and self.actor in (None, facts.actor)
            and self.principal in (None, facts.principal)
            and self.conversation in (None, facts.conversation)
        )


FACT_KINDS: Final = frozenset({"call.received", "call.verdict", "call.started"})
"""The kinds of events that have facts about their call."""


class CallFacts(Struct, frozen=True, kw_only=True):
    """The facts that one event has about its call."""

    tool: str = ""
    actor: str = ""
    principal: str = ""
    conversation: str = ""
    final: bool = False
    """Whether the tool's name is the resolved one, and not the one in the call."""


def select(events: Iterable[Event], query: EventQuery) -> list[Event]:
    """Return the events that match, given all events in order from the first.

    Causes and calls are followed from the beginning, so leaving out the first events changes the result.
    """
    kept = _narrow(list(events), query)
    found = (event for event in (reversed(kept) if query.newest_first else kept) if query.holds(event))
    return list(islice(found, query.limit))


def _narrow(events: list[Event], query: EventQuery) -> list[Event]:
    kept = events
    if query.caused_by is not None:
        followed = {query.caused_by}
        kept = [event for event in events if _follows(event, followed)]
    if query.by_call:
        calls = _calls(events)
        kept = [event for event in kept if query.is_about(calls.get(event.call))]
    return kept


def _follows(event: Event, followed: set[int]) -> bool:
    if not followed.isdisjoint(event.parents):
        followed.add(event.position)
        return True
    return False


def _calls(events: Iterable[Event]) -> dict[str, CallFacts]:
    calls: dict[str, CallFacts] = {}
    for event in events:
        facts = facts_of(event)
        if facts is not None:
            calls[event.call] = merged(calls.get(event.call), facts)
    return calls


def merged(known: CallFacts | None, new: CallFacts) -> CallFacts:
    """Return the combination of two facts about one call. A resolved tool name replaces the name in the call."""
    if known is None:
        return new
    better = new.tool and (new.final or not known.tool) and not (known.final and not new.final)
    return CallFacts(
        tool=new.tool if better else known.tool,
        actor=known.actor or new.actor,
        principal=known.principal or new.principal,
        conversation=known.conversation or new.conversation,
        final=known.final or new.final,
    )


class _Body(Struct):
    name: object = None
    tool: object = None
    scope: object = None


_body = msgspec.json.Decoder(_Body).decode
_value = msgspec.json.Decoder().decode


def facts_of(event: Event) -> CallFacts | None:
    """Return the call's tool, actor, principal and conversation, if this event has them; a body with other fields has none."""
    if not event.call or event.kind not in FACT_KINDS:
        return None
    try:
        body = _body(event.body)
    except (ValueError, RecursionError):
        return None
    if event.kind != "call.received":
        return CallFacts(tool=_text(body.tool), final=True) if body.tool else None
    scope = body.scope if isinstance(body.scope, dict) else {}
    return CallFacts(
        tool=_text(body.name),
        actor=_text(scope.get("actor")),
        principal=_text(scope.get("principal")),
        conversation=_text(scope.get("conversation")),
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _of_kind(kind: str, wanted: str) -> bool:
    return kind.startswith(wanted) if wanted.endswith(".") else kind == wanted


def _has(body: bytes, path: str, wanted: object) -> bool:
    try:
        value = _value(body)
    except (ValueError, RecursionError):
        return False
    return any(_is_equal(found, wanted) for found in _values_at(value, path.split(".")))


def _values_at(value: object, path: list[str]) -> Iterator[object]:
    """Return the value at the path; a number is a list index."""
    for step in path:
        if isinstance(value, Mapping) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            return
    yield value


def _is_equal(found: object, wanted: object) -> bool:
    """Whether the values are equal as JSON: true is not 1."""
    return found == wanted and isinstance(found, bool) == isinstance(wanted, bool)
