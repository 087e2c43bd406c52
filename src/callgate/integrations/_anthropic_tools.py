"""Function tools of Anthropic's SDK, made with `beta_tool` and `beta_async_tool`: their descriptions. Must not know of calls."""

from __future__ import annotations

from typing import Any

from anthropic.lib.tools import BetaAsyncFunctionTool, BetaFunctionTool, ToolError

from callgate.integrations.external_tool import in_own_thread
from callgate.integrations.import_tools import ToolDescription
from callgate.tools import ToolContext

__all__ = ["describe"]


def describe(item: object) -> tuple[ToolDescription, ...] | None:
    """Return a function tool's description; None if `item` is something else."""
    if isinstance(item, BetaFunctionTool):
        run = in_own_thread(_as_function(item))
    elif isinstance(item, BetaAsyncFunctionTool):
        run = _as_async_function(item)
    else:
        return None
    source = f"the tool {item.name} of Anthropic's SDK"
    return (ToolDescription(name=item.name, description=item.description, parameters=item.input_schema, run=run, source=source),)


def _as_function(tool: BetaFunctionTool[Any]) -> Any:
    def run(context: ToolContext, arguments: dict[str, Any]) -> object:
        try:
            return _as_json(tool.call(arguments))
        except ToolError as error:
            return _as_failure(error)

    return run


def _as_async_function(tool: BetaAsyncFunctionTool[Any]) -> Any:
    async def run(context: ToolContext, arguments: dict[str, Any]) -> object:
        try:
            return _as_json(await tool.call(arguments))
        except ToolError as error:
            return _as_failure(error)

    return run


def _as_json(result: object) -> object:
    return result if isinstance(result, str) else list(result)  # type: ignore[call-overload]


def _as_failure(error: ToolError) -> object:
    return {"success": False, "error": str(error)}
