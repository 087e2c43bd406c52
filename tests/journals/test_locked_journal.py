"""Tests of a journal that another process has locked: calls end at their deadline with a typed result and never block the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import apsw
import pytest

from callgate import Engine, Scope, SqliteJournal, Tool, tool
from tests.effect_ledger import Ledger
from tests.effect_tools import paying
from tests.engine_calls import call, result_of, said
from tests.waiting import PATIENCE_S

RUN = Scope(run="order")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock the journal, like a process that is paused in the middle of a commit."""
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.close()


@asynccontextmanager
async def at_work(path: Path, *tools: Tool, timeout_s: float) -> AsyncIterator[Engine]:
    """Provide an engine that already holds the lease of its run."""
    async with asyncio.timeout(PATIENCE_S), Engine(tools, journal=SqliteJournal(path), timeout_s=timeout_s) as engine:
        assert (await said(engine, call("pay", id="first", to="first"), RUN)).success
        yield engine


@pytest.fixture(autouse=True)
def _no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callgate._pipeline.outcomes.RECORD_S", 0.05)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.mark.parametrize("many", [False, True], ids=["one call", "a message"])
async def test_a_call_whose_intent_cannot_be_recorded_before_its_deadline_does_not_run(path: Path, ledger: Ledger, many: bool) -> None:
    ticks = 0

    async def ticking() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.005)

    async with at_work(path, paying(ledger), timeout_s=0.3) as engine:
        clock = asyncio.ensure_future(ticking())
        with locked(path):
            if many:
                (outcome,) = await engine.call_many([call("pay", id="c", to="ann")], RUN)
            else:
                outcome = await engine.call(call("pay", id="c", to="ann"), RUN)
            result = result_of(outcome)
            assert (result.status, result.code) == ("error", "record_failed")
            assert "was not run" in result.text
            assert "within the call's time" in result.text
            assert "another process" in result.text
        clock.cancel()
        assert ticks > 10, "the event loop was blocked"
        assert ledger.lines() == ["first"]
        assert (await said(engine, call("pay", id="later", to="bob"), RUN)).success  # the lock is released, and the journal works again
        assert engine.journal.status().failure == ""
    assert ledger.lines() == ["first", "bob"]


async def test_a_call_whose_lease_cannot_be_acquired_before_its_deadline_does_not_run(path: Path, ledger: Ledger) -> None:
    async with at_work(path, paying(ledger), timeout_s=0.2) as engine:
        with locked(path):
            for outcome in (
                await engine.call(call("pay", to="ann"), Scope(run="new")),
                *await engine.call_many([call("pay", to="ann")], Scope(run="other")),
            ):
                result = result_of(outcome)
                assert (result.status, result.code) == ("error", "record_failed")
                assert "within the call's time" in result.text
        assert (await said(engine, call("pay", to="bob"), Scope(run="new"))).success
    assert ledger.lines() == ["first", "bob"]


@pytest.mark.parametrize("effect", ["once", "none"])
async def test_a_result_that_cannot_be_recorded_before_its_deadline_is_not_a_success(path: Path, ledger: Ledger, effect: str) -> None:
    """The result stays queued and is recorded once the lock is released; until then it is not durable."""
    locks: list[object] = []

    @tool(name="act", effect=effect)  # type: ignore[call-overload, untyped-decorator]
    async def act() -> str:
        """Act while another process begins a commit."""
        other = apsw.Connection(str(path))
        other.execute("BEGIN IMMEDIATE")
        locks.append(other)
        ledger.write("acted")
        return "done"

    async with at_work(path, paying(ledger), act, timeout_s=0.3) as engine:
        result = await said(engine, call("act", id="c"), RUN)
        assert (result.status, result.code) == ("unknown" if effect == "once" else "error", "record_failed")
        assert "within the call's time" in result.text
        for lock in locks:
            lock.close()  # type: ignore[attr-defined]
        assert (await said(engine, call("pay", id="later", to="bob"), RUN)).success
        kept = [event for event in engine.journal.read(run="order") if event.kind == "call.completed"]
        assert len(kept) == 3
    assert ledger.lines() == ["first", "acted", "bob"]


async def test_a_refusal_waits_for_the_journal_no_longer_than_the_calls_deadline(path: Path, ledger: Ledger) -> None:
    async with at_work(path, paying(ledger), timeout_s=0.2) as engine:
        with locked(path):
            result = await said(engine, call("pya", id="c", to="ann"), RUN)
            assert result.code == "unknown_tool"
