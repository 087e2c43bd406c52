"""What the engine says beside a result reaches the model also if the result is more than data: a `Command`, or a `ToolReturn`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId
from langchain_core.tools import tool as langchain_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, ToolApproved, ToolReturn
from pydantic_ai.messages import ModelMessage, ToolReturnPart, UserPromptPart
from pydantic_ai.tools import Tool

from callgate import Engine
from callgate.integrations import import_tools
from callgate.integrations.langchain import CallgateMiddleware
from callgate.integrations.pydantic_ai import CallgateToolset
from tests.integrations.contract import Call
from tests.integrations.langchain_agents import ScriptedChat, call, says, tool_messages
from tests.integrations.test_pydantic_ai_contract import scripted

CHANGED = "The arguments were changed (city)"


UPDATES: dict[str, Callable[[list[Any]], Any]] = {
    "a dict": lambda messages: {"messages": messages},
    "pairs": lambda messages: (("messages", messages),),
    "pairs of one key": lambda messages: tuple(("messages", [one]) for one in messages),
}


@pytest.mark.parametrize("update", UPDATES.values(), ids=UPDATES.keys())
async def test_a_model_reads_in_a_commands_message_that_a_human_has_changed_the_arguments(update: Callable[[list[Any]], Any]) -> None:
    made: list[ToolMessage] = []

    @langchain_tool
    async def book(city: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Book a table."""
        made.append(ToolMessage(f"booked in {city}", tool_call_id=tool_call_id))
        return Command(update=update([made[0], HumanMessage("Thanks.")]))

    thread: Any = {"configurable": {"thread_id": "t"}}
    async with Engine(import_tools([book], options={"book": {"requires_approval": True}})) as engine:
        model = ScriptedChat(steps=[says(call("book", city="Rome")), says(text="done")])
        agent = create_agent(model, [book], middleware=[CallgateMiddleware(engine)], checkpointer=InMemorySaver())
        await agent.ainvoke({"messages": [HumanMessage("go")]}, thread)
        edit = {"type": "edit", "edited_action": {"name": "book", "args": {"city": "Bari"}}}
        (told,) = tool_messages(await agent.ainvoke(Command(resume=edit), thread))
    assert str(told.content).startswith("booked in Bari\n")
    assert CHANGED in told.content
    assert told.tool_call_id == "c1"
    assert made[0].content == "booked in Bari", "the tool's own message is not changed"


async def test_a_model_reads_beside_a_tool_return_that_a_human_has_changed_the_arguments_and_later_that_nothing_was_run() -> None:
    async def book(city: str) -> ToolReturn[str]:
        """Book a table."""
        return ToolReturn(f"booked in {city}", content="By the window.", metadata={"table": 7})

    tools = [Tool(book)]
    options: Any = {"book": {"key": "booking:{city}", "requires_approval": True}}
    async with Engine(import_tools(tools, options=options)) as engine:
        model = scripted([Call("book", {"city": "Rome"})], [Call("book", {"city": "Bari"}, id="c2")], "done")
        agent = Agent(model, toolsets=[CallgateToolset(tools, engine)], output_type=[str, DeferredToolRequests])
        first = await agent.run("go")
        edit = DeferredToolResults(approvals={"c1": ToolApproved(override_args={"city": "Bari"})})
        second = await agent.run(message_history=first.all_messages(), deferred_tool_results=edit)
    messages = second.all_messages()
    returned = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    assert [(part.content, part.metadata) for part in returned] == [("booked in Bari", {"table": 7})] * 2
    changed, replayed = _told_beside(messages)
    assert changed[0] == replayed[0] == "By the window."
    assert CHANGED in changed[1]
    assert "Nothing was run for this call" in replayed[1]


def _told_beside(messages: list[ModelMessage]) -> list[list[str]]:
    parts = [part for message in messages for part in message.parts if isinstance(part, UserPromptPart)]
    return [[str(one) for one in part.content] for part in parts if not isinstance(part.content, str)]
