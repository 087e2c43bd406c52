"""Two engines resume one thread of LangGraph at the same time, as two clicks on "approve" do that reach two processes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command

from callgate import Engine, Scope, SqliteJournal, UsageError
from callgate.errors import RunHeld
from callgate.integrations import import_tools
from callgate.integrations.langchain import CallgateMiddleware, CallgateToolNode
from tests.integrations.langchain_agents import FileSaver, ScriptedChat, call, says, tool_messages
from tests.waiting import PATIENCE_S

_THREAD: Any = {"configurable": {"thread_id": "t"}}
_START: Any = {"messages": [HumanMessage("go")]}
_YES: Any = Command(resume={"type": "approve"})
_ASK = says(call("refund", order="A7"))
Compile = Callable[..., Any]


def agent_of(refund: BaseTool, engine: Engine, saver: Any, **options: Any) -> Any:
    model = ScriptedChat(steps=[_ASK, says(text="done")])
    return create_agent(model, [refund], middleware=[CallgateMiddleware(engine, **options)], checkpointer=saver)


def graph_of(refund: BaseTool, engine: Engine, saver: Any, **options: Any) -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("model", lambda state: {"messages": [_ASK]})
    builder.add_node("tools", CallgateToolNode([refund], engine, **options))
    builder.add_edge(START, "model")
    builder.add_edge("model", "tools")
    return builder.compile(checkpointer=saver)


_PATIENT = 15
"""How often it has tried; a call that does not wait tries less often."""


class WatchedJournal(SqliteJournal):
    """Says that another engine holds a run that this one has tried to get patiently."""

    def __init__(self, path: Path, on_held: Callable[[], None]) -> None:
        super().__init__(path)
        self._on_held, self._tries = on_held, 0

    async def acquire_lease(self, run: str) -> bool:
        try:
            return await super().acquire_lease(run)
        except RunHeld:
            self._tries += 1
            if self._tries == _PATIENT:
                self._on_held()
            raise


def engine_of(refund: BaseTool, folder: Path, on_held: Callable[[], None] = lambda: None) -> Engine:
    tools = import_tools([refund], options={"refund": {"requires_approval": True}})
    return Engine(tools, journal=WatchedJournal(folder / "calls.db", on_held))


def reloaded(folder: Path) -> FileSaver:
    saver = FileSaver(folder / "threads")
    saver.load()
    return saver


def said(result: Any) -> list[tuple[str, str]]:
    return [(one.status, str(one.content)) for one in tool_messages(result)]


@pytest.mark.parametrize("compile", [agent_of, graph_of])
async def test_a_second_resume_waits_for_the_first_and_gets_its_results(compile: Compile, tmp_path: Path) -> None:
    ran: list[str] = []
    started, go_on = asyncio.Event(), asyncio.Event()

    @tool
    async def refund(order: str) -> str:
        """Refund an order."""
        ran.append(order)
        started.set()
        await go_on.wait()
        return f"refunded {order}"

    async with engine_of(refund, tmp_path) as one, engine_of(refund, tmp_path, go_on.set) as other:
        graph = compile(refund, one, FileSaver(tmp_path / "threads"))
        await graph.ainvoke(_START, _THREAD)
        second = compile(refund, other, reloaded(tmp_path), wait_for_run_s=PATIENCE_S)
        running = asyncio.ensure_future(graph.ainvoke(_YES, _THREAD))
        await asyncio.wait_for(started.wait(), PATIENCE_S)
        waiting = await asyncio.wait_for(second.ainvoke(_YES, _THREAD), PATIENCE_S)
        go_on.set()
        results = [said(await running), said(waiting)]
    assert results == [[("success", "refunded A7")]] * 2
    assert ran == ["A7"]


@pytest.mark.parametrize("compile", [agent_of, graph_of])
def test_a_second_resume_of_a_graph_without_a_loop_waits_for_the_first(compile: Compile, tmp_path: Path) -> None:
    ran: list[str] = []
    started, go_on = threading.Event(), threading.Event()

    @tool
    def refund(order: str) -> str:
        """Refund an order."""
        ran.append(order)
        started.set()
        go_on.wait()
        return f"refunded {order}"

    one, other, results = engine_of(refund, tmp_path), engine_of(refund, tmp_path, go_on.set), {}

    def resume(name: str, graph: Any) -> threading.Thread:
        thread = threading.Thread(target=lambda: results.update({name: said(graph.invoke(_YES, _THREAD))}))
        thread.start()
        return thread

    try:
        graph = compile(refund, one, FileSaver(tmp_path / "threads"))
        graph.invoke(_START, _THREAD)
        second = compile(refund, other, reloaded(tmp_path), wait_for_run_s=PATIENCE_S)
        first = resume("first", graph)
        assert started.wait(PATIENCE_S)
        resume("second", second).join()
        go_on.set()
        first.join()
    finally:
        go_on.set()
        one.close_sync()
        other.close_sync()
    assert results == {name: [("success", "refunded A7")] for name in ("first", "second")}
    assert ran == ["A7"]


@pytest.mark.parametrize("compile", [agent_of, graph_of])
async def test_a_call_whose_thread_is_not_free_in_time_ends_as_held(compile: Compile, tmp_path: Path) -> None:
    @tool
    async def refund(order: str) -> str:
        """Refund an order."""
        return "refunded"

    async with engine_of(refund, tmp_path) as one, engine_of(refund, tmp_path) as other:
        with one.runs.at_work("t"):
            await one.runs.open(Scope(run="t"))
            second = compile(refund, other, InMemorySaver(), wait_for_run_s=0.01)
            ((status, text),) = said(await second.ainvoke(_START, _THREAD))
    assert status == "error"
    assert "It was not run here: Run 't' is being worked on by" in text


@pytest.mark.parametrize("compile", [agent_of, graph_of])
def test_a_wait_of_another_type_is_refused(compile: Compile, tmp_path: Path) -> None:
    @tool
    def refund(order: str) -> str:
        """Refund an order."""
        return "refunded"

    engine = Engine(import_tools([refund]))
    try:
        with pytest.raises(UsageError, match="wait_for_run_s"):
            compile(refund, engine, InMemorySaver(), wait_for_run_s=-1)
    finally:
        engine.close_sync()
