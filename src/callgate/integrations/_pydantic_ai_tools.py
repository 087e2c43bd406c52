"""Pydantic AI's tools: their descriptions, and their arguments and results as JSON data and back. Must not know of calls."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter
from pydantic_ai import _utils
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.messages import ToolReturn, tool_return_content_ta, tool_return_ta
from pydantic_ai.tools import Tool, ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, CombinedToolset, FunctionToolset, ToolsetTool
from pydantic_core import to_jsonable_python

from callgate._json import decode, json_text
from callgate.calls import Text, ToolResult
from callgate.errors import NotDone, UsageError
from callgate.integrations.abandonable_threads import AbandonableThreads
from callgate.integrations.framework_call import until_ended
from callgate.integrations.import_tools import ToolDescription
from callgate.tools import ToolContext

__all__ = [
    "declared",
    "defined",
    "describe",
    "encode",
    "failure_text",
    "has_files",
    "in_thread_until_ended",
    "is_sync",
    "listed",
    "plain",
    "restore",
    "timeout_of",
    "without_timeout",
]

T = TypeVar("T")
_threads = AbandonableThreads()
_TOOL_RETURN = "tool-return"
_ALWAYS_TOLD = ("status", "error", "code")
"""The keys that the engine's result of each failed call has."""
_tool_return: TypeAdapter[Any] = TypeAdapter(ToolReturn)


def describe(item: object) -> tuple[ToolDescription, ...] | None:
    """Return the descriptions of a tool or of the tools of a toolset; None if `item` is something else.

    Raises:
        UsageError: It is a toolset that lists its tools only when an agent runs.
    """
    if isinstance(item, Tool):
        return (_described(item),)
    return tuple(_tools_of(item)) if isinstance(item, AbstractToolset) else None


def _tools_of(toolset: AbstractToolset[Any]) -> Iterator[ToolDescription]:
    if isinstance(toolset, FunctionToolset):
        for tool in toolset.tools.values():
            yield _described(tool, toolset.timeout)
    elif isinstance(toolset, CombinedToolset):
        for one in toolset.toolsets:
            yield from _tools_of(one)
    else:
        raise UsageError(
            f"{type(toolset).__name__} lists its tools only when an agent runs. Give it to CallgateToolset(toolset, engine,"
            " effects={...}), which registers them then."
        )


def listed(toolset: AbstractToolset[Any]) -> tuple[ToolDescription, ...]:
    """Return the descriptions of a toolset's tools, as far as they are known before an agent runs."""
    try:
        return describe(toolset) or ()
    except UsageError:
        return ()


def _described(tool: Tool[Any], timeout_s: float | None = None) -> ToolDescription:
    async def run(context: ToolContext, arguments: dict[str, Any]) -> object:
        if tool.takes_ctx:
            raise NotDone(f"{tool.name} needs the run context of a Pydantic AI agent; call it through CallgateToolset")
        schema = tool.function_schema
        work = schema.call(schema.validator.validate_python(arguments), cast("Any", None))
        return encode(await (work if schema.is_async else in_thread_until_ended(work)))

    return defined(tool.tool_def, run, timeout_s)


def defined(tool: ToolDefinition, run: Any = None, timeout_s: float | None = None) -> ToolDescription:
    """Return the description of a tool from its definition.

    Args:
        run: The tool's code outside of an agent; None if it cannot run there.
        timeout_s: The timeout of the tool's toolset, for a tool without one of its own.
    """

    async def refuse(context: ToolContext, arguments: dict[str, Any]) -> object:
        raise NotDone(f"{tool.name} runs only in a Pydantic AI agent; call it through CallgateToolset")

    return ToolDescription(
        name=tool.name,
        description=tool.description or "",
        parameters=tool.parameters_json_schema,
        run=run or refuse,
        source=f"the Pydantic AI tool {tool.name}",
        timeout_s=tool.timeout if tool.timeout is not None else timeout_s,
    )


def timeout_of(tool: ToolsetTool[Any]) -> float | None:
    """Return the timeout that Pydantic AI would stop the tool after; None if it would not."""
    own, toolset = tool.tool_def.timeout, _source(tool).toolset
    return own if own is not None or not isinstance(toolset, FunctionToolset) else toolset.timeout


def without_timeout(tool: ToolsetTool[Any]) -> ToolsetTool[Any]:
    """Return the tool, which Pydantic AI does not stop: it would tell the model to try again, whatever the tool has done."""
    return replace(tool, tool_def=replace(tool.tool_def, timeout=math.inf))


def declared(tool: ToolsetTool[Any]) -> Tool[Any] | None:
    """Return the tool as it was declared, before a function of the agent prepares it for a step; None if it is not known."""
    source = _source(tool)
    return source.toolset.tools.get(source.tool_def.name) if isinstance(source.toolset, FunctionToolset) else None


def _source(tool: ToolsetTool[Any]) -> ToolsetTool[Any]:
    """Return the tool that others wrap, if they do."""
    while (source := getattr(tool, "source_tool", None)) is not None:
        tool = source
    return tool


def is_sync(tool: ToolsetTool[Any]) -> bool:
    """Return whether Pydantic AI runs the tool's code in a thread, so that a cancellation does not stop it."""
    return getattr(_source(tool), "is_async", True) is False


def plain(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return validated arguments as JSON data."""
    return cast("dict[str, Any]", to_jsonable_python(dict(arguments), by_alias=True))


async def in_thread_until_ended(work: Awaitable[T]) -> T:
    """Await work that Pydantic AI does in a thread, as `until_ended` does. A thread pool that the host has given is used."""
    host = getattr(_utils, "_thread_executor", None)
    if host is None or host.get() is not None:
        return await until_ended(work)
    with AbstractAgent.using_thread_executor(_threads):
        return await until_ended(work)


# Results


def encode(output: Any) -> object:
    """Return the result of a tool as JSON data."""
    return output if isinstance(output, str) else tool_return_ta.dump_python(output, mode="json", by_alias=True)


def restore(value: Any, result: ToolResult) -> Any:
    """Return Pydantic AI's own result from the record of a successful call.

    Args:
        value: The whole value of the result.
    """
    if isinstance(value, dict) and value.get("kind") == _TOOL_RETURN:
        return _tool_return.validate_python(value)
    if value is None and result.text != "null":
        return result.text  # the engine's own, where it does not know what the tool returned
    made = tool_return_content_ta.validate_python(value)
    if isinstance(made, str) or (result.metadata.truncated and not has_files(made)):
        return result.text
    notes = [part.text for part in result.content[1:] if isinstance(part, Text)] if not result.metadata.truncated else []
    return [made, *notes] if notes else made


def failure_text(result: ToolResult) -> str:
    """Return what the model reads about a call that did not succeed. Pydantic AI wraps it in JSON, so it is not JSON itself."""
    parts = [part.text for part in result.content if isinstance(part, Text)]
    told = _object_in(parts[0]) if parts else {}
    if told.get("error") is None:
        return result.text or result.error or "the call failed"
    more = {key: value for key, value in told.items() if key not in _ALWAYS_TOLD}
    return "\n".join([str(told["error"]), *([json_text(more)] if more else []), *parts[1:]])


def _object_in(text: str) -> dict[str, Any]:
    try:
        value = decode(text.encode())
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def has_files(value: Any) -> bool:
    """Return whether a result contains images or other files, which are not shortened."""
    if isinstance(value, ToolReturn):
        return has_files(value.return_value) or has_files(value.content)
    if isinstance(value, Mapping):
        return any(map(has_files, value.values()))
    return any(map(has_files, value)) if isinstance(value, (list, tuple)) else hasattr(value, "media_type")
