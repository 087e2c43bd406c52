"""The cost of one more iteration of the loop, as the number of callgate functions that are entered: the same on every machine."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import FrameType
from typing import Any

import callgate
from callgate import Engine, MemoryJournal, RawCall, Scope, tool
from callgate.agent import Agent
from callgate.calls import Text
from callgate.messages import AssistantMessage, ToolCall
from callgate.models.model_events import CallOpened, CallSealed, Finished, ModelEvent, TextDelta
from callgate.models.model_protocol import StreamingContext
from callgate.models.wire.request import ModelRequest

MOST_OF_AN_ITERATION = 145
"""The limit for a whole iteration: the model's message, its call along the route, and the commit."""
MOST_OF_THE_LOOP = 88
"""The limit for the part of it that the loop adds to the call."""
PACKAGE = str(Path(callgate.__file__).parent)
ITERATIONS = 6


class Entered:
    """Counts calls of callgate's functions. Comprehensions are left out: whether they are functions depends on the interpreter."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and not code.co_name.startswith("<"):
            self.count += 1


class ReadsThenAnswers:
    """A model in memory: one read call per pass, each with other arguments, then an answer."""

    provider = "memory"
    name = "reader"
    native_tools = True

    def __init__(self, entered: Entered) -> None:
        self.passes: list[int] = []
        """The count at the start of each pass."""
        self._entered = entered

    async def stream(self, request: ModelRequest, context: StreamingContext) -> AsyncIterator[ModelEvent]:
        self.passes.append(self._entered.count)
        number = len(self.passes)
        if number > ITERATIONS:
            yield TextDelta("Done.")
            yield Finished(reason="stop", message=AssistantMessage(parts=(Text(text="Done."),), api="memory"))
            return
        call = ToolCall(id=f"call_{number}", name="read", arguments=f'{{"at": {number}}}')
        yield CallOpened(0, call.id, call.name)
        yield CallSealed(0, call, "sealed")
        yield Finished(reason="tool_calls", message=AssistantMessage(parts=(call,), api="memory"))


@tool(effect="none")
async def read(at: int) -> str:
    """Read."""
    return "x"


async def counted(entered: Entered, work: Callable[[], Any]) -> Any:
    sys.setprofile(entered)
    try:
        return await work()
    finally:
        sys.setprofile(None)


async def test_each_further_iteration_enters_the_same_bounded_number_of_functions() -> None:
    """What does not change from pass to pass is computed once."""
    entered = Entered()
    model = ReadsThenAnswers(entered)
    async with Agent(model, tools=[read], journal=MemoryJournal()) as agent:
        result = await counted(entered, lambda: agent.run("Go."))
    assert result.completed
    each = [after - before for before, after in zip(model.passes, model.passes[1:], strict=False)]
    assert len(set(each[1:])) == 1, each
    assert each[-1] <= MOST_OF_AN_ITERATION
    assert each[-1] - await functions_entered_by_one_call() <= MOST_OF_THE_LOOP


async def functions_entered_by_one_call() -> int:
    entered, scope = Entered(), Scope(run="run-1", conversation="run-1")
    async with Engine([read]) as engine:
        for number in range(3):  # the first calls compute values that later calls reuse
            await engine.call(RawCall(id=f"call_{number}", name="read", arguments=f'{{"at": {number}}}'), scope)
        await counted(entered, lambda: engine.call(RawCall(id="call_9", name="read", arguments='{"at": 9}'), scope))
    return entered.count
