"""Agents whose tools have two wrappers of one engine, such as one for all agents and one for a run. LangChain refuses that itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from agent_framework import Agent as FrameworkAgent
from agent_framework import AgentSession, Message, MiddlewareFailure
from agent_framework import tool as framework_tool
from agents import Agent as OpenAIAgent
from agents import Runner, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, ToolApproved
from pydantic_ai.tools import Tool

from callgate import Ask, Engine, Scope, UsageError
from callgate._run_state.event_bodies import approval_id_of
from callgate.integrations.agent_framework import callgate_middleware
from callgate.integrations.openai_agents import callgate_tools
from callgate.integrations.pydantic_ai import CallgateCapability, CallgateToolset
from tests.integrations.agent_framework_agents import ScriptedClient
from tests.integrations.contract import Call, WrittenPolicy
from tests.integrations.test_openai_agents_contract import QUIET
from tests.integrations.test_pydantic_ai_contract import scripted

Run = Callable[[Engine, Scope, Scope], Awaitable[str]]
_CALL = Call("pay", {"order": "A7"})
_ASKS = WrittenPolicy({"pay": Ask(question="Pay it?", rule="ask")})
_paid: list[str] = []


async def pay(order: str) -> str:
    """Pay an order."""
    _paid.append(order)
    return f"{order} paid"


@pytest.fixture(autouse=True)
def _none_paid() -> None:
    _paid.clear()


async def _finished(agent: Agent[Any, Any], **run: Any) -> str:
    """Run an agent of Pydantic AI, and approve what it asks."""
    result = await agent.run("go", **run)
    while isinstance(result.output, DeferredToolRequests):
        approvals: dict[str, Any] = {one.tool_call_id: ToolApproved(override_args={"order": "B8"}) for one in result.output.approvals}
        results = DeferredToolResults(approvals=approvals)
        result = await agent.run(message_history=result.all_messages(), deferred_tool_results=results, **run)
    return str(result.output)


async def _two_capabilities(engine: Engine, first: Scope, second: Scope) -> str:
    asks = [CallgateCapability(engine, scope=first), CallgateCapability(engine, scope=second)]
    return await _finished(Agent(scripted([_CALL], "done"), tools=[Tool(pay)], capabilities=asks, output_type=[str, DeferredToolRequests]))


async def _of_agent_and_run(engine: Engine, first: Scope, second: Scope) -> str:
    asks = [CallgateCapability(engine, scope=first)]
    agent = Agent(scripted([_CALL], "done"), tools=[Tool(pay)], capabilities=asks, output_type=[str, DeferredToolRequests])
    return await _finished(agent, capabilities=[CallgateCapability(engine, scope=second)])


async def _toolset_and_capability(engine: Engine, first: Scope, second: Scope) -> str:
    wrapped = CallgateToolset([Tool(pay)], engine, scope=first)
    asks = [CallgateCapability(engine, scope=second)]
    return await _finished(Agent(scripted([_CALL], "done"), toolsets=[wrapped], capabilities=asks, output_type=[str, DeferredToolRequests]))


async def _openai_tools(engine: Engine, first: Scope, second: Scope) -> str:
    model = ScriptedModel([[function_call(_CALL.name, _CALL.arguments, call_id=_CALL.id)], [assistant_message("done")]])
    wrapped = callgate_tools([function_tool(pay)], engine, scope=first)
    agent: OpenAIAgent[Any] = OpenAIAgent(name="shop", model=model, tools=callgate_tools(wrapped, engine, scope=second))
    result = await Runner.run(agent, "go", run_config=QUIET)
    while result.interruptions:
        state = result.to_state()
        for one in state.get_interruptions():
            state.approve(one)
        result = await Runner.run(agent, state, run_config=QUIET)
    return str(result.final_output)


async def _framework_middleware(engine: Engine, first: Scope, second: Scope) -> str:
    wrapped = callgate_middleware(engine, scope=first)
    agent: FrameworkAgent[Any] = FrameworkAgent(client=ScriptedClient([_CALL], "done"), tools=[framework_tool(pay)], middleware=wrapped)
    session, more = AgentSession(session_id="session"), callgate_middleware(engine, scope=second)
    try:
        result = await agent.run("go", session=session, middleware=more)
        while requests := result.user_input_requests:
            answers = [one.to_function_approval_response(approved=True) for one in requests]
            result = await agent.run(Message("user", answers), session=session, middleware=more)
    except MiddlewareFailure as failure:
        raise failure.__cause__ or failure from failure
    return result.text


_OTHERS = [Scope(principal="bob"), Scope(principal="ann", run="other"), Scope(principal="ann", conversation="other")]
_RUNS = [_two_capabilities, _of_agent_and_run, _toolset_and_capability, _openai_tools, _framework_middleware]


@pytest.mark.parametrize("run", _RUNS)
async def test_a_call_with_two_wrappers_is_asked_about_once_and_runs_once(run: Run) -> None:
    async with Engine(policies=[_ASKS]) as engine:
        assert await run(engine, Scope(principal="ann"), Scope(principal="ann")) == "done"
        assert len({approval_id_of(event) for event in engine.journal.read() if event.kind == "call.suspended"}) == 1
    assert len(_paid) == 1


@pytest.mark.parametrize("other", _OTHERS, ids=["principal", "run", "conversation"])
@pytest.mark.parametrize("run", _RUNS)
async def test_two_wrappers_with_different_scopes_are_refused_with_what_to_do(run: Run, other: Scope) -> None:
    async with Engine(policies=[_ASKS]) as engine:
        with pytest.raises(UsageError, match=r"two wrappers of one engine with different scopes.*Remove one of them"):
            await run(engine, Scope(principal="ann"), other)
    assert _paid == []
