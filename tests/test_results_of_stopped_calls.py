"""A stop lets running calls finish: what they did is on record, and nobody is told that it is unknown."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from callgate import Aborted, Engine, RawCall, Scope, SqliteJournal, Tool, inbox, tool
from tests.engine_calls import result_of
from tests.provider_responses.shop import claude
from tests.waiting import until

RUN = Scope(run="here", conversation="here")
ELSEWHERE = Scope(run="there", conversation="there")
REFUND = RawCall(id="c1", name="refund", arguments={"order": "A7"})


class Shop:
    """A tool that waits in the middle of a refund until it may go on."""

    def __init__(self) -> None:
        self.paid: list[str] = []
        self.may_end = asyncio.Event()

    def tools(self) -> list[Tool]:
        @tool(key="refund:{order}")
        async def refund(order: str) -> str:
            """Refund an order."""
            self.paid.append(order)
            await self.may_end.wait()
            return f"refunded {order}"

        return [refund]

    async def stopped(self, engine: Engine, call: asyncio.Task[Any]) -> Any:
        """Stop the conversation while the call runs, let the call finish, and return what the task returns."""
        await until(lambda: bool(self.paid))
        engine.control.stop("here", "the user left")
        self.may_end.set()
        ended = await call
        engine.control.end_turn("here")
        return ended


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "calls.db"


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_call_that_finished_after_a_stop_gives_its_result_when_it_is_handed_in_again(path: Path, restarts: bool) -> None:
    shop = Shop()
    engine = Engine(shop.tools(), journal=SqliteJournal(path))
    ended = await shop.stopped(engine, asyncio.create_task(engine.call(REFUND, RUN)))
    assert isinstance(ended, Aborted)
    assert ended.reason == "the user left. refund (here/0/0) has ended (ok); its result is on record"
    if restarts:
        await engine.close()
        engine = Engine(shop.tools(), journal=SqliteJournal(path))
    assert result_of(await engine.call(REFUND, RUN)).text.startswith("refunded A7")
    elsewhere = result_of(await engine.call(REFUND, ELSEWHERE))
    assert (elsewhere.status, elsewhere.text.splitlines()[0]) == ("ok", "refunded A7")
    await engine.close()
    assert shop.paid == ["A7"]


async def test_the_reply_to_a_stopped_message_says_that_its_call_has_ended(path: Path) -> None:
    shop = Shop()
    response = claude(("refund", {"order": "A7"}), message_id="msg_1")
    async with Engine(shop.tools(), journal=SqliteJournal(path)) as engine:
        reply = await shop.stopped(engine, asyncio.create_task(engine.respond(response, RUN)))
        assert (reply.ended, reply.unknown) == ("aborted", ())
        assert "refund (here/0/0) has ended (ok)" in reply.reason
        again = await engine.respond(response, RUN)
    assert "refunded A7" in str(again.results)
    assert shop.paid == ["A7"]


async def test_a_stop_from_another_process_keeps_the_result_too(path: Path) -> None:
    shop = Shop()
    async with Engine(shop.tools(), journal=SqliteJournal(path)) as engine:
        call = asyncio.create_task(engine.call(REFUND, RUN))
        await until(lambda: bool(shop.paid))
        await asyncio.to_thread(inbox.stop, path, "here", by="ann")
        await until(lambda: engine.control.pending("here") is not None)
        shop.may_end.set()
        assert isinstance(await call, Aborted)
        engine.control.end_turn("here")
        assert result_of(await engine.call(REFUND, RUN)).status == "ok"
    assert shop.paid == ["A7"]


async def test_a_killed_call_is_still_in_doubt(path: Path) -> None:
    shop = Shop()
    async with Engine(shop.tools(), journal=SqliteJournal(path)) as engine:
        call = asyncio.create_task(engine.call(REFUND, RUN))
        await until(lambda: bool(shop.paid))
        engine.control.kill("here", "now")
        ended = await call
        assert isinstance(ended, Aborted)
        assert "may have taken effect" in ended.reason
        engine.control.end_turn("here")
        assert result_of(await engine.call(REFUND, RUN)).status == "unknown"
