"""Closing and cancelling at any moment: every call has one terminal event, and nothing starts afterwards."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from callgate import AbortController, Allow, Engine, Limits, Scope, SqliteJournal, tool
from callgate.protocols import Verdict
from callgate.stage_types import ValidatedCall
from tests.effect_ledger import Ledger
from tests.effect_tools import paying_amounts
from tests.engine_calls import call, ends, result_of, said
from tests.waiting import HANGS_S, PATIENCE_S, soon


async def test_a_call_cancelled_while_its_result_is_written_has_one_terminal_event(tmp_path: Path, ledger: Ledger) -> None:
    async with Engine([paying_amounts(ledger)], journal=SqliteJournal(tmp_path / "journal.db")) as engine:
        task = asyncio.create_task(engine.call(call("pay", to="ann")))

        def cancel(topic: str, item: object) -> None:
            asyncio.get_running_loop().call_soon(task.cancel)

        engine.bus.subscribe(cancel, "call.completed")
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await said(engine, call("pay", to="bob"))).success
        assert set(ends(engine).values()) == {1}


async def test_call_numbers_are_not_reused_after_a_discarded_message(tmp_path: Path, ledger: Ledger) -> None:
    path, scope = tmp_path / "journal.db", Scope(run="r")
    async with Engine([paying_amounts(ledger)], journal=SqliteJournal(path)) as engine:
        assert (await said(engine, call("pay", to="carl"), scope)).success  # opens the run
        emission = engine.emission(scope, early=False)
        emission.add(call("pay", to="ann"))
        await emission.discard("the stream dropped")
    async with Engine([paying_amounts(ledger)], journal=SqliteJournal(path)) as engine:
        assert (await said(engine, call("pay", to="bob"), scope)).success
        assert ends(engine) == {"r/0/0": 1, "r/0/1": 1, "r/0/2": 1}
    assert ledger.lines() == ["carl 1", "bob 1"]


async def test_a_message_without_calls_can_be_discarded_and_sealed() -> None:
    async with Engine() as engine:
        await engine.emission().discard("the stream broke")
        assert await engine.emission().seal() == []


async def test_closing_the_engine_ends_running_calls_and_records_their_outcome() -> None:
    started = asyncio.Event()

    @tool
    async def hang() -> None:
        """Hang."""
        started.set()
        await asyncio.Event().wait()

    engine = Engine([hang])
    task = asyncio.create_task(engine.call(call("hang")))
    await started.wait()
    await engine.close()
    result = result_of(await asyncio.wait_for(task, PATIENCE_S))
    assert (result.status, result.failure_class) == ("unknown", "killed")
    assert list(ends(engine).values()) == [1]


async def test_a_call_waiting_for_a_policy_when_the_engine_closes_is_recorded_and_not_run(tmp_path: Path, ledger: Ledger) -> None:
    asked, release = asyncio.Event(), asyncio.Event()

    class Slow:
        async def decide(self, call: ValidatedCall) -> Verdict:
            asked.set()
            await release.wait()
            return Allow()

    path = tmp_path / "journal.db"
    engine = Engine([paying_amounts(ledger)], policies=[Slow()], journal=SqliteJournal(path), limits=Limits(grace_s=0))
    task = asyncio.create_task(engine.call(call("pay", to="ann")))
    await asked.wait()
    await engine.close()
    release.set()
    assert not result_of(await task).success
    journal = SqliteJournal(path)
    assert [event.kind for event in journal.read()] == ["call.received", "call.completed"]
    await journal.close()
    assert ledger.lines() == []


async def test_a_cancelled_close_still_finishes(tmp_path: Path) -> None:
    started = asyncio.Event()
    path = tmp_path / "journal.db"
    engine = Engine(journal=SqliteJournal(path))

    @tool
    async def leave() -> None:
        """Close the engine that runs this tool."""
        started.set()
        await engine.close()

    engine.register(leave)
    task = asyncio.create_task(engine.call(call("leave")))
    await started.wait()
    closing = asyncio.create_task(engine.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing, task], timeout=PATIENCE_S)
    await asyncio.wait_for(engine.close(), PATIENCE_S)
    await SqliteJournal(path).close()


async def test_close_finishes_while_all_threads_of_the_default_executor_are_busy(tmp_path: Path, ledger: Ledger) -> None:
    """The default executor of the event loop is shared with all code on the loop."""
    loop, release = asyncio.get_running_loop(), threading.Event()
    loop.set_default_executor(ThreadPoolExecutor(1))
    hanging = loop.run_in_executor(None, release.wait, HANGS_S)
    try:
        engine = Engine([paying_amounts(ledger)], journal=SqliteJournal(tmp_path / "journal.db"))
        assert (await said(engine, call("pay", to="ann"))).success
        await asyncio.wait_for(engine.close(), PATIENCE_S)
    finally:
        release.set()
        await hanging


async def test_a_late_result_after_the_engine_closed_is_logged_and_raises_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The result arrives in a callback of the event loop, where nobody could catch an exception."""
    begun, goes_on, broken = threading.Event(), threading.Event(), list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: broken.append(context))

    @tool
    def stuck() -> str:
        """Return after the call has ended."""
        begun.set()
        goes_on.wait(PATIENCE_S)
        return "late"

    controller = AbortController()
    engine = Engine([stuck], journal=SqliteJournal(tmp_path / "journal.db"), limits=Limits(grace_s=0.01))
    calling = asyncio.create_task(engine.call(call("stuck"), signal=controller.signal))
    assert await soon(begun.is_set)
    controller.abort("enough")
    await calling
    await engine.close()
    goes_on.set()
    assert await soon(lambda: "A late answer of stuck (call " in caplog.text)
    await asyncio.sleep(0)
    assert broken == []
    assert "was not recorded" in caplog.text
