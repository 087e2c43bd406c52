"""The crash harness `crashresume` from PyPI: it interrupts an agent after each effect, restarts it, and reports repeats and losses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from crashresume import Context, conform

from callgate import Engine, RawCall, Scope, SqliteJournal, ToolResult, Verified, tool

JOBS = ["A7", "B8", "C9"]


class Payer:
    """Pays for one job per step with a `once` tool. The harness records the effect and then interrupts the run.

    Args:
        verified: Whether the tool has a `verify` function.
    """

    def __init__(self, ctx: Context, folder: Path, *, verified: bool) -> None:
        self.ctx = ctx
        self._journal = folder / f"{ctx.run_id}.db"
        self._verify = self._found if verified else None
        self._statuses: dict[str, str] = {}

    def _found(self, arguments: dict[str, Any], key: str) -> Verified:
        return Verified(happened=f"pay:{arguments['job']}" in self.ctx.effects.keys(), result="paid")  # noqa: SIM118 - a method of the harness

    def step(self, job: str) -> None:
        self._statuses[job] = self._pay(job).status

    def _pay(self, job: str) -> ToolResult:
        @tool(verify=self._verify)
        def pay(job: str) -> str:
            """Pay for a job."""
            self.ctx.effect("pay", job, key=f"pay:{job}")
            return "paid"

        engine = Engine([pay], journal=SqliteJournal(self._journal))
        try:
            call = RawCall(id=f"call-{job}", name="pay", arguments=json.dumps({"job": job}))
            outcome = engine.call_sync(call, Scope(run=self.ctx.run_id))
            assert hasattr(outcome, "result")
            return outcome.result
        finally:
            engine.close_sync()

    def state(self) -> dict[str, str]:
        return self._statuses


def test_no_effect_is_repeated_or_lost_when_the_tool_has_a_verify_function(tmp_path: Path) -> None:
    report = conform(lambda ctx: Payer(ctx, tmp_path, verified=True), JOBS)
    assert (report.crash_points, report.findings) == (3, [])


def test_no_effect_is_repeated_when_the_tool_has_no_verify_function(tmp_path: Path) -> None:
    report = conform(lambda ctx: Payer(ctx, tmp_path, verified=False), JOBS)
    assert report.crash_points == 3
    assert {finding.kind for finding in report.findings} == {"resume_diverged"}  # `unknown` where the baseline has `ok`


def test_the_harness_reports_a_repeat_when_verify_wrongly_denies_the_effect(tmp_path: Path) -> None:
    class Liar(Payer):
        def _found(self, arguments: dict[str, Any], key: str) -> Verified:
            return Verified(happened=False)

    report = conform(lambda ctx: Liar(ctx, tmp_path, verified=True), JOBS)
    assert "effect_replayed" in {finding.kind for finding in report.findings}
