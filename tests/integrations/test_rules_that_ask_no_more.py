"""A human's decision counts also if the rule that asked for it is gone when the framework's run is resumed, as after a new deployment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import BaseTool
from langchain_core.tools import tool as langchain_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import tools_condition
from langgraph.types import Command
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDenied

from callgate import Engine, SqliteJournal
from callgate.integrations import import_tools
from callgate.integrations.langchain import CallgateMiddleware
from callgate.integrations.langgraph import CallgateToolNode
from callgate.integrations.pydantic_ai import CallgateToolset
from tests.integrations.contract import Call
from tests.integrations.langchain_agents import ScriptedChat, call, says
from tests.integrations.test_pydantic_ai_contract import scripted

_CONFIG: Any = {"configurable": {"thread_id": "one"}}


def paying(ran: list[int]) -> BaseTool:
    @langchain_tool
    async def pay(cents: int) -> str:
        """Pay."""
        ran.append(cents)
        return f"paid {cents}"

    return pay


def graph(kind: str, engine: Engine, tool: BaseTool, saver: InMemorySaver) -> Any:
    model = ScriptedChat(steps=[says(call("pay", cents=1)), says(text="done")])
    if kind == "middleware":
        return create_agent(model, [tool], middleware=[CallgateMiddleware(engine)], checkpointer=saver)
    builder = StateGraph(MessagesState)
    builder.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_node("tools", CallgateToolNode([tool], engine))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", tools_condition)
    builder.add_edge("tools", "model")
    return builder.compile(checkpointer=saver)


def engine_of(tool: Any, folder: Path, *, asks: bool) -> Engine:
    options: Any = {"pay": {"requires_approval": True}} if asks else {}
    return Engine(import_tools([tool], options=options), journal=SqliteJournal(folder / "calls.db"))


REJECT = {"type": "reject", "message": "too dear"}
EDIT = {"type": "edit", "edited_action": {"name": "pay", "args": {"cents": 7}}}


@pytest.mark.parametrize("kind", ["middleware", "node"])
@pytest.mark.parametrize(
    ("decision", "ran", "told"), [(REJECT, [], "too dear"), (EDIT, [7], "paid 7"), ({"type": "approve"}, [1], "paid 1")]
)
async def test_a_decision_in_the_graph_counts(kind: str, decision: Any, ran: list[int], told: str, tmp_path: Path) -> None:
    paid: list[int] = []
    tool, saver = paying(paid), InMemorySaver()
    async with engine_of(tool, tmp_path, asks=True) as engine:
        asked = await graph(kind, engine, tool, saver).ainvoke({"messages": [HumanMessage("go")]}, _CONFIG)
    assert asked["__interrupt__"]
    async with engine_of(tool, tmp_path, asks=False) as engine:
        resume: Any = Command(resume=decision if kind == "middleware" else {"decisions": [decision]})
        result = await graph(kind, engine, tool, saver).ainvoke(resume, _CONFIG)
    (message,) = (one for one in result["messages"] if isinstance(one, ToolMessage))
    assert paid == ran
    assert told in str(message.content).replace("\\", "")


@pytest.mark.parametrize(
    ("decision", "ran"), [(ToolDenied("too dear"), []), (ToolApproved(override_args={"cents": 7}), [7]), (ToolApproved(), [1])]
)
async def test_a_decision_of_pydantic_ai_counts(decision: Any, ran: list[int], tmp_path: Path) -> None:
    paid: list[int] = []

    async def pay(cents: int) -> str:
        """Pay."""
        paid.append(cents)
        return f"paid {cents}"

    def agent(engine: Engine) -> Agent[None, Any]:
        model = scripted([Call("pay", {"cents": 1})], "done")
        return Agent(model, toolsets=[CallgateToolset([pay], engine)], output_type=[str, DeferredToolRequests])

    async with engine_of(pay, tmp_path, asks=True) as engine:
        asked = await agent(engine).run("go")
    assert isinstance(asked.output, DeferredToolRequests)
    async with engine_of(pay, tmp_path, asks=False) as engine:
        results = DeferredToolResults(approvals={asked.output.approvals[0].tool_call_id: decision})
        await agent(engine).run(message_history=asked.all_messages(), deferred_tool_results=results)
    assert paid == ran
