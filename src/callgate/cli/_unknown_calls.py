"""Find the calls of a journal whose outcome is unknown, and those that have to be settled. Only reads."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from callgate._call_summary import CallSummary, summarise
from callgate._journal import JournalReader
from callgate._run_state.run_recovery import RunReader
from callgate._terminal_text import one_line
from callgate.cli._journal_reading import end_orphans
from callgate.event_queries import EventQuery
from callgate.events import TERMINAL

__all__ = ["arguments_text", "calls_without_end", "is_unsettled", "summaries_of", "unsettled_calls"]

_TOGETHER = 200


def arguments_text(call: CallSummary, limit: int = 200) -> str:
    """Return a call's final arguments for a person, with those received if they differ."""
    final = one_line(call.arguments, limit)
    return f"{final} (changed; received: {one_line(call.received, limit)})" if call.arguments_changed else final


def summaries_of(reader: JournalReader, uids: list[str]) -> list[CallSummary]:
    """Return the summaries of these calls."""
    found: list[CallSummary] = []
    for first in range(0, len(uids), _TOGETHER):
        found += summarise(reader.find(EventQuery(calls=tuple(uids[first : first + _TOGETHER]))))
    return found


def calls_without_end(reader: JournalReader, query: EventQuery, journal: str) -> list[CallSummary]:
    """Return the matching calls that have no recorded end. Their status says whether a process still works on them."""
    begun: dict[str, None] = {}
    for event in reader.find(replace(query, kinds=("call.received", *TERMINAL), field=None, limit=None, newest_first=False)):
        if event.kind in TERMINAL:
            begun.pop(event.call, None)
        else:
            begun[event.call] = None
    calls = [call for call in summaries_of(reader, list(begun)) if call.status == "open"]
    end_orphans(calls, journal)
    return calls


def is_unsettled(call: CallSummary) -> bool:
    """Return whether the call may have taken effect, and its outcome is not settled."""
    return call.status == "unknown" and bool(call.starts) and call.effect != "none" and not call.settled


def unsettled_calls(reader: JournalReader, journal: str) -> list[CallSummary]:
    """Return the calls that have to be settled, the oldest first."""
    ended = {event.call for event in reader.find(EventQuery(kinds=tuple(TERMINAL), field=("status", "unknown")))}
    ended |= {event.call for event in reader.find(EventQuery(kinds=("call.aborted",)))}  # which says it in its details
    calls = [*summaries_of(reader, list(ended)), *calls_without_end(reader, EventQuery(), journal)]
    unknown = [call for call in calls if is_unsettled(call)]
    in_doubt = _ids_in_doubt(reader, unknown)
    return sorted((call for call in unknown if call.uid in in_doubt), key=lambda call: call.position)


def _ids_in_doubt(reader: JournalReader, calls: Iterable[CallSummary]) -> set[str]:
    """Return the ids of those of these calls that `settle` accepts."""
    found = set()
    for run in {call.run for call in calls}:
        reading = RunReader(run, remember=0)
        reading.take(reader.find(EventQuery(run=run)))
        state = reading.state()
        found |= {call.uid for call in calls if call.run == run and call.uid in state.in_doubt}
    return found
