"""Statistics over calls: durations, outcomes, time saved by the cache and by early starts.

Pure. Savings are conservative estimates: a cached result saves its tool's median duration; an early start saves the time that the call ran
before its message was complete.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from msgspec import Struct

from callgate._call_summary import CallSummary, body_of
from callgate.events import Event

__all__ = ["Statistics", "ToolStatistics", "percentile", "plain", "sealed_at", "statistics"]


class ToolStatistics(Struct, frozen=True, kw_only=True):
    """Statistics of one tool's calls."""

    tool: str
    calls: int
    statuses: dict[str, int]
    p50_ms: float
    """Percentile of the durations from arrival to end, in milliseconds. The percentiles include only calls that ran."""
    p95_ms: float
    longest_ms: float
    times_ms: tuple[float, ...]
    """Sorted durations."""


class Statistics(Struct, frozen=True, kw_only=True):
    """Statistics of all calls."""

    calls: int
    runs: int
    first_ns: int
    last_ns: int
    """When the last call arrived."""
    tools: tuple[ToolStatistics, ...]
    """Sorted by number of calls, most first."""
    failures: dict[str, int]
    """Number of calls by failure class, most frequent first."""
    retried: int
    replayed: int
    cached: int
    cache_saved_ms: float
    early: int
    """Calls that started before their message was complete."""
    early_saved_ms: float


def sealed_at(events: Iterable[Event]) -> dict[str, float]:
    """Return when each call's message was complete, in monotonic seconds of the writing process."""
    sealed: dict[str, float] = {}
    for event in events:
        if event.kind == "emission.sealed":
            details = body_of(event).get("details")
            uids = details.get("calls") if isinstance(details, dict) else None
            sealed.update((uid, event.mono) for uid in (uids if isinstance(uids, list) else ()) if isinstance(uid, str))
    return sealed


def statistics(calls: Sequence[CallSummary], sealed: Mapping[str, float]) -> Statistics:
    """Compute statistics; `sealed` is the result of `sealed_at`. A call that waited for approval and its repetition count as one."""
    calls = _without_handed_in_again(calls)
    by_tool: defaultdict[str, list[CallSummary]] = defaultdict(list)
    for call in calls:
        by_tool[call.tool].append(call)
    tools = [_tool_statistics(tool, of_tool) for tool, of_tool in by_tool.items()]
    head_starts = [saved for call in calls if (saved := _head_start_ms(call, sealed.get(call.uid))) > 0]
    typical = {tool: median(times) for tool, of_tool in by_tool.items() if (times := [_run_ms(call) for call in of_tool if _has_run(call)])}
    cached = [call for call in calls if call.cached]
    return Statistics(
        calls=len(calls),
        runs=len({call.run for call in calls}),
        first_ns=min((call.at_ns for call in calls), default=0),
        last_ns=max((call.at_ns for call in calls), default=0),
        tools=tuple(sorted(tools, key=lambda one: (-one.calls, one.tool))),
        failures=dict(Counter(call.failure_class for call in calls if call.failure_class).most_common()),
        retried=sum(call.attempts > 1 for call in calls),
        replayed=sum(call.replayed for call in calls),
        cached=len(cached),
        cache_saved_ms=sum(max(0.0, typical.get(call.tool, 0.0) - call.duration_ms) for call in cached),
        early=len(head_starts),
        early_saved_ms=sum(head_starts),
    )


def _without_handed_in_again(calls: Sequence[CallSummary]) -> list[CallSummary]:
    """Drop calls that waited for a human if a later call repeats them."""
    kept: list[CallSummary] = []
    again: set[tuple[str, ...]] = set()
    for call in reversed(calls):
        same = (call.run, call.uid.rsplit("/", 1)[0], call.id, call.origin, call.name, call.received)
        if call.status != "asked" or same not in again:
            kept.append(call)
        again.add(same)
    return kept[::-1]


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of the values does not exceed; 0 if there are none."""
    if not ordered:
        return 0.0
    return ordered[max(0, -(-len(ordered) * round(share * 100) // 100) - 1)]


def _tool_statistics(tool: str, calls: Sequence[CallSummary]) -> ToolStatistics:
    times = sorted(call.duration_ms for call in calls if _has_run(call))
    return ToolStatistics(
        tool=tool,
        calls=len(calls),
        statuses=dict(Counter(call.status for call in calls).most_common()),
        p50_ms=percentile(times, 0.5),
        p95_ms=percentile(times, 0.95),
        longest_ms=times[-1] if times else 0.0,
        times_ms=tuple(times),
    )


def _has_run(call: CallSummary) -> bool:
    return bool(call.starts) and call.ended is not None


def _run_ms(call: CallSummary) -> float:
    return max(0.0, (call.ended or 0.0) - call.starts[0]) * 1000


def _head_start_ms(call: CallSummary, sealed: float | None) -> float:
    """Return how long the call had run when its message was complete."""
    if sealed is None or not call.starts:
        return 0.0
    return (min(sealed, call.ended if call.ended is not None else sealed) - call.starts[0]) * 1000


def plain(found: Statistics) -> dict[str, Any]:
    """Return the statistics as JSON data, without individual durations."""
    fields: dict[str, Any] = {name: getattr(found, name) for name in found.__struct_fields__ if name != "tools"}
    tools = [{name: getattr(one, name) for name in one.__struct_fields__ if name != "times_ms"} for one in found.tools]
    return fields | {"tools": tools}
