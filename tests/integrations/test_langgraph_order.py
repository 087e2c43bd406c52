"""The order in which a tool node runs the calls of one message with `invoke`, whose threads start in any order."""

from __future__ import annotations

import threading
from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph

from callgate import Engine
from callgate.integrations import import_tools
from callgate.integrations.langgraph import CallgateToolNode
from tests.integrations.langchain_agents import call

_written: list[int] = []
_TOGETHER = threading.Barrier(2, timeout=20)


@tool
def write(number: int) -> str:
    """Write a number."""
    _written.append(number)
    return str(number)


@tool
def meet(number: int) -> str:
    """Return when another call is here, too."""
    _TOGETHER.wait()
    return str(number)


def _run(engine: Engine, name: str, calls: int) -> Any:
    message = AIMessage(content="", tool_calls=[call(name, f"c{number}", number=number) for number in range(calls)])
    builder = StateGraph(MessagesState)
    builder.add_node("tools", CallgateToolNode([write, meet], engine))
    builder.add_edge(START, "tools")
    try:
        return builder.compile().invoke({"messages": [message]})
    finally:
        engine.close_sync()


def test_calls_with_effects_run_in_the_order_of_the_message() -> None:
    for _ in range(25):  # without an order, every third run is wrong
        _written.clear()
        _run(Engine(import_tools([write, meet])), "write", 4)
        assert _written == [0, 1, 2, 3]


def test_calls_that_only_read_run_beside_each_other() -> None:
    result = _run(Engine(import_tools([write, meet], effects={"meet": "none"})), "meet", 2)
    assert [message.content for message in result["messages"][1:]] == ["0", "1"]
