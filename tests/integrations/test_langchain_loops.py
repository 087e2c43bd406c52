"""`invoke` and `ainvoke` of LangChain's agents, which need an engine each, and tools that only one of them can run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool

from callgate import Engine, UsageError
from callgate.integrations import import_tools
from callgate.integrations.langchain import CallgateMiddleware
from tests.integrations.langchain_agents import ScriptedChat, call, says

_GO: Any = {"messages": [HumanMessage("go")]}


@tool
async def look(item: str) -> str:
    """Look at an item."""
    return item


def _agent(engine: Engine) -> Any:
    model = ScriptedChat(steps=[says(call("look", item="pear")), says(text="done")])
    return create_agent(model, [look], middleware=[CallgateMiddleware(engine)])


def test_an_engine_that_a_second_event_loop_or_no_loop_uses_is_a_usage_error_that_says_where_to_make_engines() -> None:
    agent = _agent(Engine(import_tools([look])))
    asyncio.run(agent.ainvoke(_GO))
    with pytest.raises(UsageError, match=r"inside the function that asyncio\.run gets.*the invoke of a graph"):
        asyncio.run(agent.ainvoke(_GO))


def test_a_tool_with_only_async_code_is_a_usage_error_in_a_sync_agent_and_not_an_unknown_outcome() -> None:
    engine = Engine(import_tools([look]))
    try:
        with pytest.raises(UsageError, match=r"look has only async code.*ainvoke"):
            _agent(engine).invoke(_GO)
        assert not list(engine.journal.read())
    finally:
        engine.close_sync()
