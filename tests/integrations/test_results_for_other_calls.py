"""A result that a wrapper gives to another call than the one that ran: by the key of its effect, or from the cache."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId
from langchain_core.tools import tool as langchain_tool
from langgraph.graph import START, StateGraph, add_messages
from langgraph.types import Command
from pydantic_ai import Agent, BinaryContent
from pydantic_ai.messages import ModelRequest, ToolReturnPart, UserPromptPart
from pydantic_ai.tools import Tool

from callgate import Engine, SqliteJournal
from callgate.integrations import import_tools
from callgate.integrations.langchain import CallgateMiddleware, CallgateToolNode
from callgate.integrations.pydantic_ai import CallgateToolset
from callgate.tools import ToolOptions
from tests.integrations.contract import Call
from tests.integrations.langchain_agents import ScriptedChat, call, says, tool_messages
from tests.integrations.test_pydantic_ai_contract import scripted

PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)
KEY: ToolOptions = {"key": "booking:{city}"}
CACHED: ToolOptions = {"effect": "none", "cacheable": True, "cache_scope": "persistent"}


@pytest.mark.parametrize("options", [KEY, CACHED], ids=["key", "cache"])
@pytest.mark.parametrize("in_pairs", [False, True], ids=["a dict", "pairs"])
async def test_the_message_of_a_stored_command_answers_the_call_that_gets_it(in_pairs: bool, options: ToolOptions, tmp_path: Path) -> None:
    """Providers refuse a call without a result, and a result of a call that the message does not have."""
    booked: list[str] = []

    @langchain_tool
    async def book(city: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Book a table."""
        booked.append(city)
        messages = [ToolMessage(f"booked in {city}", tool_call_id=tool_call_id), HumanMessage("Thanks.")]
        return Command(update=(("messages", messages),) if in_pairs else {"messages": messages})

    told = []
    for call_id in ("c1", "c2"):
        async with Engine(import_tools([book], options={"book": options}), journal=SqliteJournal(tmp_path / "j.db")) as engine:
            model = ScriptedChat(steps=[says(call("book", call_id, city="Rome")), says(text="done")])
            agent = create_agent(model, [book], middleware=[CallgateMiddleware(engine)])
            told += tool_messages(await agent.ainvoke({"messages": [HumanMessage("go")]}))
    first, second = told
    assert (first.tool_call_id, first.content) == ("c1", "booked in Rome")
    assert (second.tool_call_id, second.status) == ("c2", "success")
    assert second.name == (None if in_pairs else "book"), "LangGraph gives only messages in a dict or a list the tool's name"
    assert str(second.content).startswith("booked in Rome")
    assert ("Nothing was run for this call" in second.content) == (options is KEY)
    assert booked == ["Rome"]


async def test_equal_calls_of_one_message_each_get_a_message_of_the_one_command(tmp_path: Path) -> None:
    @langchain_tool
    async def book(city: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Book a table."""
        return Command(update={"messages": [ToolMessage(f"booked in {city}", tool_call_id=tool_call_id)]})

    async with Engine(import_tools([book], options={"book": KEY})) as engine:
        model = ScriptedChat(steps=[says(call("book", "c1", city="Rome"), call("book", "c2", city="Rome")), says(text="done")])
        agent = create_agent(model, [book], middleware=[CallgateMiddleware(engine)])
        told = tool_messages(await agent.ainvoke({"messages": [HumanMessage("go")]}))
    assert sorted(one.tool_call_id for one in told) == ["c1", "c2"]
    assert sum("Nothing was run for this call" in one.content for one in told) == 1


async def test_a_stored_command_fits_its_call_in_a_graph_whose_state_is_a_list_of_messages() -> None:
    @langchain_tool
    async def book(city: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Book a table."""
        return Command(update=[ToolMessage(f"booked in {city}", tool_call_id=tool_call_id)])

    async with Engine(import_tools([book], options={"book": KEY})) as engine:
        state: Any = Annotated[list[Any], add_messages]
        builder = StateGraph(state)
        builder.add_node("tools", CallgateToolNode([book], engine))
        builder.add_edge(START, "tools")
        graph: Any = builder.compile()
        ids = [(await graph.ainvoke([says(call("book", id, city="Rome"))]))[-1].tool_call_id for id in ("c1", "c2")]
    assert ids == ["c1", "c2"]


async def test_files_in_a_stored_list_are_sent_as_files_beside_the_note_that_nothing_was_run() -> None:
    async def book(city: str) -> list[Any]:
        """Book a table."""
        return [f"booked in {city}", BinaryContent(PNG, media_type="image/png")]

    tools = [Tool(book)]
    async with Engine(import_tools(tools, options={"book": KEY})) as engine:
        agent = Agent(scripted([Call("book", {"city": "Rome"})], "done"), toolsets=[CallgateToolset(tools, engine)])
        runs = [await agent.run("go") for _ in range(2)]
    found = [_files_of_results(run.all_messages()) for run in runs]
    assert [one.data for one in found[0]] == [one.data for one in found[1]] == [PNG]
    assert "Nothing was run for this call" in str(runs[1].all_messages())


def _files_of_results(messages: list[Any]) -> list[BinaryContent]:
    parts = [part for message in messages if isinstance(message, ModelRequest) for part in message.parts]
    contents = [part.content for part in parts if isinstance(part, (ToolReturnPart, UserPromptPart))]
    return [one for content in contents if isinstance(content, list) for one in content if isinstance(one, BinaryContent)]
