"""A human's decision counts also if the rule that asked for it is gone when the framework's run is resumed, as after a new deployment.

Or if it does not ask about this call any more.
"""

from __future__ import annotations

from collections.abc import Callable
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

from callgate import Engine, PostgresJournal, SqliteJournal, tool
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


def graph(kind: str, engine: Engine, tool: BaseTool, saver: InMemorySaver, model: ScriptedChat | None = None) -> Any:
    model = model or ScriptedChat(steps=[says(call("pay", cents=1)), says(text="done")])
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


def paying_agent(paid: list[int]) -> tuple[Callable[..., Any], Callable[[Engine], Agent[None, Any]]]:
    """Return a function that notes what it pays, and what makes an agent of Pydantic AI with it."""

    async def pay(cents: int) -> str:
        """Pay."""
        paid.append(cents)
        return f"paid {cents}"

    def agent(engine: Engine) -> Agent[None, Any]:
        model = scripted([Call("pay", {"cents": 1})], "done")
        return Agent(model, toolsets=[CallgateToolset([pay], engine)], output_type=[str, DeferredToolRequests])

    return pay, agent


@pytest.mark.parametrize(
    ("decision", "ran"), [(ToolDenied("too dear"), []), (ToolApproved(override_args={"cents": 7}), [7]), (ToolApproved(), [1])]
)
async def test_a_decision_of_pydantic_ai_counts(decision: Any, ran: list[int], tmp_path: Path) -> None:
    paid: list[int] = []

    pay, agent = paying_agent(paid)

    async with engine_of(pay, tmp_path, asks=True) as engine:
        asked = await agent(engine).run("go")
    assert isinstance(asked.output, DeferredToolRequests)
    async with engine_of(pay, tmp_path, asks=False) as engine:
        results = DeferredToolResults(approvals={asked.output.approvals[0].tool_call_id: decision})
        await agent(engine).run(message_history=asked.all_messages(), deferred_tool_results=results)
    assert paid == ran


@pytest.mark.parametrize("imported", [True, False], ids=["a tool of the framework", "a plain function of the engine"])
@pytest.mark.parametrize(
    ("decision", "ran"), [(ToolDenied("too dear"), []), (ToolApproved(override_args={"cents": 7}), [7]), (ToolApproved(), [1])]
)
async def test_a_decision_of_pydantic_ai_counts_if_the_rule_has_become_silent(
    decision: Any, ran: list[int], imported: bool, tmp_path: Path
) -> None:
    paid: list[int] = []
    closed = True

    pay, agent = paying_agent(paid)

    def asks(call: object) -> bool:
        return closed

    its = import_tools([pay], options={"pay": {"requires_approval": asks}})
    tools: Any = its if imported else [tool(pay, requires_approval=asks)]
    async with Engine(tools, journal=SqliteJournal(tmp_path / "calls.db")) as engine:
        asked = await agent(engine).run("go")
        assert isinstance(asked.output, DeferredToolRequests)
        closed = False
        results = DeferredToolResults(approvals={asked.output.approvals[0].tool_call_id: decision})
        await agent(engine).run(message_history=asked.all_messages(), deferred_tool_results=results)
    assert paid == ran


@pytest.mark.parametrize("kind", ["middleware", "node"])
@pytest.mark.parametrize(
    ("imported", "decision", "ran", "told"),
    [
        (True, REJECT, [], "too dear. Do not try it again"),
        (True, EDIT, [], "has given it other arguments"),
        (True, {"type": "approve"}, [1], "paid 1"),
        (False, REJECT, [], "too dear. Do not try it again"),
        (False, EDIT, [7], "paid 7"),
        (False, {"type": "approve"}, [1], "paid 1"),
    ],
)
async def test_a_decision_in_the_graph_counts_if_the_rule_has_become_silent(
    kind: str, imported: bool, decision: Any, ran: list[int], told: str, tmp_path: Path
) -> None:
    """The tool's code is that of the framework (`imported`), or the engine's own."""
    paid: list[int] = []
    closed = True
    its, saver = paying(paid), InMemorySaver()

    def asks(call: object) -> bool:
        return closed

    async with Engine(tools_of(its, asks, imported=imported), journal=SqliteJournal(tmp_path / "calls.db")) as engine:
        made = graph(kind, engine, its, saver)
        asked = await made.ainvoke({"messages": [HumanMessage("go")]}, _CONFIG)
        assert asked["__interrupt__"]
        closed = False
        resume: Any = Command(resume=decision if kind == "middleware" else {"decisions": [decision]})
        result = await made.ainvoke(resume, _CONFIG)
    (message,) = (one for one in result["messages"] if isinstance(one, ToolMessage))
    assert paid == ran
    assert told in str(message.content).replace("\\", "")


def tools_of(its: Any, asks: Any, *, imported: bool) -> Any:
    return import_tools([its], options={"pay": {"requires_approval": asks}}) if imported else [tool(its.coroutine, requires_approval=asks)]


@pytest.mark.parametrize("imported", [True, False])
async def test_each_call_of_a_message_gets_its_own_decision_by_its_place(imported: bool) -> None:
    paid: list[int] = []
    its = paying(paid)
    async with Engine(tools_of(its, True, imported=imported)) as engine:
        model = ScriptedChat(steps=[says(*(call("pay", f"c{cents}", cents=cents) for cents in (1, 2, 3))), says(text="done")])
        made = graph("node", engine, its, InMemorySaver(), model)
        await made.ainvoke({"messages": [HumanMessage("go")]}, _CONFIG)
        result = await made.ainvoke(Command(resume={"decisions": [{"type": "approve"}, REJECT, {"type": "approve"}]}), _CONFIG)
    assert paid == [1, 3]
    assert "__interrupt__" not in result


def test_decisions_reach_a_graph_without_an_event_loop_whose_journal_is_on_a_server(database: str) -> None:
    paid: list[int] = []

    @langchain_tool
    def pay(cents: int) -> str:
        """Pay."""
        paid.append(cents)
        return f"paid {cents}"

    engine = Engine(import_tools([pay], options={"pay": {"requires_approval": True}}), journal=PostgresJournal(database))
    try:
        model = ScriptedChat(steps=[says(call("pay", "c1", cents=1), call("pay", "c2", cents=2)), says(text="done")])
        made = graph("node", engine, pay, InMemorySaver(), model)
        made.invoke({"messages": [HumanMessage("go")]}, _CONFIG)
        made.invoke(Command(resume={"decisions": [EDIT, REJECT]}), _CONFIG)
    finally:
        engine.close_sync()
    assert paid == [7]
