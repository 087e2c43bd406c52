"""The key of an effect counts for every engine on one journal: in memory, in a file, on a server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from callgate import Engine, MemoryJournal, PostgresJournal, Scope, SqliteJournal, Tool, tool
from callgate.protocols import Journal
from tests.effect_ledger import Ledger
from tests.engine_calls import call, kinds, result_of, said

ORDER = "A7"


class Refunds:
    """The tool `refund`, which waits until it may end."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.begun, self.may_end = asyncio.Event(), asyncio.Event()

    def tool(self) -> Tool:
        @tool(key="refund:{order}")
        async def refund(order: str) -> str:
            """Refund an order."""
            self._ledger.write(order)
            self.begun.set()
            await self.may_end.wait()
            return f"refunded {order}"

        return refund


@pytest.fixture
def refunds(ledger: Ledger) -> Refunds:
    return Refunds(ledger)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def engines(request: pytest.FixtureRequest, tmp_path: Path, refunds: Refunds) -> AsyncIterator[tuple[Engine, Engine]]:
    """Two engines on one journal. The second one waits for a key for a moment only."""
    first: Journal
    if request.param == "memory":
        first = MemoryJournal(shared=True)
        second: Journal = MemoryJournal(shared_with=first)
    elif request.param == "sqlite":
        first, second = SqliteJournal(tmp_path / "journal.db"), SqliteJournal(tmp_path / "journal.db")
    else:
        url = request.getfixturevalue("database")
        first, second = PostgresJournal(url), PostgresJournal(url)
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(Engine([refunds.tool()], journal=first))
        two = await stack.enter_async_context(Engine([refunds.tool()], journal=second, timeout_s=1))
        yield one, two


async def test_another_engine_gets_the_stored_result(engines: tuple[Engine, Engine], refunds: Refunds, ledger: Ledger) -> None:
    refunds.may_end.set()
    first = await said(engines[0], call("refund", order=ORDER), Scope(run="a"))
    again = await said(engines[1], call("refund", order=ORDER), Scope(run="b"))
    back = await said(engines[0], call("refund", order=ORDER), Scope(run="a"))
    assert [result.structured for result in (first, again, back)] == [f"refunded {ORDER}"] * 3
    assert (again.metadata.replayed, back.metadata.replayed, ledger.lines()) == (True, True, [ORDER])


async def test_another_engine_waits_for_the_call_that_has_the_key(engines: tuple[Engine, Engine], refunds: Refunds, ledger: Ledger) -> None:
    first = asyncio.ensure_future(engines[0].call(call("refund", order=ORDER), Scope(run="a")))
    await refunds.begun.wait()
    second = asyncio.ensure_future(engines[1].call(call("refund", order=ORDER), Scope(run="b")))
    while "call.received" not in kinds(engines[1], "b/0/0"):
        await asyncio.sleep(0.005)
    refunds.may_end.set()
    assert result_of(await first).text == f"refunded {ORDER}"
    joined = result_of(await second)
    assert (joined.structured, ledger.lines()) == (f"refunded {ORDER}", [ORDER])


async def test_a_call_that_waited_too_long_is_told_who_has_the_key(
    engines: tuple[Engine, Engine], refunds: Refunds, ledger: Ledger
) -> None:
    first = asyncio.ensure_future(engines[0].call(call("refund", order=ORDER), Scope(run="a")))
    await refunds.begun.wait()
    late = await said(engines[1], call("refund", order=ORDER), Scope(run="b"))
    refunds.may_end.set()
    await first
    after = await said(engines[1], call("refund", order=ORDER), Scope(run="b"))
    assert (late.status, late.code) == ("error", "not_started")
    assert f"the same key of its effect (refund:{ORDER}) has not ended in time. Run 'effect:refund/" in late.text
    assert (after.structured, ledger.lines()) == (f"refunded {ORDER}", [ORDER])


async def test_a_call_whose_caller_left_frees_nothing(engines: tuple[Engine, Engine], refunds: Refunds, ledger: Ledger) -> None:
    first = asyncio.ensure_future(engines[0].call(call("refund", order=ORDER), Scope(run="a")))
    await refunds.begun.wait()
    first.cancel()
    await asyncio.wait([first])
    refunds.may_end.set()
    result = await said(engines[1], call("refund", order=ORDER), Scope(run="b"))
    assert (result.status, ledger.lines()) == ("unknown", [ORDER])
