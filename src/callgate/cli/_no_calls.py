"""Explain why `callgate log` finds nothing: no such kind, status, field or tool exists in the journal. Only reads."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from callgate._call_summary import body_of, summarise
from callgate._journal import JournalReader
from callgate._terminal_text import one_line
from callgate.errors import UsageError
from callgate.event_queries import EventQuery
from callgate.events import KINDS

__all__ = ["refuse_unknown_kind", "why_no_calls"]

_STATUSES = ("ok", "error", "unknown", "asked", "aborted", "restarted", "open")
_LATEST = 1_000
"""How many of the newest events are read for the names of tools and fields."""
_SHOWN = 12


def refuse_unknown_kind(reader: JournalReader, query: EventQuery) -> None:
    """Raise `UsageError` for a kind that no event has. A newer callgate may have written kinds that are unknown here."""
    known = (kind for kind in query.kinds if any(map(EventQuery(kinds=(kind,)).is_of_kind, KINDS)))
    for kind in set(query.kinds).difference(known):
        if not list(reader.find(EventQuery(kinds=(kind,), limit=1))):
            first = kind.removesuffix(".")
            names = (name.partition(".")[0] for name in KINDS) if kind.endswith(".") else KINDS
            raise UsageError(f"No event has the kind '{one_line(first, 80)}'. {_nearest(first, names)}")


def why_no_calls(reader: JournalReader, query: EventQuery) -> str:
    """Return one sentence about a status, field, tool or principal that does not exist; otherwise a general one."""
    path, value = query.field or ("", None)
    if path == "status" and not query.kinds and value not in _STATUSES:
        return f"No call has the status '{one_line(str(value), 80)}'. {_nearest(str(value), _STATUSES)}"
    if path and (fields := _fields(reader)) and (name := path.partition(".")[0]) not in fields:
        inside = [f"{outer}.{name}" for outer, inner in fields.items() if name in inner]
        hint = f"Use --field {one_line(inside[0], 160)}=..." if inside else _nearest(name, fields)
        return f"None of the latest events has a field '{one_line(name, 80)}'. {hint}"
    if query.tool is not None and (tools := _tools(reader)) and query.tool not in tools:
        return f"No recent call of a tool '{one_line(query.tool, 80)}' is on record. {_nearest(query.tool, tools)}"
    if query.principal is not None and query.principal not in (names := _principals(reader)):
        known = _nearest(query.principal, names) if names else "No call on record names a principal."
        return f"No recent call was made on behalf of '{one_line(query.principal, 80)}'. {known}"
    return "No calls match. `callgate log list --journal FILE` shows those of another journal."


def _nearest(given: str, known: Iterable[str]) -> str:
    names = list(dict.fromkeys(known))
    near = get_close_matches(given[:100], names, n=1, cutoff=0.6)
    listed = ", ".join(one_line(name, 80) for name in names[:_SHOWN])
    more = ", …" if len(names) > _SHOWN else ""
    return f"{f'Did you mean {one_line(near[0], 80)}? ' if near else ''}There are: {listed}{more}."


def _tools(reader: JournalReader) -> list[str]:
    query = EventQuery(kinds=("call.received", "call.started", "call.verdict"), newest_first=True, limit=_LATEST)
    names = (body_of(event).get("tool") or body_of(event).get("name") for event in reader.find(query))
    return sorted({name for name in names if isinstance(name, str)})


def _principals(reader: JournalReader) -> list[str]:
    query = EventQuery(kinds=("call.received",), newest_first=True, limit=_LATEST)
    return sorted({call.principal for call in summarise(reader.find(query)) if call.principal})


def _fields(reader: JournalReader) -> dict[str, set[str]]:
    """Return the fields of the latest events, in order, each with the fields of the objects in it."""
    fields: dict[str, set[str]] = {}
    for event in reader.find(EventQuery(kinds=("call.",), newest_first=True, limit=_LATEST)):
        for name, value in body_of(event).items():
            fields.setdefault(name, set()).update(value if isinstance(value, dict) else ())
    return dict(sorted(fields.items()))
