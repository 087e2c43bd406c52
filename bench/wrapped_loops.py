"""One framework's agent loop with callgate's wrapper and without, in a process of its own: `python -m bench.wrapped_loops NAME`.

Reads numbers of iterations from standard input, one a line, and answers with the CPU seconds of an iteration with the wrapper and without.
Both run the same agent with a model that is written down and an async no-op as the tool, one after the other. The agents of LangChain and
Microsoft Agent Framework have middleware that does nothing instead.
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


def openai_agents() -> tuple[list[Any], Loop]:
    from agents import Agent, RunConfig, Runner, function_tool
    from agents.testing import ScriptedModel, assistant_message, function_call

    from callgate.integrations.openai_agents import callgate_tools

    tools = [function_tool(no_op)]
    quiet = RunConfig(tracing_disabled=True)

    def loop(iterations: int, engine: Engine | None) -> Run:
        calls = [[function_call("no_op", nth_text(day), call_id=f"call_{day}")] for day in range(iterations)]
        model = ScriptedModel([*calls, [assistant_message("done")]])
        agent = Agent(name="agent", model=model, tools=[*tools] if engine is None else callgate_tools(tools, engine))
        return lambda: Runner.run(agent, "Go.", run_config=quiet, max_turns=iterations + 2)

    return tools, loop


def agent_framework() -> tuple[list[Any], Loop]:
    from agent_framework import (
        Agent,
        AgentMiddleware,
        BaseChatClient,
        ChatMiddleware,
        ChatMiddlewareLayer,
        ChatResponse,
        Content,
        FunctionInvocationLayer,
        FunctionMiddleware,
        Message,
        tool,
    )

    from callgate.integrations.agent_framework import callgate_middleware

    class Scripted(FunctionInvocationLayer[Any], ChatMiddlewareLayer[Any], BaseChatClient[Any]):
        def __init__(self, answers: list[Content]) -> None:
            super().__init__(function_invocation_configuration={"max_iterations": len(answers) + 1})
            self._answers = iter(answers)

        def _inner_get_response(self, **_: Any) -> Any:
            return self._next()

        async def _next(self) -> ChatResponse[Any]:
            return ChatResponse(messages=[Message("assistant", [next(self._answers)])])

    class Idle:
        """Does nothing. The framework calls a tool in another way as soon as there is any middleware."""

        async def process(self, context: Any, call_next: Any) -> None:
            await call_next()

    idle = [type("Idle", (Idle, kind), {})() for kind in (AgentMiddleware, ChatMiddleware, FunctionMiddleware)]
    tools = [tool(no_op)]

    def loop(iterations: int, engine: Engine | None) -> Run:
        calls = [Content.from_function_call(f"call_{day}", "no_op", arguments=nth_text(day)) for day in range(iterations)]
        middleware: Any = idle if engine is None else callgate_middleware(engine)
        agent: Any = Agent(client=Scripted([*calls, Content.from_text("done")]), tools=tools, middleware=middleware)
        return lambda: agent.run("Go.")

    return tools, loop


LOOPS: dict[str, Callable[[], tuple[list[Any], Loop]]] = {
    "langchain": langchain,
    "pydantic-ai": pydantic_ai,
    "openai-agents": openai_agents,
    "agent-framework": agent_framework,
}


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
