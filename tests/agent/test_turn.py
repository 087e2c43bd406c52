"""The loop through its door: an agent, a real engine, a model whose answers are written down."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from callgate import Engine, Scope, Tool, ToolContext, tool
from callgate.agent import PRESETS, Agent, AgentEvent, Budget, Notice, RunEnded, RunResult, Settings
from callgate.agent.settings import Prices
from callgate.agent.stuck import StuckLimits
from callgate.calls import Answered, Text
from callgate.decide import CallEnd, LoopRules, check_loop_continuation
from callgate.errors import ModelUnreachable, UsageError
from callgate.messages import AssistantMessage, ToolMessage, UserMessage
from callgate.models.events import Usage
from callgate.models.wire.request import ToolSpec
from callgate.protocols import Allow, Ask, Deny, Verdict
from callgate.route import ValidatedCall
from tests.agent.scripts import Answer, Gate, Script, call, ends, says, tool_texts


class Board:
    """Tools of every category, and what they did."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.contexts: list[ToolContext] = []

    def tools(self) -> list[Tool]:
        board = self

        @tool(effect="none")
        async def look(what: str, ctx: ToolContext) -> dict[str, str]:
            """Look at something."""
            board.done.append(f"look {what}")
            board.contexts.append(ctx)
            return {"seen": what}

        @tool(category="terminal", effect="once")
        async def tell(text: str) -> str:
            """Tell somebody something."""
            board.done.append(f"tell {text}")
            return "told"

        @tool(category="dangerous")
        async def change(what: str) -> str:
            """Change something."""
            board.done.append(f"change {what}")
            return "changed"

        @tool(category="async_required")
        async def fetch(what: str) -> str:
            """Take long."""
            board.done.append(f"fetch {what}")
            return "fetched"

        @tool(effect="none")
        async def fail(why: str) -> str:
            """Fail."""
            board.done.append(f"fail {why}")
            raise ValueError(why)

        @tool(effect="once")
        async def finish() -> dict[str, object]:
            """End the turn."""
            return {"success": True, "data": "over", "end_turn": True}

        return [look, tell, change, fetch, fail, finish]


@pytest.fixture
def board() -> Board:
    return Board()


async def run(board: Board, *answers: Any, task: str = "Do it.", **options: Any) -> tuple[RunResult, Script]:
    model = Script(*answers)
    async with Agent(model, tools=board.tools(), **options) as agent:
        return await agent.run(task), model


LOOK = says("I will look.", call("look", {"what": "a"}, id="1"))


async def test_the_model_sees_the_result_in_its_next_message_and_the_turn_completes(board: Board) -> None:
    """ACCEPTANCE A1, A2, A7, A8, D1, D2, D3, D40: intent, execution, result, and the next answer."""
    result, model = await run(board, LOOK, says("It is a."))
    assert (result.status, result.turn_status, result.text) == ("completed", "completed", "It is a.")
    assert board.done == ["look a"]
    assert model.seen[0] == [UserMessage("Do it.")]
    _, asked, answer = model.seen[1]
    assert isinstance(asked, AssistantMessage)
    assert [item.id for item in asked.calls] == ["1"]
    assert isinstance(answer, ToolMessage)
    assert (answer.call_id, json.loads(answer.text)) == ("1", {"seen": "a"})
    assert [type(message) for message in result.messages] == [UserMessage, AssistantMessage, ToolMessage, AssistantMessage]
    ctx = board.contexts[0]
    assert (ctx.scope.run, ctx.scope.iteration, ctx.scope.provider) == (result.run, 0, "scripted")


async def test_nothing_is_touched_until_the_engine_takes_the_call_up(board: Board) -> None:
    """ACCEPTANCE D1, D3: an unknown name, a cut call and a denied one have touched nothing; each has its result."""

    class No:
        async def decide(self, call: ValidatedCall) -> Verdict:
            return Deny(reason="not today")

    answer = says(call("look", {"what": "a"}), call("lock", {}, position=1), call("look", '{"what": "b', position=2))
    result, model = await run(board, answer, says("Never mind."), policies=[No()])
    assert board.done == []
    assert [one.failure_class for one in result.results] == ["denied", "unknown_tool", "truncated_arguments"]
    assert len(tool_texts(model.seen[1])) == 3


async def test_an_emission_is_one_iteration_however_many_calls_it_has(board: Board) -> None:
    """ACCEPTANCE E3, E4."""
    many = says(*(call("look", {"what": str(number)}, position=number) for number in range(5)))
    result, _ = await run(board, many, LOOK, says("Done."), settings=Settings(budget=Budget(iterations=2)))
    assert result.status == "completed"
    assert (result.spent.iterations, result.spent.calls, result.spent.passes) == (2, 6, 3)
    assert [ctx.scope.iteration for ctx in board.contexts] == [0] * 5 + [1]


async def test_a_call_for_which_no_iteration_is_left_is_refused(board: Board) -> None:
    """Decision R23: recover ends `budget_exhausted` with what there is, strict ends `tool_execution_error`."""
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


async def test_the_last_pass_may_be_an_answer_without_tools(board: Board) -> None:
    settings = Settings(budget=Budget(iterations=1), when_spent="answer")
    result, model = await run(board, LOOK, says("That is all."), settings=settings)
    assert (result.status, result.text) == ("completed", "That is all.")
    assert model.requests[0].tools
    assert model.requests[1].tools == ()


async def test_calls_beyond_the_budget_have_a_result_that_says_so(board: Board) -> None:
    """Reserved before anything starts: the third call of a message that may have two is told, not run."""
    many = says(*(call("look", {"what": str(number)}, position=number) for number in range(3)))
    result, _ = await run(board, many, says("Done."), settings=Settings(budget=Budget(calls_per_message=2)))
    assert board.done == ["look 0", "look 1"]
    assert [one.code for one in result.results] == [None, None, "budget_exhausted"]
    assert result.status == "completed"


@pytest.mark.parametrize("budget", [Budget(input_tokens=100), Budget(output_tokens=100), Budget(cost=1e-4)])
async def test_tokens_and_cost_end_the_run(board: Board, budget: Budget) -> None:
    first = says(call("look", {"what": "a"}), usage=Usage(input_tokens=100, output_tokens=100))
    settings = Settings(budget=budget, prices=Prices(input=1.0, output=1.0))
    result, model = await run(board, first, says("More."), settings=settings)
    assert result.turn_status == "budget_exhausted"
    assert len(model.requests) == 1
    assert (result.spent.input_tokens, result.spent.output_tokens) == (100, 100)


async def test_a_terminal_call_ends_the_loop_and_others_chain(board: Board) -> None:
    """ACCEPTANCE C39, C40, C42."""
    answers = LOOK, says(call("fetch", {"what": "b"})), says("I say:", call("tell", {"text": "hello"}))
    result, model = await run(board, *answers)
    assert board.done == ["look a", "fetch b", "tell hello"]
    assert (result.status, result.text, len(model.requests)) == ("completed", "I say:", 3)


async def test_a_terminal_call_that_failed_does_not_end_the_loop(board: Board) -> None:
    result, _ = await run(board, says(call("tell", {})), says("Sorry."))
    assert (result.status, result.text) == ("completed", "Sorry.")


async def test_a_tool_may_end_the_turn(board: Board) -> None:
    """ACCEPTANCE A7: the entry is pushed first, then the end is looked at."""
    result, model = await run(board, says("So.", call("finish")))
    assert (result.status, len(model.requests)) == ("completed", 1)
    assert isinstance(result.messages[-1], ToolMessage)


async def test_an_answer_before_the_calls_may_end_the_turn(board: Board) -> None:
    """ACCEPTANCE A7: the rule of text before tools, for the tools that the host names, and only after success."""
    settings = Settings(rules=LoopRules(end_after_text=frozenset({"look"})))
    result, model = await run(board, LOOK, settings=settings)
    assert (result.status, result.text, len(model.requests)) == ("completed", "I will look.", 1)
    result, model = await run(board, says(call("look", {"what": "a"})), says("Now."), settings=settings)
    assert len(model.requests) == 2


def test_whether_the_loop_goes_on_is_a_function_of_its_own() -> None:
    """ACCEPTANCE C75."""
    assert check_loop_continuation([], LoopRules()) is None
    ending = check_loop_continuation([], LoopRules(errors_in_a_row=3), errors_in_a_row=3)
    assert ending is not None
    assert ending.status == "error"
    assert CallEnd.__struct_fields__ == ("result", "category")


async def test_errors_in_a_row_end_the_turn_and_a_success_starts_the_count_anew(board: Board) -> None:
    """ACCEPTANCE A6, A49, decision R19."""
    bad = [says(call("fail", {"why": str(number)})) for number in range(9)]
    result, model = await run(board, *bad, settings=Settings(rules=LoopRules(errors_in_a_row=3)))
    assert (result.status, result.turn_status, len(model.requests)) == ("failed", "error", 3)
    answers = [*bad[:2], LOOK, *bad[2:4], says("Done.")]
    result, _ = await run(board, *answers, settings=Settings(rules=LoopRules(errors_in_a_row=3)))
    assert result.status == "completed"


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        (call("fail", {"why": "x"}), "tool_execution_error"),
        (call("no_such_tool"), "tool_parse_error"),
        (call("look", {"what": 7, "more": 8}), "tool_parse_error"),
        (call("look", '{"what": '), "tool_parse_error"),
        (call("", {}), "tool_parse_error"),
    ],
    ids=["exception", "unknown tool", "invalid", "cut", "no name"],
)
async def test_a_worker_fails_by_failures_of_form_and_execution(board: Board, asked: Any, status: str) -> None:
    """Decision R1: in `strict`, exactly the failures of E8 to E12 end the request; text and history are kept."""
    result, _ = await run(board, says("Trying.", asked), preset="worker")
    assert (result.status, result.turn_status) == ("failed", status)
    assert result.text == "Trying."
    result, _ = await run(board, says("Trying.", asked), says("Well."), preset="agent")
    assert result.turn_status == ("error" if not asked.name else "completed")


async def test_a_call_without_a_name_ends_the_turn_before_anything_happens(board: Board) -> None:
    """ACCEPTANCE A5, A6, A9."""
    result, model = await run(board, says(call("change", {"what": "a"}), call("", {}, position=1)))
    assert (result.turn_status, board.done, len(model.requests)) == ("error", [], 1)
    assert [one.failure_class for one in result.results] == ["not_started"]
    assert [len(message.calls) for message in result.messages if isinstance(message, AssistantMessage)] == [1]


async def test_a_restart_generates_again_and_leaves_no_trace_of_the_call(board: Board) -> None:
    """ACCEPTANCE A4, A44, A48, A49, decision R33: other calls of the message keep their results; it counts as an iteration."""

    @tool(effect="none")
    async def enrich() -> dict[str, object]:
        """Add to the context."""
        return {"type": "context_restart_image"}

    async def restart(data: object) -> bool:
        return True

    model = Script(says(call("enrich", id="r"), call("look", {"what": "a"}, id="1", position=1)), says("I see."))
    async with Engine([enrich, *board.tools()], restart=restart) as engine:
        result = await Agent(model, engine).run("Go.")
    assert (result.status, result.spent.iterations) == ("completed", 1)
    asked = result.messages[1]
    assert isinstance(asked, AssistantMessage)
    assert [item.id for item in asked.calls] == ["1"]


async def test_a_kill_during_a_tool_ends_the_turn_and_the_model_never_sees_it() -> None:
    """ACCEPTANCE A5, A50, A36: no history entry for the killed call; what had ended before keeps its place."""
    started = asyncio.Event()

    @tool(effect="once")
    async def hang() -> str:
        """Hang."""
        started.set()
        await asyncio.Event().wait()
        return "never"

    @tool(effect="once")
    async def quick() -> str:
        """Be quick."""
        return "done"

    model = Script(says("Both:", call("quick", id="q"), call("hang", id="h", position=1)))
    async with Agent(model, tools=[hang, quick]) as agent:
        running = asyncio.ensure_future(agent.run("Go.", conversation="c"))
        await started.wait()
        agent.kill("c")
        result = await running
    assert (result.status, result.turn_status) == ("stopped", "stopped_by_user")
    assert [one.name for one in result.results] == ["quick"]
    assert len(tool_texts(result.messages)) == 1
    assert len(model.requests) == 1


async def test_a_stop_lets_the_running_call_be_the_last(board: Board) -> None:
    """ACCEPTANCE A6, A12: a stop between two passes ends the turn before the next."""
    model = Script(LOOK, says("Never."))
    async with Agent(model, tools=board.tools()) as agent:

        def stop(event: AgentEvent) -> None:
            if type(event).__name__ == "CallEnded":
                agent.stop("c")

        result = await agent.run("Go.", conversation="c", on_event=stop)
    assert (result.turn_status, len(model.requests)) == ("stopped_by_user", 1)
    assert len(result.results) == 1


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


async def test_reflection_leaves_no_trace_in_the_conversation(board: Board) -> None:
    """ACCEPTANCE C7, decision R5: the reflection sees its own results, the conversation sees nothing of it."""
    model = Script(says("Hello."), LOOK, says("I was too long."), says("Yes."))
    async with Agent(model, tools=board.tools()) as agent:
        await agent.run("Hi.", conversation="c")
        result = await agent.run("Reflect.", conversation="c", reflect=True)
        assert result.text == "I was too long."
        assert tool_texts(model.seen[2]) == ['{"seen":"a"}']
        await agent.run("Go on?", conversation="c")
    assert [message.text for message in model.seen[3] if isinstance(message, AssistantMessage)] == ["Hello."]
    assert tool_texts(model.seen[3]) == []


async def test_a_run_that_waits_for_a_human_frees_its_conversation_and_resumes(board: Board) -> None:
    """Owner's decision: status `waiting`; the answered calls have their place, the others get it when the run goes on."""

    class AskOnce:
        async def decide(self, call: ValidatedCall) -> Verdict:
            return Ask(question=f"May it change {call.arguments['what']}?") if call.tool.name == "change" else Allow()

    asked = says("Both.", call("look", {"what": "a"}, id="1"), call("change", {"what": "b"}, id="2", position=1))
    model = Script(asked, says("In between."), says("Changed it."))
    async with Agent(model, tools=board.tools(), policies=[AskOnce()]) as agent:
        waiting = await agent.run("Change b.", conversation="c")
        assert (waiting.status, waiting.reason) == ("waiting", "May it change b?")
        assert board.done == ["look a"]
        assert len(tool_texts(waiting.messages)) == 1
        assert (await agent.run("Still there?", conversation="c")).text == "In between."
        assert waiting.pending is not None
        agent.engine.answer(waiting.pending.approvals[0].approval_id, allow=True)
        result = await agent.resume(waiting)
        assert (result.status, result.text) == ("completed", "Changed it.")
        assert board.done == ["look a", "change b"]
        assert [one.id for one in result.results] == ["1", "2"]
        assert (result.run, result.spent.iterations) == (waiting.run, 1)
        with pytest.raises(UsageError, match="does not wait"):
            await agent.resume(result)


async def test_a_question_that_nobody_answered_is_asked_again(board: Board) -> None:
    class AlwaysAsk:
        async def decide(self, call: ValidatedCall) -> Verdict:
            return Ask(question="May it?")

    async with Agent(Script(says(call("change", {"what": "b"}))), tools=board.tools(), policies=[AlwaysAsk()]) as agent:
        waiting = await agent.run("Go.")
        assert (await agent.resume(waiting)).status == "waiting"
    assert board.done == []


async def test_an_empty_answer_ends_the_turn_or_is_asked_for_again(board: Board) -> None:
    """Decision R38."""
    result, _ = await run(board, [ends()])
    assert (result.status, result.turn_status) == ("failed", "empty_response")
    patient = replace(PRESETS["chat"], empty_retry_s=0.0)
    result, model = await run(board, [ends()], [ends()], says("Here."), settings=patient)
    assert (result.status, len(model.requests)) == ("completed", 3)


async def test_what_a_model_raises_becomes_an_error_of_the_run_only(board: Board) -> None:
    """Decision R24, ACCEPTANCE B22: it leaves the pass and the loop; the run's outer edge makes a status of it."""
    result, _ = await run(board, [RuntimeError("broken")])
    assert (result.status, result.turn_status, result.reason) == ("failed", "error", "RuntimeError: broken")


async def test_a_long_turn_is_noticed_once(board: Board) -> None:
    events: list[AgentEvent] = []
    answers = [says(call("look", {"what": str(number)})) for number in range(5)]
    async with Agent(Script(*answers, says("Done.")), tools=board.tools(), settings=Settings(soft_warn=3)) as agent:
        await agent.run("Go.", on_event=events.append)
    assert [event.kind for event in events if isinstance(event, Notice)] == ["long_turn"]
    assert isinstance(events[-1], RunEnded)


async def test_a_long_turn_is_noticed_once_also_where_its_model_pauses_and_says_nothing(board: Board) -> None:
    events: list[AgentEvent] = []
    answers: list[Answer] = [LOOK, says("Wait.", reason="pause"), [ends()], says("Wait.", reason="pause"), LOOK, says("Done.")]
    settings = Settings(soft_warn=1, empty_retries=1, empty_retry_s=0.0)
    async with Agent(Script(*answers), tools=board.tools(), settings=settings) as agent:
        assert (await agent.run("Go.", on_event=events.append)).status == "completed"
    assert sum(isinstance(event, Notice) and event.kind == "long_turn" for event in events) == 1


async def test_a_read_starts_while_the_message_still_streams(board: Board) -> None:
    """Early start: the read has run before the model has ended its message; effects never start early."""
    gate = Gate()
    asked = call("look", {"what": "a"}, id="1"), call("change", {"what": "b"}, id="2", position=1)
    answer = says(*asked)
    model = Script([*answer[:4], gate, answer[4]], says("Done."))
    async with Agent(model, tools=board.tools()) as agent:
        running = asyncio.ensure_future(agent.run("Go."))
        await gate.reached.wait()
        for _ in range(5):
            await asyncio.sleep(0)
        assert board.done == ["look a"]
        gate.open.set()
        assert (await running).status == "completed"
    assert board.done == ["look a", "change b"]


async def test_what_started_early_is_discarded_where_the_message_fails(board: Board) -> None:
    asked = says(call("look", {"what": "a"}, id="1"))
    model = Script([*asked[:2], RuntimeError("broken")])
    async with Agent(model, tools=board.tools()) as agent:
        result = await agent.run("Go.")
        kinds = [event.kind for event in agent.engine.journal.read()]
    assert result.turn_status == "error"
    assert "emission.discarded" in kinds
    assert tool_texts(result.messages) == []


async def test_a_model_that_answers_at_once_leaves_nothing_in_the_event_loops_queue(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that starts early asks the event loop to begin it; a loop that never comes round must not gather what was taken back."""
    event_loop = asyncio.get_running_loop()
    asked: list[object] = []
    call_soon = event_loop.call_soon

    def counted(what: Callable[..., object], *rest: Any, **given: Any) -> asyncio.Handle:
        asked.append(what)
        return call_soon(what, *rest, **given)

    monkeypatch.setattr(event_loop, "call_soon", counted)
    counts = []
    for messages in (3, 30):
        answers = [says(call("look", {"what": str(n)}, id=str(n))) for n in range(messages)]
        async with Agent(Script(*answers, says("Done.")), tools=board.tools()) as agent:
            asked.clear()
            assert (await agent.run("Go.")).spent.calls == messages
            await asyncio.sleep(0)
            counts.append(len(asked))
    assert counts[0] == counts[1]


async def test_early_start_can_be_switched_off(board: Board) -> None:
    gate = Gate()
    answer = says(call("look", {"what": "a"}, id="1"))
    model = Script([*answer[:2], gate, answer[2]], says("Done."))
    async with Agent(model, tools=board.tools(), settings=Settings(early_start=False)) as agent:
        running = asyncio.ensure_future(agent.run("Go."))
        await gate.reached.wait()
        for _ in range(5):
            await asyncio.sleep(0)
        assert board.done == []
        gate.open.set()
        await running
    assert board.done == ["look a"]


async def test_a_call_is_the_same_however_its_arguments_are_written() -> None:
    """What counts is what the tool gets: keys in another order, white space, a number as text, a default that is spelt out."""
    made: list[tuple[str, int]] = []

    @tool(effect="none")
    async def search(query: str, limit: int = 10) -> str:
        """Search."""
        made.append((query, limit))
        return "nothing"

    written = [
        '{"query":"a","limit":10}',
        '{ "limit": 10,\n "query": "a" }',
        '{"limit":"10","query":"a"}',
        '{"query":"a"}',
        '{"query":"\\u0061"}',
    ]
    names = ["search", "Search", "search", "functions.search", "search"]
    model = Script(*(says(call(name, text, id=text)) for name, text in zip(names, written, strict=True)), says("Done."))
    async with Agent(model, tools=[search], stuck=StuckLimits(hint=2, refuse=4, stop=9)) as agent:
        result = await agent.run("Go.")
    assert made == [("a", 10)] * 3
    assert ["time that search was called" in one.text for one in result.results] == [False, True, True, False, False]
    assert [one.code for one in result.results] == [None, None, None, "stuck_loop", "stuck_loop"]


async def test_calls_that_no_tool_takes_go_round_in_circles_too(board: Board) -> None:
    """Of a call that is not valid, the same JSON is the same call."""
    wrong = ['{"wat": 1, "b": 2}', '{"b":2,"wat":1}', '{"b": 2, "wat": 1}']
    answers = [says(call("look", text, id=text)) for text in wrong]
    result, _ = await run(board, *answers, stuck=StuckLimits(hint=9, refuse=3, stop=3))
    assert (result.turn_status, [one.code for one in result.results][2]) == ("error", "stuck_loop")


async def test_a_model_that_goes_round_in_circles_is_told_refused_and_stopped(board: Board) -> None:
    """Identical calls with identical results: hint, then refuse, then stop. In turns with another call it is the same."""
    limits = StuckLimits(hint=2, refuse=3, stop=4)
    again = [says(call("look", {"what": "a"}, id=str(number))) for number in range(9)]
    result, model = await run(board, *again, stuck=limits)
    assert (result.status, result.turn_status) == ("failed", "error")
    assert "get nowhere" in result.reason or "gets nowhere" in result.reason
    assert board.done == ["look a", "look a"]
    assert [one.code for one in result.results] == [None, None, "stuck_loop", "stuck_loop"]
    assert "2nd time" in tool_texts(model.seen[2])[-1]
    board.done.clear()
    ping_pong = [says(call("look", {"what": "ab"[number % 2]}, id=str(number))) for number in range(9)]
    await run(board, *ping_pong, stuck=limits)
    assert board.done == ["look a", "look b"] * 2
    board.done.clear()
    result, _ = await run(board, *again[:8], says("Done."), stuck=None)
    assert (result.status, len(board.done)) == ("completed", 8)


async def test_an_answer_may_have_a_type(board: Board) -> None:
    """`Agent(output=T)`: strict JSON of that type; what is not is sent back with the reason."""
    result, model = await run(board, says('{"x": "one"}'), says('```json\n{"x": 1}\n```'), output=dict[str, int])
    assert (result.status, result.output) == ("completed", {"x": 1})
    assert "not what was asked for" in str(model.seen[1][-1])
    assert model.requests[0].output_schema == {"type": "object", "additionalProperties": {"type": "integer"}}
    result, _ = await run(board, *[says("no")] * 3, output=dict[str, int])
    assert (result.status, result.output) == ("failed", None)


async def test_events_tell_a_run_as_it_happens(board: Board) -> None:
    model = Script(LOOK, says("It is a."))
    async with Agent(model, tools=board.tools()) as agent:
        names = [type(event).__name__ async for event in agent.stream("Go.")]
    order = ["MessageBegan", "TextDelta", "CallOpened", "CallSealed", "Finished", "MessageEnded", "CallStarted", "CallEnded"]
    assert [name for name in names if name in order][:8] == order
    assert names[-1] == "RunEnded"


async def test_leaving_the_events_early_ends_the_run(board: Board) -> None:
    gate = Gate()
    model = Script([*says("I")[:1], gate])
    async with Agent(model, tools=board.tools()) as agent:
        events = agent.stream("Go.")
        async for event in events:
            if type(event).__name__ == "TextDelta":
                break
        await events.aclose()  # type: ignore[attr-defined]
    assert model.closed == 1


def test_plain_code_runs_an_agent(board: Board) -> None:
    agent = Agent(Script(LOOK, says("It is a.")), tools=board.tools())
    try:
        assert agent.run_sync("Go.").text == "It is a."
    finally:
        agent.close_sync()


async def test_plain_code_inside_a_loop_is_told_what_to_do(board: Board) -> None:
    with pytest.raises(UsageError, match="event loop"):
        Agent(Script()).run_sync("Go.")


async def test_instructions_are_made_anew_for_every_pass_and_are_no_part_of_the_history(board: Board) -> None:
    result, model = await run(
        board, LOOK, says("Done."), instructions=lambda left: f"{left} left", settings=Settings(budget=Budget(iterations=3))
    )
    assert [str(seen[0].text) for seen in model.seen] == ["3 left", "2 left"]  # type: ignore[union-attr]
    assert isinstance(result.messages[0], UserMessage)


async def test_the_conversations_own_history_goes_on(board: Board) -> None:
    model = Script(says("Hello."), says("Again."))
    async with Agent(model) as agent:
        await agent.run("Hi.", conversation="c", scope=Scope(principal="p"))
        result = await agent.run("Hi again.", conversation="c")
    assert len(model.seen[1]) == 3
    assert len(result.messages) == 4


async def test_the_same_id_twice_in_a_conversation_stays_valid(board: Board) -> None:
    """Each call has exactly one result; ids of models are echoed, never trusted."""
    twice = says(call("look", {"what": "a"}, id="x"), call("look", {"what": "b"}, id="x", position=1))
    result, _ = await run(board, twice, twice, says("Done."))
    calls = [item.id for message in result.messages if isinstance(message, AssistantMessage) for item in message.calls]
    answers = [message.call_id for message in result.messages if isinstance(message, ToolMessage)]
    assert calls == answers
    assert len(set(calls)) == 4
    assert all(isinstance(part, Text) for message in result.messages if isinstance(message, ToolMessage) for part in message.content)


async def test_an_answered_outcome_is_what_the_tool_gave(board: Board) -> None:
    outcomes: list[object] = []
    async with Agent(Script(LOOK, says("x")), tools=board.tools()) as agent:
        await agent.run("Go.", on_event=lambda event: outcomes.append(getattr(event, "outcome", None)))
    assert any(isinstance(outcome, Answered) for outcome in outcomes)


async def test_a_resumed_run_goes_on_for_the_same_workspace_actor_and_principal(board: Board) -> None:
    """An approval is bound to all three: were one of them lost, the same question would be asked for ever."""

    class AskForChanges:
        async def decide(self, call: ValidatedCall) -> Verdict:
            return Ask(question="May it?") if call.tool.name == "change" else Allow()

    scope = Scope(workspace="/srv", actor="ada", principal="bob")
    model = Script(says(call("change", {"what": "b"}, id="1")), LOOK, says("Done."))
    async with Agent(model, tools=board.tools(), policies=[AskForChanges()]) as agent:
        waiting = await agent.run("Change b.", scope=scope)
        assert waiting.pending is not None
        agent.engine.answer(waiting.pending.approvals[0].approval_id, allow=True)
        result = await agent.resume(waiting)
    assert (result.status, board.done) == ("completed", ["change b", "look a"])
    seen = board.contexts[0].scope
    assert (seen.workspace, seen.actor, seen.principal, seen.provider) == ("/srv", "ada", "bob", "scripted")


async def test_what_our_own_errors_say_reaches_the_caller_as_a_sentence(board: Board) -> None:
    result, _ = await run(board, [ModelUnreachable("x could not be reached. Check the network.", provider="x")])
    assert (result.status, result.reason) == ("failed", "x could not be reached. Check the network.")
