"""Tests that a `verify` answer of "did not happen" counts only if the first attempt has certainly ended and can have no later effect."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import psutil
import pytest

from callgate import Engine, Scope, ToolResult
from callgate.agent import Agent
from callgate.errors import RunHeld
from tests.agent.scripted_model import Script, says
from tests.effect_ledger import Ledger
from tests.recovery.paused_tool_process import RUN, engine_over, handed_in, paying_late
from tests.recovery.test_two_processes import place, stand_still
from tests.waiting import soon

__all__ = ["place"]

pytestmark = [pytest.mark.process, pytest.mark.skipif(sys.platform != "linux", reason="stops and kills")]

_LONG_S, _SHORT_S = 3_000, 0.6


async def taken_over(engine: Engine) -> None:
    """Wait until the run can be taken over."""

    async def is_free() -> bool:
        try:
            await engine.runs.open(Scope(run=RUN))
        except RunHeld:
            return False
        return True

    while not await is_free():
        pass


@pytest.mark.parametrize("runner", ["inline", "thread", "process"])
async def test_the_call_of_a_paused_engine_stays_unknown_whatever_verify_says(place: str, tmp_path: Path, runner: str) -> None:
    """After SIGSTOP before the payment, a takeover that asks `verify`, and SIGCONT, the payment happens once."""
    with paying_late(place, tmp_path, runner, _SHORT_S) as process:
        assert await soon((tmp_path / "here").exists)
        stand_still(process, place)
        async with engine_over(place, runner, _LONG_S) as engine:
            await taken_over(engine)
            same, other = await handed_in(engine, tmp_path, "c1"), await handed_in(engine, tmp_path, "c2")
        (tmp_path / "go").touch()
        paid = Ledger(tmp_path / "paid")
        if runner == "process":  # the worker is not stopped by SIGSTOP, and is ended after its engine continues
            assert await soon(paid.lines)
        process.send_signal(signal.SIGCONT)
        assert await soon(paid.lines)
        process.wait()
    assert (same.status, other.status) == ("unknown", "unknown")
    assert "may still happen" in other.text
    assert paid.lines() == ["paid"]


@pytest.mark.parametrize("runner", ["inline", "thread", "process"])
async def test_after_a_kill_verify_lets_the_call_start_again(place: str, tmp_path: Path, runner: str) -> None:
    with paying_late(place, tmp_path, runner, _LONG_S) as process:
        assert await soon((tmp_path / "here").exists)
        process.kill()
        process.wait()
        async with engine_over(place, runner, _LONG_S) as engine:
            await taken_over(engine)
            (tmp_path / "go").touch()
            result = await handed_in(engine, tmp_path, "c2")
    assert (result.status, result.text) == ("ok", "paid")
    assert Ledger(tmp_path / "paid").lines() == ["paid"]


async def test_a_worker_that_outlives_its_engine_is_ended_before_the_call_restarts(tmp_path: Path) -> None:
    """A suspended supervisor cannot end the worker, which must not pay while the second attempt runs."""
    place = str(tmp_path / "journal.db")
    with paying_late(place, tmp_path, "process", _LONG_S) as process:
        assert await soon((tmp_path / "here").exists)
        (supervisor,) = psutil.Process(process.pid).children()
        (worker,) = supervisor.children()
        supervisor.suspend()
        process.kill()
        process.wait()
        try:
            async with engine_over(place, "process", _LONG_S) as engine:
                await taken_over(engine)
                unknown = await handed_in(engine, tmp_path, "c2")
                assert worker.is_running()
                supervisor.kill()
                assert await soon(lambda: not supervisor.is_running() or supervisor.status() == psutil.STATUS_ZOMBIE)
                (tmp_path / "here").unlink()
                (tmp_path / "go").touch()  # from now on the first attempt may pay, until it is ended
                result = await handed_in(engine, tmp_path, "c3")
                assert await soon(lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE)
        finally:
            for one in (supervisor, worker):
                if one.is_running():
                    one.kill()
    assert (unknown.status, result.status) == ("unknown", "ok")
    assert "may still happen" in unknown.text
    assert Ledger(tmp_path / "paid").lines() == ["paid"]


async def test_verify_cannot_rule_out_the_effect_of_an_abandoned_thread(tmp_path: Path) -> None:
    """In one engine the thread of a call that timed out may still run and take effect."""
    async with engine_over(str(tmp_path / "journal.db"), "thread", _LONG_S, timeout_s=0.2) as engine:
        first, second = await handed_in(engine, tmp_path, "c1"), await handed_in(engine, tmp_path, "c2")
        assert (first.status, second.status) == ("unknown", "unknown")
        assert "may still happen" in second.text
        (tmp_path / "go").touch()
        assert await soon(Ledger(tmp_path / "paid").lines)
        third = await handed_in(engine, tmp_path, "c3")
    assert (third.status, third.text) == ("ok", "paid")
    assert Ledger(tmp_path / "paid").lines() == ["paid"]


async def resumed(place: str, folder: Path) -> ToolResult:
    engine = engine_over(place, "inline", _LONG_S)
    async with engine, Agent(Script(says("Done.")), engine) as agent:
        await taken_over(engine)
        return (await agent.resume(RUN)).results[0]


@pytest.mark.parametrize("killed", [False, True], ids=["stands still", "killed"])
async def test_a_resumed_run_restarts_a_call_only_after_its_process_has_ended(place: str, tmp_path: Path, killed: bool) -> None:
    with paying_late(place, tmp_path, "inline", _SHORT_S, by_agent=True) as process:
        assert await soon((tmp_path / "here").exists)
        if killed:
            process.kill()
            process.wait()
            (tmp_path / "go").touch()
        else:
            stand_still(process, place)
        result = await resumed(place, tmp_path)
        (tmp_path / "go").touch()
        process.send_signal(signal.SIGCONT)
        process.wait()
    assert result.status == ("ok" if killed else "unknown")
    assert Ledger(tmp_path / "paid").lines() == ["paid"]
