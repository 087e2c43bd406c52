"""Calls of read tools start while their message still streams, and are cancelled if the message does not complete."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from callgate.agent import Agent, Budget, Settings
from callgate.models.model_events import CallSealed
from tests.agent.recording_tools import Board, RecordingTools
from tests.agent.scripted_model import Gate, Script, call, says, tool_texts
from tests.effect_tools import Unending


async def stream_until(gate: Gate) -> None:
    """Wait until the message has streamed to this gate, and calls that start early have ended."""
    await gate.reached.wait()
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_read_starts_while_the_message_still_streams(board: Board) -> None:
    """The read call ends before the message does; calls with effects never start early."""
    gate = Gate()
    asked = call("look", {"what": "a"}, id="1"), call("change", {"what": "b"}, id="2", position=1)
    answer = says(*asked)
    model = Script([*answer[:4], gate, answer[4]], says("Done."))
    async with Agent(model, tools=board.tools()) as agent:
        running = asyncio.ensure_future(agent.run("Go."))
        await stream_until(gate)
        assert board.done == ["look a"]
        gate.open.set()
        assert (await running).status == "completed"
    assert board.done == ["look a", "change b"]


@pytest.mark.parametrize("fails", [False, True], ids=["completed", "failed"])
async def test_a_call_with_an_effect_waits_for_the_end_of_its_message(board: Board, fails: bool) -> None:
    """Requirement D2: it is complete while the message still streams, and never starts if the message fails."""
    gate = Gate()
    *streamed, end = says(call("change", {"what": "a"}, id="1"))
    model = Script([*streamed, gate, RuntimeError("broken") if fails else end], says("Done."))
    async with Agent(model, tools=board.tools()) as agent:
        running = asyncio.ensure_future(agent.run("Go."))
        await stream_until(gate)
        assert board.done == []
        gate.open.set()
        assert (await running).status == ("failed" if fails else "completed")
    assert board.done == ([] if fails else ["change a"])


async def test_an_early_started_call_is_discarded_if_its_message_fails(board: Board) -> None:
    asked = says(call("look", {"what": "a"}, id="1"))
    model = Script([*asked[:2], RuntimeError("broken")])
    async with Agent(model, tools=board.tools()) as agent:
        result = await agent.run("Go.")
        kinds = [event.kind for event in agent.engine.journal.read()]
    assert result.turn_status == "error"
    assert "emission.discarded" in kinds
    assert tool_texts(result.messages) == []


async def test_immediate_answers_do_not_accumulate_callbacks_in_the_event_loop(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that starts early schedules a callback. Callbacks of cancelled starts must not pile up while the event loop has no turn."""
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
        await stream_until(gate)
        assert board.done == []
        gate.open.set()
        await running
    assert board.done == ["look a"]


async def test_no_call_starts_early_when_no_iteration_is_left(recording: RecordingTools) -> None:
    """The call is refused, although its tool could start while the message streams."""
    model = Script(says(call("look", {"what": "first"})), says(call("look", {"what": "second"})))
    async with Agent(model, tools=recording.tools(), settings=Settings(budget=Budget(iterations=1))) as agent:
        result = await agent.run("x")
    assert (result.turn_status, recording.looked) == ("budget_exhausted", ["first"])


async def test_a_failing_model_ends_the_run_and_its_early_started_calls() -> None:
    """Each call ends exactly once: a call that started early ends with its run, whatever ended the run."""
    unending = Unending()
    gate = Gate()
    asked = call("act", id="w")
    async with Agent(Script([CallSealed(0, asked), gate, ValueError("no more")]), tools=[unending.tool(effect="none")]) as agent:
        run = asyncio.ensure_future(agent.run("x"))
        await unending.begun.wait()
        gate.open.set()
        result = await run
        assert (result.turn_status, result.reason) == ("error", "ValueError: no more")
        assert unending.ended.is_set()
        kinds = [event.kind for event in agent.engine.journal.read(run=result.run)]
        assert "emission.discarded" in kinds
