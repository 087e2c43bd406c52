"""A read that a human has allowed: its result is kept for the run, so that the human is asked once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from callgate import Engine, RawCall, Scope, SqliteJournal, Suspended, tool
from tests.engine_calls import result_of
from tests.waiting import until

SCOPE = Scope(run="r")


async def test_an_allowed_read_handed_in_again_gets_its_result_and_nobody_is_asked_again(tmp_path: Path) -> None:
    """So that the questions of a message can be answered one after the other, in any process."""
    ran: list[str] = []

    @tool(effect="none", requires_approval=True)
    def look(at: str) -> str:
        """Look at something."""
        ran.append(at)
        return at

    def opened() -> Engine:
        return Engine([look], journal=SqliteJournal(tmp_path / "j.db"))

    message = [RawCall(id=at, name="look", arguments={"at": at}) for at in ("wages", "health")]
    async with opened() as engine:
        first = await engine.call_many(message, SCOPE)
        assert isinstance(first[0], Suspended)
        await engine.approve(first[0].approval_id)
        for _ in range(2):
            shown, waits = await engine.call_many(message, SCOPE)
            assert result_of(shown).text == "wages"
            assert isinstance(waits, Suspended)
    async with opened() as engine:
        assert isinstance(waits, Suspended)
        await engine.approve(waits.approval_id, arguments={"at": "weather"})
        for _ in range(2):
            texts = [result_of(outcome).text for outcome in await engine.call_many(message, SCOPE)]
            assert [text.partition("\n")[0] for text in texts] == ["wages", "weather"]
        assert ran == ["wages", "weather"]
        again = await engine.call(message[0], Scope(run="r", iteration=1))
        assert isinstance(again, Suspended), "a read of another message asks again"


@pytest.mark.parametrize("answered", ["one after the other", "both at once"])
async def test_an_allowed_read_that_an_equal_one_has_answered_gets_its_result_after_a_restart_too(answered: str, tmp_path: Path) -> None:
    """The second of two equal reads comes from the cache, or waits for the first one, so that it has no start on record."""
    ran: list[str] = []

    @tool(effect="none", requires_approval=True, cacheable=True, cache_scope="persistent")
    async def look(at: str) -> str:
        """Look at something."""
        ran.append(at)
        return at

    def opened() -> Engine:
        return Engine([look], journal=SqliteJournal(tmp_path / "j.db"))

    message = [RawCall(id=id, name="look", arguments={"at": "wages"}) for id in ("a", "b")]
    async with opened() as engine:
        for _ in range(1 if answered == "both at once" else 2):
            outcomes = await engine.call_many(message, SCOPE)
            waiting = [one.approval_id for one in outcomes if isinstance(one, Suspended)]
            for approval_id in waiting if answered == "both at once" else waiting[:1]:
                await engine.approve(approval_id)
        first = [result_of(one).text for one in await engine.call_many(message, SCOPE)]
    async with opened() as engine:
        again = await engine.call_many(message, SCOPE)
        assert [result_of(one).text for one in again] == first == ["wages", "wages"]
    assert ran == ["wages"]


async def test_a_read_that_joins_an_allowed_one_whose_caller_has_gone_is_not_in_doubt() -> None:
    begun = asyncio.Event()

    @tool(effect="none", requires_approval=True)
    async def look() -> None:
        """Look for long."""
        begun.set()
        await asyncio.Event().wait()

    raw = RawCall(id="a", name="look", arguments={})
    async with Engine([look]) as engine:
        asked = await engine.call(raw, SCOPE)
        assert isinstance(asked, Suspended)
        await engine.approve(asked.approval_id)
        first = asyncio.ensure_future(engine.call(raw, SCOPE))
        await begun.wait()
        joined = asyncio.ensure_future(engine.call(raw, SCOPE))
        await until(lambda: sum(event.kind == "call.received" for event in engine.journal.read()) == 3)
        first.cancel()
        result = result_of(await joined)
        assert (result.status, result.code) == ("error", "not_started")
        assert isinstance(await engine.call(raw, SCOPE), Suspended), "it may be sent again"
