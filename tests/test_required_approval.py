"""Tools that require a human's approval: of every call, or of those that a function of the tool picks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from callgate import (
    Allow,
    Ask,
    Deny,
    Engine,
    Limits,
    MemoryJournal,
    Modify,
    RawCall,
    Scope,
    SqliteJournal,
    Suspended,
    Tool,
    ToolContext,
    tool,
)
from callgate.agent import Agent
from callgate.errors import UsageError
from callgate.protocols import Verdict
from callgate.replay import Replay, judge_again
from callgate.stage_types import ValidatedCall
from tests.agent import scripted_model
from tests.effect_ledger import Ledger
from tests.effect_tools import paying_amounts
from tests.engine_calls import call, result_of, verdicts
from tests.waiting import PATIENCE_S

SCOPE = Scope(run="r")
PAY = call("pay", id="a", to="ann", amount=500)
RULE = "tool:requires_approval"
WHOLE_QUESTION = 'Run pay with {"to":"ann","amount":500}?'


class Says:
    """A policy with one verdict."""

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict

    async def decide(self, call: ValidatedCall) -> Verdict:
        return self.verdict


class SaysAtOnce(Says):
    never_waits = True

    def judge(self, call: ValidatedCall) -> Verdict:
        return self.verdict


async def asked(engine: Engine, raw: RawCall = PAY) -> Suspended:
    outcome = await engine.call(raw, SCOPE)
    assert isinstance(outcome, Suspended), outcome
    return outcome


@pytest.mark.parametrize("policies", [[], [Says(Allow(rule="all"))], [SaysAtOnce(Allow(rule="all"))]], ids=["none", "later", "at once"])
async def test_a_tool_that_requires_approval_runs_only_after_a_human_said_yes_whatever_rules_allow(
    policies: list[Any], ledger: Ledger
) -> None:
    async with Engine([paying_amounts(ledger, requires_approval=True)], policies=policies) as engine:
        question = await asked(engine)
        assert (question.question, ledger.lines()) == (WHOLE_QUESTION, [])
        await engine.approve(question.approval_id, by="bob")
        result = result_of(await engine.call(PAY, SCOPE))
        assert (result.text, result.metadata.rule, ledger.lines()) == ("paid ann", f"{RULE}, allowed by bob", ["ann 500"])
        assert verdicts(engine)[0]["rule"] == RULE
        assert isinstance(await engine.call(call("pay", id="b", to="ann", amount=500), SCOPE), Suspended), "a yes counts once"


async def test_a_denied_call_of_such_a_tool_tells_the_model(ledger: Ledger) -> None:
    async with Engine([paying_amounts(ledger, requires_approval=True)]) as engine:
        await engine.deny((await asked(engine)).approval_id, by="bob", reason="too much")
        assert "bob said no: too much" in result_of(await engine.call(PAY, SCOPE)).text
    assert ledger.lines() == []


async def test_a_policy_can_still_deny_and_its_question_comes_first(ledger: Ledger) -> None:
    pay = paying_amounts(ledger, requires_approval=lambda arguments: 1 / 0)
    async with Engine([pay], policies=[Says(Deny(reason="closed"))]) as engine:
        assert "closed" in result_of(await engine.call(PAY, SCOPE)).text
    async with Engine([pay], policies=[Says(Ask(question="May we?", rule="ours"))]) as engine:
        assert (await asked(engine)).question == "May we?"


SAYS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "yes": (lambda arguments: arguments["amount"] > 100, WHOLE_QUESTION),
    "a question": (lambda arguments: "Pay that much?", 'Pay that much? (pay with {"to":"ann","amount":500})'),
    "an empty question": (lambda arguments: "", WHOLE_QUESTION),
    "nothing": (lambda arguments: None, f"{WHOLE_QUESTION} Its requires_approval returned NoneType instead of a bool or a question."),
    "a failure": (lambda arguments: arguments["missing"], f"{WHOLE_QUESTION} Its requires_approval failed with KeyError: 'missing'."),
}


async def later(arguments: dict[str, Any]) -> bool:
    await asyncio.sleep(0)
    return bool(arguments["amount"] > 100)


async def never(arguments: dict[str, Any]) -> bool:
    await asyncio.Event().wait()
    return False


@pytest.mark.parametrize(
    ("says", "question"),
    [*SAYS.values(), (later, WHOLE_QUESTION), (never, f"{WHOLE_QUESTION} Its requires_approval took too long.")],
    ids=[*SAYS, "yes, later", "no answer"],
)
async def test_only_a_plain_false_of_the_tools_function_lets_a_call_run(says: Any, question: str, ledger: Ledger) -> None:
    limits = Limits(policy_timeout_s=0.05)
    async with Engine([paying_amounts(ledger, requires_approval=says)], limits=limits) as engine:
        assert ((await asked(engine)).question, ledger.lines()) == (question, [])


async def test_a_function_that_blocks_delays_no_other_call_and_a_human_is_asked_when_its_time_is_over(ledger: Ledger) -> None:
    go_on = threading.Event()

    def blocks(arguments: dict[str, Any]) -> bool:
        go_on.wait()
        return False

    @tool(effect="none")
    async def look() -> str:
        """Look."""
        return "seen"

    async with Engine([paying_amounts(ledger, requires_approval=blocks), look], limits=Limits(policy_timeout_s=0.3)) as engine:
        paying = asyncio.ensure_future(asked(engine))
        assert result_of(await engine.call(call("look"), Scope(run="s"))).text == "seen"
        question = (await asyncio.wait_for(paying, PATIENCE_S)).question
        go_on.set()
    assert (question, ledger.lines()) == (f"{WHOLE_QUESTION} Its requires_approval took too long.", [])


@pytest.mark.parametrize("says", [SAYS["yes"][0], later], ids=["function", "async function"])
async def test_calls_that_the_function_does_not_pick_run_at_once(says: Any, ledger: Ledger) -> None:
    async with Engine([paying_amounts(ledger, requires_approval=says)]) as engine:
        result = result_of(await engine.call(call("pay", to="ann", amount=5), SCOPE))
    assert (result.text, result.metadata.rule, ledger.lines()) == ("paid ann", "default", ["ann 5"])


async def test_the_function_sees_the_final_arguments_with_defaults_and_the_scope_and_cannot_change_them(ledger: Ledger) -> None:
    seen: list[object] = []

    def says(arguments: dict[str, Any], scope: Scope) -> bool:
        seen.append((dict(arguments), scope.run))
        arguments["amount"] = 0
        return False

    policy = Says(Modify(arguments={"to": "eve", "amount": 1}, reason="by rule"))
    async with Engine([paying_amounts(ledger, requires_approval=says)], policies=[policy]) as engine:
        await engine.call(call("pay", to="ann"), SCOPE)
    assert (seen, ledger.lines()) == ([({"to": "eve", "amount": 1}, "r")], ["eve 1"])


async def test_arguments_that_a_human_changed_are_asked_about_no_second_time(ledger: Ledger) -> None:
    async with Engine([paying_amounts(ledger, requires_approval=lambda arguments: arguments["amount"] > 100)]) as engine:
        await engine.approve((await asked(engine)).approval_id, by="bob", arguments={"to": "ann", "amount": 300})
        assert result_of(await engine.call(PAY, SCOPE)).success
    assert ledger.lines() == ["ann 300"]


async def test_an_approval_survives_a_restart_of_the_program(tmp_path: Path, ledger: Ledger) -> None:
    pay = paying_amounts(ledger, requires_approval=True)
    async with Engine([pay], journal=SqliteJournal(tmp_path / "j.db")) as engine:
        await engine.approve((await asked(engine)).approval_id, by="bob")
    async with Engine([pay], journal=SqliteJournal(tmp_path / "j.db")) as engine:
        assert result_of(await engine.call(PAY, SCOPE)).success
    assert ledger.lines() == ["ann 500"]


class Transfer(Tool):
    name = "transfer"
    description = "Transfer money."
    parameters = {"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]}
    category = "dangerous"
    requires_actor = False

    def requires_approval(self, arguments: dict[str, Any]) -> bool:
        return bool(arguments["amount"] > 100)

    async def execute(self, actor: str, **params: Any) -> dict[str, Any]:
        return {"success": True, "data": params["amount"]}


async def test_a_tool_class_requires_approval_by_an_attribute_or_a_method() -> None:
    class Always(Transfer):
        name = "always"
        requires_approval = True  # type: ignore[assignment]

    async with Engine([Transfer, Always]) as engine:
        assert isinstance(await engine.call(call("transfer", amount=200), SCOPE), Suspended)
        assert result_of(await engine.call(call("transfer", amount=2), SCOPE)).success
        assert isinstance(await engine.call(call("always", amount=2), SCOPE), Suspended)


async def test_one_call_of_a_message_waits_for_its_human_while_the_others_run(ledger: Ledger) -> None:
    async with Engine([paying_amounts(ledger, requires_approval=lambda arguments: arguments["amount"] > 100)]) as engine:
        first, second = await engine.call_many([PAY, call("pay", id="b", to="bob", amount=1)], SCOPE)
        assert isinstance(first, Suspended)
        assert (result_of(second).text, ledger.lines()) == ("paid bob", ["bob 1"])


async def test_a_nested_call_of_such_a_tool_does_not_run_unasked(ledger: Ledger) -> None:
    @tool
    async def shop(context: ToolContext) -> str:
        """Buy."""
        return type(await context.call("pay", {"to": "ann", "amount": 500})).__name__

    async with Engine([shop, paying_amounts(ledger, requires_approval=True)]) as engine:
        result = result_of(await engine.call(call("shop"), SCOPE))
    assert ledger.lines() == [], result


async def test_an_agents_run_waits_for_the_human_and_resumes(ledger: Ledger) -> None:
    model = scripted_model.Script(
        scripted_model.says(scripted_model.call("pay", {"to": "ann", "amount": 500})), scripted_model.says("done")
    )
    engine = Engine([paying_amounts(ledger, requires_approval=True)])
    async with engine, Agent(model, engine) as agent:
        waiting = await agent.run("pay")
        assert waiting.pending is not None
        assert (waiting.reason, ledger.lines()) == (WHOLE_QUESTION, [])
        await engine.approve(waiting.pending.approvals[0].approval_id, by="bob")
        assert (await agent.resume(waiting)).text == "done"
    assert ledger.lines() == ["ann 500"]


async def test_a_replay_asks_the_tools_function_again_and_accepts_the_recorded_yes(ledger: Ledger) -> None:
    journal = MemoryJournal()
    pay = paying_amounts(ledger, requires_approval=True)
    async with Engine([pay], journal=journal) as engine:
        await engine.approve((await asked(engine)).approval_id, by="bob")
        await engine.call(PAY, SCOPE)
        replay = Replay.of(journal, "r", engine.blobs)
    unchanged = await judge_again(replay, [pay], [])
    assert [one.change for one in unchanged.calls] == ["", ""]
    lifted = await judge_again(replay, [paying_amounts(ledger)], [])
    assert lifted.calls[0].now is not None
    assert (lifted.calls[0].now.word, lifted.calls[0].change, ledger.lines()) == ("allow", "verdict", ["ann 500"])


@pytest.mark.parametrize(
    "wrong", ["yes", 1, None, lambda: True, lambda one, two, three: True], ids=["text", "number", "None", "none", "three"]
)
def test_a_wrong_requires_approval_is_refused_where_the_tool_is_declared(wrong: Any) -> None:
    with pytest.raises(UsageError, match="requires_approval"):

        @tool(requires_approval=wrong)
        def pay(to: str) -> str:
            """Pay."""
            return to


@pytest.mark.parametrize("wrong", [lambda to, amount: amount > 100, lambda amount: amount > 100], ids=["two", "one"])
def test_a_requires_approval_of_single_arguments_is_refused_with_the_way_to_write_it(wrong: Any, ledger: Ledger) -> None:
    with pytest.raises(
        UsageError, match=r"takes .*amount; it is called with all arguments as one dict\. Write it as def requires_approval"
    ):
        paying_amounts(ledger, requires_approval=wrong)


async def test_a_function_that_fails_is_logged_for_the_tools_author(ledger: Ledger, caplog: pytest.LogCaptureFixture) -> None:
    async with Engine([paying_amounts(ledger, requires_approval=lambda arguments: arguments["amout"])]) as engine:
        await asked(engine)
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert any("The requires_approval of pay failed with KeyError: 'amout'" in text for text in warnings)


def test_a_wrong_requires_approval_of_a_class_is_refused_when_it_is_registered() -> None:
    class Wrong(Transfer):
        requires_approval = "yes"  # type: ignore[assignment]

    with pytest.raises(UsageError, match=r"Tool 'transfer' .*requires_approval='yes'"):
        Engine([Wrong])


@pytest.mark.parametrize(
    ("requires", "refused"), [(lambda arguments: arguments["url"] == "inside", True), (True, False)], ids=["picked", "all"]
)
async def test_a_running_call_is_asked_about_another_resource_only_if_its_tool_picks_that(requires: Any, refused: bool) -> None:
    """As when an address redirects to another one. If every call needs approval, the human has allowed this one."""

    @tool(requires_approval=requires)
    async def fetch(url: str, context: ToolContext) -> str:
        """Fetch a page."""
        return await context.refusal(url="inside")

    async with Engine([fetch]) as engine:
        raw = call("fetch", id="a", url="outside")
        outcome = await engine.call(raw, SCOPE)
        if isinstance(outcome, Suspended):
            await engine.approve(outcome.approval_id, by="bob")
            outcome = await engine.call(raw, SCOPE)
    assert ('Run fetch with {"url":"inside"}?' in result_of(outcome).text) is refused


async def test_a_long_argument_does_not_hide_the_others_from_the_human(ledger: Ledger) -> None:
    async with Engine([paying_amounts(ledger, requires_approval=True)]) as engine:
        waiting = await asked(engine, call("pay", id="a", to="ann, please be quick " * 100, amount=90_000))
    assert waiting.question.startswith('Run pay with {"to":"ann, please be quick ann')
    assert waiting.question.endswith('… (2,102 characters in all),"amount":90000}?')


async def test_many_long_arguments_are_counted_and_a_secret_in_one_is_not_shown_in_part() -> None:
    names = [f"note{number}" for number in range(30)]
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in names}}

    @tool(parameters=schema, requires_approval=True)
    def keep(**notes: str) -> str:
        """Keep notes."""
        return "kept"

    secret = "swordfish-0123456789"

    class Hides:
        def redact(self, body: bytes) -> bytes:
            return body.replace(secret.encode(), b"***")

    async with Engine([keep], redactor=Hides()) as engine:
        waiting = await asked(engine, RawCall(name="keep", arguments=dict.fromkeys(names, f"{'a' * 35}{secret}{'b' * 50}")))
    assert waiting.question.count("characters in all") == 20
    assert ", and 10 more}" in waiting.question
    assert "sword" not in waiting.question
