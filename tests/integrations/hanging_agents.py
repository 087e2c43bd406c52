"""A program in which a tool of another framework hangs in a thread beyond its deadline, without an agent and with one, and which then ends.

`main([framework])` prints what the caller of the imported tool reads, and then what the agent's model reads.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from callgate import Engine, RawCall
from callgate.integrations import import_tools
from tests.engine_calls import said
from tests.integrations.contract import Call, WrapperContract
from tests.waiting import HANGS_S

__all__ = ["FRAMEWORKS", "main"]

FRAMEWORKS = ("pydantic ai", "openai agents", "langchain", "langgraph", "agent framework")


def hang(order: str) -> str:
    """Refund an order."""
    threading.Event().wait(HANGS_S)
    return order


def _suite(framework: str) -> WrapperContract:
    match framework:
        case "pydantic ai":
            from tests.integrations.test_pydantic_ai_contract import TestToolset

            return TestToolset()
        case "openai agents":
            from tests.integrations.test_openai_agents_contract import TestCallgateTools

            return TestCallgateTools()
        case "langchain":
            from tests.integrations.test_langchain_contract import TestMiddleware

            return TestMiddleware()
        case "langgraph":
            from tests.integrations.test_langchain_contract import TestToolNode

            return TestToolNode()
        case _:
            from tests.integrations.test_agent_framework_contract import TestCallgateMiddleware

            return TestCallgateMiddleware()


async def _told(framework: str) -> list[str]:
    suite = _suite(framework)
    tools: list[Any] = [suite.tool(hang)]
    async with Engine(import_tools(tools, options={"hang": {"timeout_s": 0.1}})) as engine:
        imported = (await said(engine, RawCall(name="hang", arguments={"order": "A7"}))).text
        wrapped = (await suite.run(engine, tools, [Call("hang", {"order": "A7"})]))["c1"].text
    return [imported, wrapped]


def main(given: list[str]) -> None:
    for text in asyncio.run(_told(*given)):
        print(text)  # noqa: T201
