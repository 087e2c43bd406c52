"""Another model gets the recorded requests: its calls are compared one by one, and none is run."""

from __future__ import annotations

import pytest

from callgate import Engine, Scope
from callgate.agent import Agent
from callgate.errors import ModelUnreachable, UsageError
from callgate.replay import Replay, ask_again
from tests.agent.scripted_model import Answer, Script, call, says
from tests.canonical_json import canonical
from tests.effect_ledger import Ledger
from tests.replay.sample_runs import RUN, tools_of

LOOK = call("look", {"what": "a", "x": 1}, id="1")
PAY = call("pay", {"to": "ann"}, id="2")
SAME: list[Answer] = [
    says("I look.", call("look", '{ "x" : 1, "what":"a"}', id="other")),
    says("I pay.", call("pay", {"to": "ann"}, id="another")),
    says("All is done."),
]


async def recorded(ledger: Ledger) -> tuple[Replay, Script]:
    model = Script(says("Looking.", LOOK), says(PAY), says("Done."))
    async with Engine(tools_of(ledger)) as engine, Agent(model, engine, instructions="Be short.") as agent:
        await agent.run("Go.", scope=Scope(run=RUN))
        return Replay.of(engine.journal, RUN), model


async def test_a_model_that_makes_the_same_calls_is_compared_to_the_end_of_the_run(ledger: Ledger) -> None:
    replay, model = await recorded(ledger)
    ran = ledger.lines()
    other = Script(*SAME)
    asked = await ask_again(replay, other, tools_of(ledger))
    assert (asked.differs, asked.ended, len(asked.answers)) == (False, "", 3)
    assert [canonical(seen) for seen in other.seen] == [canonical(seen) for seen in model.seen]
    assert {spec.name for spec in other.requests[0].tools} == {"look", "pay", "broken", "fill", "end_it"}
    assert (asked.answers[2].text, asked.answers[2].recorded_text) == ("All is done.", "Done.")
    assert ledger.lines() == ran


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (says(call("pay", {"to": "bob"})), "other arguments"),
        (says(call("look", {"what": "b"})), "it calls look where the recorded model called pay"),
        (says(PAY, call("pay", {"to": "ann"}, id="3", position=1)), "it calls pay, pay"),
        (says("I would rather not."), "the run would have ended here"),
    ],
)
async def test_the_comparison_ends_with_a_reason_at_the_first_different_call(answer: Answer, told: str, ledger: Ledger) -> None:
    """A recorded result is valid only for the same tool with the same arguments."""
    replay, _ = await recorded(ledger)
    ran = ledger.lines()
    asked = await ask_again(replay, Script(SAME[0], answer, SAME[2]), tools_of(ledger))
    assert (asked.differs, [one.same for one in asked.answers]) == (True, [True, False])
    assert told in asked.ended
    assert ledger.lines() == ran


async def test_the_comparison_ends_at_a_call_that_has_no_recorded_result(ledger: Ledger) -> None:
    replay, _ = await recorded(ledger)
    asked = await ask_again(replay, Script(*SAME[:2], says(call("look", {"what": "more"}))), tools_of(ledger))
    assert "That call has no recorded result" in asked.ended


async def test_a_failing_model_is_reported_as_failed_and_not_as_a_difference(ledger: Ledger) -> None:
    replay, _ = await recorded(ledger)
    asked = await ask_again(replay, Script(SAME[0], [ModelUnreachable("no connection", provider="x")]), tools_of(ledger))
    assert (asked.differs, asked.failed) == (False, True)
    assert "no connection" in asked.ended
    asked = await ask_again(replay, Script([]), tools_of(ledger))
    assert asked.failed


async def test_comparing_a_run_that_asked_no_model_raises_usage_error(ledger: Ledger) -> None:
    async with Engine(tools_of(ledger), run="bare") as engine:
        from tests.engine_calls import call as raw

        await engine.call(raw("look", what="a"))
        with pytest.raises(UsageError, match="no model was asked"):
            await ask_again(Replay.of(engine.journal, "bare"), Script(), tools_of(ledger))
