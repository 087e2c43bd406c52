"""One framework's agent loop with callgate's wrapper and without, in a process of its own: `python -m bench.wrapped_loops NAME`.

Reads numbers of iterations from standard input, one a line, and answers with the CPU seconds of an iteration with the wrapper and without.
Both run the same agent with a model that is written down and an async no-op as the tool, one after the other. The agent of LangChain has a
middleware that does nothing instead.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from bench.floor import no_op, nth_text
from bench.measure import cpu
from callgate import Engine
from callgate.integrations import import_tools

__all__ = ["LOOPS", "Run"]

Run = Callable[[], Awaitable[object]]
Loop = Callable[[int, Engine | None], Run]
"""Makes an agent with so many iterations; its calls take the engine's route, if there is one."""


def langchain() -> tuple[list[Any], Loop]:
    from langchain.agents import create_agent
    from langchain.agents.middleware import AgentMiddleware
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, HumanMessage
    from langchain_core.outputs import ChatGeneration, ChatResult
    from langchain_core.tools import tool

    from callgate.integrations.langchain import CallgateMiddleware

    class Scripted(BaseChatModel):
        answers: list[Any]

        @property
        def _llm_type(self) -> str:
            return "scripted"

        def bind_tools(self, *_: Any, **__: Any) -> Any:
            return self

        def _generate(self, messages: list[Any], *_: Any, **__: Any) -> ChatResult:
            return ChatResult(generations=[ChatGeneration(message=self.answers[len(messages) // 2])])

    class Idle(AgentMiddleware[Any, Any, Any]):
        """Does nothing. LangChain itself hands each call of any middleware to a thread twice, for its tracing."""

        async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
            return await handler(request)

    tools = [tool(no_op)]

    def loop(iterations: int, engine: Engine | None) -> Run:
        calls = [
            {"name": "no_op", "args": json.loads(nth_text(day)), "id": f"call_{day}", "type": "tool_call"} for day in range(iterations)
        ]
        answers = [*(AIMessage("", tool_calls=[one], id=f"message_{one['id']}") for one in calls), AIMessage("done")]
        middleware = Idle() if engine is None else CallgateMiddleware(engine)
        agent: Any = create_agent(Scripted(answers=answers), tools, middleware=[middleware])
        return lambda: agent.ainvoke({"messages": [HumanMessage("Go.")]}, {"recursion_limit": 10 * iterations + 10})

    return tools, loop


def pydantic_ai() -> tuple[list[Any], Loop]:
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel
    from pydantic_ai.tools import Tool
    from pydantic_ai.toolsets import FunctionToolset
    from pydantic_ai.usage import UsageLimits

    from callgate.integrations.pydantic_ai import CallgateToolset

    tools = [Tool(no_op)]

    def loop(iterations: int, engine: Engine | None) -> Run:
        calls = [ToolCallPart("no_op", json.loads(nth_text(day)), tool_call_id=f"call_{day}") for day in range(iterations)]
        parts: list[Any] = [*calls, TextPart("done")]

        def answer(messages: list[Any], info: object) -> ModelResponse:
            return ModelResponse(parts=[parts[len(messages) // 2]])

        toolset = FunctionToolset(tools) if engine is None else CallgateToolset(tools, engine)
        agent = Agent(FunctionModel(answer), toolsets=[toolset])
        return lambda: agent.run("Go.", usage_limits=UsageLimits(request_limit=None))

    return tools, loop


LOOPS: dict[str, Callable[[], tuple[list[Any], Loop]]] = {"langchain": langchain, "pydantic-ai": pydantic_ai}


async def _answer(name: str) -> None:
    tools, loop = LOOPS[name]()
    async with Engine(import_tools(tools, {"no_op": "none"})) as engine:
        for one in (engine, None):
            await loop(3, one)()
        print("ready", flush=True)
        for line in sys.stdin:
            count = int(line)
            ours, bare = [await cpu(loop(count, one), count) for one in (engine, None)]
            print(ours, bare, flush=True)


if __name__ == "__main__":
    os.environ["LANGSMITH_TRACING"] = "false"
    try:
        asyncio.run(_answer(sys.argv[1]))
    except ImportError as error:
        print(f"skipped {error}", flush=True)
