"""The loop through its public interface: an agent, a real engine and a scripted model. When a turn continues, and how it ends."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Literal

import pytest
from msgspec.structs import replace

from callgate import Engine, MemoryJournal, Scope, SqliteJournal, ToolContext, tool
from callgate.agent import PRESETS, Agent, AgentEvent, Settings
from callgate.agent.loop_settings import PresetName
from callgate.calls import Text
from callgate.errors import ModelUnreachable
from callgate.loop_decision import CallEnd, Failures, LoopRules, check_loop_continuation
from callgate.messages import AssistantMessage, ToolMessage, UserMessage
from callgate.models.model_events import TextDelta
from callgate.protocols import Deny, Verdict
from callgate.stage_types import ValidatedCall
from tests.agent.recording_tools import LOOK, Board, run
from tests.agent.scripted_model import Script, call, ends, says, tool_texts


async def test_the_model_gets_the_result_in_its_next_request_and_the_turn_completes(board: Board) -> None:
    """Requirements A1, A2, A7, A8, D1, D2, D3, D40: call, execution, result, and the next answer."""
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


@pytest.mark.parametrize("journal", ["memory", "disk"])
@pytest.mark.parametrize("runner", ["inline", "thread"])
async def test_every_tool_call_of_a_turn_gets_the_models_streaming_context(
    runner: Literal["inline", "thread"], journal: str, tmp_path: Path
) -> None:
    """Requirement A17: all passes, all calls of the turn and their nested calls get the same object; it is not recorded."""
    seen: list[object] = []

    @tool(effect="none", runner=runner)
    def look(ctx: ToolContext) -> str:
        """Look."""
        seen.append(ctx.streaming)
        return "seen"

    @tool(effect="none")
    async def ask(ctx: ToolContext) -> str:
        """Let another tool look."""
        return (await ctx.call("look", {})).text

    model = Script(says(call("look"), call("ask", position=1)), says(call("look", id="3")), says("Done."))
    kept = MemoryJournal() if journal == "memory" else SqliteJournal(tmp_path / "journal.db")
    async with Engine([look, ask], journal=kept) as engine, Agent(model, engine) as agent:
        await agent.run("Go.", conversation="c", scope=Scope(extra={"live": "yes"}))
        assert len(seen) == 3
        assert all(one is model.contexts[0] for one in (*seen, *model.contexts))
        assert not any(b'"streaming":{' in event.body for event in engine.journal.read())


async def test_denied_unknown_and_truncated_calls_run_no_tool_and_each_has_a_result(board: Board) -> None:
    """Requirements D1, D3: none of the three has an effect."""

    class No:
        async def decide(self, call: ValidatedCall) -> Verdict:
            return Deny(reason="not today")

    answer = says(call("look", {"what": "a"}), call("lock", {}, position=1), call("look", '{"what": "b', position=2))
    result, model = await run(board, answer, says("Never mind."), policies=[No()])
    assert board.done == []
    assert [one.failure_class for one in result.results] == ["denied", "unknown_tool", "truncated_arguments"]
    assert len(tool_texts(model.seen[1])) == 3


async def test_a_terminal_call_ends_the_loop_and_other_calls_continue_it(board: Board) -> None:
    """Requirements C39, C40, C42."""
    answers = LOOK, says(call("fetch", {"what": "b"})), says("I say:", call("tell", {"text": "hello"}))
    result, model = await run(board, *answers)
    assert board.done == ["look a", "fetch b", "tell hello"]
    assert (result.status, result.text, len(model.requests)) == ("completed", "I say:", 3)


@pytest.mark.parametrize(("preset", "limited"), [("tick", True), ("chat", True), ("agent", False), ("worker", False)])
async def test_presets_for_a_tick_and_a_chat_limit_a_turn_to_one_dangerous_call(preset: PresetName, limited: bool, board: Board) -> None:
    """Requirement C41: safe calls continue after the refusal, and the next turn has its own dangerous call."""
    changes = [says(call("change", {"what": what}, id=what)) for what in ("a", "b", "c")]
    model = Script(*changes[:2], LOOK, says("Done."), changes[2], says("Done again."))
    async with Agent(model, tools=board.tools(), preset=preset) as agent:
        first = await agent.run("Go.", conversation="c")
        second = await agent.run("Go on.", conversation="c")
    assert [one.failure_class for one in first.results] == [None, "dangerous_limit" if limited else None, None]
    assert board.done == ["change a", *([] if limited else ["change b"]), "look a", "change c"]
    assert (first.text, second.text) == ("Done.", "Done again.")


async def test_a_failed_terminal_call_does_not_end_the_loop(board: Board) -> None:
    result, _ = await run(board, says(call("tell", {})), says("Sorry."))
    assert (result.status, result.text) == ("completed", "Sorry.")


async def test_a_result_with_end_turn_ends_the_turn(board: Board) -> None:
    """Requirement A7: the result is added to the history before `end_turn` is checked."""
    result, model = await run(board, says("So.", call("finish")))
    assert (result.status, len(model.requests)) == ("completed", 1)
    assert isinstance(result.messages[-1], ToolMessage)


@pytest.mark.parametrize("failures", ["recover", "strict"])
async def test_a_failed_result_with_end_turn_ends_the_turn(board: Board, failures: Failures) -> None:
    """Requirement A7: `end_turn` is checked whether or not the call succeeded; the result is in the history."""

    @tool(effect="none")
    async def hang_up() -> dict[str, object]:
        """Say that the line is dead, and that nothing more is to be said."""
        return {"success": False, "error": "the line is dead", "end_turn": True}

    model = Script(says("Calling.", call("hang_up"), call("look", {"what": "a"}, position=1)), says("Nobody wants this."))
    settings = Settings(rules=LoopRules(failures=failures))
    async with Agent(model, tools=[hang_up, *board.tools()], settings=settings) as agent:
        result = await agent.run("Go.")
    assert (result.status, result.turn_status, len(model.requests)) == ("completed", "completed", 1)
    assert [(one.success, one.end_turn) for one in result.results] == [(False, True), (True, False)]
    assert [message.is_error for message in result.messages if isinstance(message, ToolMessage)] == [True, False]


async def test_text_before_successful_calls_of_the_configured_tools_ends_the_turn(board: Board) -> None:
    """Requirement A7: the rule applies to the tools that the host names, and only if their calls succeed."""
    settings = Settings(rules=LoopRules(end_after_text=frozenset({"look"})))
    result, model = await run(board, LOOK, settings=settings)
    assert (result.status, result.text, len(model.requests)) == ("completed", "I will look.", 1)
    result, model = await run(board, says(call("look", {"what": "a"})), says("Now."), settings=settings)
    assert len(model.requests) == 2
    for second in (call("look", {}, position=1), call("fetch", {"what": "b"}, position=1)):
        result, model = await run(board, says("I look.", call("look", {"what": "a"}), second), says("Now."), settings=settings)
        assert (result.text, len(model.requests)) == ("Now.", 2)


def test_check_loop_continuation_decides_without_an_agent() -> None:
    """Requirement C75."""
    assert check_loop_continuation([], LoopRules()) is None
    ending = check_loop_continuation([], LoopRules(errors_in_a_row=3), errors_in_a_row=3)
    assert ending is not None
    assert ending.status == "error"
    assert CallEnd.__struct_fields__ == ("result", "category")


async def test_errors_in_a_row_end_the_turn_and_a_success_resets_the_count(board: Board) -> None:
    """Requirements A6, A49."""
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
async def test_a_worker_fails_on_parse_and_execution_failures(board: Board, asked: Any, status: str) -> None:
    """In strict mode exactly the failures of E8 to E12 end the run; its text and history are kept."""
    result, _ = await run(board, says("Trying.", asked), preset="worker")
    assert (result.status, result.turn_status) == ("failed", status)
    assert result.text == "Trying."
    result, _ = await run(board, says("Trying.", asked), says("Well."), preset="agent")
    assert result.turn_status == ("error" if not asked.name else "completed")


async def test_the_model_reads_a_timeout_and_the_turn_continues() -> None:
    """Requirements A37, A51: a timeout without a kill is a failed result in the history."""

    @tool(effect="none", timeout_s=0.02, retryable=False)
    async def hang() -> None:
        """Hang."""
        await asyncio.Event().wait()

    model = Script(says(call("hang")), says("It takes too long."))
    async with Agent(model, tools=[hang]) as agent:
        result = await agent.run("Go.")
    (answer,) = [message for message in model.seen[1] if isinstance(message, ToolMessage)]
    assert (answer.is_error, json.loads(answer.text)["code"]) == (True, "timeout")
    assert (result.turn_status, result.text) == ("completed", "It takes too long.")


async def test_the_model_reads_errors_in_its_arguments_and_corrects_them_in_the_next_message(board: Board) -> None:
    """Requirement D8."""
    result, model = await run(board, says(call("look", {"where": 7})), LOOK, says("It is a."))
    failure = json.loads(tool_texts(model.seen[1])[0])
    assert [(error["path"], error["got"]) for error in failure["errors"]] == [("/what", "nothing: it is missing")]
    assert "'where' is not an argument" in failure["error"]
    assert (result.turn_status, result.text, board.done) == ("completed", "It is a.", ["look a"])


async def test_a_call_without_a_name_ends_the_turn_before_any_call_runs(board: Board) -> None:
    """Requirements A5, A6, A9."""
    result, model = await run(board, says(call("change", {"what": "a"}), call("", {}, position=1)))
    assert (result.turn_status, board.done, len(model.requests)) == ("error", [], 1)
    assert [one.failure_class for one in result.results] == ["not_started"]
    assert [len(message.calls) for message in result.messages if isinstance(message, AssistantMessage)] == [1]


async def test_a_restart_asks_the_model_again_and_removes_its_call_from_the_history(board: Board) -> None:
    """Requirements A4, A44, A48, A49: other calls of the message keep their results, and the message counts as an iteration."""

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


async def test_a_kill_during_a_call_ends_the_turn_and_leaves_no_history_entry_for_it() -> None:
    """Requirements A5, A36, A50: calls that had ended before keep their results."""
    started = asyncio.Event()

    @tool(effect="once")
    async def hang() -> str:
        """Hang."""
        started.set()
        await asyncio.Event().wait()
        return "never"

    @tool(effect="once")
    async def quick() -> str:
        """Return at once."""
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


async def test_a_stop_between_two_passes_ends_the_turn_before_the_next(board: Board) -> None:
    """Requirements A6, A12."""
    model = Script(LOOK, says("Never."))
    async with Agent(model, tools=board.tools()) as agent:

        def stop(event: AgentEvent) -> None:
            if type(event).__name__ == "CallEnded":
                agent.stop("c")

        result = await agent.run("Go.", conversation="c", on_event=stop)
    assert (result.turn_status, len(model.requests)) == ("stopped_by_user", 1)
    assert len(result.results) == 1


async def test_a_reflection_is_not_kept_in_the_conversation(board: Board) -> None:
    """Requirement C7: the reflection sees its own results, the conversation contains nothing of it."""
    model = Script(says("Hello."), LOOK, says("I was too long."), says("Yes."))
    async with Agent(model, tools=board.tools()) as agent:
        await agent.run("Hi.", conversation="c")
        result = await agent.run("Reflect.", conversation="c", reflect=True)
        assert result.text == "I was too long."
        assert tool_texts(model.seen[2]) == ['{"seen":"a"}']
        await agent.run("Go on?", conversation="c")
    assert [message.text for message in model.seen[3] if isinstance(message, AssistantMessage)] == ["Hello."]
    assert tool_texts(model.seen[3]) == []


async def test_an_empty_answer_ends_the_turn_or_is_retried_if_configured(board: Board) -> None:
    result, _ = await run(board, [ends()])
    assert (result.status, result.turn_status) == ("failed", "empty_response")
    patient = replace(PRESETS["chat"], empty_retry_s=0.0)
    result, model = await run(board, [ends()], [ends()], says("Here."), settings=patient)
    assert (result.status, len(model.requests)) == ("completed", 3)


async def test_the_text_before_an_exception_of_the_model_is_in_the_result(board: Board) -> None:
    """The result has all visible text so far, as after a failure that the provider reports."""
    result, _ = await run(board, says("I look.", call("look", {"what": "a"})), [TextDelta("It "), TextDelta("is"), OSError("gone")])
    assert (result.turn_status, result.text) == ("error", "I look.\n\nIt is")


async def test_an_exception_of_the_model_ends_the_run_with_status_error(board: Board) -> None:
    """Requirement B22: the exception propagates through the pass and the loop; the run turns it into a status."""
    result, _ = await run(board, [RuntimeError("broken")])
    assert (result.status, result.turn_status, result.reason) == ("failed", "error", "RuntimeError: broken")


async def test_a_conversation_continues_with_its_own_history(board: Board) -> None:
    model = Script(says("Hello."), says("Again."))
    async with Agent(model) as agent:
        await agent.run("Hi.", conversation="c", scope=Scope(principal="p"))
        result = await agent.run("Hi again.", conversation="c")
    assert len(model.seen[1]) == 3
    assert len(result.messages) == 4


async def test_repeated_call_ids_are_made_unique_in_a_conversation(board: Board) -> None:
    """Each call has exactly one result, so ids that the model repeats are replaced."""
    twice = says(call("look", {"what": "a"}, id="x"), call("look", {"what": "b"}, id="x", position=1))
    result, _ = await run(board, twice, twice, says("Done."))
    calls = [item.id for message in result.messages if isinstance(message, AssistantMessage) for item in message.calls]
    answers = [message.call_id for message in result.messages if isinstance(message, ToolMessage)]
    assert calls == answers
    assert len(set(calls)) == 4
    assert all(isinstance(part, Text) for message in result.messages if isinstance(message, ToolMessage) for part in message.content)


async def test_the_message_of_a_callgate_error_is_the_reason_of_the_run(board: Board) -> None:
    result, _ = await run(board, [ModelUnreachable("x could not be reached. Check the network.", provider="x")])
    assert (result.status, result.reason) == ("failed", "x could not be reached. Check the network.")
