"""A summary of a whole journal as plain data, made by the readers. A fixture's summary must stay the same in later versions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any, Protocol

from callgate.agent.run_recorder import BlobReader
from callgate.event_queries import EventQuery
from callgate.events import Event
from callgate.recorded_calls import ToolCallEntry, find_tool_calls
from callgate.replay import Replay
from callgate.replay.run_calls import ReplayedCall
from tests.canonical_json import canonical

__all__ = ["read_again"]


class Finds(Protocol):
    def find(self, query: EventQuery, /) -> Iterable[Event]: ...


def read_again(journal: Finds, blobs: BlobReader | None = None) -> dict[str, Any]:
    """Return the entry of each call, and each run as its replay reconstructs it."""
    runs = dict.fromkeys(event.run for event in journal.find(EventQuery(kinds=("call.received", "run.began"))))
    found = {
        "calls": {entry.uid: _entry(entry) for entry in find_tool_calls(journal)},
        "runs": {run: _run(Replay.of(journal, run, blobs)) for run in runs},
    }
    return dict(json.loads(json.dumps(found)))


def _entry(entry: ToolCallEntry) -> dict[str, Any]:
    return {
        "tool": entry.tool,
        "status": entry.status,
        "arguments": entry.arguments,
        "verdicts": [[one.verdict, one.rule, one.hook, one.arguments] for one in entry.verdicts],
        "reason": entry.reason,
        "parent": entry.parent,
        "position": entry.position,
    }


def _run(replay: Replay) -> dict[str, Any]:
    return {
        "end": [replay.end.status, replay.end.turn_status, replay.end.text],
        "messages": [hashlib.sha256(canonical(message)).hexdigest()[:16] for message in replay.messages],
        "passes": len(replay.passes),
        "differences": [str(one) for one in replay.differences],
        "gaps": len(replay.gaps),
        "answers": [list(one) for one in replay.answers],
        "calls": {call.uid: _call(call) for call in replay.calls},
    }


def _call(call: ReplayedCall) -> dict[str, Any]:
    decision = call.decision
    return {
        "ended": call.ended,
        "undecided": bool(call.undecided),
        "identity": call.identity,
        "approval": call.approval,
        "decision": None
        if decision is None
        else [
            decision.word,
            decision.rule,
            decision.said,
            decision.code,
            decision.arguments.decode(),
            [note.kind for note in decision.notes],
        ],
        "result": None if call.result is None else [call.result.status, call.result.text],
    }
