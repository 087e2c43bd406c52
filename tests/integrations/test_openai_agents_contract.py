"""The promises of a wrapper, with agents of the OpenAI Agents SDK."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agents import Agent, RunConfig, Runner, RunState, ToolCallOutputItem, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call

from callgate import Engine, Scope
from callgate.integrations.openai_agents import callgate_tools
from tests.integrations.contract import Call, Said, Told, WrapperContract

__all__ = ["QUIET", "agent_of", "told_in"]

QUIET = RunConfig(tracing_disabled=True)


def agent_of(engine: Engine, tools: Sequence[Any], *messages: Sequence[Call] | str, run: str = "") -> Agent[Any]:
    """Return an agent whose model answers with these messages: calls, or a text."""
    steps = [
        [assistant_message(one)] if isinstance(one, str) else [function_call(call.name, call.arguments, call_id=call.id) for call in one]
        for one in messages
    ]
    return Agent(name="shop", model=ScriptedModel(steps), tools=callgate_tools(tools, engine, scope=Scope(run=run)))


def told_in(result: Any) -> dict[str, Told]:
    """Return the results of tools that the model read, by call id. The SDK has no mark for errors; the engine's are JSON."""
    items = [item for item in result.new_items if isinstance(item, ToolCallOutputItem)]
    return {str(item.call_id): Told(str(item.output), str(item.output).startswith('{"status":"')) for item in items}


async def _answer(engine: Engine, state: RunState[Any], item: Any, said: Said) -> None:
    if said.arguments is not None:  # the SDK's approvals have no arguments, the engine's have
        asked = [event.call for event in engine.journal.read() if event.kind == "call.suspended"]
        await engine.approve(asked[-1], arguments=said.arguments)
    if said.allow:
        state.approve(item)
    else:
        state.reject(item, rejection_message=said.reason)


class TestCallgateTools(WrapperContract):
    def tool(self, function: Callable[..., Any]) -> Any:
        return function_tool(function)

    async def run(
        self,
        engine: Engine,
        tools: Sequence[Any],
        message: Sequence[Call],
        *,
        then: Sequence[Sequence[Call]] = (),
        says: Mapping[str, Said] | None = None,
    ) -> dict[str, Told]:
        agent = agent_of(engine, tools, message, *then, "done")
        result = await Runner.run(agent, "go", run_config=QUIET)
        while result.interruptions:
            assert says is not None, result.interruptions
            state = result.to_state()
            for item in state.get_interruptions():
                await _answer(engine, state, item, says[str(item.call_id)])
            result = await Runner.run(agent, state, run_config=QUIET)
        assert result.final_output == "done"
        return told_in(result)

    async def make_again(self, engine: Engine, tools: Sequence[Any], message: Sequence[Call]) -> list[dict[str, Told]]:
        asking = [copy.copy(tool) for tool in tools]
        for tool in asking:
            tool.needs_approval = True
        agent = agent_of(engine, asking, message, "done", "done", run="case-7")
        saved = (await Runner.run(agent, "go", run_config=QUIET)).to_state().to_json()
        found = []
        for _ in range(2):
            state = await RunState.from_json(agent, saved)
            for item in state.get_interruptions():
                state.approve(item)
            found.append(told_in(await Runner.run(agent, state, run_config=QUIET)))
        return found
