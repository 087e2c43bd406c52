"""Import, build and first run in a process of its own: `python -m bench.first_run NAME` prints the CPU seconds it took.

One tool, one call of it, one answer, from a model that is written down. Imports only what it measures.
"""

from __future__ import annotations

import time

_BEGAN = time.process_time()

import asyncio  # noqa: E402
import sys  # noqa: E402
from typing import Any  # noqa: E402

__all__ = ["RUNS"]

_TEXT = '{"city": "Hamburg", "days": 3, "metric": true}'


async def no_op(city: str, days: int, metric: bool) -> str:
    """Look up nothing."""
    return "sunny"


async def callgate_run() -> str:
    from callgate import Agent, tool
    from callgate.testing import Call, ScriptedModel

    model = ScriptedModel([[Call("no_op", _TEXT)], ["done"]])
    async with Agent(model, tools=[tool(effect="none")(no_op)]) as agent:
        return (await agent.run("Go.")).text


async def agent_framework_run() -> str:
    from agent_framework import Agent, BaseChatClient, ChatResponse, Content, FunctionInvocationLayer, Message

    class Scripted(FunctionInvocationLayer, BaseChatClient):
        passes = 0

        def _inner_get_response(self, **_: Any) -> Any:
            return self._answer()

        async def _answer(self) -> Any:
            self.passes += 1
            if self.passes > 1:
                return ChatResponse(messages=[Message("assistant", ["done"])], finish_reason="stop")
            call = Content.from_function_call(call_id="call_1", name="no_op", arguments=_TEXT)
            return ChatResponse(messages=[Message("assistant", [call])], finish_reason="tool_calls")

    made: Any = await Agent(Scripted(), tools=[no_op]).run("Go.")
    return str(made.text)


RUNS = {"callgate": callgate_run, "agent-framework": agent_framework_run}

if __name__ == "__main__":
    said = asyncio.run(RUNS[sys.argv[1]]())
    if said != "done":
        raise SystemExit(f"the run that is measured does not work: {said!r}")
    print(time.process_time() - _BEGAN)
