"""Demonstration 1: a tool can be stopped, and its exits and crashes do not affect the engine."""

from __future__ import annotations

import asyncio
import time

from callgate.demo import tools
from callgate.demo._checks import Finding, finding
from callgate.demo._demo_run import DemoRun, calls_in, killed_at, raw

__all__ = ["stop"]

_WITHIN_S = 30.0
"""The allowed delay in seconds; long enough for a slow machine. The tool itself would run for hours."""
_HELD_S = 2.0
"""The allowed gap of the event loop in seconds.

A tool that blocks the loop would cause a gap of its time limit, twice this.
"""
_TICK_S = 0.02


async def stop(stage: DemoRun) -> list[Finding]:
    """Run four failing tools at once, kill a fifth call, and then make another call on the same engine."""
    bad = [tools.call_exit, tools.legacy_export, tools.crash, tools.spin]
    async with stage.engine([*bad, tools.order_history]) as engine:
        pulse = asyncio.create_task(_longest_gap())
        calls = [raw("call_exit"), raw("legacy_export", customer="C-17"), raw("crash"), raw("spin")]
        await engine.call_many(calls, stage.scope())
        with killed_at(engine, stage.name, "spinning"):
            await engine.call(raw("spin"), stage.scope(iteration=1))
        engine.control.end_turn(stage.name)
        await engine.call(raw("order_history", customer="C-17", orders=3), stage.scope(iteration=2))
        pulse.cancel()
        gap = (await asyncio.gather(pulse, return_exceptions=True))[0]
    return _findings(stage, gap if isinstance(gap, float) else 0.0)


async def _longest_gap() -> float:
    """Measure the longest time for which the event loop was blocked, until cancelled."""
    longest, last = 0.0, time.monotonic()
    try:
        while True:
            await asyncio.sleep(_TICK_S)
            now = time.monotonic()
            longest, last = max(longest, now - last - _TICK_S), now
    except asyncio.CancelledError:
        return longest


def _findings(stage: DemoRun, gap: float) -> list[Finding]:
    calls = calls_in(stage.journal)
    exits, hard, crashed, spun, killed, after = calls
    noted, left, running = stage.ledger.entries("process"), stage.ledger.entries("left"), stage.ledger.running()
    gone = not left and not running and len(noted) == 6
    return [
        finding("sys.exit in a tool is a result", exits.code == "tool_raised", exits.error),
        finding("an immediate exit in a tool is a result", "exit code 3" in hard.error, hard.error),
        finding("a segmentation fault in a tool is a result", "SIGSEGV" in crashed.error, crashed.error),
        finding(
            "an endless C loop is ended at its deadline",
            spun.failure_class == "timeout" and spun.overdue_s < _WITHIN_S,
            f"{spun.overdue_s:.2f} s after it",
        ),
        finding(
            "a kill ends a C loop",
            killed.status == "aborted" and killed.duration_ms < _WITHIN_S * 1_000,
            f"at {killed.duration_ms:,.0f} ms",
        ),
        finding(
            "no process survived its call, not even in a session of its own", gone, f"{len(noted)} noted", [f"{e.pid} left" for e in left]
        ),
        finding("the engine works afterwards", after.status == "ok", f"the next call answered in {after.duration_ms:,.0f} ms"),
        finding("the event loop was never blocked", gap < _HELD_S, f"longest gap {gap * 1000:,.0f} ms"),
    ]
