"""The same id, tool and arguments twice in one message are one call: it runs once, and both positions get its result."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from callgate import AbortController, Agent, Answered, Engine, RawCall, Scope, SqliteJournal, Suspended, tool
from callgate.calls import Outcome
from callgate.policy import Ask
from callgate.protocols import Verdict
from callgate.stage_types import ValidatedCall
from tests.agent.scripted_model import Script, says
from tests.agent.scripted_model import call as model_call
from tests.effect_ledger import Ledger
from tests.engine_calls import call, kinds, result_of


def paying(ledger: Ledger, **settings: Any) -> Any:
    @tool(name="pay", **settings)
    async def pay(to: str, cents: int = 1) -> str:
        """Pay somebody."""
        ledger.write(f"{to} {cents}")
        await asyncio.sleep(0)
        return f"paid {to} {cents}, number {len(ledger.lines())}"

    return pay


def results(outcomes: list[Outcome]) -> list[tuple[str, str, bool]]:
    found = []
    for outcome in outcomes:
        assert isinstance(outcome, Answered)
        result = outcome.result
        again = result.metadata.replayed or result.metadata.joined
        found.append((result.id, result.text.split("\n")[0], again))
    return found


EFFECTS = [{}, {"effect": "none"}, {"effect": "idempotent"}, {"writes": "account:{to}"}, {"reads": "account:{to}", "writes": ()}]


@pytest.mark.parametrize("settings", EFFECTS, ids=str)
@pytest.mark.parametrize("arguments", ['{"to": "A7", "cents": 5}', '{"cents": 5, "to": "A7"}', '{"to":"A7","cents":"5"}'])
async def test_a_call_repeated_in_one_message_runs_once(settings: dict[str, Any], arguments: str, ledger: Ledger) -> None:
    first = RawCall(id="c1", name="pay", arguments='{"to": "A7", "cents": 5}')
    async with Engine([paying(ledger, **settings)]) as engine:
        outcomes = await engine.call_many([first, RawCall(id="c1", name="pay", arguments=arguments)])
        ends = kinds(engine).count("call.completed")
    assert results(outcomes) == [("c1", "paid A7 5, number 1", False), ("c1", "paid A7 5, number 1", True)]
    assert (ledger.lines(), ends) == (["A7 5"], 2)
    second = outcomes[1]
    assert isinstance(second, Answered)
    assert any("twice" in note.text for note in second.result.metadata.notes)


@pytest.mark.parametrize("settings", EFFECTS, ids=str)
async def test_calls_with_other_ids_other_arguments_or_no_ids_are_separate_calls(settings: dict[str, Any], ledger: Ledger) -> None:
    calls = [
        call("pay", id="c1", to="A7"),
        call("pay", id="c2", to="A7"),
        call("pay", id="c1", to="B8"),
        call("pay", to="A7"),
        call("pay", to="A7"),
    ]
    async with Engine([paying(ledger, **settings)]) as engine:
        outcomes = await engine.call_many(calls)
    assert [again for _, _, again in results(outcomes)] == [False] * 5
    assert sorted(ledger.lines()) == sorted(["A7 1", "A7 1", "B8 1", "A7 1", "A7 1"])


async def test_a_call_repeated_while_the_first_one_runs_is_run_once(ledger: Ledger) -> None:
    async with Engine([paying(ledger, effect="none")]) as engine:
        emission = engine.emission(Scope())
        emission.add(RawCall(id="c1", name="pay", arguments={"to": "A7"}, closed="sealed"))
        await asyncio.sleep(0)
        emission.add(RawCall(id="c1", name="pay", arguments={"to": "A7"}, closed="sealed"))
        outcomes = await emission.seal()
    assert ([again for _, _, again in results(outcomes)], ledger.lines()) == ([False, True], ["A7 1"])


async def test_a_repeated_call_is_refused_like_the_first(ledger: Ledger) -> None:
    async with Engine([paying(ledger)]) as engine:
        outcomes = await engine.call_many([call("pay", id="c1", to=7), call("pay", id="c1", to=7)])
    assert [outcome.result.code for outcome in outcomes if isinstance(outcome, Answered)] == ["schema_invalid"] * 2


async def test_a_repeated_call_needs_one_approval_and_runs_once(ledger: Ledger) -> None:
    class Asking:
        async def decide(self, call: ValidatedCall) -> Verdict:
            return Ask(question="Pay?")

    async with Engine([paying(ledger)], policies=[Asking()]) as engine:
        twice = [call("pay", id="c1", to="A7"), call("pay", id="c1", to="A7")]
        asked = await engine.call_many(twice)
        questions = {outcome.approval_id for outcome in asked if hasattr(outcome, "approval_id")}
        assert len(questions) == 1
        await engine.answer(questions.pop(), allow=True)
        outcomes = await engine.call_many(twice)
    assert ([again for _, _, again in results(outcomes)], ledger.lines()) == ([False, True], ["A7 1"])


async def test_an_agent_returns_one_result_for_each_place_of_a_repeated_call(ledger: Ledger) -> None:
    twice = says(model_call("pay", {"to": "A7"}, id="c1"), model_call("pay", {"to": "A7"}, id="c1"))
    async with Agent(Script(twice, says("done")), tools=[paying(ledger)]) as agent:
        result = await agent.run("Pay.")
    assert (result.turn_status, ledger.lines()) == ("completed", ["A7 1"])
    assert [one.text.split("\n")[0] for one in result.results] == ["paid A7 1, number 1"] * 2


async def test_a_repeated_call_runs_once_across_two_engines_on_one_journal(ledger: Ledger, tmp_path: Path) -> None:
    for _ in range(2):
        async with Engine([paying(ledger)], journal=SqliteJournal(tmp_path / "journal.db")) as engine:
            await engine.call_many([call("pay", id="c1", to="A7"), call("pay", id="c1", to="A7")], Scope(run="case"))
    assert ledger.lines() == ["A7 1"]


async def test_a_call_handed_in_while_a_human_is_asked_about_it_has_the_same_question(ledger: Ledger) -> None:
    """A plain function says that a human is needed, so that the calls meet while the first one is judged."""
    scope = Scope(run="r", message_id="m")
    async with Engine([paying(ledger, requires_approval=lambda arguments: True)]) as engine:
        outcomes = await asyncio.gather(*(engine.call(call("pay", id="c1", to="A7"), scope) for _ in range(3)))
        questions = {outcome.approval_id for outcome in outcomes if isinstance(outcome, Suspended)}
        assert questions == {"r/0/0"}
        assert len([outcome for outcome in outcomes if isinstance(outcome, Suspended)]) == 3
        await engine.approve("r/0/0")
        paid = await asyncio.gather(*(engine.call(call("pay", id="c1", to="A7"), scope) for _ in range(3)))
    assert sorted(results(paid)) == [("c1", "paid A7 1, number 1", again) for again in (False, True, True)]
    assert ledger.lines() == ["A7 1"]


async def test_a_call_runs_if_the_same_call_before_it_was_cancelled_before_its_start(ledger: Ledger) -> None:
    judged, go_on = asyncio.Event(), asyncio.Event()

    async def held_once(arguments: dict[str, Any]) -> bool:
        if not judged.is_set():
            judged.set()
            await go_on.wait()
        return False

    scope = Scope(run="r", message_id="m")
    async with Engine([paying(ledger, requires_approval=held_once)]) as engine:
        first = asyncio.create_task(engine.call(call("pay", id="c1", to="A7"), scope))
        await judged.wait()
        second = asyncio.create_task(engine.call(call("pay", id="c1", to="A7"), scope))
        await asyncio.sleep(0)
        first.cancel()
        assert results([await second]) == [("c1", "paid A7 1, number 1", False)]
    assert ledger.lines() == ["A7 1"]


@pytest.mark.parametrize("started", [False, True], ids=["while it is judged", "while it runs"])
async def test_a_call_that_is_killed_while_it_waits_for_the_same_call_says_what_that_one_does(
    started: bool, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    """The first call has its result later, so there is nothing to settle, and no operator is told so."""
    reached, go_on, stop = asyncio.Event(), asyncio.Event(), AbortController()

    async def wait() -> None:
        reached.set()
        await go_on.wait()

    async def judged(arguments: dict[str, Any]) -> bool:
        if not started:
            await wait()
        return False

    @tool(requires_approval=judged)
    async def pay(to: str) -> str:
        """Pay somebody."""
        ledger.write(to)
        if started:
            await wait()
        return "paid"

    scope = Scope(run="r", message_id="m")
    async with Engine([pay]) as engine:
        first = asyncio.create_task(engine.call(call("pay", id="c1", to="A7"), scope))
        await reached.wait()
        second = asyncio.create_task(engine.call(call("pay", id="c1", to="A7"), scope, signal=stop.signal))
        await asyncio.sleep(0)
        stop.abort("the user left")
        killed = result_of(await second)
        go_on.set()
        assert results([await first]) == [("c1", "paid", False)]
    assert killed.status == ("unknown" if started else "error")
    assert killed.error is not None
    assert "pay is the same call as r/0/0, and no longer waits for it: the user left." in killed.error
    state = "has begun and may take effect" if started else "has not started yet"
    assert f"r/0/0 {state}. Do not repeat the call: the result of r/0/0 counts for both." in killed.error
    assert killed.data == ({"earlier_call": "r/0/0", "still_runs": True} if started else None)
    assert "engine.settle" not in caplog.text
    assert ledger.lines() == ["A7"]


async def test_the_model_is_told_that_nothing_was_run_for_the_second_of_two_equal_calls(ledger: Ledger) -> None:
    """It asked for two effects, and would otherwise report both."""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": None}]
    for index in range(2):
        begun = {"index": index, "id": "call_1", "type": "function", "function": {"name": "pay", "arguments": ""}}
        rest = {"index": index, "function": {"arguments": '{"to": "A7"}'}}
        deltas += [{"tool_calls": [begun]}, {"tool_calls": [rest]}]
    chunk = {"id": "m1", "object": "chat.completion.chunk", "model": "m"}
    chunks = [chunk | {"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    chunks.append(chunk | {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    async with Engine([paying(ledger)]) as engine, engine.watch(chunks) as stream:
        reply = await stream.reply()
    first, second = (result["content"] for result in reply.results)
    assert first == "paid A7 1, number 1"
    assert second.splitlines()[0] == first
    assert "Nothing was run for this one" in second.splitlines()[1]


async def test_a_denied_call_that_the_message_has_twice_is_not_said_to_have_run(ledger: Ledger) -> None:
    twice = [RawCall(id="c1", name="pay", arguments={"to": "A7"})] * 2
    async with Engine([paying(ledger, requires_approval=True)]) as engine:
        asked = await engine.call_many(twice)
        assert isinstance(asked[0], Suspended)
        await engine.deny(asked[0].approval_id, by="bob", reason="no")
        denied = await engine.call_many(twice)
    assert all(isinstance(outcome, Answered) and "bob said no" in str(outcome.result.error) for outcome in denied)
    assert not any("ran once" in note.text for outcome in denied if isinstance(outcome, Answered) for note in outcome.result.metadata.notes)
    assert ledger.lines() == []
