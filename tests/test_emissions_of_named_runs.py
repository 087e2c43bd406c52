"""Messages whose calls are added one by one, in a run that other calls open or that another engine takes before the message is complete."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from callgate import Engine, Scope, SqliteJournal, tool
from tests.effect_ledger import Ledger
from tests.engine_calls import call, result_of
from tests.waiting import PATIENCE_S

RUN = Scope(run="order-7")
MESSAGE = Scope(run="order-7", message_id="m1")
PAY = call("pay", id="c1", order="A7")


def tools_over(ledger: Ledger) -> list[Any]:
    @tool
    async def pay(order: str) -> str:
        """Pay an order."""
        ledger.write(order)
        return f"paid {order}"

    @tool(effect="none")
    async def look() -> int:
        """Look."""
        return 1

    return [pay, look]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


async def test_a_message_that_is_handed_in_again_runs_once_although_another_call_opened_its_run_meanwhile(
    ledger: Ledger, journal: Path
) -> None:
    async with Engine(tools_over(ledger), journal=SqliteJournal(journal)) as engine:
        emission = engine.emission(MESSAGE)
        emission.add(PAY)
        other = asyncio.create_task(engine.call(call("look"), RUN))
        (first,) = await emission.seal()
        await other
        again = result_of(await engine.call(PAY, MESSAGE))
    assert result_of(first).text == again.text == "paid A7"
    assert again.metadata.replayed
    assert ledger.lines() == ["A7"]


async def test_a_message_that_another_engine_ran_before_it_was_sealed_here_gets_its_results(ledger: Ledger, journal: Path) -> None:
    async with (
        Engine(tools_over(ledger), journal=SqliteJournal(journal)) as here,
        Engine(tools_over(ledger), journal=SqliteJournal(journal)) as there,
    ):
        await here.call(call("look"), RUN)
        emission = here.emission(MESSAGE)
        emission.add(PAY)
        paid = result_of(await there.call(PAY, MESSAGE))
        (sealed,) = await emission.seal()
    assert paid.text == "paid A7"
    assert result_of(sealed).text == "paid A7"
    assert result_of(sealed).metadata.replayed
    assert ledger.lines() == ["A7"]


async def test_a_message_that_is_sealed_while_another_engine_keeps_its_run_starts_nothing(ledger: Ledger, journal: Path) -> None:
    begun, over = asyncio.Event(), asyncio.Event()

    @tool(effect="none")
    async def wait() -> None:
        """Wait."""
        begun.set()
        await over.wait()

    async with (
        Engine(tools_over(ledger), journal=SqliteJournal(journal)) as here,
        Engine([wait], journal=SqliteJournal(journal)) as there,
    ):
        await here.call(call("look"), RUN)
        emission = here.emission(MESSAGE)
        emission.add(PAY)
        waiting = asyncio.create_task(there.call(call("wait"), RUN))
        await begun.wait()
        (sealed,) = await emission.seal()
        over.set()
        await waiting
    assert result_of(sealed).code == "run_held"
    assert not ledger.lines()


def chunk(delta: dict[str, object], finish_reason: str | None = None) -> dict[str, object]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return {"id": "m1", "object": "chat.completion.chunk", "choices": [choice]}


async def test_calls_of_a_stream_run_although_another_engine_worked_on_the_run_while_it_arrived(ledger: Ledger, journal: Path) -> None:
    function = {"name": "pay", "arguments": '{"order": "A7"}'}
    async with (
        Engine(tools_over(ledger), journal=SqliteJournal(journal)) as here,
        Engine(tools_over(ledger), journal=SqliteJournal(journal)) as there,
    ):

        async def stream() -> AsyncIterator[dict[str, object]]:
            yield chunk({"role": "assistant", "tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": function}]})
            yield chunk({"content": "One moment."})
            assert result_of(await there.call(call("look"), RUN)).status == "ok"
            yield chunk({}, "tool_calls")

        async with here.watch(stream(), RUN) as chunks:
            async for _ in chunks:
                pass
            reply = await chunks.reply()
    assert [one["content"] for one in reply.results] == ["paid A7"]
    assert ledger.lines() == ["A7"]


async def test_calls_that_wait_until_their_run_is_open_have_a_result_when_the_engine_is_closed(ledger: Ledger, journal: Path) -> None:
    engine = Engine(tools_over(ledger), journal=SqliteJournal(journal))
    emission = engine.emission(MESSAGE)
    assert [emission.add(PAY), emission.add(call("look", id="c2")), emission.next_position] == [0, 1, 2]
    await engine.close()
    outcomes = await emission.seal()
    assert [(result_of(one).id, result_of(one).status) for one in outcomes] == [("c1", "error"), ("c2", "error")]
    assert not ledger.lines()


async def test_a_read_starts_before_the_message_is_complete_once_its_run_is_open(journal: Path) -> None:
    begun = asyncio.Event()

    @tool(effect="none")
    async def look() -> None:
        """Look."""
        begun.set()

    async with Engine([look], journal=SqliteJournal(journal)) as engine:
        emission = engine.emission(MESSAGE)
        emission.add(call("look"))
        async with asyncio.timeout(PATIENCE_S):
            await begun.wait()
        assert [result_of(one).status for one in await emission.seal()] == ["ok"]


async def test_calls_that_are_added_while_their_run_comes_back_from_another_engine_have_numbers_of_their_own(
    ledger: Ledger, journal: Path
) -> None:
    async with (
        Engine(tools_over(ledger), journal=SqliteJournal(journal)) as here,
        Engine(tools_over(ledger), journal=SqliteJournal(journal)) as there,
    ):
        await here.call(call("look"), RUN)
        await there.call_many([call("look")] * 10, RUN)
        emission, opening = here.emission(MESSAGE), asyncio.create_task(here.call(call("look"), RUN))
        while not opening.done():
            emission.add(call("look"))
            await asyncio.sleep(0.001)
        sealed = [result_of(one) for one in await emission.seal()]
        uids = [event.call for event in here.journal.read(run=RUN.run) if event.kind == "call.received"]
    assert {one.status for one in (*sealed, result_of(await opening))} == {"ok"}
    assert len(uids) == len(set(uids)) == 12 + len(sealed)
