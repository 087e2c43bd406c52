"""The peers' agent loops: a run of as many sequential tool calls as asked for, from a model that is written down.

Each model hands out answers that are made before the clock runs, ignores the history, and notes the CPU time at each pass. Telemetry is
off, limits on the number of iterations are raised. Must import neither callgate nor, before it is asked for, a peer.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from typing import Any

from bench.floor import Stamps, no_op, nth_text

__all__ = ["LOOPS", "Loop"]

Loop = Callable[[int], tuple[Callable[[], Awaitable[str]], Stamps]]
"""Makes a run of so many iterations: what runs it and gives its last text, and where each pass is noted."""


def openai_agents() -> Loop:
    """`Runner.run` without tracing."""
    from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage, function_tool
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    def call(day: int) -> Any:
        return ResponseFunctionToolCall(call_id=f"call_{day}", name="no_op", arguments=nth_text(day), type="function_call")

    text = ResponseOutputText(text="done", type="output_text", annotations=[])
    last = ResponseOutputMessage(id="message_1", role="assistant", status="completed", type="message", content=[text])

    class Scripted(Model):
        def __init__(self, iterations: int) -> None:
            items = [*(call(day) for day in range(iterations)), last]
            self.answers = iter([ModelResponse(output=[item], usage=Usage(), response_id=None) for item in items])
            self.stamps: Stamps = []

        async def get_response(self, *_: Any, **__: Any) -> Any:
            self.stamps.append(time.process_time())
            return next(self.answers)

        def stream_response(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

    def loop(iterations: int) -> tuple[Callable[[], Awaitable[str]], Stamps]:
        model = Scripted(iterations)
        agent: Any = Agent(name="bench", model=model, tools=[function_tool(no_op)])

        async def run() -> str:
            config = RunConfig(tracing_disabled=True)
            result = await Runner.run(agent, "Go.", max_turns=iterations + 1, run_config=config)
            return str(result.final_output)

        return run, model.stamps

    return loop


def agent_framework() -> Loop:
    """`Agent.run`."""
    os.environ["ENABLE_INSTRUMENTATION"] = "false"
    from agent_framework import Agent, BaseChatClient, ChatResponse, Content, FunctionInvocationLayer, Message

    def call(day: int) -> Any:
        asked = Content.from_function_call(call_id=f"call_{day}", name="no_op", arguments=nth_text(day))
        return ChatResponse(messages=[Message("assistant", [asked])], finish_reason="tool_calls")

    class Scripted(FunctionInvocationLayer, BaseChatClient):
        def __init__(self, iterations: int) -> None:
            super().__init__(function_invocation_configuration={"max_iterations": iterations + 1})
            last = ChatResponse(messages=[Message("assistant", ["done"])], finish_reason="stop")
            self.answers = iter([*(call(day) for day in range(iterations)), last])
            self.stamps: Stamps = []

        def _inner_get_response(self, **_: Any) -> Any:
            return self._answer()

        async def _answer(self) -> Any:
            self.stamps.append(time.process_time())
            return next(self.answers)

    def loop(iterations: int) -> tuple[Callable[[], Awaitable[str]], Stamps]:
        model = Scripted(iterations)

        async def run() -> str:
            made: Any = await Agent(model, tools=[no_op]).run("Go.")
            return str(made.text)

        return run, model.stamps

    return loop


def pydantic_ai() -> Loop:
    """`Agent.run`, its limit of requests raised."""
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models import Model
    from pydantic_ai.usage import UsageLimits

    def call(day: int) -> Any:
        return ModelResponse(parts=[ToolCallPart(tool_name="no_op", args=nth_text(day), tool_call_id=f"call_{day}")])

    class Scripted(Model):
        model_name = "scripted"
        system = "bench"

        def __init__(self, iterations: int) -> None:
            super().__init__()
            self.answers = iter([*(call(day) for day in range(iterations)), ModelResponse(parts=[TextPart("done")])])
            self.stamps: Stamps = []

        async def request(self, *_: Any, **__: Any) -> Any:
            self.stamps.append(time.process_time())
            return next(self.answers)

    def loop(iterations: int) -> tuple[Callable[[], Awaitable[str]], Stamps]:
        model = Scripted(iterations)
        agent: Any = Agent(model, tools=[no_op])

        async def run() -> str:
            result = await agent.run("Go.", usage_limits=UsageLimits(request_limit=None))
            return str(result.output)

        return run, model.stamps

    return loop


LOOPS: dict[str, Callable[[], Loop]] = {"openai-agents": openai_agents, "agent-framework": agent_framework, "pydantic-ai": pydantic_ai}
