"""What holds for one turn, such as a result that is cached by default, ends with the turn of the framework's agent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from agent_framework import Agent as FrameworkAgent
from agent_framework import AgentSession
from agent_framework import tool as framework_tool
from agents import Runner, function_tool
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool as langchain_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import tools_condition
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.tools import Tool

from callgate import Engine, Scope
from callgate.integrations import import_tools
from callgate.integrations.agent_framework import callgate_middleware
from callgate.integrations.langchain import CallgateMiddleware, CallgateToolNode
from callgate.integrations.openai_agents import callgate_tools
from callgate.integrations.pydantic_ai import CallgateToolset
from callgate.tools import ToolOptions
from tests.integrations.agent_framework_agents import ScriptedClient
from tests.integrations.contract import Call
from tests.integrations.langchain_agents import ScriptedChat, call, says
from tests.integrations.test_openai_agents_contract import QUIET, agent_of
from tests.integrations.test_pydantic_ai_contract import scripted

Balance = Callable[[], Awaitable[str]]
Turns = Callable[[Balance, Scope], Awaitable[None]]
CACHED: ToolOptions = {"effect": "none", "cacheable": True}
MODEL: list[list[Call] | str] = [[Call("balance", id="c1")], [Call("balance", id="c2")], "done", [Call("balance", id="c3")], "done"]
"""What the models answer with in two turns, of which the first has two messages with calls."""


def _engine(tool: Any) -> Engine:
    return Engine(import_tools([tool], options={"balance": CACHED}))


def _chat() -> ScriptedChat:
    return ScriptedChat(steps=[says(text=one) if isinstance(one, str) else says(call("balance", one[0].id)) for one in MODEL])


async def _langchain(balance: Balance, scope: Scope) -> None:
    tool = langchain_tool(balance)
    async with _engine(tool) as engine:
        agent = create_agent(_chat(), [tool], middleware=[CallgateMiddleware(engine, scope=scope)], checkpointer=InMemorySaver())
        for _ in range(2):
            await agent.ainvoke({"messages": [HumanMessage("go")]}, {"configurable": {"thread_id": "t"}})


async def _tool_node(balance: Balance, scope: Scope) -> None:
    tool, model = langchain_tool(balance), _chat()
    async with _engine(tool) as engine:
        builder = StateGraph(MessagesState)
        builder.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
        builder.add_node("tools", CallgateToolNode([tool], engine, scope=scope))
        builder.add_edge(START, "model")
        builder.add_conditional_edges("model", tools_condition)
        builder.add_edge("tools", "model")
        graph: Any = builder.compile(checkpointer=InMemorySaver())
        for _ in range(2):
            await graph.ainvoke({"messages": [HumanMessage("go")]}, {"configurable": {"thread_id": "t"}})


async def _pydantic_ai(balance: Balance, scope: Scope) -> None:
    tools = [Tool(balance)]
    async with _engine(tools[0]) as engine:
        agent = PydanticAgent(scripted(*MODEL), toolsets=[CallgateToolset(tools, engine, scope=scope)])
        first = await agent.run("go")
        await agent.run("go", message_history=first.all_messages())


async def _openai_agents(balance: Balance, scope: Scope) -> None:
    tool = function_tool(balance)
    async with _engine(tool) as engine:
        agent = agent_of(engine, [tool], *MODEL)
        agent.tools = callgate_tools([tool], engine, scope=scope)
        for _ in range(2):
            await Runner.run(agent, "go", run_config=QUIET)


async def _agent_framework(balance: Balance, scope: Scope) -> None:
    await _framework_runs(balance, scope, stream=False)


async def _agent_framework_stream(balance: Balance, scope: Scope) -> None:
    await _framework_runs(balance, scope, stream=True)


async def _framework_runs(balance: Balance, scope: Scope, *, stream: bool) -> None:
    tool, session = framework_tool(balance), AgentSession(session_id="s")
    async with _engine(tool) as engine:
        client: Any = ScriptedClient(*MODEL)
        agent: Any = FrameworkAgent(client=client, tools=[tool], middleware=callgate_middleware(engine, scope=scope))
        for _ in range(2):
            result = agent.run("go", session=session, stream=stream)
            await (result.get_final_response() if stream else result)


ALL = [_langchain, _tool_node, _pydantic_ai, _openai_agents, _agent_framework, _agent_framework_stream]


@pytest.mark.parametrize("turns", ALL)
@pytest.mark.parametrize(
    ("scope", "reads"), [(Scope(run="case-7"), 2), (Scope(run="case-7", turn=7), 1), (Scope(run="case-7", tick="day"), 1)]
)
async def test_a_result_cached_for_a_turn_is_read_again_in_the_next_turn(turns: Turns, scope: Scope, reads: int) -> None:
    """Unless the scope says what a turn is, which may be longer."""
    read: list[str] = []

    async def balance() -> str:
        """Look up the balance."""
        read.append("read")
        return "100"

    await turns(balance, scope)
    assert len(read) == reads
