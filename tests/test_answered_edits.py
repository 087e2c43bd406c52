"""A human's edit of a call that an earlier call answers: the call, handed in again, gets that answer from every engine on the journal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from callgate import Engine, Scope, SqliteJournal, Suspended, Tool, Verified
from callgate._json import decode
from callgate.event_queries import EventQuery
from tests.effect_ledger import Ledger
from tests.effect_tools import failing, refunding, returning_failure
from tests.engine_calls import call, said

SCOPE = Scope(run="chat", conversation="chat", message_id="m2")
ASKED = call("refund", id="c", order="A7")
EARLIER = call("refund", id="c", order="Z")


def asks(arguments: Any, scope: Scope) -> bool:
    return scope.message_id == SCOPE.message_id


@pytest.fixture
async def engines(tmp_path: Path, ledger: Ledger) -> AsyncIterator[list[Engine]]:
    """Two engines that are open on one journal at the same time. Their tools ask a human about the calls of the second message."""
    made = [Engine([refunding(ledger, requires_approval=asks)], journal=SqliteJournal(tmp_path / "j.db")) for _ in range(2)]
    yield made
    for engine in made:
        await engine.close()


async def edit(engine: Engine, order: str = "Z") -> Any:
    """Let a human change the order of the call, and return its result."""
    asked = await engine.call(ASKED, SCOPE)
    assert isinstance(asked, Suspended)
    await engine.approve(asked.approval_id, by="ann", arguments={"order": order})
    return await said(engine, ASKED, SCOPE)


@pytest.mark.parametrize("run", ["chat", "other"], ids=["of the run", "of another run"])
async def test_an_edited_call_that_got_a_stored_result_gets_it_from_every_engine(run: str, engines: list[Engine], ledger: Ledger) -> None:
    first, second = engines
    await said(first, EARLIER, Scope(run=run, conversation="chat", message_id="m1"))
    edited = await edit(first)
    assert "Nothing was run for this call" in edited.text
    again = await said(first, ASKED, SCOPE)
    await first.close()
    elsewhere = await said(second, ASKED, SCOPE)
    assert edited.text == again.text == elsewhere.text
    assert (elsewhere.structured, elsewhere.metadata.replayed) == ("refunded Z", True)
    assert ledger.lines() == ["Z 100"]


@pytest.mark.parametrize("run", ["chat", "other"], ids=["of the run", "of another run"])
async def test_an_edited_call_that_got_a_stored_failure_gets_it_until_that_is_settled(run: str, tmp_path: Path, ledger: Ledger) -> None:
    """From the engine that asked, and from a later one. Settled as not happened, the failure answers nothing any more."""
    tools = [returning_failure(ledger, requires_approval=asks)]
    async with Engine(tools, journal=SqliteJournal(tmp_path / "j.db")) as engine:
        earlier = await said(engine, EARLIER, Scope(run=run, conversation="chat", message_id="m1"))
        edited = await edit(engine)
        assert (edited.code, "Nothing was run for this call" in edited.text) == ("tool_declared", True)
        assert (await said(engine, ASKED, SCOPE)).text == edited.text
    async with Engine(tools, journal=SqliteJournal(tmp_path / "j.db")) as engine:
        assert (await said(engine, ASKED, SCOPE)).text == edited.text
        await engine.settle(earlier.uid, happened=False)
        assert isinstance(await engine.call(ASKED, SCOPE), Suspended)
    assert ledger.lines() == ["Z"]


async def test_an_edited_call_that_was_asked_about_by_both_engines_gets_the_stored_result_from_both(engines: list[Engine]) -> None:
    first, second = engines
    await said(first, EARLIER, Scope(run="other"))
    assert isinstance(await first.call(ASKED, SCOPE), Suspended)
    await first.close()
    edited = await edit(second)
    assert (await said(second, ASKED, SCOPE)).text == edited.text


async def test_an_edited_call_that_has_run_is_not_asked_about_again(engines: list[Engine], ledger: Ledger) -> None:
    first, second = engines
    edited = await edit(first, "B")
    await first.close()
    assert (await said(second, ASKED, SCOPE)).text == edited.text
    assert ledger.lines() == ["B 100"]


async def test_an_edited_call_that_verify_answered_gets_that_answer_from_every_engine(tmp_path: Path, ledger: Ledger) -> None:
    def tool() -> Tool:
        answers = iter([Verified(happened=None), Verified(happened=True, result="refunded, said the bank")])
        return failing(ledger, ValueError("lost"), verify=lambda arguments, key: next(answers), requires_approval=asks)

    async with Engine([tool()], journal=SqliteJournal(tmp_path / "j.db")) as engine:
        assert (await said(engine, EARLIER, Scope(run="other"))).status == "unknown"
        edited = await edit(engine)
        assert edited.structured == "refunded, said the bank"
    async with Engine([tool()], journal=SqliteJournal(tmp_path / "j.db")) as engine:
        assert (await said(engine, ASKED, SCOPE)).text == edited.text
    assert ledger.lines() == ["Z"]


async def test_a_restarted_engine_asks_about_another_call_with_the_arguments_that_a_human_has_edited(engines: list[Engine]) -> None:
    first, second = engines
    await said(first, EARLIER, Scope(run="other"))
    await edit(first)
    await first.close()
    assert isinstance(await second.call(call("refund", id="d", order="A7"), SCOPE), Suspended)


@pytest.mark.parametrize(("order", "told"), [("Z", "; the key of its effect changed"), ("A7", "")], ids=["other key", "same key"])
async def test_the_record_says_whether_an_edit_changed_the_key_of_the_effect(order: str, told: str, engines: list[Engine]) -> None:
    asked = await engines[0].call(ASKED, SCOPE)
    assert isinstance(asked, Suspended)
    await engines[0].approve(asked.approval_id, by="ann", arguments={"order": order, "cents": 50})
    await said(engines[0], ASKED, SCOPE)
    verdicts = [decode(event.body) for event in engines[0].journal.find(EventQuery(kinds=("call.verdict",)))]
    (edited,) = [verdict["reason"] for verdict in verdicts if verdict["verdict"] == "modify"]
    assert edited == f'ann approved it with {{"cents":50,"order":"{order}"}}{told}'


async def test_an_edit_that_no_call_has_used_is_still_used_after_a_restart(engines: list[Engine], ledger: Ledger) -> None:
    first, second = engines
    await said(first, EARLIER, Scope(run="other"))
    asked = await first.call(ASKED, SCOPE)
    assert isinstance(asked, Suspended)
    await first.approve(asked.approval_id, by="ann", arguments={"order": "Z"})
    await first.close()
    result = await said(second, ASKED, SCOPE)
    assert (result.structured, ledger.lines()) == ("refunded Z", ["Z 100"])
