"""Questions to a journal: which events, of all that there are.

One value that every journal answers. `select` is the meaning of it, over events in plain order: what a database does with an index has
to come to the same. Knows nothing of where events are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

import msgspec
from msgspec import Struct

from callgate._options import Options
from callgate.events import Event

__all__ = ["CallFacts", "EventQuery", "facts_of", "merged", "select"]


class EventQuery(Options, frozen=True, kw_only=True):
    """Which events; what is not given does not narrow."""

    run: str | None = None
    call: str | None = None
    """A call's uid."""
    calls: tuple[str, ...] = ()
    """Any of these calls; at most some hundred."""
    tool: str | None = None
    """Events of the calls of this tool: its resolved name, or the name as it came where no tool was found."""
    actor: str | None = None
    """Events of the calls that were made for this actor."""
    kinds: tuple[str, ...] = ()
    """Any of these; one that ends in a dot stands for all that begin so."""
    since_ns: int | None = None
    """Not before this wall time, UTC nanoseconds."""
    until_ns: int | None = None
    """Before this wall time."""
    field: tuple[str, object] | None = None
    """A path into the body, with dots between, and the value that is there: `("metadata.cached", "tick")`. No index helps: give more."""
    caused_by: int | None = None
    """Only what followed from the event at this position, directly or through others."""
    after: int = 0
    """Beyond this position."""
    before: int | None = None
    """Short of this position; the way to the next page, newest first."""
    limit: int | None = None
    newest_first: bool = False

    def holds(self, event: Event) -> bool:
        """Whether the event's own columns and body are as asked: everything but `tool`, `actor` and `caused_by`."""
        return (
            event.position > self.after
            and self.run in (None, event.run)
            and self.call in (None, event.call)
            and (not self.calls or event.call in self.calls)
            and (not self.kinds or any(_of_kind(event.kind, kind) for kind in self.kinds))
            and (self.before is None or event.position < self.before)
            and (self.since_ns is None or event.at_ns >= self.since_ns)
            and (self.until_ns is None or event.at_ns < self.until_ns)
            and (self.field is None or _has(event.body, *self.field))
        )

    @property
    def derived(self) -> bool:
        """Whether it takes more than the event itself to answer."""
        return self.tool is not None or self.actor is not None or self.caused_by is not None


class CallFacts(Struct, frozen=True, kw_only=True):
    """What one event says about its call."""

    tool: str = ""
    actor: str = ""
    final: bool = False
    """Whether the tool's name is the resolved one."""


def select(events: Iterable[Event], query: EventQuery) -> list[Event]:
    """What `query` asks for, of all events in order from the first.

    Causes and calls are followed from the beginning, so that leaving out the first events changes the answer.
    """
    kept = _narrowed(list(events), query)
    found = (event for event in (reversed(kept) if query.newest_first else kept) if query.holds(event))
    return list(islice(found, query.limit))


def _narrowed(events: list[Event], query: EventQuery) -> list[Event]:
    kept = events
    if query.caused_by is not None:
        followed = {query.caused_by}
        kept = [event for event in events if _follows(event, followed)]
    if query.tool is not None or query.actor is not None:
        calls = _calls(events)
        kept = [event for event in kept if _is_about(calls.get(event.call), query)]
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
    """Both together: a resolved name stands over one as it came."""
    if known is None:
        return new
    better = new.tool and (new.final or not known.tool) and not (known.final and not new.final)
    return CallFacts(tool=new.tool if better else known.tool, actor=known.actor or new.actor, final=known.final or new.final)


def _is_about(facts: CallFacts | None, query: EventQuery) -> bool:
    return facts is not None and query.tool in (None, facts.tool) and query.actor in (None, facts.actor)


class _Body(Struct):
    name: object = None
    tool: object = None
    scope: object = None


_body = msgspec.json.Decoder(_Body).decode
_value = msgspec.json.Decoder().decode


def facts_of(event: Event) -> CallFacts | None:
    """The tool and the actor of a call, where this event tells them; a body of another shape tells nothing."""
    if not event.call or event.kind not in ("call.received", "call.verdict"):
        return None
    try:
        body = _body(event.body)
    except (ValueError, RecursionError):
        return None
    if event.kind == "call.verdict":
        return CallFacts(tool=_text(body.tool), final=True) if body.tool else None
    actor = body.scope.get("actor") if isinstance(body.scope, dict) else None
    return CallFacts(tool=_text(body.name), actor=_text(actor))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _of_kind(kind: str, wanted: str) -> bool:
    return kind.startswith(wanted) if wanted.endswith(".") else kind == wanted


def _has(body: bytes, path: str, wanted: object) -> bool:
    try:
        value = _value(body)
    except (ValueError, RecursionError):
        return False
    return any(_same(found, wanted) for found in _at(value, path.split(".")))


def _at(value: object, path: list[str]) -> Iterator[object]:
    """What stands at the path; a number counts in a list."""
    for step in path:
        if isinstance(value, Mapping) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            return
    yield value


def _same(found: object, wanted: object) -> bool:
    """Equal as JSON: true is not 1."""
    return found == wanted and isinstance(found, bool) == isinstance(wanted, bool)
