"""Pydantic AI's tools and toolsets: their descriptions, their arguments as JSON data, and the start of their code.

Must not know of calls.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar, cast

from msgspec import structs
from pydantic_ai import RunContext, _utils
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.tools import Tool, ToolDefinition
from pydantic_ai.toolsets import (
    AbstractToolset,
    CombinedToolset,
    DynamicToolset,
    FilteredToolset,
    FunctionToolset,
    PrefixedToolset,
    RenamedToolset,
    ToolsetTool,
    WrapperToolset,
)

from callgate.errors import NotDone, UsageError
from callgate.integrations._model_arguments import ModelArguments, json_form
from callgate.integrations._pydantic_ai_results import encode
from callgate.integrations.abandonable_threads import AbandonableThreads
from callgate.integrations.framework_call import until_ended
from callgate.integrations.import_tools import ToolDescription
from callgate.integrations.wrapped_tools import WrappedTools
from callgate.tools import ToolContext
from callgate.tools.registry import BoundTool

__all__ = [
    "check_names",
    "declared_tool",
    "describe",
    "describe_definition",
    "describe_in_step",
    "plain",
    "start_tool",
    "toolset_of",
]

T = TypeVar("T")
_ADVICE = (
    " An output function is not a tool, so that nothing can be set for it: callgate does not see its calls. For the tools of another agent,"
    " give that agent a wrapper of its own, with the same engine."
)
_threads = AbandonableThreads()


def describe(item: object) -> tuple[ToolDescription, ...] | None:
    """Return the descriptions of a tool or of the tools of a toolset; None if `item` is something else.

    Raises:
        UsageError: It is a toolset that lists its tools only when an agent runs.
    """
    if isinstance(item, Tool):
        return (_describe(item),)
    return tuple(_tools_of(item)) if isinstance(item, AbstractToolset) else None


def _tools_of(toolset: AbstractToolset[Any]) -> Iterator[ToolDescription]:
    if isinstance(toolset, FunctionToolset):
        for tool in toolset.tools.values():
            yield _describe(tool, toolset.timeout)
    elif isinstance(toolset, CombinedToolset):
        for one in toolset.toolsets:
            yield from _tools_of(one)
    else:
        raise UsageError(
            f"{type(toolset).__name__} lists its tools only when an agent runs. Give it to CallgateToolset(toolset, engine,"
            " effects={...}), which registers them then."
        )


def toolset_of(given: object) -> AbstractToolset[Any]:
    """Return the toolset that a wrapper was given, or one of the listed tools.

    Raises:
        UsageError: It is neither a toolset nor a list.
    """
    if isinstance(given, AbstractToolset):
        return given
    if not isinstance(given, Iterable) or isinstance(given, (str, bytes, Mapping)):
        raise UsageError(
            f"CallgateToolset was given {given!r:.80}; give a toolset, or a list of tools and functions: CallgateToolset([pay], engine)."
        )
    return FunctionToolset(list(given))


def check_names(tools: WrappedTools, toolset: AbstractToolset[Any], registered: Iterable[str]) -> None:
    """Check that each effect and option is for a tool of the toolset, or of the engine.

    Raises:
        UsageError: One is for another tool. If a later step may have other tools, that is logged instead.
    """
    names = _declared_names(toolset)
    if names is None:
        tools.warn_of_unregistered()
    else:
        tools.refuse_other_names([*registered, *names], _ADVICE)


def _declared_names(toolset: AbstractToolset[Any], *, is_filtered: bool = False) -> list[str] | None:
    """Return the names of the tools that a toolset may hide in a step; None if it may have others. A server lists all its tools."""
    if isinstance(toolset, FunctionToolset):
        return list(toolset.tools)
    if isinstance(toolset, CombinedToolset):
        found = [_declared_names(one, is_filtered=is_filtered) for one in toolset.toolsets]
        return None if None in found else [name for names in found if names is not None for name in names]
    if not isinstance(toolset, WrapperToolset):
        return None if is_filtered or isinstance(toolset, DynamicToolset) else []
    names = _declared_names(toolset.wrapped, is_filtered=is_filtered or isinstance(toolset, FilteredToolset))
    if names is not None and isinstance(toolset, PrefixedToolset):
        return [f"{toolset.prefix}_{name}" for name in names]
    if names is not None and isinstance(toolset, RenamedToolset):
        new_names = {old: new for new, old in toolset.name_map.items()}
        return [new_names.get(name, name) for name in names]
    return names


def _describe(tool: Tool[Any], timeout_s: float | None = None) -> ToolDescription:
    async def run(context: ToolContext, arguments: dict[str, Any]) -> object:
        if tool.takes_ctx:
            raise NotDone(f"{tool.name} needs the run context of a Pydantic AI agent; call it through CallgateToolset")
        schema = tool.function_schema
        work = schema.call(schema.validator.validate_python(arguments), cast("Any", None))
        return encode(await (work if schema.is_async else _in_thread_until_ended(work)))

    read = ModelArguments(tool.function_schema.validator.validate_python, tool.tool_def.parameters_json_schema)
    return structs.replace(describe_definition(tool.tool_def, run, timeout_s), forms=read.forms)


def describe_definition(tool: ToolDefinition, run: Any = None, timeout_s: float | None = None) -> ToolDescription:
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


def describe_in_step(tool: ToolsetTool[Any], registered: BoundTool | None, _: object) -> tuple[ToolDescription]:
    """Return a tool's description with the schema that its code declares, which is compared with that of the registered tool.

    A schema that is made anew for each step is not compared: that of a tool of a server, or of a tool with a `prepare` function.
    """
    known = declared_tool(tool)
    schema = known.tool_def.parameters_json_schema if known is not None else registered and registered.tool.parameters
    found = describe_definition(tool.tool_def, timeout_s=_timeout_of(tool))
    return (structs.replace(found, parameters=schema) if schema else found,)


def start_tool(
    toolset: AbstractToolset[Any], name: str, arguments: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
) -> Awaitable[Any]:
    """Return the work of a tool's code, which lasts until the code has ended, also in a thread that a cancellation does not stop."""
    work = toolset.call_tool(name, arguments, ctx, _without_timeout(tool))
    return _in_thread_until_ended(work) if _is_sync(tool) else work


def _without_timeout(tool: ToolsetTool[Any]) -> ToolsetTool[Any]:
    """Return the tool, which Pydantic AI does not stop: it would tell the model to try again, whatever the tool has done."""
    if _timeout_of(tool) is None:
        return tool
    return replace(tool, tool_def=replace(tool.tool_def, timeout=math.inf))


def _timeout_of(tool: ToolsetTool[Any]) -> float | None:
    """Return the timeout that Pydantic AI would stop the tool after; None if it would not."""
    own, toolset = tool.tool_def.timeout, _unwrap(tool).toolset
    return own if own is not None or not isinstance(toolset, FunctionToolset) else toolset.timeout


def declared_tool(tool: ToolsetTool[Any]) -> Tool[Any] | None:
    """Return the tool as it was declared, before a function of the agent prepares it for a step; None if it is not known."""
    source = _unwrap(tool)
    return source.toolset.tools.get(source.tool_def.name) if isinstance(source.toolset, FunctionToolset) else None


def _unwrap(tool: ToolsetTool[Any]) -> ToolsetTool[Any]:
    """Return the tool that others wrap, if they do."""
    while (source := getattr(tool, "source_tool", None)) is not None:
        tool = source
    return tool


def _is_sync(tool: ToolsetTool[Any]) -> bool:
    """Return whether Pydantic AI runs the tool's code in a thread, so that a cancellation does not stop it."""
    return getattr(_unwrap(tool), "is_async", True) is False


def plain(arguments: Mapping[str, Any], tool: ToolsetTool[Any]) -> dict[str, Any]:
    """Return validated arguments as JSON data, as the tool's schema has them: for a single parameter that is a model, its fields."""
    values, known = json_form(dict(arguments), whole=True), declared_tool(tool)
    single = known.function_schema.single_arg_name if known is not None else None
    fields = values.get(single) if single is not None else None
    return cast("dict[str, Any]", fields if isinstance(fields, dict) else values)


async def _in_thread_until_ended(work: Awaitable[T]) -> T:
    """Await work that Pydantic AI does in a thread, as `until_ended` does. A thread pool that the host has given is used."""
    host = getattr(_utils, "_thread_executor", None)
    if host is None or host.get() is not None:
        return await until_ended(work)
    with AbstractAgent.using_thread_executor(_threads):
        return await until_ended(work)
