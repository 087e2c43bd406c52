"""Outcomes that are not recorded say so: an approval, a denial, an unknown outcome, an aborted message, a context restart.

A record fails because its commit fails, the disk is gone, or another engine takes over the run during the call.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from callgate import Aborted, Answered, Engine, Restarted, Scope, SqliteJournal, Tool, tool
from callgate.agent import Agent
from callgate.calls import Outcome
from callgate.errors import JournalFailed, LeaseLost
from callgate.event_queries import EventQuery
from callgate.events import Draft
from callgate.protocols import Allow, Ask, Deny, Verdict
from callgate.stage_types import ValidatedCall
from tests.agent.scripted_model import Script, says
from tests.agent.scripted_model import call as model_call
from tests.engine_calls import call
from tests.journals.test_leases import expire

IN_RUN = Scope(run="order", conversation="talk")


class FailingJournal(SqliteJournal):
    """A journal whose events are not durable once `fail` was called, although it still accepts them."""

    full = False
    kept = 0

    async def durable(self, position: int) -> None:
        if self.full and position > self.kept:
            raise JournalFailed("The journal cannot be written: the disk is full.")
        await super().durable(position)
        self.kept = max(self.kept, position)

    def fail(self) -> None:
        self.full = True


class Shop:
    """An engine whose journal fails at a given moment."""

    def __init__(self, path: Path, how: str) -> None:
        self.path, self._how = path / "journal.db", how
        self.journal = FailingJournal(self.path)
        self.verdict: Verdict = Allow()
        self.stops = False
        self.happened: list[str] = []
        self.engine = Engine(self._tools(), policies=[self], journal=self.journal, restart=self._takes)
        self._other: SqliteJournal | None = None

    async def fail(self) -> None:
        if self._how == "commit":
            self.journal.fail()
        elif self._how == "disk":
            for file in self.path.parent.iterdir():
                if file.is_file():
                    file.unlink()
        else:
            expire(self.journal)
            self._other = self._other or SqliteJournal(self.path)
            await self._other.acquire_lease("order")
            if self._how == "lease that is known to be lost":
                with suppress(LeaseLost):
                    await self.journal.durable(self.journal.append(Draft(kind="note", run="order", body=b"{}")))

    async def decide(self, call: ValidatedCall) -> Verdict:
        if call.tool.name in ("pay", "look"):
            if self.stops:
                self.engine.control.stop("talk", "that is enough")
            await self.fail()
        return self.verdict

    def _tools(self) -> list[Tool]:
        @tool(effect="once")
        async def pay(to: str) -> str:
            """Pay somebody."""
            self.happened.append(to)
            return f"paid {to}"

        @tool(effect="once")
        async def doubt() -> str:
            """Act, then lose the reply and the record."""
            self.happened.append("doubt")
            await self.fail()
            raise TimeoutError("no reply")

        @tool(effect="none")
        async def look() -> str:
            """Look."""
            return "saw it"

        @tool(effect="none")
        async def enrich() -> dict[str, object]:
            """Return context."""
            return {"type": "context_restart_x", "enhanced_context_item": "a picture"}

        @tool(effect="once")
        async def begin() -> str:
            """Begin."""
            return "begun"

        return [pay, doubt, look, enrich, begin]

    async def _takes(self, data: object) -> bool:
        await self.fail()
        return True

    async def close(self) -> None:
        await self.engine.close()
        if self._other is not None:
            await self._other.close()


@pytest.fixture(params=["commit", "disk", "lease", "lease that is known to be lost"])
async def shop(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shop]:
    made = Shop(tmp_path, request.param)
    yield made
    await made.close()


async def alone(shop: Shop, name: str, **arguments: Any) -> Outcome:
    return await shop.engine.call(call(name, **arguments), IN_RUN)


def result_of(outcome: Outcome) -> str:
    """Return the text of a result, after checking that both its metadata and its text say that it is not recorded."""
    assert isinstance(outcome, Answered), outcome
    assert outcome.result.metadata.recorded is False
    text = outcome.result.text.lower()
    assert any(words in text for words in ("not on record", "could not be", "taken over")), text
    return text


async def test_an_approval_that_cannot_be_recorded_is_not_asked(shop: Shop) -> None:
    """Nobody could answer it from another process, and it would be lost with this one."""
    shop.verdict = Ask(question="Pay ann?")
    outcome = await alone(shop, "pay", to="ann")
    text = result_of(outcome)
    assert "not run" in text
    assert isinstance(outcome, Answered)
    assert (outcome.result.status, outcome.result.failure_class) == ("error", "record_failed")
    assert shop.engine.approval(outcome.result.uid) is None
    assert shop.happened == []


async def test_an_unrecorded_denial_is_marked_as_unrecorded(shop: Shop) -> None:
    shop.verdict = Deny(reason="payments are off")
    outcome = await alone(shop, "pay", to="ann")
    result_of(outcome)
    assert isinstance(outcome, Answered)
    assert outcome.result.status == "error"


async def test_an_unrecorded_unknown_outcome_is_marked_as_unrecorded(shop: Shop) -> None:
    outcome = await alone(shop, "doubt")
    result_of(outcome)
    assert isinstance(outcome, Answered)
    assert (outcome.result.status, shop.happened) == ("unknown", ["doubt"])


async def test_an_unrecorded_result_is_withheld_and_marked_as_unrecorded(shop: Shop) -> None:
    outcome = await alone(shop, "look")
    text = result_of(outcome)
    assert "saw it" not in text


async def test_an_unrecorded_abort_is_marked_as_unrecorded(shop: Shop) -> None:
    shop.stops = True
    outcome = await alone(shop, "look")
    assert isinstance(outcome, Aborted | Answered)
    if isinstance(outcome, Answered):  # the lease was lost first, which killed the call
        result_of(outcome)
    else:
        assert outcome.recorded is False
        assert "(not on record:" in outcome.reason
        assert "that is enough" in outcome.reason


async def test_an_unrecorded_context_restart_is_marked_as_unrecorded(shop: Shop) -> None:
    outcome = await alone(shop, "enrich")
    assert isinstance(outcome, Restarted)
    assert outcome.recorded is False


async def test_a_call_whose_run_cannot_be_opened_is_marked_as_unrecorded(shop: Shop) -> None:
    if shop._how == "lease":
        other = SqliteJournal(shop.path)
        await other.acquire_lease("order")
        outcome = await alone(shop, "look")
        await other.close()
    else:
        await shop.fail()
        shop.journal._commits._fail(JournalFailed("gone"))
        outcome = await alone(shop, "look")
    assert isinstance(outcome, Answered)
    assert outcome.result.metadata.recorded is False


async def test_only_the_unrecorded_results_of_a_message_are_marked(shop: Shop) -> None:
    begun, *others = await shop.engine.call_many([call("begin"), call("look", id="2"), call("look", id="3")], IN_RUN)
    assert isinstance(begun, Answered)
    assert (begun.result.text, begun.result.metadata.recorded) == ("begun", True)
    for one in others:
        result_of(one)


async def test_a_recorded_outcome_has_recorded_true_and_stores_no_flag(tmp_path: Path) -> None:
    """The flag is not stored, and is part of a result's JSON only if it is False."""
    shop = Shop(tmp_path, "commit")
    shop.journal.fail = lambda: None  # type: ignore[method-assign]
    outcomes = [await alone(shop, "look"), await alone(shop, "enrich"), await alone(shop, "doubt")]
    assert [one.result.metadata.recorded for one in outcomes if isinstance(one, Answered)] == [True, True]
    assert all(one.recorded for one in outcomes if isinstance(one, Restarted))
    await shop.close()
    journal = SqliteJournal(shop.path)
    assert not [event for event in journal.find(EventQuery()) if b'"recorded"' in event.body]
    await journal.close()


async def test_an_unrecorded_end_of_a_run_is_reported_in_its_reason(tmp_path: Path) -> None:
    """The text of the run is returned, and the reason says that its end is not recorded."""

    class AtTheEnd(FailingJournal):
        def append(self, draft: Draft) -> int:
            if draft.kind == "run.ended":
                self.full = True
            return super().append(draft)

    async with Engine([], journal=AtTheEnd(tmp_path / "journal.db")) as engine:
        result = await Agent(Script(says("Here.")), engine).run("Go.")
    assert (result.status, result.text, result.recorded) == ("completed", "Here.", 0)
    assert "the end of this run is not on record" in result.reason
    assert "the disk is full" in result.reason


async def test_a_run_whose_approval_cannot_be_recorded_does_not_wait(shop: Shop) -> None:
    shop.verdict = Ask(question="Pay?")
    model = Script(says("Paying.", model_call("pay", {"to": "ann"}, id="1")), says("Done."))
    result = await Agent(model, shop.engine).run("Pay.", scope=Scope(run="order"), conversation="talk")
    assert (result.status != "waiting", result.pending, shop.happened) == (True, None, [])
    assert (result.recorded, "not on record" in result.reason) == (0, True)
