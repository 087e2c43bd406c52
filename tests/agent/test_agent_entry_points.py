"""Starting a run from plain code and from an event loop, and the events that it emits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from callgate.agent import Agent, AgentEvent, CallStarted, RunEnded
from callgate.agent.event_queue import EventQueue
from callgate.calls import Answered, RawCall, Text
from callgate.errors import ModelUnreachable, UsageError
from callgate.models.model_events import ModelEvent, TextDelta
from callgate.models.model_protocol import StreamingContext
from tests.agent.misbehaving_model import Lying
from tests.agent.recording_tools import LOOK, Board, RecordingTools
from tests.agent.scripted_model import Gate, Script, call, ends, says
from tests.waiting import PATIENCE_S


async def test_a_stream_yields_the_events_of_a_run_in_order(board: Board) -> None:
    model = Script(LOOK, says("It is a."))
    async with Agent(model, tools=board.tools()) as agent:
        names = [type(event).__name__ async for event in agent.stream("Go.")]
    order = ["MessageBegan", "TextDelta", "CallOpened", "CallSealed", "Finished", "MessageEnded", "CallStarted", "CallEnded"]
    assert [name for name in names if name in order][:8] == order
    assert names[-1] == "RunEnded"


async def test_closing_the_event_stream_early_ends_the_run(board: Board) -> None:
    gate = Gate()
    model = Script([*says("I")[:1], gate])
    async with Agent(model, tools=board.tools()) as agent:
        events = agent.stream("Go.")
        async for event in events:
            if type(event).__name__ == "TextDelta":
                break
        await events.aclose()  # type: ignore[attr-defined]
    assert model.closed == 1


def test_run_sync_runs_an_agent_without_an_event_loop(board: Board) -> None:
    agent = Agent(Script(LOOK, says("It is a.")), tools=board.tools())
    try:
        assert agent.run_sync("Go.").text == "It is a."
    finally:
        agent.close_sync()


async def test_sync_methods_inside_an_event_loop_raise_and_name_the_async_form(board: Board) -> None:
    agent = Agent(Script())
    for door in (lambda: agent.run_sync("Go."), agent.close_sync, lambda: agent.engine.call_sync(RawCall(name="look"))):
        with pytest.raises(UsageError, match=r"would hold up the event loop .* 'await agent\.run\(\.\.\.\)'"):
            door()


def test_run_sync_after_close_sync_raises_usage_error() -> None:
    agent = Agent(Script(says("one")))
    assert agent.run_sync("Go.").text == "one"
    agent.close_sync()
    with pytest.raises(UsageError, match=r"^This agent is closed\. Make a new one\.$"):
        agent.run_sync("Go.")
    agent.close_sync()


async def test_events_carry_the_answered_outcome_of_a_call(board: Board) -> None:
    outcomes: list[object] = []
    async with Agent(Script(LOOK, says("x")), tools=board.tools()) as agent:
        await agent.run("Go.", on_event=lambda event: outcomes.append(getattr(event, "outcome", None)))
    assert any(isinstance(outcome, Answered) for outcome in outcomes)


def test_threads_that_call_run_sync_concurrently_share_one_event_loop() -> None:
    """The first thread makes the engine and its event loop; the other threads wait for them."""
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


async def test_an_observer_that_raises_cancelled_error_does_not_cancel_the_run(recording: RecordingTools) -> None:
    """An observer raises `CancelledError` if it reads the result of a cancelled task. The run itself was not cancelled."""

    def observe(event: AgentEvent) -> None:
        if isinstance(event, CallStarted):
            raise asyncio.CancelledError

    async with Agent(Script(says(call("look")), says("done")), tools=recording.tools()) as agent:
        result = await asyncio.wait_for(agent.run("x", on_event=observe), PATIENCE_S)
    assert (result.status, result.text) == ("completed", "done")


@pytest.mark.parametrize("error", [ValueError("deaf"), asyncio.CancelledError()], ids=["error", "cancel"])
async def test_a_listener_that_fails_on_the_last_event_does_not_lose_the_result(error: BaseException) -> None:
    """The run has ended and is in the journal; its caller still gets the result."""

    def hear(event: AgentEvent) -> None:
        if isinstance(event, RunEnded):
            raise error

    async with Agent(Script(says("done"))) as agent:
        result = await agent.run("x", on_event=hear)
    assert (result.status, result.text) == ("completed", "done")


async def test_the_event_queue_merges_text_deltas_for_a_slow_consumer() -> None:
    """The queue is bounded: waiting deltas are merged into pieces of limited size, and no piece is copied for each later delta."""
    events = EventQueue()
    for _ in range(20_000):
        events.put(TextDelta("abcd"))
    events.end()
    pieces = [event.text async for event in events if isinstance(event, TextDelta)]
    assert "".join(pieces) == "abcd" * 20_000
    assert max(map(len, pieces)) < 4_096
    assert len(pieces) < 100


async def test_a_listener_that_fails_during_a_run_changes_nothing_and_is_logged_once(
    recording: RecordingTools, caplog: pytest.LogCaptureFixture
) -> None:
    """An observer is isolated: a run that has paid does not fail because of it."""
    heard: list[AgentEvent] = []

    def hear(event: AgentEvent) -> None:
        heard.append(event)
        raise ValueError("deaf")

    async with Agent(Script(says(call("look")), says("done")), tools=recording.tools()) as agent:
        result = await agent.run("x", on_event=hear)
        assert agent.engine.bus.failures == len(heard)
    assert (result.status, result.text, len(result.results)) == ("completed", "done", 1)
    assert isinstance(heard[-1], RunEnded)
    assert [record.levelname for record in caplog.records if "on_event" in record.getMessage()] == ["ERROR"]


async def test_an_interrupt_of_the_program_passes_through_a_listener(recording: RecordingTools) -> None:
    def hear(event: AgentEvent) -> None:
        raise KeyboardInterrupt

    async with Agent(Script(says("done")), tools=recording.tools()) as agent:
        with pytest.raises(KeyboardInterrupt):
            await agent.run("x", on_event=hear)


async def test_a_failure_that_callgate_explains_is_logged_without_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async with Agent(Script([ModelUnreachable("The model could not be reached.", provider="local")])) as agent:
        assert (await agent.run("x")).status == "failed"
    assert [record.getMessage() for record in caplog.records] == ["The run failed: The model could not be reached."]
    assert "Traceback" not in caplog.text


async def test_a_failure_of_other_code_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async with Agent(Script([ValueError("broken")])) as agent:
        assert (await agent.run("x")).status == "failed"
    assert "Traceback" in caplog.text
