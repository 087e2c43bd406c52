"""A thread of LangGraph that survives the process, and a journal that does not: the graph that resumes it would repeat an effect."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from callgate import Engine, MemoryJournal, SqliteJournal
from callgate.integrations import import_tools
from callgate.integrations.langchain import CallgateMiddleware, CallgateToolNode
from tests.integrations.langchain_agents import FileSaver, ScriptedChat, call, says

Compile = Callable[[BaseTool, Engine, Any], Any]


def agent_of(pay: BaseTool, engine: Engine, saver: Any) -> Any:
    model = ScriptedChat(steps=[says(call("pay", "c1", order="A")), says(call("pay", "c2", order="B")), says(text="done")])
    return create_agent(model, [pay], middleware=[CallgateMiddleware(engine)], checkpointer=saver)


def graph_of(pay: BaseTool, engine: Engine, saver: Any) -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("model", lambda state: {"messages": [says(call("pay", "c1", order="A"), call("pay", "c2", order="B"))]})
    builder.add_node("tools", CallgateToolNode([pay], engine))
    builder.add_edge(START, "model")
    builder.add_edge("model", "tools")
    return builder.compile(checkpointer=saver)


def warned_within(log: pytest.LogCaptureFixture, compile: Compile, engine_of: Callable[[BaseTool], Engine], saver: Any) -> list[list[str]]:
    """Return, for each call that a graph made, the warnings that were logged when its tool ran."""
    log.set_level(logging.WARNING, "callgate")
    seen: list[list[str]] = []

    @tool
    def pay(order: str) -> str:
        """Pay an order."""
        seen.append([one.getMessage() for one in log.records if "survive" in one.getMessage()])
        return "paid"

    engine = engine_of(pay)
    try:
        compile(pay, engine, saver).invoke({"messages": [HumanMessage("go")]}, {"configurable": {"thread_id": "t"}})
    finally:
        engine.close_sync()
    return seen


def in_memory(pay: BaseTool) -> Engine:
    return Engine(import_tools([pay], options={"pay": {"key": "pay:{order}"}}))


@pytest.mark.parametrize("compile", [agent_of, graph_of])
def test_before_a_tool_runs_the_log_says_once_that_the_journal_would_be_lost(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, compile: Compile
) -> None:
    first, second = warned_within(caplog, compile, in_memory, FileSaver(tmp_path / "threads"))
    assert first == second
    (warned,) = first
    assert "(FileSaver)" in warned
    assert "journal=SqliteJournal('calls.db')" in warned


@pytest.mark.parametrize("compile", [agent_of, graph_of])
@pytest.mark.parametrize("kept", ["neither", "both", "shared in memory", "only a read"])
def test_nothing_is_said_of_a_journal_that_lives_as_long_as_the_threads_or_has_no_effects(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, compile: Compile, kept: str
) -> None:
    journals: dict[str, Callable[[], Any]] = {
        "both": lambda: SqliteJournal(tmp_path / "calls.db"),
        "shared in memory": lambda: MemoryJournal(shared=True),
    }

    def engine_of(pay: BaseTool) -> Engine:
        options: Any = {"pay": {"effect": "none"} if kept == "only a read" else {"key": "pay:{order}"}}
        return Engine(import_tools([pay], options=options), journal=journals.get(kept, MemoryJournal)())

    saver = FileSaver(tmp_path / "threads") if kept in ("both", "only a read") else InMemorySaver()
    assert warned_within(caplog, compile, engine_of, saver) == [[], []]
