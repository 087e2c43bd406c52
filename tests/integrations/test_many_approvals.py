"""What a wrapper reads in the journal for one approval does not grow with the approvals of the run before it."""

from __future__ import annotations

from typing import Any

import pytest
from agent_framework import AgentSession, Message
from agent_framework import tool as framework_tool
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from callgate import Ask, Engine, MemoryJournal
from callgate.event_queries import EventQuery
from callgate.events import Event
from callgate.integrations import import_tools
from callgate.integrations.langchain import CallgateMiddleware
from tests.integrations.agent_framework_agents import agent_of
from tests.integrations.contract import Call, WrittenPolicy
from tests.integrations.langchain_agents import ScriptedChat, call, says

_APPROVALS = 12


class CountingJournal(MemoryJournal):
    """Counts how often it is searched."""

    searched = 0

    def find(self, query: EventQuery) -> list[Event]:
        self.searched += 1
        return super().find(query)


async def pay(amount: int) -> str:
    """Pay an amount."""
    return f"{amount} paid"


def engine_of(tool: Any) -> Engine:
    return Engine(import_tools([tool]), policies=[WrittenPolicy({"pay": Ask(question="Pay it?", rule="ask")})], journal=CountingJournal())


async def langchain() -> list[int]:
    tool = StructuredTool.from_function(coroutine=pay, name="pay")
    made = [says(call("pay", f"c{turn}", amount=5)) for turn in range(_APPROVALS)]
    async with engine_of(tool) as engine:
        model = ScriptedChat(steps=[*made, says(text="done")])
        agent: Any = create_agent(model, [tool], middleware=[CallgateMiddleware(engine)], checkpointer=InMemorySaver())
        thread = {"configurable": {"thread_id": "t"}}
        found = []
        await agent.ainvoke({"messages": [HumanMessage("go")]}, thread)
        for _ in range(_APPROVALS):
            before = searched(engine)
            await agent.ainvoke(Command(resume={"type": "approve"}), thread)
            found.append(searched(engine) - before)
        return found


async def agent_framework() -> list[int]:
    tool: Any = framework_tool(pay)
    async with engine_of(tool) as engine:
        agent = agent_of(engine, [tool], *([Call("pay", {"amount": 5}, f"c{turn}")] for turn in range(_APPROVALS)), "done")
        session, found = AgentSession(session_id="s"), []
        result = await agent.run("go", session=session)
        while result.user_input_requests:
            (request,), before = result.user_input_requests, searched(engine)
            result = await agent.run(Message("user", [request.to_function_approval_response(approved=True)]), session=session)
            found.append(searched(engine) - before)
        return found


def searched(engine: Engine) -> int:
    assert isinstance(engine.journal, CountingJournal)
    return engine.journal.searched


@pytest.mark.parametrize("run", [langchain, agent_framework])
async def test_an_approval_searches_the_journal_as_often_as_the_ones_before_it(run: Any) -> None:
    found = await run()
    assert len(found) == _APPROVALS
    assert max(found) <= found[0] + 2
