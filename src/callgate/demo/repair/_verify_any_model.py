"""Check the claims that hold for any model: the run ended, and every effect went through the engine."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

from callgate._call_summary import CallSummary, summarise
from callgate._journal.event_rows import verify
from callgate.agent import RunResult
from callgate.demo._checks import Finding, finding
from callgate.demo._demo_run import events_in
from callgate.demo._effect_log import EffectLog
from callgate.demo.repair._project import FILES, test_command
from callgate.demo.repair._verify import nothing_left

__all__ = ["verify_own"]

_TESTS_S = 120.0


def verify_own(root: Path, result: RunResult) -> list[Finding]:
    """Check each claim against the folder."""
    events = events_in(root / "journal.db")
    calls, ledger = summarise(events), EffectLog(root / "ledger.jsonl")
    broken = verify(events)
    return [
        finding("the run ended", result.status == "completed", result.reason or result.text or result.status),
        _green(root / "repository"),
        _check_tests_untouched(root / "repository"),
        _effects(calls, ledger),
        _check_denials(calls),
        nothing_left(root, ledger),
        finding("the journal verifies", broken is None, f"{len(events)} events, chained by hashes" if broken is None else broken.why),
    ]


def _green(repository: Path) -> Finding:
    """Run the tests once more, outside of the engine."""
    try:
        done = subprocess.run(test_command(), cwd=repository, capture_output=True, timeout=_TESTS_S, check=False)
        code: object = done.returncode
    except (OSError, subprocess.TimeoutExpired) as error:
        code = type(error).__name__
    return finding("the tests are green", code == 0, f"exit code {code}")


def _check_tests_untouched(repository: Path) -> Finding:
    wrong = [
        name
        for name, text in FILES.items()
        if name.startswith("tests/") and (not (repository / name).is_file() or (repository / name).read_text(encoding="utf-8") != text)
    ]
    return finding("the tests are untouched", not wrong, wrong or "compared with what they were")


def _effects(calls: list[CallSummary], ledger: EffectLog) -> Finding:
    started = Counter(call.uid for call in calls if call.effect not in ("", "none") for _ in call.starts)
    written = Counter(entry.call for entry in ledger.entries("effect"))
    return finding(
        "every effect happened exactly once",
        started == written and max(written.values(), default=1) == 1,
        f"{started.total()} in the journal, {written.total()} in the ledger",
    )


def _check_denials(calls: list[CallSummary]) -> Finding:
    denied = [call for call in calls if call.failure_class == "denied"]
    ran = [call.uid for call in denied if call.starts]
    return finding("no denied call ran", not ran, ran or f"{len(denied)} calls were denied")
