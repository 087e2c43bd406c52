"""The budget of a turn: its limits, its cost, and what happens when it is exhausted."""

from __future__ import annotations

import pytest

from callgate import Engine, Limits, ToolContext, UsageError, tool
from callgate.agent import Agent, AgentEvent, Budget, MessageEnded, Notice, RunEnded, Settings
from callgate.agent.loop_settings import Prices
from callgate.loop_decision import LoopRules
from callgate.messages import AssistantMessage, UserMessage
from callgate.models.model_events import Usage
from callgate.testing import Item, ScriptedModel
from tests.agent.recording_tools import LOOK, Board, run
from tests.agent.scripted_model import Answer, Script, call, ends, says


async def test_a_message_counts_as_one_iteration_regardless_of_its_number_of_calls(board: Board) -> None:
    """Requirements E3, E4."""
    many = says(*(call("look", {"what": str(number)}, position=number) for number in range(5)))
    result, _ = await run(board, many, LOOK, says("Done."), settings=Settings(budget=Budget(iterations=2)))
    assert result.status == "completed"
    assert (result.spent.iterations, result.spent.calls, result.spent.passes) == (2, 6, 3)
    assert [ctx.scope.iteration for ctx in board.contexts] == [0] * 5 + [1]


async def test_a_call_is_refused_when_no_iteration_is_left(board: Board) -> None:
    """Under `recover` the turn ends `budget_exhausted` with its partial result, under `strict` it ends `tool_execution_error`."""
    once = Budget(iterations=1)
    result, _ = await run(board, LOOK, says("More.", call("look", {"what": "b"}, id="2")), settings=Settings(budget=once))
    assert (result.status, result.turn_status) == ("stopped", "budget_exhausted")
    assert board.done == ["look a"]
    assert result.text == "I will look.\n\nMore."
    assert isinstance(result.messages[-1], AssistantMessage)
    assert result.messages[-1].calls == ()
    strict = Settings(budget=once, rules=LoopRules(failures="strict"))
    result, _ = await run(board, LOOK, LOOK, settings=strict)
    assert (result.status, result.turn_status) == ("failed", "tool_execution_error")


async def test_a_stop_takes_precedence_over_the_refusal_of_a_call_beyond_the_budget(board: Board) -> None:
    """Requirements A8, A12: the stop is checked first, and the refused call is not in the history."""

    def stop_at_end(event: AgentEvent) -> None:
        if isinstance(event, MessageEnded) and event.iteration == 1:
            agent.stop("c", "enough")

    settings = Settings(budget=Budget(calls=1), early_start=False)
    async with Agent(Script(LOOK, says(call("look", {"what": "b"}, id="2"))), tools=board.tools(), settings=settings) as agent:
        result = await agent.run("Go.", conversation="c", on_event=stop_at_end)
    assert (result.turn_status, result.reason) == ("stopped_by_user", "enough")
    assert [one.code for one in result.results] == [None]


@pytest.mark.parametrize("limit", [Budget(cost=1.0), Budget(output_tokens=5), Budget(input_tokens=5)])
async def test_a_budget_that_cannot_be_measured_emits_one_notice_per_run(limit: Budget, caplog: pytest.LogCaptureFixture) -> None:
    """Some servers report no tokens. Without the notice, whoever set the limit would not learn that it has no effect."""
    notices: list[Notice] = []
    async with Agent(ScriptedModel(["a", "b"]), settings=Settings(budget=limit, prices=Prices(input=1.0))) as agent:
        for _ in range(2):
            await agent.run("Go.", on_event=lambda event: notices.append(event) if isinstance(event, Notice) else None)
    assert [(notice.kind, notice.hidden) for notice in notices] == [("budget", False)] * 2
    assert "tells no tokens" in notices[0].text
    assert "tells no tokens" in caplog.text


async def test_a_measurable_or_unset_budget_emits_no_notice() -> None:
    told: list[AgentEvent] = []
    for budget, usage in ((Budget(output_tokens=500), Usage(input_tokens=1, output_tokens=1)), (Budget(calls=5), None)):
        turn: list[Item] = ["a"] if usage is None else ["a", usage]
        async with Agent(ScriptedModel([turn]), settings=Settings(budget=budget)) as agent:
            await agent.run("Go.", on_event=told.append)
    assert not any(isinstance(event, Notice) for event in told)


async def test_when_spent_answer_makes_the_last_pass_an_answer_without_tools(board: Board) -> None:
    settings = Settings(budget=Budget(iterations=1), when_spent="answer")
    result, model = await run(board, LOOK, says("That is all."), settings=settings)
    assert (result.status, result.text) == ("completed", "That is all.")
    assert model.requests[0].tools
    assert model.requests[1].tools == ()


async def test_calls_beyond_the_budget_get_a_budget_exhausted_result(board: Board) -> None:
    """The budget is reserved before any call starts: with two calls per message, the third one gets a result and is not run."""
    many = says(*(call("look", {"what": str(number)}, position=number) for number in range(3)))
    result, _ = await run(board, many, says("Done."), settings=Settings(budget=Budget(calls_per_message=2)))
    assert board.done == ["look 0", "look 1"]
    assert [one.code for one in result.results] == [None, None, "budget_exhausted"]
    assert result.status == "completed"


@pytest.mark.parametrize("budget", [Budget(input_tokens=100), Budget(output_tokens=100), Budget(cost=1e-4)])
async def test_exhausted_token_and_cost_budgets_end_the_run(board: Board, budget: Budget) -> None:
    first = says(call("look", {"what": "a"}), usage=Usage(input_tokens=100, output_tokens=100))
    settings = Settings(budget=budget, prices=Prices(input=1.0, output=1.0))
    result, model = await run(board, first, says("More."), settings=settings)
    assert result.turn_status == "budget_exhausted"
    assert len(model.requests) == 1
    assert (result.spent.input_tokens, result.spent.output_tokens) == (100, 100)


async def test_a_long_turn_emits_one_notice(board: Board) -> None:
    events: list[AgentEvent] = []
    answers = [says(call("look", {"what": str(number)})) for number in range(5)]
    async with Agent(Script(*answers, says("Done.")), tools=board.tools(), settings=Settings(soft_warn=3)) as agent:
        await agent.run("Go.", on_event=events.append)
    assert [event.kind for event in events if isinstance(event, Notice)] == ["long_turn"]
    assert isinstance(events[-1], RunEnded)


@pytest.mark.parametrize("where", ["engine", "settings"])
async def test_the_long_turn_notice_and_the_kill_hint_share_one_threshold(where: str) -> None:
    """Requirement A22: one number, set on the engine or on the agent that makes its own engine."""
    hints: list[bool] = []
    noticed: list[int] = []

    @tool(effect="none")
    async def look(ctx: ToolContext) -> str:
        """Look."""
        hints.append(ctx.show_kill_hint)
        return "seen"

    def hear(event: AgentEvent) -> None:
        if isinstance(event, Notice) and event.kind == "long_turn":
            noticed.append(len(hints))

    script = Script(*(says(call("look", id=str(number))) for number in range(4)), says("Done."))
    if where == "engine":
        async with Engine([look], limits=Limits(soft_warn_iteration=2)) as engine, Agent(script, engine) as agent:
            await agent.run("Go.", on_event=hear)
    else:
        async with Agent(script, tools=[look], settings=Settings(soft_warn=2)) as agent:
            await agent.run("Go.", on_event=hear)
    assert (hints, noticed) == ([False, False, True, True], [2])


async def test_without_a_threshold_there_is_no_long_turn_notice_and_no_kill_hint(board: Board) -> None:
    events: list[AgentEvent] = []
    answers = [says(call("look", {"what": str(number)})) for number in range(25)]
    limits, script = Limits(soft_warn_iteration=None), Script(*answers, says("Done."))
    async with Engine(board.tools(), limits=limits) as engine, Agent(script, engine, stuck=None) as agent:
        await agent.run("Go.", on_event=events.append)
    assert not any(isinstance(event, Notice) for event in events)
    assert [context.show_kill_hint for context in board.contexts] == [False] * 25


async def test_different_long_turn_thresholds_in_engine_and_settings_are_refused() -> None:
    async with Engine(limits=Limits(soft_warn_iteration=5)) as engine:
        with pytest.raises(UsageError, match=r"soft_warn is 3, .*soft_warn_iteration is 5"):
            Agent(Script(), engine, settings=Settings(soft_warn=3))
        async with Agent(Script(), engine, settings=Settings(soft_warn=5)):
            pass


async def test_pauses_and_empty_answers_do_not_repeat_the_long_turn_notice(board: Board) -> None:
    events: list[AgentEvent] = []
    answers: list[Answer] = [LOOK, says("Wait.", reason="pause"), [ends()], says("Wait.", reason="pause"), LOOK, says("Done.")]
    settings = Settings(soft_warn=1, empty_retries=1, empty_retry_s=0.0)
    async with Agent(Script(*answers), tools=board.tools(), settings=settings) as agent:
        assert (await agent.run("Go.", on_event=events.append)).status == "completed"
    assert sum(isinstance(event, Notice) and event.kind == "long_turn" for event in events) == 1


async def test_instructions_are_computed_for_every_pass_and_not_kept_in_the_history(board: Board) -> None:
    result, model = await run(
        board, LOOK, says("Done."), instructions=lambda left: f"{left} left", settings=Settings(budget=Budget(iterations=3))
    )
    assert [str(seen[0].text) for seen in model.seen] == ["3 left", "2 left"]  # type: ignore[union-attr]
    assert isinstance(result.messages[0], UserMessage)


def test_the_cost_is_not_negative_if_more_cached_tokens_than_tokens_are_reported() -> None:
    """Otherwise such a report would increase the remaining budget."""
    assert Prices(input=3.0, cached=1.0).of(Usage(input_tokens=10, cached_tokens=1_000)) >= 0


async def test_negative_token_counts_do_not_refund_the_budget() -> None:
    """A provider's report cannot raise what is left of the limit."""
    counted = [says(call("look"), usage=Usage(input_tokens=tokens)) for tokens in (60, -1_000, 60)]

    @tool(effect="none")
    def look() -> str:
        """Look."""
        return "x"

    settings = Settings(budget=Budget(input_tokens=100))
    async with Agent(Script(*counted, says("more")), tools=[look], settings=settings) as agent:
        result = await agent.run("Go.")
    assert (result.turn_status, result.spent.input_tokens) == ("budget_exhausted", 120)


async def test_a_model_that_keeps_pausing_is_continued_only_the_configured_number_of_times() -> None:
    model = Script(*(says(f"{number} ", reason="pause") for number in range(6)))
    async with Agent(model, settings=Settings(pauses=3)) as agent:
        result = await agent.run("Go.")
    assert (len(model.requests), result.status, result.text) == (4, "completed", "3 ")
