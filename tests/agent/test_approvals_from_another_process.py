"""A run with several approvals, some of which another process answers. The run applies these answers and continues."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from callgate import Engine, Scope, SqliteJournal, Tool, inbox, tool
from callgate.agent import Agent, RunResult
from tests.agent.scripted_model import Answer, Script, call, says, tool_texts
from tests.host_fakes import Asks
from tests.waiting import soon

IN_RUN = Scope(run="the-run")


class Shop:
    """Two tools: `pay` needs an approval, `look` takes until the test lets it end."""

    def __init__(self, path: Path, *answers: Answer) -> None:
        self.path = path / "journal.db"
        self.paid: list[str] = []
        self.looking = asyncio.Event()
        self.seen = asyncio.Event()
        self.model = Script(*answers)
        self.journal = SqliteJournal(self.path)
        self.engine = Engine(self._tools(), policies=[Asks("pay")], journal=self.journal)
        self.agent = Agent(self.model, self.engine)

    def _tools(self) -> list[Tool]:
        @tool(effect="once")
        async def pay(to: str) -> str:
            """Pay somebody."""
            self.paid.append(to)
            return f"paid {to}"

        @tool(effect="none")
        async def look() -> str:
            """Look at something, slowly."""
            self.looking.set()
            await self.seen.wait()
            return "saw it"

        return [pay, look]

    async def is_taken(self, count: int) -> None:
        """Wait until this many answers are in the journal."""
        assert await soon(lambda: sum(event.kind == "inbox.taken" for event in self.journal.read(run="the-run")) >= count)


def pays(*people: str) -> list[object]:
    return [call("pay", {"to": who}, id=who, position=place) for place, who in enumerate(people)]


def questions(result: RunResult) -> list[str]:
    assert result.pending is not None
    return [approval.approval_id for approval in result.pending.approvals]


@pytest.mark.parametrize("decide", [inbox.approve, inbox.deny], ids=["yes", "no"])
async def test_an_answer_that_arrives_while_other_calls_run_is_applied_before_the_run_waits(decide: object, tmp_path: Path) -> None:
    """If the answer were not applied before the run waits, nothing would resume the run for it later."""
    shop = Shop(tmp_path, says(*pays("ann", "bob"), call("look", position=2)), says("Done."))  # type: ignore[arg-type]
    async with shop.engine:
        running = asyncio.ensure_future(shop.agent.run("Pay.", scope=IN_RUN))
        await shop.looking.wait()
        assert await soon(lambda: len(inbox.waiting(shop.path)) == 2)
        decide(shop.path, "the-run/0/0", by="carol")  # type: ignore[operator]
        await shop.is_taken(1)
        shop.seen.set()
        waiting = await running
        assert (waiting.status, questions(waiting)) == ("waiting", ["the-run/0/1"])
        assert shop.paid == (["ann"] if decide is inbox.approve else [])
        await shop.engine.answer("the-run/0/1", allow=True)
        result = await shop.agent.resume(waiting)
    assert (result.text, shop.paid[-1]) == ("Done.", "bob")
    assert [one.id for one in result.results] == ["ann", "bob", "call-look-2"]


async def test_a_run_whose_approvals_are_all_answered_while_it_runs_does_not_wait(tmp_path: Path) -> None:
    shop = Shop(tmp_path, says(*pays("ann", "bob"), call("look", position=2)), says("Done."))  # type: ignore[arg-type]
    async with shop.engine:
        running = asyncio.ensure_future(shop.agent.run("Pay.", scope=IN_RUN))
        await shop.looking.wait()
        assert await soon(lambda: len(inbox.waiting(shop.path)) == 2)
        inbox.approve(shop.path, "the-run/0/0", by="carol")
        inbox.deny(shop.path, "the-run/0/1", by="carol")
        await shop.is_taken(2)
        shop.seen.set()
        result = await running
    assert (result.status, result.text, shop.paid) == ("completed", "Done.", ["ann"])
    first, second, third = tool_texts(shop.model.seen[1])
    assert (first, "carol said no" in second, third) == ("paid ann", True, "saw it")
    assert (result.spent.calls, result.spent.iterations) == (3, 1)


@pytest.mark.parametrize("by_name", [False, True], ids=["result", "name"])
async def test_each_resume_applies_the_answer_that_is_in_the_inbox(by_name: bool, tmp_path: Path) -> None:
    """The caller of `resume` does not need to know which approvals are answered, or by whom."""
    shop = Shop(tmp_path, says(*pays("ann", "bob", "eve")), says("Done."))  # type: ignore[arg-type]
    async with shop.engine:
        at = waiting = await shop.agent.run("Pay.", scope=IN_RUN)
        for place, (decide, paid) in enumerate([(inbox.approve, ["ann"]), (inbox.deny, ["ann"]), (inbox.approve, ["ann", "eve"])]):
            decide(shop.path, questions(waiting)[place], by="carol")
            at = await shop.agent.resume("the-run" if by_name else at)
            assert (at.status, shop.paid) == ("completed" if place == 2 else "waiting", paid)
    assert [one.code for one in at.results] == [None, "human_denied", None]
