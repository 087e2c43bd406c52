"""One turn at a time per conversation; the effects of stop, kill and follow-up."""

from __future__ import annotations

import asyncio

import pytest

from callgate import Aborted, Engine, MemoryJournal, RawCall, Scope, tool
from callgate.agent import Agent, RunResult
from callgate.calls import Text
from callgate.errors import UsageError
from callgate.messages import AssistantMessage, UserMessage
from callgate.models.wire.request import ToolSpec
from tests.agent.scripted_model import Gate, Script, call, says


async def turns_of_the_loop() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def running_and_queued_turns(agent: Agent, gate: Gate, *, waiting: int = 1) -> list[asyncio.Future[RunResult]]:
    """Start turns of one conversation: the first has reached the gate, the others are queued."""
    first = asyncio.ensure_future(agent.run("1", conversation="c"))
    await gate.reached.wait()
    others = [asyncio.ensure_future(agent.run(str(number), conversation="c")) for number in range(2, 2 + waiting)]
    await turns_of_the_loop()
    return [first, *others]


async def test_turns_of_one_conversation_run_one_at_a_time_and_others_do_not_wait() -> None:
    gate = Gate()
    model = Script([gate, *says("one")], says("other"), says("two"))
    async with Agent(model) as agent:
        first, second = await running_and_queued_turns(agent, gate)
        assert (await agent.run("3", conversation="d")).text == "other"
        assert agent.conversations.waiting("c") == 1
        gate.open.set()
        assert [(await first).text, (await second).text] == ["one", "two"]
        assert not agent.conversations.busy("c")


async def test_a_kill_ends_the_turn_and_empties_the_queue() -> None:
    gate = Gate()
    model = Script([gate, *says("one")], says("later"))
    async with Agent(model) as agent:
        first, second = await running_and_queued_turns(agent, gate)
        agent.kill("c")
        assert [(await first).turn_status, (await second).turn_status] == ["stopped_by_user", "stopped_by_user"]
        assert len(model.requests) == 1
        assert (await agent.run("3", conversation="c")).text == "later"


async def test_a_stop_ends_the_turn_and_keeps_the_queue() -> None:
    gate = Gate()
    model = Script([gate, *says("one")], says("two"))
    async with Agent(model) as agent:
        first, second = await running_and_queued_turns(agent, gate)
        agent.stop("c")
        assert (await first).turn_status == "stopped_by_user"
        assert (await second).text == "two"


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_stop_and_kill_of_an_idle_conversation_have_no_effect_and_are_not_stored(end: str) -> None:
    """Requirements A11, A13: a stop applies only to what runs. No state is kept for conversations that never continue."""
    async with Agent(Script(says("one"))) as agent:
        told = [getattr(agent, end)(f"gone-{number}") for number in range(100)]
        assert (any(told), agent.engine.control.stops, agent.engine.control._turns) == (False, {}, {})
        assert (await agent.run("1", conversation="gone-7")).text == "one"
        assert getattr(agent, end)("gone-7") is False
        assert (agent.engine.control.stops, agent.engine.control._turns) == ({}, {})


class SlowToOpen(MemoryJournal):
    """A journal that is slow to open a run, as if another process held it."""

    def __init__(self, gate: Gate) -> None:
        super().__init__()
        self.gate = gate

    async def acquire_lease(self, run: str) -> bool:
        self.gate.reached.set()
        await self.gate.open.wait()
        return await super().acquire_lease(run)


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_a_run_that_is_still_being_opened_can_be_stopped(end: str) -> None:
    """Requirement A12: a stop counts from the moment in which a run is requested. A kill also ends the queued runs."""
    gate, model = Gate(), Script(says("one"), says("two"))
    engine = Engine(journal=SlowToOpen(gate))
    async with engine, Agent(model, engine) as agent:
        first = asyncio.ensure_future(agent.run("1", conversation="c", scope=Scope(run="job-1")))
        await gate.reached.wait()
        second = asyncio.ensure_future(agent.run("2", conversation="c"))
        await turns_of_the_loop()
        assert getattr(agent, end)("c") is True
        gate.open.set()
        assert (await first).turn_status == "stopped_by_user"
        assert (await second).turn_status == ("completed" if end == "stop" else "stopped_by_user")
        assert agent.engine.control.stops == {}


async def test_a_kill_by_an_agent_aborts_host_calls_in_the_same_conversation() -> None:
    """Requirement A12: a kill also applies to calls that run in the conversation without a turn. The host starts anew with `end_turn`."""
    begun = asyncio.Event()

    @tool(effect="none")
    async def wait() -> None:
        """Wait."""
        begun.set()
        await asyncio.Event().wait()

    async with Engine([wait]) as engine, Agent(Script(), engine) as agent:
        running = asyncio.ensure_future(engine.call(RawCall(name="wait"), Scope(conversation="c")))
        await begun.wait()
        assert agent.kill("c") is True
        assert isinstance(await running, Aborted)


async def test_a_follow_up_interrupts_an_answer_and_runs_before_queued_turns() -> None:
    """Requirement B12: the model's partial answer is discarded."""
    gate = Gate()
    model = Script([*says("I was")[:1], gate], says("to the follow-up"), says("two"))
    async with Agent(model) as agent:
        first, second = await running_and_queued_turns(agent, gate)
        third = asyncio.ensure_future(agent.follow_up("wait!", conversation="c"))
        assert (await first).turn_status == "follow_up_interrupt"
        assert (await third).text == "to the follow-up"
        assert (await second).text == "two"
    assert [message.content for message in model.seen[1] if isinstance(message, UserMessage)] == ["1", "wait!"]


async def test_a_follow_up_waits_for_the_running_tool_call_before_it_interrupts() -> None:
    """The follow-up waits in the queue; the turn ends before its next pass and keeps the result of the call."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    @tool(effect="once")
    async def work() -> str:
        """Work."""
        begun.set()
        await go_on.wait()
        return "worked"

    model = Script(says(call("work", id="1")), says("to the follow-up"))
    async with Agent(model, tools=[work]) as agent:
        first = asyncio.ensure_future(agent.run("1", conversation="c"))
        await begun.wait()
        second = asyncio.ensure_future(agent.follow_up("and?", conversation="c"))
        await turns_of_the_loop()
        assert not first.done()
        go_on.set()
        result = await first
        assert (result.turn_status, [one.status for one in result.results]) == ("follow_up_interrupt", ["ok"])
        assert (await second).text == "to the follow-up"


async def test_follow_ups_interrupt_at_most_three_times_in_a_row() -> None:
    gates = [Gate() for _ in range(5)]
    model = Script(*[[gate, *says(str(number))] for number, gate in enumerate(gates)])
    async with Agent(model) as agent:
        runs = [asyncio.ensure_future(agent.run("0", conversation="c"))]
        for number in range(4):
            await gates[number].reached.wait()
            runs.append(asyncio.ensure_future(agent.follow_up(str(number + 1), conversation="c")))
            await turns_of_the_loop()
        gates[3].open.set()
        gates[4].open.set()
        ended = [(await one).turn_status for one in runs]
    assert ended == ["follow_up_interrupt"] * 3 + ["completed"] * 2


@pytest.mark.parametrize(("triggers", "targets"), [(["a", "b"], ["a", "b"]), (["a", "a"], [None, None]), ([None, "b"], [None, "b"])])
async def test_a_queued_turn_replies_to_its_trigger_unless_several_turns_share_it(
    triggers: list[str | None], targets: list[str | None]
) -> None:
    """Requirement B20: several turns with the same trigger have no reply target."""
    gate = Gate()
    model = Script([gate, *says("one")], says("two"))
    async with Agent(model) as agent:
        block = asyncio.ensure_future(agent.run("0", conversation="c"))
        await gate.reached.wait()
        model._answers.append(says("three"))
        waiting = [asyncio.ensure_future(agent.run("x", conversation="c", trigger=one)) for one in triggers]
        await turns_of_the_loop()
        gate.open.set()
        await asyncio.gather(block, *waiting)
    assert [context.reply_to for context in model.contexts[1:]] == targets


@pytest.mark.parametrize("trigger", ["a", None])
async def test_a_turn_that_was_not_queued_has_no_reply_target(trigger: str | None) -> None:
    """Requirement B20: only a queued turn has a reply target."""
    model = Script(says("one"))
    async with Agent(model) as agent:
        await agent.run("0", conversation="c", trigger=trigger)
    assert [context.reply_to for context in model.contexts] == [None]


async def test_a_turn_of_a_scene_has_no_reply_target_even_if_it_is_queued_alone() -> None:
    """Requirement B20: the turn is marked as part of a scene; its other turns need not be queued at the same time."""
    gate = Gate()
    model = Script([gate, *says("one")], says("two"), says("three"))
    async with Agent(model) as agent:
        block = asyncio.ensure_future(agent.run("0", conversation="c"))
        await gate.reached.wait()
        waiting = [asyncio.ensure_future(agent.run("x", conversation="c", trigger=one, scene=one == "a")) for one in ("a", "b")]
        await turns_of_the_loop()
        gate.open.set()
        await asyncio.gather(block, *waiting)
    assert [context.reply_to for context in model.contexts] == [None, None, "b"]


async def test_a_conversation_queue_holds_at_most_64_turns() -> None:
    gate = Gate()
    model = Script([gate])
    async with Agent(model) as agent:
        runs = [asyncio.ensure_future(agent.run("x", conversation="c")) for _ in range(65)]
        await gate.reached.wait()
        with pytest.raises(UsageError, match="64 turns"):
            await agent.run("one too many", conversation="c")
        agent.kill("c")
        await asyncio.gather(*runs)


async def test_a_turn_cancelled_in_the_queue_does_not_block_the_next_turn() -> None:
    gate = Gate()
    model = Script([gate, *says("one")], says("three"))
    async with Agent(model) as agent:
        first, second, third = await running_and_queued_turns(agent, gate, waiting=2)
        second.cancel()
        gate.open.set()
        assert (await first).text == "one"
        assert (await third).text == "three"
    assert second.cancelled()


async def test_a_queued_turn_fails_without_a_model_request_when_the_engine_closes() -> None:
    gate = Gate()
    model = Script([gate, *says("one")], says("two"))
    async with Engine() as engine:
        agent = Agent(model, engine)
        first, second = await running_and_queued_turns(agent, gate)
        await engine.close()
        gate.open.set()
        await first
        result = await second
    assert (result.status, result.turn_status, result.reason) == ("failed", "error", "This engine is closed. Make a new one.")
    assert len(model.requests) == 1


async def test_a_turn_cancelled_in_the_queue_does_not_start_the_next_turn_early() -> None:
    """Requirement A11: one turn at a time. A turn that is cancelled in the queue does not pass the conversation on."""
    gate = Gate()
    model = Script([gate, *says("one")], says("three"))
    async with Agent(model) as agent:
        first, second, third = await running_and_queued_turns(agent, gate, waiting=2)
        second.cancel()
        await turns_of_the_loop()
        assert second.cancelled()
        assert len(model.requests) == 1
        assert agent.conversations.busy("c")
        assert agent.conversations.waiting("c") == 1
        gate.open.set()
        assert [(await first).text, (await third).text] == ["one", "three"]
        assert not agent.conversations.busy("c")


async def test_a_turn_refused_by_a_full_queue_does_not_start_another_turn() -> None:
    """Requirement A11: one turn at a time, also when the queue is full."""
    gate = Gate()
    model = Script([gate, *says("one")])
    async with Agent(model) as agent:
        first = asyncio.ensure_future(agent.run("1", conversation="c"))
        await gate.reached.wait()
        others = [asyncio.ensure_future(agent.run("more", conversation="c")) for _ in range(64)]
        await turns_of_the_loop()
        with pytest.raises(UsageError, match="64 turns"):
            await agent.run("one too many", conversation="c")
        await turns_of_the_loop()
        assert len(model.requests) == 1
        agent.kill("c")
        assert {(await run).turn_status for run in (first, *others)} == {"stopped_by_user"}


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_a_stop_or_kill_between_two_turns_applies_to_the_second(end: str) -> None:
    """Requirement A12: a stop is not lost while one turn hands the conversation to the next."""
    gate = Gate()
    model = Script([gate, *says("one")], says("two"), says("three"))
    async with Agent(model) as agent:
        first, second = await running_and_queued_turns(agent, gate)
        gate.open.set()
        while agent.conversations.waiting("c"):
            await asyncio.sleep(0)
        getattr(agent, end)("c")
        assert (await first).text == "one"
        assert (await second).turn_status == "stopped_by_user"
        assert (await agent.run("3", conversation="c")).turn_status == "completed"


async def test_text_beside_an_exit_call_is_kept_in_the_conversation() -> None:
    model = Script(says("All is well.", call("done", {})), says("That is all."), says("As I said."))
    async with Agent(model, exit_tools=[ToolSpec(name="done")]) as agent:
        first = await agent.run("How is it?", conversation="c")
        await agent.run("What did you say?", conversation="c")
    for messages in (first.messages, model.seen[2]):
        said = [message.parts for message in messages if isinstance(message, AssistantMessage)]
        assert said == [(Text(text="All is well."),), (Text(text="That is all."),)]
