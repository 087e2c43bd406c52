"""The tools that the scenarios of the tasks extension call. Each takes so long that a gateway may make a task of its call."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import mcp_types as types
from mcp.shared.exceptions import MCPError

from tests.conformance.fixture_questions import Asking, Context, elicitation
from tests.conformance.fixture_tools import FixtureTool, text

__all__ = ["SLOW_TOOLS"]

_LONG_S: Final = 0.6
_CONFIRM: Final = elicitation("Delete the file?", {"confirm": {"type": "boolean"}})
_NAME: Final = elicitation("What is your name?", {"name": {"type": "string"}})


async def greet(context: Context, params: types.CallToolRequestParams) -> dict[str, Any]:
    return text(f"Hello, {(params.arguments or {}).get('name')}!")


async def compute(context: Context, params: types.CallToolRequestParams) -> dict[str, Any]:
    arguments = params.arguments or {}
    await asyncio.sleep(float(arguments.get("seconds", 0)))
    return text(f"computed {arguments.get('label')}")


async def fail(context: Context, params: types.CallToolRequestParams) -> dict[str, Any]:
    await asyncio.sleep(_LONG_S)
    return text("The job failed.", isError=True)


async def break_off(context: Context, params: types.CallToolRequestParams) -> dict[str, Any]:
    await asyncio.sleep(_LONG_S)
    raise MCPError(types.INTERNAL_ERROR, "The job broke off.")


def _asks_later(asking: Asking) -> FixtureTool:
    """Return a tool that works before it asks."""

    async def run(context: Context, params: types.CallToolRequestParams) -> dict[str, Any]:
        if not params.input_responses:
            await asyncio.sleep(_LONG_S)
        return await asking(context, params)

    return FixtureTool(description="Work, then ask.", run=run)


async def asked_first(context: Context, params: types.CallToolRequestParams) -> dict[str, Any]:
    """Ask before the work."""
    if params.input_responses:
        await asyncio.sleep(_LONG_S)
    told = Asking(rounds=({"user_name": _NAME},), result=lambda answers: text(f"Hello, {answers['user_name']['content']['name']}!"))
    return await told(context, params)


SLOW_TOOLS: Final[Mapping[str, FixtureTool]] = {
    "greet": FixtureTool(description="Greet at once.", run=greet),
    "slow_compute": FixtureTool(description="Compute for some seconds.", run=compute),
    "failing_job": FixtureTool(description="Fail after a while.", run=fail),
    "protocol_error_job": FixtureTool(description="Break off after a while.", run=break_off),
    "confirm_delete": _asks_later(Asking(rounds=({"confirm": _CONFIRM},), result=lambda _: text("Deleted."))),
    "multi_input": _asks_later(Asking(rounds=({"first": _CONFIRM, "second": _CONFIRM},), result=lambda _: text("Both are there."))),
    "test_tool_with_task": FixtureTool(description="Ask, then work.", run=asked_first),
}
