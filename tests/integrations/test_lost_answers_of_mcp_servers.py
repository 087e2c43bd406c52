"""A tool of a framework whose MCP server ends in the middle of a call: its framework asks the model to try again, the engine does not."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from agent_framework import tool as framework_tool
from agent_framework.exceptions import ToolExecutionException
from mcp.client.stdio import stdio_client
from pydantic_ai import Agent, ModelRetry
from pydantic_ai.tools import Tool

from callgate import Engine
from callgate.integrations import import_tools
from callgate.integrations.pydantic_ai import CallgateToolset
from mcp import ClientSession, MCPError, StdioServerParameters
from tests.integrations.agent_framework_agents import agent_of, told_in
from tests.integrations.contract import Call, Told
from tests.integrations.test_pydantic_ai_contract import scripted
from tests.integrations.test_pydantic_ai_contract import told_in as told_by_pydantic_ai

SERVER = Path(__file__).with_name("lost_mcp_server.py")


def paying(ledger: Path, failure: type[Exception]) -> Callable[..., Any]:
    """Return a function that calls the server as the framework's own MCP client does, with the framework's exception for each error."""

    async def pay(order: str) -> str:
        """Pay an order."""
        server = StdioServerParameters(command=sys.executable, args=[str(SERVER), str(ledger)])
        async with stdio_client(server) as streams, ClientSession(*streams) as session:
            await session.initialize()
            try:
                result = await session.call_tool("pay", {"order": order})
            except MCPError as error:
                raised = failure(error.error.message)
                raised.__cause__ = error
            else:
                raised = failure(str(result.content))
        raise raised

    return pay


async def in_pydantic_ai(ledger: Path, messages: Sequence[Sequence[Call]]) -> dict[str, Told]:
    tool = Tool(paying(ledger, ModelRetry), max_retries=5)
    async with Engine(import_tools([tool])) as engine:
        agent = Agent(scripted(*messages, "done"), toolsets=[CallgateToolset([tool], engine)])
        return told_by_pydantic_ai((await agent.run("go")).all_messages())


async def in_agent_framework(ledger: Path, messages: Sequence[Sequence[Call]]) -> dict[str, Told]:
    tool = framework_tool(paying(ledger, ToolExecutionException))
    async with Engine(import_tools([tool])) as engine:
        agent: Any = agent_of(engine, [tool], *messages, "done")
        await agent.run("go")
    return told_in(agent.client.seen[-1])


@pytest.mark.parametrize("run", [in_pydantic_ai, in_agent_framework])
async def test_a_payment_whose_mcp_server_has_ended_is_unknown_and_not_made_again(run: Callable[..., Any], tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.txt"
    told = await run(ledger, [[Call("pay", {"order": "A7"}, id=id)] for id in ("c1", "c2")])
    assert "It may have taken effect" in told["c1"].text
    assert "pay was not run" in told["c2"].text
    assert ledger.read_text() == "A7\n"


@pytest.mark.parametrize("run", [in_pydantic_ai, in_agent_framework])
async def test_an_error_with_which_an_mcp_server_answers_is_the_tools_own_answer(run: Callable[..., Any], tmp_path: Path) -> None:
    told = await run(tmp_path / "ledger.txt", [[Call("pay", {"order": "none"}, id=id)] for id in ("c1", "c2")])
    assert [("Error executing tool pay" in one.text, "taken effect" in one.text) for one in told.values()] == [(True, False)] * 2
