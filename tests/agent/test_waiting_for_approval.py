"""A run that waits for an approval: its state while it waits, who may resume it, and that no call runs twice."""

from __future__ import annotations

import pytest

from callgate import Scope, ToolContext, tool
from callgate.agent import Agent, Budget, Settings
from callgate.errors import UsageError
from callgate.messages import AssistantMessage
from tests.agent.recording_tools import LOOK, Board, RecordingTools
from tests.agent.scripted_model import Script, call, says, tool_texts
from tests.host_fakes import Asks


async def test_a_run_that_waits_for_approval_frees_its_conversation_and_resumes(board: Board) -> None:
    """While the status is `waiting`, calls that ended have their results, and the others have a placeholder until the run resumes."""

    asked = says("Both.", call("look", {"what": "a"}, id="1"), call("change", {"what": "b"}, id="2", position=1))
    model = Script(asked, says("In between."), says("Changed it."))
    async with Agent(model, tools=board.tools(), policies=[Asks("change", question="May it change {what}?")]) as agent:
        waiting = await agent.run("Change b.", conversation="c")
        assert (waiting.status, waiting.reason) == ("waiting", "May it change b?")
        assert board.done == ["look a"]
        seen, waits = tool_texts(waiting.messages)
        assert ("seen" in seen, "waits for a human" in waits) == (True, True)
        assert (await agent.run("Still there?", conversation="c")).text == "In between."
        assert waiting.pending is not None
        await agent.engine.answer(waiting.pending.approvals[0].approval_id, allow=True)
        result = await agent.resume(waiting)
        assert (result.status, result.text) == ("completed", "Changed it.")
        assert board.done == ["look a", "change b"]
        assert [one.id for one in result.results] == ["1", "2"]
        assert (result.run, result.spent.iterations) == (waiting.run, 1)
        with pytest.raises(UsageError, match="does not wait"):
            await agent.resume(result)


@pytest.mark.parametrize("before", [0, 2])
async def test_a_pending_approval_has_the_iteration_of_its_message(before: int, board: Board) -> None:
    """Counted from 0. The uids of its calls contain the iteration, and later messages continue the count."""
    model = Script(*[LOOK] * before, says(call("change", {"what": "b"})), LOOK, says("Done."))
    async with Agent(model, tools=board.tools(), policies=[Asks("change")]) as agent:
        waiting = await agent.run("Change b.")
        assert waiting.pending is not None
        assert waiting.pending.iteration == before
        assert waiting.pending.approvals[0].approval_id.startswith(f"{waiting.run}/{before}/")
        await agent.engine.answer(waiting.pending.approvals[0].approval_id, allow=True)
        result = await agent.resume(waiting)
    assert [context.scope.iteration for context in board.contexts] == [*range(before), before + 1]
    assert result.results[-1].uid.startswith(f"{waiting.run}/{before + 1}/")


async def test_resuming_without_an_answer_returns_waiting_again(board: Board) -> None:
    async with Agent(Script(says(call("change", {"what": "b"}))), tools=board.tools(), policies=[Asks()]) as agent:
        waiting = await agent.run("Go.")
        assert (await agent.resume(waiting)).status == "waiting"
    assert board.done == []


async def test_a_resumed_run_keeps_its_workspace_actor_and_principal(board: Board) -> None:
    """An approval is bound to all three: if one were lost, the run would ask for the same approval again and again."""

    scope = Scope(workspace="/srv", actor="ada", principal="bob")
    model = Script(says(call("change", {"what": "b"}, id="1")), LOOK, says("Done."))
    async with Agent(model, tools=board.tools(), policies=[Asks("change")]) as agent:
        waiting = await agent.run("Change b.", scope=scope)
        assert waiting.pending is not None
        await agent.engine.answer(waiting.pending.approvals[0].approval_id, allow=True)
        result = await agent.resume(waiting)
    assert (result.status, board.done) == ("completed", ["change b", "look a"])
    seen = board.contexts[0].scope
    assert (seen.workspace, seen.actor, seen.principal, seen.provider) == ("/srv", "ada", "bob", "scripted")


async def test_an_approved_call_runs_with_the_principal_actor_and_locale_of_its_run(recording: RecordingTools) -> None:
    """An approval is bound to the principal, and so is the resumed run."""
    people: list[tuple[str, str, str]] = []

    @tool(effect="once")
    async def change(what: str, ctx: ToolContext) -> str:
        """Change."""
        people.append((ctx.scope.principal, ctx.scope.actor, ctx.scope.locale))
        return "changed"

    model = Script(says(call("change", {"what": "x"})), says("done"))
    scope = Scope(principal="ann", actor="bob", locale="de")
    async with Agent(model, tools=[change], policies=[Asks("change")]) as agent:
        waiting = await agent.run("x", conversation="c", scope=scope)
        assert waiting.pending is not None
        await agent.engine.answer(waiting.pending.approvals[0].approval_id, allow=True)
        result = await agent.resume(waiting)
    assert (result.text, people) == ("done", [("ann", "bob", "de")])


async def test_a_call_that_waited_for_approval_counts_once_against_the_budget(recording: RecordingTools) -> None:
    """Requirement E3: the call counts once, with or without an approval."""
    asked = [call("change", {"what": str(place)}, id=str(place), position=place) for place in range(2)]
    model = Script(says(*asked), says("done"))
    agent = Agent(model, tools=recording.tools(), policies=[Asks("change")], settings=Settings(budget=Budget(calls=2)))
    async with agent:
        waiting = await agent.run("x")
        assert waiting.pending is not None
        await agent.engine.answer(waiting.pending.approvals[1].approval_id, allow=True)
        partly = await agent.resume(waiting)
        assert (partly.turn_status, recording.changed) == ("waiting", ["1"])
        assert partly.pending is not None
        await agent.engine.answer(partly.pending.approvals[0].approval_id, allow=True)
        result = await agent.resume(partly)
    assert (result.text, recording.changed, result.spent.calls) == ("done", ["1", "0"], 2)


@pytest.mark.parametrize("by_name", [False, True])
async def test_a_reflection_that_waited_for_approval_is_not_kept_in_the_conversation(by_name: bool, board: Board) -> None:
    model = Script(says("Hello."), says(call("change", {"what": "b"})), says("I changed b."), says("Yes."))
    async with Agent(model, tools=board.tools(), policies=[Asks("change")]) as agent:
        await agent.run("Hi.", conversation="c")
        waiting = await agent.run("Reflect.", conversation="c", reflect=True)
        assert waiting.pending is not None
        await agent.engine.answer(waiting.pending.approvals[0].approval_id, allow=True)
        result = await agent.resume(waiting.run if by_name else waiting)
        assert (result.text, board.done) == ("I changed b.", ["change b"])
        assert [type(message).__name__ for message in model.seen[2]] == [
            "UserMessage",
            "AssistantMessage",
            "UserMessage",
            "AssistantMessage",
            "ToolMessage",
        ]
        await agent.run("Go on?", conversation="c")
    assert [message.text for message in model.seen[3] if isinstance(message, AssistantMessage)] == ["Hello."]
