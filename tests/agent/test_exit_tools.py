"""Exit tools: offered to the model, recorded as signals, never run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from callgate import Engine, Scope, tool
from callgate.agent import PRESETS, Agent, Budget, Settings
from callgate.agent.recorded_run import load_run
from callgate.errors import UsageError
from callgate.messages import AssistantMessage, SystemMessage, UserMessage
from callgate.models.model_events import ArgumentsDelta, CallOpened, CallReopened, CallSealed, TextDelta
from callgate.models.model_protocol import StreamingContext
from callgate.models.wire.request import ToolSpec
from callgate.stream import StreamLimits
from tests.agent.recording_tools import Board, RecordingTools, run
from tests.agent.scripted_model import Answer, Gate, Script, Step, call, ends, says, tool_texts


async def test_exit_calls_are_recorded_as_signals_and_never_run(board: Board) -> None:
    """Requirements E14 to E19: signals keep the order of the message, and later requests do not contain the calls."""
    done = ToolSpec(name="done", description="Say that you are done.", schema={"type": "object", "properties": {"how": {"type": "string"}}})
    mixed = says(
        call("done", {"how": "nearly"}, id="x"), call("look", {"what": "a"}, id="1", position=1), call("done", "oops", id="y", position=2)
    )
    model = Script(mixed, says("Bye.", call("done", {"how": "well"}, id="z")))
    async with Agent(model, tools=board.tools(), exit_tools=[done]) as agent:
        result = await agent.run("Go.")
    assert len(model.requests) >= 2
    assert all("done" in [spec.name for spec in request.tools] for request in model.requests)
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
def test_exit_tools_with_duplicate_or_empty_names_or_invalid_schemas_are_refused(exits: list[ToolSpec], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Agent(Script(), exit_tools=exits)


@pytest.mark.parametrize("written", ["Report_Back", "functions.report-back", "`report-back`", " report-back "])
async def test_an_almost_correct_exit_tool_name_is_repaired_like_any_tool_name(board: Board, written: str) -> None:
    """Requirements E16, E17: the name is repaired if exactly one tool can be meant, and the repair is recorded."""
    exits = [ToolSpec(name="report-back")]
    mixed = says(call(written, {"how": "well"}, id="x"), call("look", {"what": "a"}, id="1", position=1))
    result, model = await run(board, mixed, says("Bye."), exit_tools=exits)
    assert [(one.name, one.said, one.arguments) for one in result.signals] == [("report-back", written, {"how": "well"})]
    assert (result.status, [one.name for one in result.results], tool_texts(model.seen[1])) == ("completed", ["look"], ['{"seen":"a"}'])
    alone, _ = await run(board, says(call(written)), exit_tools=exits)
    assert (alone.status, alone.spent.iterations, len(alone.signals)) == ("completed", 0, 1)


async def test_an_ambiguous_exit_tool_name_is_unknown_and_an_exact_tool_name_wins(board: Board) -> None:
    result, _ = await run(
        board, says(call("LOOK-", {"what": "a"})), says("Oh."), exit_tools=[ToolSpec(name="Look-"), ToolSpec(name="look_")]
    )
    assert (result.signals, [one.failure_class for one in result.results]) == ((), ["unknown_tool"])
    result, _ = await run(board, says(call("look", {"what": "a"})), says("Oh."), exit_tools=[ToolSpec(name="Look")])
    assert (result.signals, board.done) == ((), ["look a"])


DONE = ToolSpec(name="done", schema={"type": "object"})


async def test_a_message_with_only_exit_calls_completes_the_run_and_counts_no_iteration(board: Board) -> None:
    """Requirements E18, E20: with or without text, and whether or not the model adds an answer in one more pass."""
    for parts in (["Bye."], []):
        for rest in ([], [says()], [says(call("done"))], [[OSError("gone")]], [ends(reason="error")]):
            result, _ = await run(board, says(*parts, call("done")), *rest, exit_tools=[DONE], settings=Settings(empty_retries=2))
            assert (result.turn_status, result.text, result.spent.iterations) == ("completed", "".join(parts), 0)
            assert [one.name for one in result.signals][:1] == ["done"]
    result, _ = await run(board, says("Bye."), exit_tools=[DONE])
    assert (result.status, result.signals) == ("completed", ())


@pytest.mark.parametrize("said", [[], ["I will report first."]], ids=["silent", "announced"])
@pytest.mark.parametrize("text_mode", [False, True], ids=["calls", "text"])
async def test_an_exit_call_before_the_answer_does_not_end_the_run(board: Board, said: list[str], text_mode: bool) -> None:
    """Requirements E18, E20: an exit call does not end the run, wherever in the run it comes."""
    look, done = call("look", {"what": "a"}), call("done", {"how": "well"})
    written = ['{"tool": "look", "parameters": {"what": "a"}}', '{"tool": "done", "parameters": {"how": "well"}}']
    normal, exit_call = written if text_mode else [look, done]
    report = says(*said, *(["\n"] if said else []), exit_call)
    model = Script(report, says(normal), report, says("The answer is 42."))
    model.native_tools = not text_mode
    async with Agent(model, tools=board.tools(), exit_tools=[DONE], preset="worker") as agent:
        result = await agent.run("Go.")
    assert (result.status, result.text, board.done, result.spent.iterations) == ("completed", "The answer is 42.", ["look a"], 1)
    assert [one.arguments for one in result.signals] == [{"how": "well"}] * 2
    assert not any(call.name == "done" for message in result.messages if isinstance(message, AssistantMessage) for call in message.calls)
    heads = [seen[0].text for seen in model.seen if isinstance(seen[0], SystemMessage)]
    assert ["you are asked once more" in head for head in heads] == [True] * 4
    asked = [seen[-1] for seen in (model.seen[1], model.seen[3])]
    assert all(isinstance(last, UserMessage) and str(last.content).startswith("Recorded: done. This ends nothing.") for last in asked)


async def test_after_exit_calls_end_makes_a_message_with_only_exit_calls_the_last(board: Board) -> None:
    """With `after_exit_calls="end"` such a message ends the run, and the system text says so."""
    result, model = await run(
        board, says("Bye.", call("done")), exit_tools=[DONE], settings=replace(PRESETS["worker"], after_exit_calls="end")
    )
    assert (result.turn_status, result.text, result.reason, len(model.seen), len(result.signals)) == ("completed", "Bye.", "", 1, 1)
    head = model.seen[0][0]
    assert isinstance(head, SystemMessage)
    assert "is your last: write your whole answer into it" in head.text


@pytest.mark.parametrize("ask", ["stop", "kill"])
async def test_a_run_can_be_stopped_after_an_exit_call(board: Board, ask: str) -> None:
    agent: Agent
    again = [lambda context: getattr(agent, ask)(context.conversation, "enough"), *says("late")]
    agent = Agent(Script(says(call("done")), again), tools=board.tools(), exit_tools=[DONE])
    async with agent:
        result = await agent.run("Go.", conversation="c")
    assert (result.turn_status, len(result.signals)) == ("stopped_by_user", 1)


async def test_a_failure_during_the_answer_after_an_exit_call_is_an_error(board: Board) -> None:
    result, _ = await run(board, says(call("done")), [TextDelta("The ans"), OSError("gone")], exit_tools=[DONE])
    assert (result.turn_status, result.text, len(result.signals)) == ("error", "The ans", 1)


SEALED: list[Step] = [CallOpened(0, "x", "done"), CallSealed(0, call("done", {"how": "well"}, id="x"), "sealed")]
BREAKS: dict[str, tuple[Answer, str]] = {
    "the model raises": ([*SEALED, OSError("gone")], "error"),
    "the stream just ends": (SEALED, "error"),
    "the provider fails": ([*SEALED, ends(reason="error")], "error"),
    "cut": ([*SEALED, ends(reason="cut")], "error"),
}


@pytest.mark.parametrize("how", [*BREAKS, "stop", "kill", "follow up", "silence", "cancelled"])
@pytest.mark.parametrize("early", [True, False], ids=["early", "late"])
async def test_a_sealed_exit_call_is_kept_however_its_pass_ends(how: str, early: bool) -> None:
    """Requirement E19: the signal is in the result and in the journal."""
    agent: Agent
    deeds: dict[str, tuple[Callable[[StreamingContext], None], str]] = {
        "stop": (lambda context: agent.engine.control.stop("c", "enough"), "stopped_by_user"),
        "kill": (lambda context: agent.engine.control.kill("c", "enough"), "stopped_by_user"),
        "follow up": (lambda context: agent.engine.control.follow_up("c"), "follow_up_interrupt"),
    }
    gate = Gate()
    if how in BREAKS:
        answer, status = BREAKS[how]
    elif how in deeds:
        answer, status = [*SEALED, deeds[how][0], gate], deeds[how][1]
    else:
        answer, status = [*SEALED, gate], {"silence": "timeout"}.get(how, "")
    limits = StreamLimits(idle_s=0.05) if how == "silence" else StreamLimits()
    async with Engine(Board().tools()) as engine:
        agent = Agent(Script(answer), engine, exit_tools=[DONE], stream_limits=limits, settings=Settings(early_start=early))
        running = asyncio.ensure_future(agent.run("Go.", conversation="c", scope=Scope(run="r")))
        if how == "cancelled":
            await gate.reached.wait()
            running.cancel()
            await asyncio.wait([running])
        else:
            result = await running
            assert (result.turn_status, [one.arguments for one in result.signals]) == (status, [{"how": "well"}])
        recalled = load_run(engine.journal, engine.blobs, "r")
    assert [one.arguments for one in recalled.signals] == [{"how": "well"}]


async def test_an_unsealed_exit_call_of_a_failed_pass_is_not_recorded(board: Board) -> None:
    """An incomplete call is not a signal, and neither is a call that was reopened after it had been sealed."""
    half = [CallOpened(0, "x", "done"), ArgumentsDelta(0, '{"how": "w')]
    reopened = [*SEALED, CallReopened(0)]
    for answer in (half, reopened):
        result, _ = await run(board, [*answer, OSError("gone")], exit_tools=[DONE])
        assert (result.turn_status, result.signals) == ("error", ())


async def test_exit_tools_are_offered_in_the_last_pass(board: Board) -> None:
    """Requirement E15: with no iteration left, the system text names them, the request offers them, and their calls are recorded."""
    settings = replace(PRESETS["worker"], budget=Budget(iterations=1), when_spent="answer")
    model = Script(says(call("look", {"what": "a"})), says("Bye.", call("done", {"how": "well"})), says())
    async with Agent(model, tools=board.tools(), exit_tools=[DONE], settings=settings) as agent:
        result = await agent.run("Go.")
    assert [spec.name for spec in model.requests[1].tools] == ["done"]
    assert model.requests[1].tool_choice == "auto"
    head = model.seen[1][0]
    assert isinstance(head, SystemMessage)
    assert "Only done can be called any more." in head.text
    assert (result.turn_status, result.text, [one.arguments for one in result.signals]) == ("completed", "Bye.", [{"how": "well"}])


WORKERS: dict[str, dict[str, Any]] = {
    "preset": {"preset": "worker"},
    "settings": {"settings": PRESETS["worker"]},
    "changed settings": {"settings": replace(PRESETS["worker"], soft_warn=3)},
    "both": {"preset": "worker", "settings": Settings()},
}


@pytest.mark.parametrize("way", WORKERS)
async def test_every_way_to_select_the_worker_preset_adds_the_system_text(board: Board, way: str) -> None:
    """Requirement E20: the worker's system text encourages the use of exit tools."""
    _, model = await run(board, says("Bye."), exit_tools=[DONE], **WORKERS[way])
    head = model.seen[0][0]
    assert isinstance(head, SystemMessage)
    assert "report how it went by calling done" in head.text
    _, model = await run(board, says("Bye."), exit_tools=[DONE], system_text=False, **WORKERS[way])
    assert not isinstance(model.seen[0][0], SystemMessage)


@pytest.mark.parametrize(
    "given",
    [
        {"type": "function", "function": {"name": "done", "description": "Say so.", "parameters": {"type": "object"}}},
        {"type": "function", "name": "done", "description": "Say so.", "parameters": {"type": "object"}, "strict": True},
    ],
    ids=["chat completions", "responses"],
)
async def test_an_exit_tool_can_be_given_as_an_openai_function_dictionary(board: Board, given: dict[str, object]) -> None:
    """Requirement E14: exit tools are given as tool definitions."""
    result, model = await run(board, says("Bye.", call("done")), says(), exit_tools=[given])
    spec = model.requests[0].tools[-1]
    assert (spec.name, spec.description, spec.schema) == ("done", "Say so.", {"type": "object"})
    assert [one.name for one in result.signals] == ["done"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"type": "web_search"}, "is not a function"),
        ({"type": "function", "function": "done"}, "is not a function"),
        ({"type": "function", "function": {"parameters": {}}}, "has no name"),
        ({"type": "function", "function": {"name": "done", "parameters": []}}, "'done' has the schema"),
        ({"type": "function", "function": {"name": "done", "description": 5}}, "not text"),
    ],
)
def test_an_exit_tool_dictionary_without_a_valid_function_is_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Agent(Script(), exit_tools=[given])


async def test_a_name_shared_by_a_tool_and_an_exit_tool_is_refused(board: Board) -> None:
    with pytest.raises(UsageError, match="both a tool and an exit tool"):
        Agent(Script(), tools=board.tools(), exit_tools=[ToolSpec(name="look")])


@pytest.mark.parametrize("name", ["report", "tell"], ids=["its name", "its alias"])
async def test_a_run_is_refused_if_a_tool_was_later_registered_under_an_exit_tools_name(name: str) -> None:
    """Otherwise the model would be offered the name twice, and the tool would never run."""

    @tool(effect="none", aliases=("tell",))
    def report() -> str:
        """Report the result."""
        return "said"

    async with Engine([]) as engine:
        agent = Agent(Script(says("Done.")), engine, exit_tools=[ToolSpec(name=name)])
        engine.register(report)
        with pytest.raises(UsageError, match=f"'{name}' is both a tool and an exit tool"):
            await agent.run("Go.", scope=Scope(run="r"))
        assert list(engine.journal.read(run="r")) == []


async def test_exit_calls_are_recorded_when_the_iteration_budget_is_exhausted(recording: RecordingTools) -> None:
    """Requirement E19: exit signals are recorded whenever they occur."""
    report = ToolSpec(name="report", description="", schema={"type": "object"})
    model = Script(says(call("look")), says(call("look"), call("report", {"n": 1}, position=1)))
    agent = Agent(model, tools=recording.tools(), exit_tools=[report], settings=Settings(budget=Budget(iterations=1)))
    async with agent:
        result = await agent.run("x")
    assert (result.turn_status, [signal.arguments for signal in result.signals]) == ("budget_exhausted", [{"n": 1}])
