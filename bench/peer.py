"""One peer and the floor in a process of their own: `python -m bench.peer NAME` answers requests from its standard input.

Each line `ROW COUNT` is answered by two numbers: `FLOOR PEER`, CPU seconds per call or iteration; for `growth` those of an early iteration
and of a late one. For single calls a peer is called through its bare dispatch, below its agent loop; for iterations through the loop.
Telemetry is off. Must import neither callgate nor another peer.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import logging
import os
import sys
from collections.abc import Awaitable, Callable
from itertools import pairwise
from statistics import median
from typing import Any

from bench.floor import TEXT, answers_of, floor_gather, floor_loop, floor_serial, no_op
from bench.measure import cpu
from bench.peer_loops import LOOPS, Loop

__all__ = ["PEERS"]

Dispatch = Callable[[], Awaitable[Any]]


async def openai_agents() -> Dispatch:
    """`FunctionTool.on_invoke_tool`, which parses the text and validates it."""
    from agents import function_tool
    from agents.tool_context import ToolContext

    made = function_tool(no_op)

    async def dispatch() -> Any:
        context: Any = ToolContext(context=None, tool_name="no_op", tool_call_id="call_1", tool_arguments=TEXT)
        return await made.on_invoke_tool(context, TEXT)

    return dispatch


async def agent_framework() -> Dispatch:
    """`FunctionTool.invoke`; its messages hold the text, so that it is parsed here."""
    os.environ["ENABLE_INSTRUMENTATION"] = "false"
    from agent_framework import FunctionTool

    made = FunctionTool(name="no_op", description="Look up nothing.", func=no_op)

    async def dispatch() -> Any:
        return await made.invoke(arguments=json.loads(TEXT))

    return dispatch


async def pydantic_ai() -> Dispatch:
    """`ToolManager.handle_call`, which parses the text and validates it."""
    from pydantic_ai import RunContext
    from pydantic_ai.messages import ToolCallPart
    from pydantic_ai.models.test import TestModel
    from pydantic_ai.tool_manager import ToolManager
    from pydantic_ai.toolsets import FunctionToolset
    from pydantic_ai.usage import RunUsage

    toolset: Any = FunctionToolset(tools=[no_op])
    context: Any = RunContext(deps=None, model=TestModel(), usage=RunUsage())
    manager = await ToolManager(toolset).for_run_step(context)

    async def dispatch() -> Any:
        return await manager.handle_call(ToolCallPart(tool_name="no_op", args=TEXT, tool_call_id="call_1"))

    return dispatch


PEERS: dict[str, tuple[str, Callable[[], Awaitable[Dispatch]]]] = {
    "openai-agents": ("openai-agents", openai_agents),
    "agent-framework": ("agent-framework-core", agent_framework),
    "pydantic-ai": ("pydantic-ai-slim", pydantic_ai),
}
"""By name: the distribution, and what makes its dispatch."""


async def _serial(dispatch: Dispatch, count: int) -> None:
    results: list[object] = [await dispatch() for _ in range(count)]
    assert len(results) == count


async def _gather(dispatch: Dispatch, count: int) -> None:
    results: list[object] = []

    async def one() -> None:
        results.append(await dispatch())

    await asyncio.gather(*(one() for _ in range(count)))


_CALLS = {"serial": (floor_serial, _serial), "gather": (floor_gather, _gather)}


async def _calls(dispatch: Dispatch, row: str, count: int) -> tuple[float, float]:
    floor, peer = _CALLS[row]
    return await cpu(lambda: floor(count), count), await cpu(lambda: peer(dispatch, count), count)


async def _iteration(loop: Loop, count: int) -> tuple[float, float]:
    """One more iteration: what a run takes beyond a run of one, over the iterations it has more."""
    answers = answers_of(count)
    floor = await cpu(lambda: floor_loop(answers), count)
    short, long = loop(1)[0], loop(count + 1)[0]
    return floor, (-await cpu(short) + await cpu(long)) / count


async def _growth(loop: Loop, count: int) -> tuple[float, float]:
    run, stamps = loop(count)
    await run()
    steps = [after - before for before, after in pairwise(stamps)]
    few = max(1, len(steps) // 15)
    return median(steps[few // 2 : few // 2 + few]), median(steps[-few:])


async def serve(name: str) -> None:
    distribution, make = PEERS[name]
    try:
        version = importlib.metadata.version(distribution)
        dispatch, loop = await make(), LOOPS[name]()
        result = await dispatch()
        if "sunny" not in str(result) and "sunny" not in str(getattr(result[0], "text", "")):
            raise RuntimeError("its dispatch does not give the result")
        if await loop(2)[0]() != "done":
            raise RuntimeError("its loop does not come to its end")
    except Exception as error:
        print(f"skipped {type(error).__name__}: {error}".splitlines()[0], flush=True)
        return
    print(f"ready {version}", flush=True)
    for line in sys.stdin:
        row, _, count = line.partition(" ")
        of_loop = {"iteration": _iteration, "growth": _growth}.get(row)
        print(*(await of_loop(loop, int(count)) if of_loop else await _calls(dispatch, row, int(count))), flush=True)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run(serve(sys.argv[1]))
