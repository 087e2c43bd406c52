"""Exit tools: shown to the model, recorded as signals, never run."""

from __future__ import annotations

import pytest

from callgate.agent import Agent, Budget, Settings
from callgate.errors import UsageError
from callgate.messages import AssistantMessage
from callgate.models.wire.request import ToolSpec
from tests.agent.board import Board, Desk, run
from tests.agent.scripts import Script, call, says, tool_texts


async def test_exit_calls_become_signals_and_change_nothing(board: Board) -> None:
    """ACCEPTANCE E14, E15, E16, E17, E18, E19: recorded in emission order, never run, never in the continuation."""
    done = ToolSpec(name="done", description="Say that you are done.", schema={"type": "object", "properties": {"how": {"type": "string"}}})
    mixed = says(
        call("done", {"how": "nearly"}, id="x"), call("look", {"what": "a"}, id="1", position=1), call("done", "oops", id="y", position=2)
    )
    model = Script(mixed, says("Bye.", call("done", {"how": "well"}, id="z")))
    async with Agent(model, tools=board.tools(), exit_tools=[done]) as agent:
        result = await agent.run("Go.")
    assert "done" in [spec.name for spec in model.requests[0].tools]
    assert [(one.name, one.arguments, one.malformed) for one in result.signals] == [
        ("done", {"how": "nearly"}, False),
        ("done", None, True),
        ("done", {"how": "well"}, False),
    ]
    assert result.signals[1].raw == "oops"
    assert (result.status, result.text, result.spent.iterations) == ("completed", "Bye.", 1)
    assert board.done == ["look a"]
    asked = model.seen[1][1]
    assert isinstance(asked, AssistantMessage)
    assert [item.name for item in asked.calls] == ["look"]
    assert agent.engine.activity_since_wake == 1


@pytest.mark.parametrize(
    ("exits", "said"),
    [
        ([ToolSpec(name="done"), ToolSpec(name="done")], "Two exit tools are named 'done'"),
        ([ToolSpec(name=" ")], "has no name"),
        ([ToolSpec(name="done", schema=5)], "'done' has the schema 5"),  # type: ignore[arg-type]
    ],
)
def test_exit_tools_that_a_model_could_not_tell_apart_or_call_are_refused(exits: list[ToolSpec], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Agent(Script(), exit_tools=exits)


@pytest.mark.parametrize("written", ["Report_Back", "functions.report-back", "`report-back`", " report-back "])
async def test_an_exit_tool_whose_name_is_almost_right_is_meant_as_any_tool_is(board: Board, written: str) -> None:
    """ACCEPTANCE E16, E17, and the decision on almost-right names: exactly one can be meant, and the repair is on record."""
    exits = [ToolSpec(name="report-back")]
    mixed = says(call(written, {"how": "well"}, id="x"), call("look", {"what": "a"}, id="1", position=1))
    result, model = await run(board, mixed, says("Bye."), exit_tools=exits)
    assert [(one.name, one.said, one.arguments) for one in result.signals] == [("report-back", written, {"how": "well"})]
    assert (result.status, [one.name for one in result.results], tool_texts(model.seen[1])) == ("completed", ["look"], ['{"seen":"a"}'])
    alone, _ = await run(board, says(call(written)), exit_tools=exits)
    assert (alone.status, alone.spent.iterations, len(alone.signals)) == ("completed", 0, 1)


async def test_a_name_that_may_mean_an_exit_tool_or_a_tool_is_neither(board: Board) -> None:
    result, _ = await run(
        board, says(call("LOOK-", {"what": "a"})), says("Oh."), exit_tools=[ToolSpec(name="Look-"), ToolSpec(name="look_")]
    )
    assert (result.signals, [one.failure_class for one in result.results]) == ((), ["unknown_tool"])
    result, _ = await run(board, says(call("look", {"what": "a"})), says("Oh."), exit_tools=[ToolSpec(name="Look")])
    assert (result.signals, board.done) == ((), ["look a"])


async def test_a_message_of_exit_calls_alone_is_final_and_no_iteration(board: Board) -> None:
    """Decision R22, ACCEPTANCE E18, E20: with text or without."""
    done = ToolSpec(name="done")
    for parts in (["Bye."], []):
        result, _ = await run(board, says(*parts, call("done")), exit_tools=[done])
        assert (result.status, result.text, result.spent.iterations) == ("completed", "".join(parts), 0)
        assert len(result.signals) == 1
    result, _ = await run(board, says("Bye."), exit_tools=[done])
    assert (result.status, result.signals) == ("completed", ())


async def test_a_name_that_is_tool_and_exit_tool_is_refused(board: Board) -> None:
    with pytest.raises(UsageError, match="both a tool and an exit tool"):
        Agent(Script(), tools=board.tools(), exit_tools=[ToolSpec(name="look")])


async def test_exit_calls_count_also_in_a_message_that_is_too_late(desk: Desk) -> None:
    """E19: exit signals are recorded whenever they occur."""
    report = ToolSpec(name="report", description="", schema={"type": "object"})
    model = Script(says(call("look")), says(call("look"), call("report", {"n": 1}, position=1)))
    agent = Agent(model, tools=desk.tools(), exit_tools=[report], settings=Settings(budget=Budget(iterations=1)))
    async with agent:
        result = await agent.run("x")
    assert (result.turn_status, [signal.arguments for signal in result.signals]) == ("budget_exhausted", [{"n": 1}])
