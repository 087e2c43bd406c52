"""Messages that a graph makes by hand or a model spoils: without an id, or with calls whose arguments are malformed."""

from __future__ import annotations

import logging
import operator
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, Send

from callgate import Engine
from callgate.integrations import import_tools
from callgate.integrations.langgraph import CallgateToolNode
from callgate.tools import ToolOptions
from tests.integrations.langchain_agents import call, says


class Listed(TypedDict):
    messages: Annotated[list[Any], operator.add]


class Chat(TypedDict):
    chat: Annotated[list[Any], add_messages]


@tool
def pay(order: str) -> str:
    """Pay."""
    return "paid"


def run(message: AIMessage, options: ToolOptions) -> list[ToolMessage]:
    """Return the results of the message's calls in a graph whose state gives messages no ids."""
    engine = Engine(import_tools([pay], options={"pay": options}))
    builder = StateGraph(Listed)
    builder.add_node("payments", CallgateToolNode([pay], engine))
    builder.add_edge(START, "payments")
    thread: Any = {"configurable": {"thread_id": "t"}}
    ended = builder.compile(checkpointer=InMemorySaver()).invoke({"messages": [message]}, thread)
    engine.close_sync()
    return [one for one in ended["messages"] if isinstance(one, ToolMessage)]


def test_a_message_without_an_id_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "callgate")
    assert [one.content for one in run(says(call("pay", "c1", order="A"), call("pay", "c2", order="B")), {})] == ["paid", "paid"]
    (warned,) = [one.getMessage() for one in caplog.records if "without an id" in one.getMessage()]
    assert "a call of pay in the node payments" in warned
    assert "add_messages" in warned


@pytest.mark.parametrize(("message_id", "options"), [("m1", {}), (None, {"key": "pay:{order}"}), (None, {"effect": "none"})])
def test_nothing_is_logged_if_a_repeated_call_is_recognised_or_harmless(
    caplog: pytest.LogCaptureFixture, message_id: str | None, options: Any
) -> None:
    caplog.set_level(logging.WARNING, "callgate")
    message = says(call("pay", "c1", order="A"))
    message.id = message_id
    assert [one.content for one in run(message, options)] == ["paid"]
    assert not [one for one in caplog.records if "without an id" in one.getMessage()]


def test_a_call_with_malformed_arguments_is_answered_beside_the_others() -> None:
    """Its provider would refuse the message without an answer to each call."""
    message = says(call("pay", "c1", order="A"))
    message.invalid_tool_calls = [
        {"type": "invalid_tool_call", "name": "pay", "args": '{"order": "B', "id": "c2", "error": "cut off"},
        {"type": "invalid_tool_call", "name": "pay", "args": "{'order': 'C'}", "id": "c3", "error": "quotes"},
    ]
    first, cut_off, quoted = run(message, {"key": "pay:{order}"})
    assert (first.content, first.tool_call_id) == ("paid", "c1")
    assert (cut_off.tool_call_id, cut_off.status) == ("c2", "error")
    assert "The arguments were cut off" in str(cut_off.content)
    assert (quoted.tool_call_id, quoted.status) == ("c3", "error")
    assert '"code":"invalid_json"' in str(quoted.content)


def chat_graph(engine: Engine, tools: list[Any], sends: bool) -> Any:
    """Return a graph whose messages have the key `chat`, and whose user's message is answered with two payments."""
    message = says(call("pay", "c1", order="A"), call("pay", "c2", order="B"))

    def route(state: Chat) -> Any:
        return [Send("tools", [one]) for one in state["chat"][-1].tool_calls] if sends else "tools"

    builder = StateGraph(Chat)
    builder.add_node("model", lambda state: {"chat": [message]})
    builder.add_node("tools", CallgateToolNode(tools, engine, messages_key="chat"))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", route, ["tools"])
    return builder.compile(checkpointer=InMemorySaver())


@pytest.mark.parametrize("sends", [False, True])
@pytest.mark.parametrize("asks", [False, True])
def test_a_payment_is_not_made_again_from_an_earlier_checkpoint_if_the_messages_have_another_key(sends: bool, asks: bool) -> None:
    paid: list[str] = []

    @tool
    def pay(order: str) -> str:
        """Pay."""
        paid.append(order)
        return f"paid {order}"

    engine = Engine(import_tools([pay], options={"pay": {"requires_approval": asks}}))
    graph = chat_graph(engine, [pay], sends)
    thread: Any = {"configurable": {"thread_id": "t"}}
    graph.invoke({"chat": [HumanMessage("Pay.", id="h")]}, thread)
    waiting = graph.get_state(thread).interrupts
    if asks:
        yes = {one.id: {"decisions": [{"type": "approve"}] * len(one.value["action_requests"])} for one in waiting}
        graph.invoke(Command(resume=yes), thread)
    assert sorted(paid) == ["A", "B"]
    earlier = next(one for one in graph.get_state_history(thread) if "tools" in one.next)
    for config in (earlier.config, graph.update_state(earlier.config, {"chat": []}, as_node="model")):
        ended = graph.invoke(None, config)
        assert [one.content for one in ended["chat"] if isinstance(one, ToolMessage)] == ["paid A", "paid B"]
    assert sorted(paid) == ["A", "B"]
    engine.close_sync()
