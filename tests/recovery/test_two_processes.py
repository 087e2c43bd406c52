"""Tests of two processes on one journal: they may work on different runs at once, and on the same run only one after the other.

A lease gives each run one runner at a time. The ledger that the tools write decides what happened, not the journal under test.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import apsw
import psutil
import pytest

from callgate import Engine, Scope
from callgate.agent import Agent
from callgate.errors import RunHeld
from callgate.events import TERMINAL, Event
from tests.effect_ledger import Ledger
from tests.forked_python import ChildProcess
from tests.recovery.paused_run_process import PEOPLE, Payer, opened, paying, told, working
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.process, pytest.mark.skipif(sys.platform != "linux", reason="stops and kills")]

RUN = "the-run"
_LONG_S, _SHORT_S = 3_000, 0.6


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "journal.db") if request.param == "sqlite" else str(request.getfixturevalue("database"))


def stands(process: ChildProcess) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n"


def stand_still(process: ChildProcess, place: str) -> None:
    """Stop the process with SIGSTOP, but not in the middle of a commit, where its file lock would block every other process."""
    while True:
        process.send_signal(signal.SIGSTOP)
        while psutil.Process(process.pid).status() != psutil.STATUS_STOPPED:
            pass  # the signal is delivered later than it is sent
        if "://" in place:
            return  # the server ends such a connection
        connection = apsw.Connection(place)
        try:
            connection.execute("BEGIN IMMEDIATE")
            return
        except apsw.BusyError:
            process.send_signal(signal.SIGCONT)
        finally:
            connection.close()


def ended(process: ChildProcess) -> dict[str, Any]:
    said, _ = process.communicate("go on\n", timeout=PATIENCE_S)
    result = json.loads(said)
    assert isinstance(result, dict)
    return result


async def taken_up(place: str, ledger: Ledger, *, waits: bool) -> dict[str, Any]:
    """Wait until this process can take over the run, resume it, and return its result."""
    engine = Engine([paying(ledger)], journal=opened(place, _LONG_S))
    async with engine, Agent(Payer(), engine) as agent:

        async def is_free() -> bool:
            try:
                await agent.engine.runs.open(Scope(run=RUN))
            except RunHeld:
                return False
            return True

        if waits:
            while not await is_free():
                pass
        return told(await agent.resume(RUN))


async def record(place: str) -> list[Event]:
    journal = opened(place, _LONG_S)
    try:
        assert journal.verify() is None
        return list(journal.read())
    finally:
        await journal.close()


def ends_of(events: list[Event]) -> list[str]:
    return [event.call for event in events if event.kind in TERMINAL]


async def test_processes_with_different_runs_work_concurrently(place: str, ledger: Ledger) -> None:
    await opened(place, _LONG_S).close()
    runs = ("one", "two", "three")
    with (
        working(place, ledger, runs[0], "nowhere", _LONG_S) as one,
        working(place, ledger, runs[1], "nowhere", _LONG_S) as two,
        working(place, ledger, runs[2], "nowhere", _LONG_S) as three,
    ):
        results = [ended(process) for process in (one, two, three)]
    assert [result["status"] for result in results] == ["completed"] * 3
    assert sorted(ledger.lines()) == sorted(PEOPLE * 3)
    events = await record(place)
    assert [event.position for event in events] == list(range(1, len(events) + 1))
    assert len(ends_of(events)) == 9


async def test_a_run_held_by_one_process_is_refused_to_another(place: str, ledger: Ledger) -> None:
    with working(place, ledger, RUN, "tool", _LONG_S) as process:
        stands(process)
        with pytest.raises(RunHeld, match=f"worked on by process {process.pid}"):
            await taken_up(place, ledger, waits=False)
        assert ended(process)["status"] == "completed"
    assert ledger.lines() == list(PEOPLE)


async def test_the_run_of_a_killed_process_is_free_at_once(place: str, ledger: Ledger) -> None:
    """The run is free before its lease expires, which would take most of an hour."""
    with working(place, ledger, RUN, "tool", _LONG_S) as process:
        stands(process)
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE_S)
        result = await taken_up(place, ledger, waits=True)
    assert (result["status"], result["ends"]) == ("completed", [["ok", None], ["unknown", "outcome_unknown"], ["ok", None]])
    assert ledger.lines() == list(PEOPLE)


@pytest.mark.parametrize("where", ["pass", "tool"])
async def test_a_paused_process_that_lost_its_lease_cannot_record_or_start_anything(place: str, ledger: Ledger, where: str) -> None:
    """After SIGSTOP for longer than its lease, a takeover and SIGCONT, each payment happens at most once and each call has one end."""
    with working(place, ledger, RUN, where, _SHORT_S) as process:
        stands(process)
        stand_still(process, place)
        result = await taken_up(place, ledger, waits=True)
        before = await record(place)
        process.send_signal(signal.SIGCONT)
        late = ended(process)
    second = ["ok", None] if where == "pass" else ["unknown", "outcome_unknown"]
    assert (result["status"], result["ends"]) == ("completed", [["ok", None], second, ["ok", None]])
    assert late["status"] == "failed"
    ended_by_server = "://" in place and "is lost" in late["reason"]  # where it ends the connection of one that stood still
    assert "taken over by another engine" in late["reason"] or ended_by_server
    assert ledger.lines() == list(PEOPLE)
    events = await record(place)
    assert [event for event in events if event.run == RUN] == [event for event in before if event.run == RUN]
    assert len(ends_of(events)) == len(set(ends_of(events))) == len(PEOPLE)
    epochs = [event.epoch for event in events if event.run == RUN]
    assert epochs == sorted(epochs)
    assert len(set(epochs)) == 2
