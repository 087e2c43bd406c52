"""Tools that call LangGraph's `interrupt` themselves, beside calls that callgate asks a human about."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, Send, interrupt
from pydantic import BaseModel, ValidationError

from callgate import Ask, Engine, NotDone, UsageError
from callgate.integrations import import_tools
from callgate.integrations.langchain import CallgateMiddleware, CallgateToolNode
from callgate.recorded_calls import find_tool_calls
from tests.integrations.contract import WrittenPolicy
from tests.integrations.langchain_agents import ScriptedChat, call, says, tool_messages

_THREAD: Any = {"configurable": {"thread_id": "thread"}}
_ran: list[str] = []


@tool
async def refund(order: str) -> str:
    """Refund an order."""
    cents = interrupt(f"How much of {order}?")
    _ran.append(f"{order}: {cents}")
    return f"{order}: {cents}"


@tool
def refund_sync(order: str) -> str:
    """Refund an order."""
    cents = interrupt(f"How much of {order}?")
    _ran.append(f"{order}: {cents}")
    return f"{order}: {cents}"


@tool
async def cancel(order: str) -> str:
    """Cancel an order."""
    _ran.append(f"{order} cancelled")
    return f"{order} cancelled"


@pytest.fixture(autouse=True)
def _none_ran() -> None:
    _ran.clear()


def _engine(*asked: str) -> Engine:
    policy = WrittenPolicy({name: Ask(question="Do it?", rule="ask") for name in asked})
    return Engine(import_tools([refund, refund_sync, cancel]), policies=[policy])


def _graph(engine: Engine) -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("tools", CallgateToolNode([refund, refund_sync, cancel], engine))
    builder.add_edge(START, "tools")
    return builder.compile(checkpointer=InMemorySaver())


def _graph_with_a_task_for_each_call(engine: Engine) -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("tools", CallgateToolNode([refund, cancel], engine))
    builder.add_conditional_edges(START, lambda state: [Send("tools", [one]) for one in state["messages"][-1].tool_calls], ["tools"])
    return builder.compile(checkpointer=InMemorySaver())


def _agent(engine: Engine, *calls: Any) -> Any:
    model = ScriptedChat(steps=[says(*calls), says(text="done")])
    return create_agent(model, [refund, refund_sync, cancel], middleware=[CallgateMiddleware(engine)], checkpointer=InMemorySaver())


def _resume(value: Any) -> Command[Any]:
    return Command(resume=value)


def _asked(result: Any) -> list[Any]:
    return [one.value for one in result["__interrupt__"]]


def _texts(result: Any) -> list[str]:
    return [str(message.content) for message in tool_messages(result)]


async def test_a_tool_that_interrupts_beside_a_call_that_a_human_is_asked_about_is_refused_before_either_runs() -> None:
    async with _engine("cancel") as engine:
        made = says(call("refund", "c1", order="A7"), call("cancel", "c2", order="B8"))
        with pytest.raises(UsageError, match=r"refund \(c1\), cancel \(c2\).*Send\(node, \[call\]\)"):
            await _graph(engine).ainvoke({"messages": [made]}, _THREAD)
    assert not _ran


async def test_two_tools_that_interrupt_in_one_message_are_refused_before_either_runs() -> None:
    async with _engine() as engine:
        made = says(call("refund", "c1", order="A7"), call("refund", "c2", order="B8"))
        with pytest.raises(UsageError, match=r"refund \(c1\), refund \(c2\)"):
            await _graph(engine).ainvoke({"messages": [made]}, _THREAD)
    assert not _ran


def test_two_sync_tools_that_interrupt_in_one_message_are_refused_before_either_runs() -> None:
    engine = _engine()
    try:
        made = says(call("refund_sync", "c1", order="A7"), call("refund_sync", "c2", order="B8"))
        with pytest.raises(UsageError, match=r"refund_sync \(c1\), refund_sync \(c2\)"):
            _graph(engine).invoke({"messages": [made]}, _THREAD)
    finally:
        engine.close_sync()
    assert not _ran


async def test_a_tool_that_interrupts_after_the_approval_of_another_call_is_refused_instead_of_reading_its_answer() -> None:
    """The approved call was recorded in an earlier execution of the node."""
    async with _engine("refund", "cancel") as engine:
        graph = _graph(engine)
        made = says(call("refund", "c1", order="A7"), call("cancel", "c2", order="B8"))
        await graph.ainvoke({"messages": [made]}, _THREAD)
        with pytest.raises(UsageError, match=r"refund \(c1\), cancel \(c2\)"):
            await graph.ainvoke(_resume({"decisions": [{"type": "approve"}, {"type": "approve"}]}), _THREAD)
    assert _ran == ["B8 cancelled"]


async def test_each_call_in_a_task_of_its_own_gets_its_own_answer() -> None:
    async with _engine("cancel") as engine:
        graph = _graph_with_a_task_for_each_call(engine)
        made = says(call("refund", "c1", order="A7"), call("refund", "c2", order="B8"), call("cancel", "c3", order="C9"))
        first = await graph.ainvoke({"messages": [made]}, _THREAD)
        answers = {"How much of A7?": "10 cents", "How much of B8?": "20 cents"}
        resume = {one.id: answers.get(str(one.value), {"decisions": [{"type": "approve"}]}) for one in first["__interrupt__"]}
        result = await graph.ainvoke(_resume(resume), _THREAD)
    assert _texts(result) == ["A7: 10 cents", "B8: 20 cents", "C9 cancelled"]


@pytest.mark.parametrize("beside", ["refund", "cancel"])
async def test_a_thread_that_was_refused_goes_on_after_its_tasks_are_planned_again(beside: str) -> None:
    saver, made = InMemorySaver(), says(call("refund", "c1", order="A7"), call(beside, "c2", order="B8"))

    def graph(engine: Engine, to_tools: Any) -> Any:
        builder = StateGraph(MessagesState)
        builder.add_node("model", lambda state: {"messages": [made]})
        builder.add_node("tools", CallgateToolNode([refund, cancel], engine))
        builder.add_edge(START, "model")
        builder.add_conditional_edges("model", to_tools, ["tools"])
        return builder.compile(checkpointer=saver)

    async with _engine("cancel") as engine:
        with pytest.raises(UsageError, match=r"graph\.update_state\(config, None, as_node=NAME\).*graph\.invoke\(None, config\)"):
            await graph(engine, lambda state: "tools").ainvoke({"messages": [HumanMessage("go")]}, _THREAD)
        mended = graph(engine, lambda state: [Send("tools", [one]) for one in state["messages"][-1].tool_calls])
        with pytest.raises(UsageError):
            await mended.ainvoke(None, _THREAD)
        await mended.aupdate_state(_THREAD, None, as_node="model")
        asked = (await mended.ainvoke(None, _THREAD))["__interrupt__"]
        resume = {one.id: {"type": "approve"} if isinstance(one.value, dict) else str(one.value)[:-1] for one in asked}
        result = await mended.ainvoke(_resume(resume), _THREAD)
    assert _texts(result) == ["A7: How much of A7", "B8 cancelled" if beside == "cancel" else "B8: How much of B8"]
    assert len(_ran) == 2


async def test_a_tool_that_interrupts_beside_calls_that_ask_nothing_gets_its_answer() -> None:
    async with _engine() as engine:
        graph = _graph(engine)
        made = says(call("refund", "c1", order="A7"), call("cancel", "c2", order="B8"))
        first = await graph.ainvoke({"messages": [made]}, _THREAD)
        result = await graph.ainvoke(_resume("10 cents"), _THREAD)
    assert _asked(first) == ["How much of A7?"]
    assert _texts(result) == ["A7: 10 cents", "B8 cancelled"]
    assert sorted(_ran) == ["A7: 10 cents", "B8 cancelled"]


@pytest.mark.parametrize("name", ["refund", "refund_sync"])
async def test_a_call_that_a_human_has_approved_can_interrupt_itself(name: str) -> None:
    async with _engine(name) as engine:
        agent = _agent(engine, call(name, order="A7"))
        await agent.ainvoke({"messages": [HumanMessage("go")]}, _THREAD)
        second = await agent.ainvoke(_resume({"type": "approve"}), _THREAD)
        result = await agent.ainvoke(_resume("10 cents"), _THREAD)
    assert _asked(second) == ["How much of A7?"]
    assert _texts(result) == ["A7: 10 cents"]


@pytest.mark.parametrize("name", ["refund", "refund_sync"])
async def test_a_tool_does_not_read_the_decision_about_a_call_that_was_answered_elsewhere(name: str) -> None:
    async with _engine(name) as engine:
        agent = _agent(engine, call(name, order="A7"))
        await _answered_elsewhere(engine, agent, {"messages": [HumanMessage("go")]})
        second = await agent.ainvoke(_resume({"type": "approve"}), _THREAD)
        result = await agent.ainvoke(_resume("10 cents"), _THREAD)
    assert _asked(second) == ["How much of A7?"]
    assert _texts(result) == ["A7: 10 cents"]


async def test_a_tool_in_a_node_does_not_read_the_decision_about_a_call_that_was_answered_elsewhere() -> None:
    async with _engine("refund") as engine:
        graph = _graph(engine)
        await _answered_elsewhere(engine, graph, {"messages": [says(call("refund", order="A7"))]})
        second = await graph.ainvoke(_resume({"decisions": [{"type": "approve"}]}), _THREAD)
        result = await graph.ainvoke(_resume("10 cents"), _THREAD)
    assert _asked(second) == ["How much of A7?"]
    assert _texts(result) == ["A7: 10 cents"]


def test_a_sync_tool_does_not_read_the_decision_about_a_call_that_was_answered_elsewhere() -> None:
    engine = _engine("refund_sync")
    try:
        agent = _agent(engine, call("refund_sync", order="A7"))
        first = agent.invoke({"messages": [HumanMessage("go")]}, _THREAD)
        engine.approve_sync(first["__interrupt__"][0].value["approval_id"], by="bob")
        second = agent.invoke(_resume({"type": "approve"}), _THREAD)
        result = agent.invoke(_resume("10 cents"), _THREAD)
    finally:
        engine.close_sync()
    assert _asked(second) == ["How much of A7?"]
    assert _texts(result) == ["A7: 10 cents"]


async def _answered_elsewhere(engine: Engine, graph: Any, first: Any) -> None:
    """Run a graph until it asks about a call, and approve the call with the engine."""
    asked = await graph.ainvoke(first, _THREAD)
    (value,) = _asked(asked)
    (shown,) = value.get("action_requests", [value])
    await engine.approve(shown["approval_id"], by="bob")


class _Amount(BaseModel):
    cents: int


@tool
async def pay(order: str) -> str:
    """Pay an order."""
    amount = interrupt(f"How much for {order}?", response_schema=_Amount)
    _ran.append(f"{order}: {amount.cents}")
    return f"{order}: {amount.cents}"


async def test_an_answer_of_another_form_than_a_tool_asked_for_ends_the_run_and_can_be_given_again() -> None:
    """As LangGraph does it: the model cannot correct what a human has answered."""
    async with Engine(import_tools([pay])) as engine:
        builder = StateGraph(MessagesState)
        builder.add_node("tools", CallgateToolNode([pay], engine))
        builder.add_edge(START, "tools")
        graph: Any = builder.compile(checkpointer=InMemorySaver())
        await graph.ainvoke({"messages": [says(call("pay", order="A7"))]}, _THREAD)
        with pytest.raises(ValidationError, match="cents"):
            await graph.ainvoke(_resume({"cents": "many"}), _THREAD)
        result = await graph.ainvoke(_resume({"cents": 5}), _THREAD)
    assert _texts(result) == ["A7: 5"]
    assert _ran == ["A7: 5"]


@pytest.mark.parametrize(("saver", "warnings"), [(None, 1), (InMemorySaver(), 0)], ids=["without", "with"])
async def test_a_question_in_a_graph_without_a_checkpointer_is_logged_because_nothing_can_resume_it(
    saver: Any, warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    builder = StateGraph(MessagesState)
    async with _engine("cancel") as engine:
        builder.add_node("tools", CallgateToolNode([cancel], engine))
        builder.add_edge(START, "tools")
        state: Any = {"messages": [says(call("cancel", order="A7"))]}
        await builder.compile(checkpointer=saver).ainvoke(state, _THREAD)
    told = [record.getMessage() for record in caplog.records if "has no checkpointer" in record.getMessage()]
    assert (len(told), _ran) == (warnings, [])


async def test_the_record_does_not_say_that_nothing_happened_before_a_tool_paused_the_graph() -> None:
    async with _engine() as engine:
        await _graph(engine).ainvoke({"messages": [says(call("refund", order="A7"))]}, _THREAD)
        (paused,) = find_tool_calls(engine.journal)
    assert "What it did before the pause is not known." in paused.reason
    assert "Nothing happened" not in paused.reason


@pytest.mark.parametrize("wrapper", ["node", "agent"])
async def test_a_tool_that_raises_not_done_after_a_no_leaves_the_key_of_its_effect_free(wrapper: str) -> None:
    @tool
    async def pay_back(order: str) -> str:
        """Pay an order back."""
        if interrupt(f"Pay {order} back?") != "yes":
            raise NotDone("a human said no")
        _ran.append(order)
        return f"{order} paid back"

    async with Engine(import_tools([pay_back], options={"pay_back": {"key": "pay_back:{order}"}})) as engine:
        made = says(call("pay_back", "c1", order="A7"))
        graph: Any
        start: Any
        if wrapper == "node":
            builder = StateGraph(MessagesState)
            builder.add_node("tools", CallgateToolNode([pay_back], engine))
            builder.add_edge(START, "tools")
            graph, start = builder.compile(checkpointer=InMemorySaver()), made
        else:
            model = ScriptedChat(steps=[made, says(text="done")])
            graph = create_agent(model, [pay_back], middleware=[CallgateMiddleware(engine)], checkpointer=InMemorySaver())
            start = HumanMessage("go")
        read = []
        for thread, answer in (("first", "no"), ("second", "yes"), ("third", "yes")):
            config: Any = {"configurable": {"thread_id": thread}}
            result = await graph.ainvoke({"messages": [start]}, config)
            if "__interrupt__" in result:
                result = await graph.ainvoke(_resume(answer), config)
            read.append(tool_messages(result)[0])
    assert ([one.status for one in read], _ran) == (["error", "success", "success"], ["A7"])
    assert "a human said no" in str(read[0].content)
    assert "Nothing was run for this call" in str(read[2].content)
