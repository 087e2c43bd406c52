"""Two humans decide about a call of a tool node at once: nobody is asked again about what the other one has decided."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command

from callgate import Engine
from callgate.integrations import import_tools
from callgate.integrations.langgraph import CallgateToolNode
from tests.integrations.langchain_agents import call, says, tool_messages

YES: dict[str, Any] = {"type": "approve"}
NO: dict[str, Any] = {"type": "reject", "message": "too dear"}
EDIT: dict[str, Any] = {"type": "edit", "edited_action": {"name": "pay", "args": {"amount": 3}}}
THREAD: Any = {"configurable": {"thread_id": "t"}}


@pytest.mark.parametrize("decisions", [(YES, NO), (NO, YES), (YES, EDIT), (EDIT, YES), (EDIT, NO)])
async def test_of_two_decisions_at_once_one_counts_and_both_resumes_read_the_same(decisions: tuple[dict[str, Any], ...]) -> None:
    ledger: list[int] = []

    async def pay(amount: int) -> str:
        """Pay an amount."""
        ledger.append(amount)
        return f"{amount} paid"

    tool = StructuredTool.from_function(coroutine=pay, name="pay")
    async with Engine(import_tools([tool], options={"pay": {"requires_approval": True}})) as engine:
        builder = StateGraph(MessagesState)
        builder.add_node("tools", CallgateToolNode([tool], engine))
        builder.add_edge(START, "tools")
        graph: Any = builder.compile(checkpointer=InMemorySaver())
        await graph.ainvoke({"messages": [says(call("pay", amount=5))]}, THREAD)
        results = await asyncio.gather(*(graph.ainvoke(Command(resume={"decisions": [one]}), THREAD) for one in decisions))
    assert [one.get("__interrupt__") for one in results] == [None, None]
    first, second = (str(tool_messages(one)[-1].content) for one in results)
    assert first == second
    assert len(ledger) == (0 if "too dear" in first else 1)
