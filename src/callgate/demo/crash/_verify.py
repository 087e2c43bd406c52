"""Check the demonstration's claims against its folder: the tools' ledger, the journal, and the model's requests.

The tools write the ledger independently of the engine, so that a difference between the ledger and the journal shows a
fault.
"""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from callgate._call_summary import CallSummary, summarise
from callgate._journal.event_rows import verify
from callgate.demo._checks import Finding, finding
from callgate.demo._demo_run import events_in
from callgate.demo._effect_log import EffectLog
from callgate.demo._model import recorded_requests
from callgate.demo.crash._kill_points import MOMENTS, ORDER, KillPoint
from callgate.events import Event

__all__ = ["verify_crash"]

_WHAT_TO_DO = ("was not run again", "Check whether")


def verify_crash(root: Path) -> list[Finding]:
    """Check every claim of the demonstration against the files in its folder `root`."""
    events = events_in(root / "journal.db")
    calls, effects = summarise(events), Counter(entry.call for entry in EffectLog(root / "ledger.jsonl").entries("effect"))
    kills: dict[str, list[int]] = json.loads((root / "kills.json").read_text(encoding="utf-8"))
    broken = verify(events)
    return [
        *(_moment(moment, calls, effects) for moment in MOMENTS),
        _deaths(kills),
        _never_twice(calls, effects),
        _nothing_lost(calls, effects),
        _check_ends(events),
        _told_once(root),
        finding("the journal verifies", broken is None, f"{len(events)} events, chained by hashes" if broken is None else broken.why),
    ]


def _moment(moment: KillPoint, calls: Sequence[CallSummary], effects: Counter[str]) -> Finding:
    """Check that the call has the expected status and effects, and that all other calls of its run are ok."""
    mine = [call for call in calls if call.run == moment.name]
    call = next((call for call in mine if call.tool == moment.tool), None)
    if call is None:
        return finding(moment.says, False, "the call is not recorded")
    others = all(other.status == "ok" for other in mine if other is not call)
    holds = call.status == moment.status and effects[call.uid] == moment.effects and len(mine) == len(ORDER) and others
    said = f"{call.status}{': ' + call.error if call.error else ''}"
    return finding(moment.says, holds, f"{effects[call.uid]} in the ledger", said)


def _deaths(kills: dict[str, list[int]]) -> Finding:
    """Check that the last process of each run finished, and that all others were killed."""
    wanted = {moment.name: [-signal.SIGKILL] * (1 + len(moment.again)) + [0] for moment in MOMENTS}
    wrong = [name for name in wanted if kills.get(name) != wanted[name]]
    count = sum(code == -signal.SIGKILL for codes in kills.values() for code in codes)
    return finding("every process died of kill -9 where it was meant to", not wrong, wrong or f"{count} kills, {len(wanted)} runs finished")


def _never_twice(calls: Sequence[CallSummary], effects: Counter[str]) -> Finding:
    known = {call.uid for call in calls}
    twice = [uid for uid, count in effects.items() if count > 1 or uid not in known]
    return finding("no effect happened twice", not twice, twice or f"{effects.total()} in the ledger, of {len(effects)} calls")


def _nothing_lost(calls: Sequence[CallSummary], effects: Counter[str]) -> Finding:
    """Check that each `ok` call has its effect in the ledger, and that each `unknown` result says what to check."""
    wrong = [call.uid for call in calls if call.status == "ok" and effects[call.uid] != (call.effect != "none")]
    vague = [call.uid for call in calls if call.status == "unknown" and not all(word in call.error for word in _WHAT_TO_DO)]
    ends = Counter(call.status for call in calls)
    told = [*wrong, *vague] or (f"{count} {status}" for status, count in ends.items())
    return finding("each result is true, or says what to check", not wrong and not vague and ends.keys() <= {"ok", "unknown"}, told)


def _check_ends(events: Sequence[Event]) -> Finding:
    """Check that every run was completed exactly once."""
    ends = Counter(event.run for event in events if event.kind == "run.ended" and json.loads(event.body)["status"] == "completed")
    holds = ends == Counter(moment.name for moment in MOMENTS)
    return finding("every run ended once", holds, f"{ends.total()} of {len(MOMENTS)}")


def _told_once(root: Path) -> Finding:
    """Check that the last prompt of each run has exactly one result for each call, in the order of the calls."""
    last: dict[str, list[dict[str, Any]]] = {}
    for request in recorded_requests(root / "requests.jsonl"):
        task = next(message["content"] for message in request["messages"] if message["role"] == "user")
        last[str(task).rpartition(" ")[2]] = request["messages"]
    wrong = [moment.name for moment in MOMENTS if not _each_once(last.get(moment.name, []))]
    return finding("the model was told each result once, in its place", not wrong, wrong or f"the last prompt of {len(last)} runs")


def _each_once(messages: Sequence[dict[str, Any]]) -> bool:
    wanted = [call["id"] for message in messages for call in message.get("tool_calls") or ()]
    given = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    return len(given) == len(ORDER) and wanted == given
