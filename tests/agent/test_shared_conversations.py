"""A conversation belongs to the engine: its turns share one queue whichever agent runs them, and stop and kill apply to any of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from callgate import Engine, Tool, ToolContext, tool
from callgate.agent import Agent, RunResult
from callgate.errors import UsageError
from tests.agent.scripted_model import Gate, Script, call, says, tool_texts
from tests.agent.test_conversations import turns_of_the_loop


async def test_agents_of_one_engine_run_one_turn_at_a_time_in_a_conversation() -> None:
    """Requirement A13: the queue depends only on the conversation, not on the agent."""
    gate = Gate()
    async with Engine() as engine:
        one, other = Agent(Script([gate, *says("one")]), engine), Agent(Script(says("two")), engine)
        first = asyncio.ensure_future(one.run("1", conversation="c"))
        await gate.reached.wait()
        second = asyncio.ensure_future(other.run("2", conversation="c"))
        await turns_of_the_loop()
        assert (one.conversations.waiting("c"), other.conversations.busy("c")) == (1, True)
        assert not second.done()
        gate.open.set()
        assert [(await first).text, (await second).text] == ["one", "two"]


async def test_a_stop_by_any_agent_ends_only_the_running_turn() -> None:
    """Requirements A11, A12: a stop applies to the running turn; the next turn of the conversation starts normally."""
    gate = Gate()
    async with Engine() as engine:
        one, other = Agent(Script([gate, *says("one")]), engine), Agent(Script(says("two")), engine)
        first = asyncio.ensure_future(one.run("1", conversation="c"))
        await gate.reached.wait()
        second = asyncio.ensure_future(other.run("2", conversation="c"))
        await turns_of_the_loop()
        other.stop("c", "enough")
        assert [(await first).turn_status, (await first).reason, (await second).text] == ["stopped_by_user", "enough", "two"]


@pytest.mark.parametrize("kill", [lambda agent: agent.kill("c"), lambda agent: agent.engine.control.kill("c")], ids=["agent", "engine"])
async def test_a_kill_by_any_agent_or_the_engine_ends_the_turn_and_all_queued_turns(kill: Callable[[Agent], None]) -> None:
    """Requirement B18: the kill ends the running turn, and no queued turn starts."""
    gate = Gate()
    async with Engine() as engine:
        one, other, third = (Agent(script, engine) for script in (Script([gate, *says("one")]), Script(says("two")), Script()))
        first = asyncio.ensure_future(one.run("1", conversation="c"))
        await gate.reached.wait()
        second = asyncio.ensure_future(other.run("2", conversation="c"))
        await turns_of_the_loop()
        kill(third)
        assert [(await first).turn_status, (await second).turn_status] == ["stopped_by_user"] * 2
        assert (await other.run("3", conversation="c")).text == "two"


async def test_a_follow_up_by_one_agent_interrupts_the_answer_of_another() -> None:
    gate = Gate()
    async with Engine() as engine:
        one, other = Agent(Script([gate]), engine), Agent(Script(says("to the follow-up")), engine)
        first = asyncio.ensure_future(one.run("1", conversation="c"))
        await gate.reached.wait()
        second = asyncio.ensure_future(other.follow_up("wait!", conversation="c"))
        assert [(await first).turn_status, (await second).text] == ["follow_up_interrupt", "to the follow-up"]


def asking(name: str, ask: Callable[[ToolContext], Coroutine[Any, Any, RunResult]]) -> Tool:
    @tool(name=name, effect="once")
    async def inner(ctx: ToolContext) -> str:
        """Run an agent."""
        return (await ask(ctx)).text

    return inner


async def in_a_task(work: Coroutine[Any, Any, RunResult]) -> RunResult:
    return (await asyncio.gather(work))[0]


@pytest.mark.parametrize("named", [True, False], ids=["named", "unnamed"])
@pytest.mark.parametrize("apart", [False, True], ids=["awaited", "in a task of its own"])
async def test_a_tool_that_runs_a_turn_of_its_own_conversation_is_refused(named: bool, apart: bool) -> None:
    """Such a turn and the turn that waits for it would wait for each other."""

    async def ask(ctx: ToolContext) -> RunResult:
        turn = agents[0].run("And?", conversation=ctx.scope.conversation)
        return await (in_a_task(turn) if apart else turn)

    agents = [Agent(Script(says(call("ask")), says("I could not.")), tools=[asking("ask", ask)])]
    async with agents[0] as agent:
        result = await agent.run("Go.", conversation="c" if named else "")
        assert (result.status, result.text) == ("completed", "I could not.")
        assert result.conversation in str(result.results[0].error)
        assert "Give it a conversation of its own" in str(result.results[0].error)
        assert not agent.conversations.busy(result.conversation)


async def test_the_refusal_of_a_nested_turn_has_the_code_waits_for_itself() -> None:
    caught: list[UsageError] = []

    async def ask(ctx: ToolContext) -> RunResult:
        with pytest.raises(UsageError) as error:
            await agent.run("And?", conversation="c")
        caught.append(error.value)
        return await agent.run("And?", conversation="d")

    async with Agent(Script(says(call("ask")), says("inner"), says("outer")), tools=[asking("ask", ask)]) as agent:
        result = await agent.run("Go.", conversation="c")
    assert (caught[0].code, result.results[0].text, result.text) == ("waits_for_itself", "inner", "outer")


async def test_a_turn_that_waits_for_itself_through_another_agent_is_refused() -> None:
    """The first agent's tool runs the second agent in another conversation, whose tool runs the first agent again."""

    async def on(ctx: ToolContext) -> RunResult:
        return await other.run("On.", conversation="d")

    async def back(ctx: ToolContext) -> RunResult:
        return await one.run("Back.", conversation="c")

    async with Engine([asking("on", on), asking("back", back)]) as engine:
        one = Agent(Script(says(call("on")), says("one")), engine)
        model = Script(says(call("back")), says("two"))
        other = Agent(model, engine)
        result = await one.run("Go.", conversation="c")
        assert (result.text, result.results[0].text) == ("one", "two")
    assert "'c'" in tool_texts(model.seen[1])[0]


async def test_the_last_of_two_turns_that_wait_for_each_other_is_refused() -> None:
    """The turn of `c` waits for `d`, whose turn requests one of `c`: the last request is refused, and both turns end."""
    both = asyncio.Barrier(2)

    def over_to(agent: Callable[[], Agent], conversation: str) -> Callable[[ToolContext], Coroutine[Any, Any, RunResult]]:
        async def ask(ctx: ToolContext) -> RunResult:
            await both.wait()
            return await agent().run("On.", conversation=conversation)

        return ask

    async with Engine([asking("to_d", over_to(lambda: two, "d")), asking("to_c", over_to(lambda: one, "c"))]) as engine:
        one = Agent(Script(says(call("to_d")), says("one"), says("one more")), engine)
        two = Agent(Script(says(call("to_c")), says("two"), says("two more")), engine)
        ended = await asyncio.gather(one.run("Go.", conversation="c"), two.run("Go.", conversation="d"))
    assert [result.status for result in ended] == ["completed", "completed"]
    assert sorted(result.results[0].status for result in ended) == ["ok", "unknown"]


async def test_a_background_task_of_a_turn_may_run_a_turn_after_it_ended() -> None:
    go_on, left = asyncio.Event(), []

    @tool(effect="once")
    async def leave() -> str:
        """Leave something to do."""

        async def later() -> RunResult:
            await go_on.wait()
            return await agent.run("Later.", conversation="c")

        left.append(asyncio.ensure_future(later()))
        return "left"

    async with Agent(Script(says(call("leave")), says("one"), says("two")), tools=[leave]) as agent:
        assert (await agent.run("Go.", conversation="c")).text == "one"
        go_on.set()
        assert (await left[0]).text == "two"


async def test_a_tool_in_a_thread_that_runs_a_turn_of_its_conversation_is_refused() -> None:
    @tool(effect="once")
    def ask() -> str:
        """Run the agent from plain code."""
        return str(agent.run_sync("And?", conversation="c").text)

    agent = Agent(Script(says(call("ask")), says("done")), tools=[ask])
    result = await asyncio.to_thread(agent.run_sync, "Go.", conversation="c")
    assert result.text == "done"
    assert "'c'" in str(result.results[0].error)
    await asyncio.to_thread(agent.close_sync)
