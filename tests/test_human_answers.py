"""What an own loop gets for a human's answer: a no that the model can act on, and a yes to changed arguments."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from callgate import Allow, Answered, Ask, Deny, Engine, RawCall, Scope, SqliteJournal, Suspended, Tool, inbox, tool
from callgate.errors import UsageError
from callgate.events import Event
from callgate.protocols import Verdict
from callgate.stage_types import ValidatedCall
from tests.engine_calls import bodies, result_of
from tests.host_fakes import Asks, Hider
from tests.waiting import PATIENCE_S

SCOPE = Scope(run="r")
PAY = RawCall(id="a", name="pay", arguments={"to": "ann", "amount": 100})
NEW_CALLS = [
    (RawCall(id="b", name="pay", arguments={"to": "ann", "amount": 100}), SCOPE),
    (PAY, Scope(run="r", message_id="m2")),
    (PAY, Scope(run="r", iteration=1)),
    (PAY, Scope(run="r", conversation="other")),
    (PAY, Scope(run="other")),
]
"""Calls that are not the same as `PAY` in `SCOPE`, although tool and arguments are."""


class Shop:
    """A tool that pays, and what it paid."""

    def __init__(self) -> None:
        self.paid: list[str] = []

    def tools(self) -> list[Tool]:
        @tool
        def pay(to: str, amount: int) -> str:
            """Pay somebody."""
            self.paid.append(f"{to} {amount}")
            return f"paid {to} {amount}"

        return [pay]


class AtMost:
    """Asks about every payment, and denies those above a limit."""

    def __init__(self, most: int) -> None:
        self._most = most

    async def decide(self, call: ValidatedCall) -> Verdict:
        amount: Any = call.arguments["amount"]
        return Deny(reason=f"at most {self._most}") if amount > self._most else Ask(question="Pay?")


class AsksAbout:
    """Asks about the calls that look at a certain page, and allows all others."""

    def __init__(self, page: str) -> None:
        self._page = page

    async def decide(self, call: ValidatedCall) -> Verdict:
        return Ask(question="Show it?") if call.arguments["at"] == self._page else Allow()


class AsksOnce:
    """Asks about the first call that it sees, and allows all others."""

    def __init__(self) -> None:
        self._asked = False

    async def decide(self, call: ValidatedCall) -> Verdict:
        asked, self._asked = self._asked, True
        return Allow() if asked else Ask(question="Pay?")


@pytest.fixture
def shop() -> Shop:
    return Shop()


async def asked(engine: Engine, raw: RawCall = PAY) -> str:
    outcome = await engine.call(raw, SCOPE)
    assert isinstance(outcome, Suspended), outcome
    return outcome.approval_id


def questions(engine: Engine) -> int:
    return sum(event.kind == "call.suspended" for event in engine.journal.read())


def answers(events: list[Event]) -> int:
    return sum(event.kind == "approval.answered" for event in events)


@pytest.mark.parametrize("elsewhere", [False, True], ids=["same process", "after a restart"])
async def test_a_denied_call_handed_in_again_gets_the_same_denial_each_time(tmp_path: Path, shop: Shop, elsewhere: bool) -> None:
    def opened() -> Engine:
        return Engine(shop.tools(), policies=[Asks()], journal=SqliteJournal(tmp_path / "j.db"))

    engine = opened()
    await engine.deny(await asked(engine), reason="wrong account", by="bob")
    if elsewhere:
        await engine.close()
        engine = opened()
    async with engine:
        outcome = await engine.call(PAY, SCOPE)
        assert isinstance(outcome, Answered)
        result = outcome.result
        assert (result.status, result.failure_class, result.code) == ("error", "denied", "human_denied")
        assert "bob said no: wrong account. Do not try it again" in result.text
        again = result_of(await engine.call(PAY, SCOPE))
        assert (again.code, again.text, again.metadata.replayed) == ("human_denied", result.text, True)
        await engine.close()
    async with opened() as later:
        assert result_of(await later.call(PAY, SCOPE)).text == result.text
        for other, scope in NEW_CALLS:
            assert isinstance(await later.call(other, scope), Suspended), "another call asks again"
        assert (shop.paid, questions(later)) == ([], 1 + len(NEW_CALLS))


async def test_a_denied_read_handed_in_again_gets_the_same_denial_and_other_reads_run_each_time(tmp_path: Path) -> None:
    ran: list[str] = []

    @tool(effect="none")
    def look(at: str) -> str:
        """Look at something."""
        ran.append(at)
        return at

    def opened() -> Engine:
        return Engine([look], policies=[AsksAbout("wages")], journal=SqliteJournal(tmp_path / "j.db"))

    wages, news = (RawCall(id="a", name="look", arguments={"at": at}) for at in ("wages", "news"))
    async with opened() as engine:
        await engine.deny(await asked(engine, wages), by="bob")
        for _ in range(2):
            assert result_of(await engine.call(wages, SCOPE)).code == "human_denied"
            assert result_of(await engine.call(news, SCOPE)).status == "ok"
    async with opened() as engine:
        assert result_of(await engine.call(wages, SCOPE)).code == "human_denied"
        assert result_of(await engine.call(news, SCOPE)).metadata.replayed is False
    assert ran == ["news"] * 3


async def test_a_key_of_a_denied_call_may_be_used_for_other_arguments(shop: Shop) -> None:
    """Nothing was run with the key."""
    keyed = [RawCall(id="a", name="pay", arguments={"to": "ann", "amount": n}, idempotency_key="k") for n in (100, 50)]
    async with Engine(shop.tools(), policies=[Asks()]) as engine:
        await engine.deny(await asked(engine, keyed[0]), by="bob")
        assert result_of(await engine.call(keyed[0], SCOPE)).code == "human_denied"
        await engine.approve(await asked(engine, keyed[1]), by="bob")
        assert result_of(await engine.call(keyed[1], SCOPE)).status == "ok"
    assert shop.paid == ["ann 50"]


async def test_a_no_counts_although_the_rules_would_allow_the_call_by_now(shop: Shop) -> None:
    async with Engine(shop.tools(), policies=[AsksOnce()]) as engine:
        await engine.deny(await asked(engine), by="bob")
        assert result_of(await engine.call(PAY, SCOPE)).code == "human_denied"
    assert shop.paid == []


@pytest.mark.parametrize("elsewhere", [False, True], ids=["same process", "after a restart"])
@pytest.mark.parametrize("earlier", [False, True], ids=["told with the no", "told after the no"])
async def test_a_no_that_the_host_tells_the_model_itself_waits_for_no_call(
    tmp_path: Path, shop: Shop, earlier: bool, elsewhere: bool
) -> None:
    def opened() -> Engine:
        return Engine(shop.tools(), policies=[Asks()], journal=SqliteJournal(tmp_path / "j.db"))

    engine = opened()
    question = await asked(engine)
    if earlier:
        await engine.deny(question, by="bob", reason="wrong account")
    answer, _ = await asyncio.gather(engine.wait_for_answer(question), engine.deny(question, by="ann", reason="no", told=True))
    assert answer is not None
    assert answer.allowed is False
    assert inbox.waiting(tmp_path / "j.db") == []
    if elsewhere:
        await engine.close()
        engine = opened()
    next_one = await asked(engine, RawCall(id="b", name="pay", arguments={"to": "ann", "amount": 100}))
    assert engine.approval(question) is None
    with pytest.raises(UsageError, match="used up"):
        await engine.deny(question, told=True)
    recorded = bodies(engine, "approval.answered")
    await engine.close()
    assert next_one != question
    assert {one["reason"] for one in recorded} == ({"bob"} if earlier else {"ann"})
    assert shop.paid == []


@pytest.mark.parametrize("elsewhere", [False, True], ids=["same process", "after a restart"])
async def test_a_human_may_change_the_arguments_and_the_model_is_told(tmp_path: Path, shop: Shop, elsewhere: bool) -> None:
    def opened() -> Engine:
        return Engine(shop.tools(), policies=[AtMost(100)], journal=SqliteJournal(tmp_path / "j.db"))

    engine = opened()
    await engine.approve(await asked(engine), by="bob", arguments={"to": "ann", "amount": 60})
    if elsewhere:
        await engine.close()
        engine = opened()
    async with engine:
        result = result_of(await engine.call(PAY, SCOPE))
        assert (result.status, shop.paid) == ("ok", ["ann 60"])
        assert 'The arguments were changed (amount): bob approved it with {"amount":60,"to":"ann"}.' in result.text
        again = result_of(await engine.call(PAY, SCOPE))
        assert (again.metadata.replayed, again.text) == (True, result.text)
        other = RawCall(id="b", name="pay", arguments={"to": "ann", "amount": 60})
        assert isinstance(await engine.call(other, SCOPE), Suspended), "the approval was used up"


async def test_changed_arguments_are_judged_again(shop: Shop) -> None:
    async with Engine(shop.tools(), policies=[AtMost(100)]) as engine:
        await engine.approve(await asked(engine), by="bob", arguments={"to": "ann", "amount": 500})
        result = result_of(await engine.call(PAY, SCOPE))
        assert (result.code, "at most 100" in result.text) == ("policy_denied", True)
        assert isinstance(await engine.call(PAY, SCOPE), Suspended)
    assert shop.paid == []


@pytest.mark.parametrize("elsewhere", [False, True], ids=["same process", "after a restart"])
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"to": "ann"}, "amount"),
        ({"to": "ann", "amount": "much"}, "amount"),
        ({"to": "ann", "amount": object()}, "JSON"),
        ({"to": "ann", "amount": 5, "amuont": 6}, "is not an argument"),
        ("amount=5", "must be a mapping of argument names to values"),
    ],
    ids=["missing", "wrong type", "no JSON", "unknown name", "no mapping"],
)
async def test_invalid_arguments_are_refused_to_the_human_and_the_question_stays_open(
    tmp_path: Path, shop: Shop, arguments: Any, said: str, elsewhere: bool
) -> None:
    journal = tmp_path / "j.db"
    engine = Engine(shop.tools(), policies=[Asks()], journal=SqliteJournal(journal))
    question = await asked(engine)
    if elsewhere:
        await engine.close()
        engine = Engine(shop.tools(), policies=[Asks()], journal=SqliteJournal(journal))
    async with engine:
        with pytest.raises(UsageError, match=said):
            await engine.approve(question, by="bob", arguments=arguments)
        await engine.approve(question, by="bob")
        assert result_of(await engine.call(PAY, SCOPE)).status == "ok"
    assert shop.paid == ["ann 100"]


async def test_refused_arguments_are_explained_to_the_human_and_not_to_the_model(shop: Shop) -> None:
    async with Engine(shop.tools(), policies=[Asks()]) as engine:
        question = await asked(engine)
        for arguments, fault in (
            ({"to": 5}, "- to: expected text, got 5"),
            ({"to": "a", "amount": 1, "z": 1}, "- 'z' is not an argument."),
        ):
            with pytest.raises(UsageError) as caught:
                await engine.approve(question, arguments=arguments)
            text = str(caught.value)
            assert text.startswith("The question stays open: pay does not accept the arguments of this approval.\n- ")
            assert text.endswith("\nApprove again with all arguments of the call; pay takes amount, to.")
            assert fault in text
            assert ("call it again" in text, "was not run" in text, "dropped" in text) == (False, False, False)


@pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "another process"])
async def test_arguments_of_a_human_are_converted_as_those_of_the_model_are(tmp_path: Path, shop: Shop, elsewhere: bool) -> None:
    async with Engine(shop.tools(), policies=[Asks()], journal=SqliteJournal(tmp_path / "j.db")) as engine:
        question = await asked(engine)
        if elsewhere:
            sent = await asyncio.to_thread(inbox.approve, tmp_path / "j.db", question, by="bob", arguments={"to": "bob", "amount": "33"})
            await asyncio.to_thread(inbox.outcome, tmp_path / "j.db", sent.id, wait_s=PATIENCE_S)
        else:
            await engine.approve(question, by="bob", arguments={"to": "bob", "amount": "33"})
            await engine.approve(question, by="bob", arguments={"to": "bob", "amount": 33})
            known = engine.approval(question)
            assert known is not None
            assert known.arguments == {"to": "bob", "amount": 33}
            (answer,) = bodies(engine, "approval.answered")
            details: Any = answer["details"]
            assert (details["arguments"], "integer" in details["converted"][0]) == (known.arguments, True)
        result = result_of(await engine.call(PAY, SCOPE))
    assert (result.status, shop.paid) == ("ok", ["bob 33"])


async def test_arguments_of_a_human_are_not_converted_if_those_of_the_model_are_not(shop: Shop) -> None:
    async with Engine(shop.tools(), policies=[Asks()], coerce=False) as engine:
        question = await asked(engine)
        with pytest.raises(UsageError, match="The question stays open"):
            await engine.approve(question, by="bob", arguments={"to": "bob", "amount": "33"})


async def test_the_same_answer_twice_is_one_answer_and_another_one_is_refused(shop: Shop) -> None:
    async with Engine(shop.tools(), policies=[Asks()]) as engine:
        question = await asked(engine)
        for _ in range(2):
            await engine.approve(question, by="bob", arguments={"to": "ann", "amount": 1})
        with pytest.raises(UsageError, match="answered with yes already, by bob"):
            await engine.approve(question, by="eve", arguments={"to": "ann", "amount": 2})
        with pytest.raises(UsageError, match="answered with yes already, by bob"):
            await engine.approve(question, by="eve")
        await engine.deny(question, by="eve", reason="no")
        known = engine.approval(question)
        assert known is not None
        assert (known.allowed, known.by, known.reason) == (False, "eve", "no")
        assert answers(list(engine.journal.read(run="r"))) == 2


async def test_changed_arguments_that_lost_a_secret_in_the_record_are_asked_about_again(tmp_path: Path, shop: Shop) -> None:
    """What is on record is not what the human approved."""

    def opened() -> Engine:
        return Engine(shop.tools(), policies=[Asks()], journal=SqliteJournal(tmp_path / "j.db"), redactor=Hider())

    async with opened() as engine:
        await engine.approve(await asked(engine), by="bob", arguments={"to": "hunter2", "amount": 1})
    async with opened() as engine:
        assert isinstance(await engine.call(PAY, SCOPE), Suspended)
    assert shop.paid == []


def test_approve_and_deny_have_forms_for_plain_code(shop: Shop) -> None:
    engine = Engine(shop.tools(), policies=[Asks()])
    first = engine.call_sync(PAY, SCOPE)
    assert isinstance(first, Suspended)
    engine.deny_sync(first.approval_id, by="bob")
    assert result_of(engine.call_sync(PAY, SCOPE)).code == "human_denied"
    second = engine.call_sync(*NEW_CALLS[0])
    assert isinstance(second, Suspended)
    engine.approve_sync(second.approval_id, by="bob", arguments={"to": "ann", "amount": 2})
    assert result_of(engine.call_sync(*NEW_CALLS[0])).status == "ok"
    engine.close_sync()
    assert shop.paid == ["ann 2"]


async def test_another_process_may_change_the_arguments(tmp_path: Path, shop: Shop) -> None:
    journal = tmp_path / "j.db"
    async with Engine(shop.tools(), policies=[Asks()], journal=SqliteJournal(journal)) as engine:
        question = await asked(engine)
    sent = inbox.approve(journal, question, by="carol", reason="half", arguments={"to": "ann", "amount": 50})
    async with Engine(shop.tools(), policies=[Asks()], journal=SqliteJournal(journal)) as engine:
        result = result_of(await engine.call(PAY, SCOPE))
    assert 'carol approved it with {"amount":50,"to":"ann"}: half.' in result.text
    assert (shop.paid, inbox.outcome(journal, sent.id).refused) == (["ann 50"], "")


async def test_a_no_from_another_process_carries_its_reason(tmp_path: Path, shop: Shop) -> None:
    journal = tmp_path / "j.db"
    async with Engine(shop.tools(), policies=[Asks()], journal=SqliteJournal(journal)) as engine:
        question = await asked(engine)
    inbox.deny(journal, question, by="carol", reason="not today")
    async with Engine(shop.tools(), policies=[Asks()], journal=SqliteJournal(journal)) as engine:
        assert "carol said no: not today." in result_of(await engine.call(PAY, SCOPE)).text
    assert shop.paid == []


async def test_arguments_that_no_message_can_carry_are_refused_before_they_are_sent(tmp_path: Path, shop: Shop) -> None:
    journal = tmp_path / "j.db"
    async with Engine(shop.tools(), policies=[Asks()], journal=SqliteJournal(journal)) as engine:
        question = await asked(engine)
    for arguments, said in (({"to": "a" * 70_000, "amount": 1}, "65,536"), ({"to": object()}, "JSON"), ([1], "mapping")):
        with pytest.raises(UsageError, match=said):
            inbox.approve(journal, question, by="carol", arguments=arguments)  # type: ignore[arg-type]


async def test_an_answer_or_settlement_that_is_not_a_bool_is_refused(shop: Shop) -> None:
    """The text "no" would count as true."""
    async with Engine(shop.tools(), policies=[Asks()]) as engine:
        question = await asked(engine)
        with pytest.raises(UsageError, match="allow='no'"):
            await engine.answer(question, allow="no")  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="happened='no'"):
            await engine.settle(question, happened="no")  # type: ignore[arg-type]
    assert shop.paid == []


WRONG_ANSWERS: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "no reason": (lambda engine, one: engine.deny(one.approval_id, reason=None), r"engine.deny\(reason=None\): it must be text"),
    "a reason of a number": (lambda engine, one: engine.approve(one.approval_id, reason=3), r"engine.approve\(reason=3\): it must be text"),
    "a name of a number": (
        lambda engine, one: engine.approve(one.approval_id, by=3),
        r"engine.approve\(by=3\): it must be text",
    ),
    "no name": (lambda engine, one: engine.answer(one.approval_id, allow=False, by=None), r"engine.deny\(by=None\): it must be text"),
    "the outcome": (lambda engine, one: engine.approve(one), r"was given the call's outcome .* `approval_id` of a Suspended outcome"),
    "a list": (lambda engine, one: engine.deny([one.approval_id]), r"was given \['r/0/0'\] .* `approval_id` of a Suspended outcome"),
    "who settles": (lambda engine, one: engine.settle("r/0/0", happened=True, by=3), r"engine.settle\(by=3\): it must be text"),
}


@pytest.mark.parametrize(("give", "said"), WRONG_ANSWERS.values(), ids=WRONG_ANSWERS)
async def test_an_answer_of_a_wrong_type_says_what_to_give_and_the_question_stays_open(shop: Shop, give: Any, said: str) -> None:
    async with Engine(shop.tools(), policies=[Asks()]) as engine:
        outcome = await engine.call(PAY, SCOPE)
        assert isinstance(outcome, Suspended)
        with pytest.raises(UsageError, match=said):
            await give(engine, outcome)
        await engine.approve(outcome.approval_id)
        assert result_of(await engine.call(PAY, SCOPE)).status == "ok"


@pytest.mark.parametrize("more", [{"by": 3}, {"by": "carol", "reason": None}], ids=["who", "why"])
async def test_an_answer_of_a_wrong_type_is_refused_before_it_is_sent(tmp_path: Path, shop: Shop, more: Any) -> None:
    journal = tmp_path / "j.db"
    async with Engine(shop.tools(), policies=[Asks()], journal=SqliteJournal(journal)) as engine:
        question = await asked(engine)
    for send in (inbox.approve, inbox.deny, partial(inbox.settle, happened=True), inbox.stop):
        with pytest.raises(UsageError, match="it must be text"):
            send(journal, question, **more)
