"""The ways into a run, from plain code and from an event loop, and what is told of it on the way."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from callgate.agent import Agent, AgentEvent, CallStarted, RunEnded
from callgate.agent.event_queue import EventQueue
from callgate.calls import Answered, RawCall, Text
from callgate.errors import UsageError
from callgate.models.events import ModelEvent, TextDelta
from callgate.models.model import StreamingContext
from tests.agent.board import LOOK, Board, Desk
from tests.agent.liars import Lying
from tests.agent.scripts import Gate, Script, call, ends, says
from tests.patience import PATIENCE_S


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
    agent = Agent(Script())
    for door in (lambda: agent.run_sync("Go."), agent.close_sync, lambda: agent.engine.call_sync(RawCall(name="look"))):
        with pytest.raises(UsageError, match=r"would hold up the event loop .* 'await agent\.run\(\.\.\.\)'"):
            door()


def test_an_agent_that_plain_code_has_closed_says_so() -> None:
    agent = Agent(Script(says("one")))
    assert agent.run_sync("Go.").text == "one"
    agent.close_sync()
    with pytest.raises(UsageError, match=r"^This agent is closed\. Make a new one\.$"):
        agent.run_sync("Go.")
    agent.close_sync()


async def test_an_answered_outcome_is_what_the_tool_gave(board: Board) -> None:
    outcomes: list[object] = []
    async with Agent(Script(LOOK, says("x")), tools=board.tools()) as agent:
        await agent.run("Go.", on_event=lambda event: outcomes.append(getattr(event, "outcome", None)))
    assert any(isinstance(outcome, Answered) for outcome in outcomes)


def test_threads_that_begin_at_once_share_one_event_loop() -> None:
    """One engine, one event loop: whoever comes first makes it, whoever else comes waits for it."""
    loops: set[int] = set()

    async def stream(context: StreamingContext) -> AsyncIterator[ModelEvent]:
        loops.add(threading.get_ident())
        yield TextDelta("done")
        yield ends(Text(text="done"))

    for _ in range(10):
        agent = Agent(Lying(*[stream] * 8))
        together = threading.Barrier(8)

        def run(agent: Agent = agent, together: threading.Barrier = together) -> str:
            together.wait()
            return agent.run_sync("x").text

        with ThreadPoolExecutor(8) as pool:
            assert {one.result() for one in [pool.submit(run) for _ in range(8)]} == {"done"}
        agent.close_sync()
        assert len(loops) == 1
        loops.clear()


async def test_an_observer_that_raises_a_cancel_breaks_no_call(desk: Desk) -> None:
    """As one does that asks a cancelled task for its result: nobody has cancelled the run, and it goes on."""

    def observe(event: AgentEvent) -> None:
        if isinstance(event, CallStarted):
            raise asyncio.CancelledError

    async with Agent(Script(says(call("look")), says("done")), tools=desk.tools()) as agent:
        result = await asyncio.wait_for(agent.run("x", on_event=observe), PATIENCE_S)
    assert (result.status, result.text) == ("completed", "done")


@pytest.mark.parametrize("error", [ValueError("deaf"), asyncio.CancelledError()], ids=["error", "cancel"])
async def test_a_listener_that_fails_at_the_end_takes_nobody_the_result(error: BaseException) -> None:
    """The run is over and on record; whoever asked for it gets what it came to."""

    def hear(event: AgentEvent) -> None:
        if isinstance(event, RunEnded):
            raise error

    async with Agent(Script(says("done"))) as agent:
        result = await agent.run("x", on_event=hear)
    assert (result.status, result.text) == ("completed", "done")


async def test_a_consumer_that_lags_costs_no_more_than_the_text() -> None:
    """Every buffer has a bound: what waits is put together in pieces, and no piece is copied for each further one."""
    events = EventQueue()
    for _ in range(20_000):
        events.put(TextDelta("abcd"))
    events.end()
    pieces = [event.text async for event in events if isinstance(event, TextDelta)]
    assert "".join(pieces) == "abcd" * 20_000
    assert max(map(len, pieces)) < 4_096
    assert len(pieces) < 100
