"""Decisions about calls of LangGraph that cannot be used: the graph is interrupted again, and the next decision counts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command

from callgate import Ask, Engine
from callgate.integrations import import_tools
from callgate.integrations.langchain import CallgateMiddleware, CallgateToolNode
from tests.integrations.contract import WrittenPolicy
from tests.integrations.langchain_agents import ScriptedChat, call, says, tool_messages

_GO: Any = {"messages": [HumanMessage("go")]}
_THREAD: Any = {"configurable": {"thread_id": "thread"}}
_ran: list[str] = []


@tool
async def refund(order: str) -> str:
    """Refund an order."""
    _ran.append(order)
    return f"{order} refunded"


@tool
def refund_sync(order: str) -> str:
    """Refund an order."""
    _ran.append(order)
    return f"{order} refunded"


@pytest.fixture(autouse=True)
def _none_ran() -> None:
    _ran.clear()


def _engine() -> Engine:
    asks = {one: Ask(question="Refund it?", rule="ask") for one in ("refund", "refund_sync")}
    return Engine(import_tools([refund, refund_sync]), policies=[WrittenPolicy(asks)])


def _node_graph(engine: Engine, one: Any) -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("tools", CallgateToolNode([one], engine))
    builder.add_edge(START, "tools")
    return builder.compile(checkpointer=InMemorySaver())


def _resume(value: Any) -> Command[Any]:
    return Command(resume=value)


@pytest.mark.parametrize(
    "unusable",
    ["yes", {"type": "aprove"}, {"type": "edit", "edited_action": {"name": "other", "args": {}}}, {"decisions": []}],
    ids=["text", "type", "edit of another tool", "form of a node"],
)
async def test_an_unusable_decision_interrupts_again_with_the_form_and_a_right_one_then_works(unusable: Any) -> None:
    async with _engine() as engine:
        model = ScriptedChat(steps=[says(call("refund", order="A7")), says(text="done")])
        agent: Any = create_agent(model, [refund], middleware=[CallgateMiddleware(engine)], checkpointer=InMemorySaver())
        await agent.ainvoke(_GO, _THREAD)
        again = await agent.ainvoke(_resume(unusable), _THREAD)
        twice = await agent.ainvoke(_resume(unusable), _THREAD)
        result = await agent.ainvoke(_resume({"type": "approve"}), _THREAD)
    for asked in (again, twice):
        description = asked["__interrupt__"][0].value["description"]
        assert "Give {'type': 'approve'}" in description
        assert "Refund it?" in description
    assert tool_messages(result)[0].content == "A7 refunded"
    assert _ran == ["A7"]


def test_an_unusable_decision_interrupts_a_sync_agent_again() -> None:
    engine = _engine()
    try:
        model = ScriptedChat(steps=[says(call("refund_sync", order="A7")), says(text="done")])
        agent: Any = create_agent(model, [refund_sync], middleware=[CallgateMiddleware(engine)], checkpointer=InMemorySaver())
        agent.invoke(_GO, _THREAD)
        again = agent.invoke(_resume({"type": "aprove"}), _THREAD)
        result = agent.invoke(_resume({"type": "reject", "message": "too late"}), _THREAD)
    finally:
        engine.close_sync()
    assert "aprove" in again["__interrupt__"][0].value["description"]
    assert "too late" in tool_messages(result)[0].content
    assert _ran == []


@pytest.mark.parametrize("unusable", ["yes", {"decisions": []}, {"decisions": [{"type": "aprove"}]}, {"decisions": [{"tool_call_id": []}]}])
async def test_unusable_decisions_interrupt_a_tool_node_again_and_right_ones_then_work(unusable: Any) -> None:
    async with _engine() as engine:
        graph = _node_graph(engine, refund)
        await graph.ainvoke({"messages": [says(call("refund", order="A7"))]}, _THREAD)
        again = await graph.ainvoke(_resume(unusable), _THREAD)
        result = await graph.ainvoke(_resume({"decisions": [{"type": "approve"}]}), _THREAD)
    (asked,) = again["__interrupt__"][0].value["action_requests"]
    assert "Resume with {'decisions': [...]}, with one for each call of this interrupt" in asked["description"]
    assert "Refund it?" in asked["description"]
    assert tool_messages(result)[0].content == "A7 refunded"
    assert _ran == ["A7"]


def test_a_tool_node_asks_again_only_about_the_call_whose_decision_was_unusable() -> None:
    engine = _engine()
    try:
        graph = _node_graph(engine, refund_sync)
        made = says(call("refund_sync", "c1", order="A7"), call("refund_sync", "c2", order="B8"))
        graph.invoke({"messages": [made]}, _THREAD)
        again = graph.invoke(_resume({"decisions": [{"type": "approve"}, {"type": "aprove"}]}), _THREAD)
        result = graph.invoke(_resume({"decisions": [{"type": "reject", "message": "too late"}]}), _THREAD)
    finally:
        engine.close_sync()
    assert [one["tool_call_id"] for one in again["__interrupt__"][0].value["action_requests"]] == ["c2"]
    first, second = tool_messages(result)
    assert first.content == "A7 refunded"
    assert "too late" in second.content
    assert _ran == ["A7"]


# A call that somebody has approved in the engine before the graph was resumed


async def test_a_rejection_of_a_call_that_was_approved_in_the_engine_is_a_denial_as_any_other() -> None:
    async with _engine() as engine:
        model = ScriptedChat(steps=[says(call("refund", order="A7")), says(text="done")])
        agent: Any = create_agent(model, [refund], middleware=[CallgateMiddleware(engine)], checkpointer=InMemorySaver())
        asked = (await agent.ainvoke(_GO, _THREAD))["__interrupt__"][0].value
        await engine.approve(asked["approval_id"], by="bob")
        result = await agent.ainvoke(_resume({"type": "reject", "message": "no!"}), _THREAD)
        (last,) = [json.loads(event.body) for event in engine.journal.read() if event.kind == "call.completed"]
    assert "refund was denied: a human said no: no! Do not try it again" in tool_messages(result)[0].content
    assert last["code"] == "human_denied"
    assert _ran == []


@pytest.mark.parametrize("by_id", [True, False], ids=["by id", "in order"])
@pytest.mark.parametrize("rejected", [0, 1], ids=["the first", "the second"])
def test_a_rejection_in_a_tool_node_counts_for_its_call_only(rejected: int, by_id: bool) -> None:
    engine = _engine()
    decisions: list[dict[str, Any]] = [{"type": "approve"}, {"type": "approve"}]
    decisions[rejected] = {"type": "reject", "message": "too dear"}
    if by_id:
        decisions = [{**one, "tool_call_id": call_id} for one, call_id in zip(decisions, ("c1", "c2"), strict=True)][::-1]
    try:
        graph = _node_graph(engine, refund_sync)
        made = says(call("refund_sync", "c1", order="A7"), call("refund_sync", "c2", order="B8"))
        (interrupt,) = graph.invoke({"messages": [made]}, _THREAD)["__interrupt__"]
        for asked in interrupt.value["action_requests"]:
            engine.approve_sync(asked["approval_id"], by="bob")
        told = [message.content for message in tool_messages(graph.invoke(_resume({"decisions": decisions}), _THREAD))]
    finally:
        engine.close_sync()
    assert "a human said no: too dear. Do not try it again" in told[rejected]
    assert _ran == [["A7", "B8"][1 - rejected]]
