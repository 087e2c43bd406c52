"""The number of Python functions that a call enters: the cost of a call, counted instead of timed.

The limits hold for CPython 3.11 and later, in steady state, with a journal in memory. Later versions inline comprehensions and enter fewer
functions.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Awaitable
from types import FrameType
from typing import Literal

import pytest

from callgate import Agent, Answered, Engine, RawCall, Tool, tool
from callgate.agent import Budget, Settings
from callgate.models.model_events import CallSealed
from callgate.models.wire import codec
from callgate.testing import Call, ScriptedModel

MOST: dict[str, int] = {"none": 57, "once": 70, "iteration": 220, "delta": 30}
"""Limits on the functions that a read, a call with an effect, one more iteration of the agent loop, and one more piece of a call's
arguments in a stream enter."""


def look_up(effect: Literal["none", "once"]) -> Tool:
    @tool(effect=effect)
    async def no_op(city: str, days: int, metric: bool) -> str:
        """Look up nothing."""
        return "sunny"

    return no_op


def written(day: int) -> str:
    return f'{{"city": "Hamburg", "days": {day}, "metric": true}}'


async def entered(act: Awaitable[object]) -> int:
    """Return how many functions `act` enters. Each time a coroutine or generator resumes counts as an entry.

    The garbage collector does not run meanwhile: finalizers of other tests' objects would be counted.
    """
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    gc.collect()
    gc.disable()
    sys.setprofile(note)
    try:
        await act
    finally:
        sys.setprofile(before)
        gc.enable()
    return count


@pytest.mark.parametrize("effect", ["none", "once"])
async def test_a_call_enters_a_bounded_number_of_python_functions(effect: Literal["none", "once"]) -> None:
    async with Engine([look_up(effect)]) as engine:
        for number in range(100):
            assert isinstance(await engine.call(RawCall(name="no_op", arguments=written(number), id=f"call_{number}")), Answered)
        last = [RawCall(name="no_op", arguments=written(number), id=f"call_{number}") for number in range(100, 103)]
        counts = [await entered(engine.call(one)) for one in last]
    assert min(counts) <= MOST[effect]  # on a busy machine, a call may have to wait for a task once more


async def test_arguments_in_a_dict_cost_hardly_more_functions_than_their_text() -> None:
    async with Engine([look_up("none")]) as engine:
        for number in range(100):
            assert isinstance(await engine.call(RawCall(name="no_op", arguments=json.loads(written(number)))), Answered)
        last = [RawCall(name="no_op", arguments=json.loads(written(number)), id=f"call_{number}") for number in range(100, 103)]
        counts = [await entered(engine.call(one)) for one in last]
    assert min(counts) <= MOST["none"] + 1


async def test_an_agent_loop_iteration_enters_a_bounded_number_of_python_functions() -> None:
    async def run(iterations: int) -> int:
        model = ScriptedModel([*([Call("no_op", written(day), id=f"call_{day}")] for day in range(iterations)), ["done"]])
        settings = Settings(budget=Budget(iterations=None))
        async with Agent(model, tools=[look_up("none")], settings=settings) as agent:
            return await entered(agent.run("Go."))

    counts = [await run(iterations) for iterations in (10, 20, 30)]
    assert counts[2] - counts[1] <= 10 * MOST["iteration"]


async def test_a_piece_of_arguments_in_a_stream_enters_a_bounded_number_of_python_functions() -> None:
    def frames(pieces: int) -> list[bytes]:
        begin = {"index": 0, "id": "call_1", "function": {"name": "write", "arguments": '{"text": "'}}
        calls = [begin, *({"index": 0, "function": {"arguments": text}} for text in ["work"] * pieces + ['"}'])]
        return [f"data: {json.dumps({'choices': [{'delta': {'tool_calls': [call]}}]})}\n\n".encode() for call in calls]

    async def read(frames: list[bytes]) -> None:
        decoder = codec("openai.chat").decoder()
        events = [event for frame in frames for event in decoder.feed(frame)]
        assert isinstance(events[-1], CallSealed)

    counts = [await entered(read(frames(pieces))) for pieces in (10, 20, 120)]
    assert counts[2] - counts[1] <= 100 * MOST["delta"]
