"""The cost of a run does not depend on the number of earlier runs, and what is kept of ended runs is bounded."""

from __future__ import annotations

import asyncio
import itertools
import sys
from types import FrameType
from typing import Any

import pytest

from callgate import Engine, MemoryJournal, Scope, tool
from callgate.events import Draft
from tests.engine_calls import call, result_of, said


@tool(effect="none")
async def look(n: int = 1) -> str:
    """Look."""
    return "seen"


@tool(effect="once")
async def act(n: int = 1) -> str:
    """Act."""
    return "done"


class Steps:
    """Counts the functions that are entered, built-in functions included."""

    def __enter__(self) -> Steps:
        self.count = 0
        sys.setprofile(self._see)
        return self

    def _see(self, frame: FrameType, event: str, argument: object) -> None:
        self.count += event in ("call", "c_call")

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)


@pytest.mark.parametrize("name", ["look", "act"])
@pytest.mark.parametrize("waiting", [0, 30], ids=["", "beside others"])
async def test_the_cost_of_a_call_does_not_grow_with_the_number_of_earlier_runs(name: str, waiting: int) -> None:
    release = asyncio.Event()

    @tool(effect="none")
    async def wait() -> str:
        """Wait."""
        await release.wait()
        return ""

    async with Engine([look, act, wait]) as engine:
        beside = [asyncio.create_task(engine.call(call("wait"), Scope(run=f"beside-{n}"))) for n in range(waiting)]
        await asyncio.sleep(0)

        async def steps(run: int) -> int:
            with Steps() as counted:
                await engine.call(call(name), Scope(run=f"run-{run}"))
            return counted.count

        first = [await steps(n) for n in range(20)]
        for n in range(20, 3_000):
            await engine.call(call(name), Scope(run=f"run-{n}"))
        last = [await steps(n) for n in range(3_000, 3_020)]
        release.set()
        await asyncio.gather(*beside)
    assert max(last) <= max(first) + 60, "the cost of a new run grows with the number of runs"


async def test_unknown_running_and_completed_calls_are_kept_after_thousands_of_runs() -> None:
    """One call has an unknown outcome, one is running, and one is completed."""
    release = asyncio.Event()
    ran: list[str] = []

    @tool(effect="once", timeout_s=0.01)
    async def hang() -> str:
        """Hang."""
        await asyncio.Event().wait()
        return ""

    @tool(effect="once")
    async def wait() -> str:
        """Wait."""
        ran.append("wait")
        await release.wait()
        return "waited"

    async with Engine([look, act, hang, wait]) as engine:
        doubtful = await said(engine, call("hang", id="h"), Scope(run="doubtful"))
        running = asyncio.create_task(engine.call(call("wait", id="w"), Scope(run="running")))
        done = await said(engine, call("act", id="a"), Scope(run="done"))
        for n in range(2_500):
            await engine.call(call("look"), Scope(run=f"run-{n}"))
        joined = asyncio.create_task(engine.call(call("wait", id="w"), Scope(run="running")))
        await asyncio.sleep(0)
        release.set()
        assert [result_of(one).text for one in await asyncio.gather(running, joined)] == ["waited", "waited"]
        again = await said(engine, call("act", id="a"), Scope(run="done"))
        await engine.settle(doubtful.uid, happened=True)
    assert doubtful.status == "unknown"
    assert (again.text, again.metadata.replayed, ran) == (done.text, True, ["wait"])


class Counted(str):
    """A run id that counts how often it is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_reading_one_run_does_not_scan_the_events_of_other_runs() -> None:
    journal = MemoryJournal()
    for n in range(5_000):
        journal.append(Draft(kind="call.received", run=Counted(f"run-{n % 1_000}"), call=Counted(f"call-{n}"), body=b"{}"))
    assert len(list(journal.read(run="run-7"))) == 5
    Counted.compared = 0
    assert [event.position for event in journal.read(run="run-7", after=8)] == [1_008, 2_008, 3_008, 4_008]
    assert [event.position for event in journal.read(call="call-4999", newest_first=True, limit=1)] == [5_000]
    assert Counted.compared < 20


def test_memory_journal_reads_match_a_full_scan_of_its_events() -> None:
    """Events are read by run, by call, after a position, backwards and with a limit, also after the oldest ones were dropped."""
    journal, written = MemoryJournal(most=100), []
    for n in range(330):
        draft = Draft(kind="k", run=f"run-{n % 7}", call=f"call-{n % 11}" if n % 3 else "", body=b"{}")
        written.append((journal.append(draft), draft))
        if n % 50:
            continue
        left = [(at, one) for at, one in written if at > journal.forgotten]
        choices: Any = itertools.product((None, "run-3", "none"), (None, "call-4", "", "none"), (0, n // 2, n), (None, 1, 3), (False, True))
        for run, uid, after, limit, backwards in choices:
            found = [at for at, one in left if run in (None, one.run) and uid in (None, one.call) and at > after]
            found = (found[::-1] if backwards else found)[:limit]
            events = list(journal.read(run=run, call=uid, after=after, limit=limit, newest_first=backwards))
            assert [event.position for event in events] == found, (run, uid, after, limit, backwards)
            assert all(written[event.position - 1][1].run == event.run for event in events)
    of_run = [event.seq for event in journal.read(run="run-3")]
    assert of_run == list(range(of_run[0], of_run[0] + len(of_run)))


def test_the_memory_journal_keeps_a_bounded_amount_about_forgotten_runs() -> None:
    journal = MemoryJournal(most=100)
    for n in range(2_000):
        journal.append(Draft(kind="k", run=f"run-{n}", body=b"{}"))
    kept = [value for value in vars(journal).values() if isinstance(value, (list, dict))]
    assert max(map(len, kept)) <= 250
