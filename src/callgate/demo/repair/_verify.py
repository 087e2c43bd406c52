"""Check the main demonstration's claims against its folder: files, the tools' ledger, the journal, the processes.

The tools write the ledger independently of the engine. A claim fails if the ledger and the journal contradict each
other.
"""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from callgate._call_summary import CallSummary, summarise
from callgate._journal.event_rows import verify
from callgate.demo._checks import Finding, finding
from callgate.demo._demo_run import events_in, overlap
from callgate.demo._effect_log import EffectLog
from callgate.demo._model import recorded_requests
from callgate.demo.repair._project import REPAIRED
from callgate.demo.repair._verify_undo import verify_undo
from callgate.events import Event

__all__ = ["nothing_left", "verify_repair"]

_EFFECTS = {"run_command": 3, "edit_file": 1}
"""The expected effects: two test runs, one killed command, one edit. Nothing else."""
_WITHIN_S = 30.0
"""The allowed delay in seconds, also on a slow machine. The tool itself would run for hours."""


def verify_repair(root: Path) -> list[Finding]:
    """Check every claim of the main demonstration against its folder."""
    events = events_in(root / "journal.db")
    calls, ledger = summarise(events), EffectLog(root / "ledger.jsonl")
    broken = verify(events)
    return [
        _tests(calls),
        _files(root / "repaired"),
        _effects(calls, ledger),
        _side_by_side(calls),
        _early(events),
        _check_repairs(calls),
        _check_denial(calls),
        _check_cut_call(calls),
        _hung(calls, ledger),
        _check_exited_process(calls, ledger),
        _large(calls),
        _invoice(calls),
        _check_kill(calls),
        _went_on(root, events, ledger),
        nothing_left(root, ledger),
        _check_requests(root, calls),
        finding("the journal verifies", broken is None, f"{len(events)} events, chained by hashes" if broken is None else broken.why),
        verify_undo(root),
    ]


def _invoice(calls: Sequence[CallSummary]) -> Finding:
    found = [_output(call) for call in _ran(calls, "find_invoice")]
    return finding("an MCP server told what the invoice says", [one.get("invoiced_cents") for one in found] == [10], found)


def _ran(calls: Sequence[CallSummary], tool: str) -> list[CallSummary]:
    return [call for call in calls if call.tool == tool and call.starts]


def _output(call: CallSummary) -> dict[str, Any]:
    value = call.result.get("structured")
    return value if isinstance(value, dict) else {}


def _tests(calls: Sequence[CallSummary]) -> Finding:
    runs = [_output(call) for call in _ran(calls, "run_command") if call.status == "ok"]
    codes = [run.get("exit_code") for run in runs]
    framework = "pytest" if any("pytest" in call.arguments for call in calls) else "unittest"
    red_then_green = len(codes) == 2 and codes[0] not in (0, None) and codes[1] == 0
    failed = bool(runs) and "04711" in f"{runs[0].get('stdout')}{runs[0].get('stderr')}"
    return finding("the tests were red, then green", red_then_green and failed, f"{framework} gave exit codes {codes}")


def _files(repository: Path) -> Finding:
    there = {str(path.relative_to(repository)): path for path in repository.rglob("*") if path.is_file()}
    wrong = [name for name, text in REPAIRED.items() if name not in there or there[name].read_text(encoding="utf-8") != text]
    extra = sorted(there.keys() - REPAIRED.keys())
    told = [*(f"{name} is wrong" for name in wrong), *(f"{name} is new" for name in extra)]
    return finding("one file was repaired, the tests are untouched", not told, told or f"{len(there)} files compared")


def _effects(calls: Sequence[CallSummary], ledger: EffectLog) -> Finding:
    """Compare the journal with the tools' ledger, call by call."""
    started = Counter(call.uid for call in calls if call.effect not in ("", "none") for _ in call.starts)
    written = Counter(entry.call for entry in ledger.entries("effect"))
    by_tool = Counter(entry.tool for entry in ledger.entries("effect"))
    holds = started == written and by_tool == _EFFECTS
    return finding(
        "every effect happened exactly once",
        holds,
        f"{started.total()} in the journal",
        f"{written.total()} in the ledger",
        (f"{n} {tool}" for tool, n in by_tool.items()),
    )


def _side_by_side(calls: Sequence[CallSummary]) -> Finding:
    first = [call for call in calls if call.short.startswith("0/")]
    pairs = [(one, other) for index, one in enumerate(first) for other in first[index + 1 :]]
    beside = sum(overlap(one, other) for one, other in pairs)
    return finding("the reads of one message ran side by side", beside > 0, f"{beside} of {len(pairs)} pairs of {len(first)} calls")


def _early(events: Sequence[Event]) -> Finding:
    """Compare the positions of the call's start and the message's end in the journal."""
    whole = next((event for event in events if event.kind == "emission.sealed" and f"{event.run}/0/0" in event.body.decode()), None)
    early = [event for event in events if whole is not None and event.kind == "call.started" and event.position < whole.position]
    holds = whole is not None and bool(early)
    told = [f"event {event.position}" for event in early[:1]] + ([f"the message's end is event {whole.position}"] if whole else [])
    return finding("a read started while the model still streamed its message", holds, told)


def _check_requests(root: Path, calls: Sequence[CallSummary]) -> Finding:
    """Check in the model's requests that each ended call has one result, right after its message."""
    requests = recorded_requests(root / "requests.jsonl")
    messages = requests[-1]["messages"] if requests else []
    wanted: list[str] = [call["id"] for message in messages for call in message.get("tool_calls") or ()]
    given = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    ended = [call for call in calls if not _is_killed(call)]
    holds = bool(given) and wanted == given and len(given) == len(ended)
    return finding("the model was told each result once, in its place", holds, f"{len(requests)} requests over HTTP, {len(given)} results")


def _check_repairs(calls: Sequence[CallSummary]) -> Finding:
    kinds = Counter(note.split(":", 1)[0] for call in calls if call.status == "ok" for note in call.notes)
    holds = kinds["json_repaired"] == 1 and kinds["coerced"] >= 2
    return finding("repaired and coerced arguments are noted", holds, (f"{count} {kind}" for kind, count in kinds.items()))


def _check_denial(calls: Sequence[CallSummary]) -> Finding:
    denied = [call for call in calls if call.failure_class == "denied"]
    holds = len(denied) == 1 and not denied[0].starts and "tests-stay (policy.toml:" in denied[0].error + denied[0].rule
    return finding("the command that a rule forbids never ran", holds, (call.rule or call.error for call in denied))


def _check_cut_call(calls: Sequence[CallSummary]) -> Finding:
    cut = [call for call in calls if call.failure_class == "truncated_arguments"]
    return finding("the call that was cut off never ran", len(cut) == 1 and not cut[0].starts, (f"{c.tool}: {c.error}" for c in cut))


def _hung(calls: Sequence[CallSummary], ledger: EffectLog) -> Finding:
    hung = next((call for call in calls if call.failure_class == "timeout"), None)
    if hung is None:
        return finding("the tool that hung in C was ended", False, "no call timed out")
    noted = [entry for entry in ledger.entries("process") if entry.call == hung.uid]
    left = [entry for entry in ledger.entries("left") if entry.call == hung.uid]
    begun = len(hung.starts)  # once in the engine that was killed, once in the next
    # A tool notes two processes; on a slow machine the second engine's deadline may pass before that.
    holds = begun == 2 and 2 <= len(noted) <= 2 * begun and not left and hung.overdue_s < _WITHIN_S
    return finding(
        "the tool that hung in C was ended with all it had started",
        holds,
        f"{len(noted)} processes gone {hung.overdue_s:.2f} s after its deadline",
    )


def _check_exited_process(calls: Sequence[CallSummary], ledger: EffectLog) -> Finding:
    exited = [call for call in calls if call.tool == "legacy_export" and call.starts]
    noted = [entry for entry in ledger.entries("process") if exited and entry.call == exited[0].uid]
    holds = len(exited) == 1 and exited[0].status == "error" and 0 < len(noted) <= len(exited[0].starts)
    return finding("the tool that exited its process harmed nothing else", holds, (call.error for call in exited))


def _large(calls: Sequence[CallSummary]) -> Finding:
    large = [call for call in calls if call.truncated]
    found = [call for call in calls if call.tool == "search_result" and call.status == "ok"]
    shown = sum(len(part["text"].encode()) for call in large for part in call.result["content"])
    holds = len(large) == 1 and large[0].bytes > 1_000_000 and shown < 20_000 and bool(found and _output(found[0]).get("matches"))
    return finding(
        "a result of a megabyte cost a small prompt and was searched", holds, (f"{call.bytes:,} bytes, {shown:,} shown" for call in large)
    )


def _is_killed(call: CallSummary) -> bool:
    """Return whether a call was ended without a result: one with an effect is unknown then."""
    return call.status in ("aborted", "unknown") and not call.result


def _check_kill(calls: Sequence[CallSummary]) -> Finding:
    killed = [call for call in calls if _is_killed(call)]
    holds = len(killed) == 1 and "killed by the user" in killed[0].error and len(killed[0].starts) == 1
    return finding("the user's kill ended what was running", holds, (f"{call.tool} after {call.duration_ms:,.0f} ms" for call in killed))


def _went_on(root: Path, events: Sequence[Event], ledger: EffectLog) -> Finding:
    """Check that another process resumed the run and repeated no effect from before the kill."""
    died: dict[str, Any] = json.loads((root / "killed.json").read_text(encoding="utf-8"))
    later = [event for event in events if event.position > died["position"]]
    on = next((event for event in later if event.kind == "run.resumed"), None)
    again = [entry.call for entry in ledger.entries("effect")[len(died["effects"]) :] if entry.call in died["effects"]]
    holds = died["code"] == -signal.SIGKILL and bool(died["effects"]) and on is not None and on.epoch > 1 and not again
    return finding(
        "its engine was killed with kill -9, and another one finished the run",
        holds,
        f"process {died['pid']} died at event {died['position']}",
        f"{len(later)} events by the next process",
        again or "no effect repeated",
    )


def nothing_left(root: Path, ledger: EffectLog) -> Finding:
    """Check that no process in the ledger still runs, and that no process works in the repository."""
    left = [f"{entry.tool} {entry.pid}" for entry in ledger.running()]
    for process in psutil.process_iter(["cwd"]):
        cwd = process.info["cwd"]
        if cwd and Path(cwd).is_relative_to(root.resolve()):
            left.append(f"process {process.pid}")
    return finding("no process was left behind", not left, left or "checked every process of this machine")
