"""Function tools of the OpenAI Agents SDK: their descriptions, and their outputs from and to results.

Must not know of agents, runs or approvals.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable, Mapping
from typing import Any, get_args, get_origin

from agents import FunctionTool
from agents import Tool as AgentTool
from agents.exceptions import ModelBehaviorError
from agents.function_schema import function_schema
from agents.tool import set_function_tool_failure_error_function
from agents.tool_context import ToolContext as CallContext

from callgate._json import json_text
from callgate._option_checks import shown
from callgate.calls import Audio, Image, Link, Part, Resource, Text, ToolResult
from callgate.engine import Engine
from callgate.errors import NotDone, UsageError
from callgate.integrations._model_arguments import ModelArguments
from callgate.integrations.cut_calls import cut_calls
from callgate.integrations.external_tool import Forms
from callgate.integrations.framework_call import FrameworkCall, until_ended, whole_value
from callgate.integrations.import_tools import ToolDescription
from callgate.tools import Tool, ToolContext

__all__ = [
    "as_it_is",
    "describe",
    "function_tool",
    "invoke",
    "is_cut",
    "is_routed",
    "is_sync",
    "listed_tools",
    "output_of",
    "raising",
    "value_of",
]

_KINDS = (Tool, *(get_origin(kind) or kind for kind in get_args(AgentTool)))
_MEDIA = ("image_url", "file_id", "file_data", "file_url")
"""The keys of an output that is an image or a file; it has one of them."""


def describe(item: object) -> tuple[ToolDescription, ...] | None:
    """Return a function tool's description; None if `item` is something else, or an agent as a tool."""
    if not isinstance(item, FunctionTool) or item._is_agent_tool:
        return None
    tool, sync = raising(item), is_sync(item)

    async def run(context: ToolContext, arguments: dict[str, Any]) -> object:
        text = json_text(arguments)
        call: CallContext[Any] = CallContext(context.extra, tool_name=tool.name, tool_call_id=context.call_id, tool_arguments=text)
        return await invoke(tool, call, text, sync=sync)

    return (
        ToolDescription(
            name=tool.name,
            description=tool.description,
            parameters=tool.params_json_schema,
            run=run,
            source=f"the function tool {tool.name} of the OpenAI Agents SDK",
            forms=_forms(item),
            timeout_s=tool.timeout_seconds,
        ),
    )


def _forms(tool: FunctionTool) -> Forms | None:
    """Return what checks a tool's arguments as the SDK does; None if the tool was not made from a function."""
    function = getattr(tool, "__wrapped__", None)
    if function is None:
        return None
    try:
        found = function_schema(function, use_docstring_info=False, strict_json_schema=False)
    except Exception:  # the SDK has made the tool in another way
        return None
    names = found.params_json_schema.get("properties", {}).keys()
    if names != tool.params_json_schema.get("properties", {}).keys():
        return None
    return ModelArguments(lambda arguments: found.params_pydantic_model(**arguments), tool.params_json_schema).forms


def listed_tools(tools: object) -> list[Any]:
    """Return the tools of an agent as a list.

    Raises:
        UsageError: It is not a list of tools.
    """
    if not isinstance(tools, Iterable) or isinstance(tools, (str, bytes, Mapping)):
        raise UsageError(f"callgate_tools was given {shown(tools)}; it takes a list of tools.")
    listed = list(tools)
    for one in listed:
        if not isinstance(one, _KINDS):
            raise UsageError(
                f"callgate_tools was given {shown(one)}, which is not a tool of the OpenAI Agents SDK. For a function, take"
                " agents.function_tool or callgate.tool."
            )
    return listed


def is_routed(tool: object) -> bool:
    """Return whether a tool's calls take the engine's route."""
    return isinstance(tool, Tool) or describe(tool) is not None


def function_tool(tool: Any, engine: Engine) -> FunctionTool:
    """Return the SDK's tool, or one for a tool of callgate, which is registered if the engine does not have it."""
    if isinstance(tool, FunctionTool):
        return tool
    bound = engine.tools.get(tool.name) or engine.tools.register(tool)
    return FunctionTool(bound.name, bound.description, dict(bound.schema.source), _refuse_invocation, strict_json_schema=False)


async def _refuse_invocation(context: CallContext[Any], arguments: str) -> Any:
    """Raise `NotImplementedError`: the engine runs the code of a callgate tool."""
    raise NotImplementedError


async def value_of(setting: Any, *given: Any) -> bool:
    """Return the value of a setting of the SDK: a bool, or a function that returns one or an awaitable of one."""
    value = setting(*given) if callable(setting) else setting
    return bool(await value if inspect.isawaitable(value) else value)


def raising(tool: FunctionTool) -> FunctionTool:
    """Return a copy that raises its code's exceptions. The SDK would turn them into a text that looks like a result."""
    return set_function_tool_failure_error_function(copy.copy(tool), None)


async def invoke(tool: FunctionTool, context: CallContext[Any], arguments: str, *, sync: bool) -> Any:
    """Run the code of a tool that is `raising`.

    Args:
        sync: Whether the tool `is_sync`.

    Raises:
        NotDone: The SDK does not accept the arguments, so that the code did not run.
    """
    work = tool.on_invoke_tool(context, arguments)
    try:
        return await (until_ended(work) if sync else work)
    except ModelBehaviorError as error:
        if str(error).startswith("Invalid JSON input for tool"):
            raise NotDone(f"the OpenAI Agents SDK does not accept the arguments: {error}") from error
        raise


def is_cut(context: CallContext[Any]) -> bool:
    """Return whether the responses API has marked the call as incomplete. The SDK keeps nothing of the end of a chat completion."""
    return bool(cut_calls([context.tool_call_id], getattr(context.tool_call, "status", None)))


def is_sync(tool: FunctionTool) -> bool:
    """Return whether the SDK runs the tool's code in a thread, so that a cancellation does not stop it."""
    function = getattr(tool, "__wrapped__", None)
    return function is not None and not inspect.iscoroutinefunction(function)


def as_it_is(native: Any) -> object:
    """Return a tool's output for the engine, which can write those of the SDK as JSON."""
    return native


def output_of(engine: Engine, call: FrameworkCall, result: ToolResult) -> Any:
    """Return a result as the output of a function tool: its own output if nothing has changed it.

    Images and files are never shortened. What the engine says beside a result, such as that a human has changed the
    arguments, is added to it.
    """
    if not result.success:
        return _from_parts(result.content) or result.error or ""
    notes = result.content[1 + result.metadata.truncated :]
    value = whole_value(engine, result)
    if _is_structured(value):
        return [*(value if isinstance(value, list) else [value]), *map(_from_part, notes)]
    if notes or result.metadata.truncated or call.native is None or not call.unchanged(result):
        return _from_parts(result.content)
    return call.native


def _is_structured(value: object) -> bool:
    """Return whether recorded data is an image or a file, or a list with some, which the SDK reads as such."""
    if isinstance(value, list):
        return any(_is_structured(item) for item in value)
    return isinstance(value, Mapping) and value.get("type") in ("image", "file") and any(value.get(key) for key in _MEDIA)


def _from_parts(parts: tuple[Part, ...]) -> Any:
    if all(isinstance(part, Text) for part in parts):
        return "\n".join(part.text for part in parts if isinstance(part, Text))
    return [_from_part(part) for part in parts]


def _from_part(part: Part) -> dict[str, str]:
    match part:
        case Text(text=text):
            return {"type": "text", "text": text}
        case Image(data=data, mime_type=mime):
            return {"type": "image", "image_url": f"data:{mime};base64,{data}"}
        case Audio(data=data, mime_type=mime):
            return {"type": "file", "file_data": f"data:{mime};base64,{data}", "filename": "audio"}
        case Link(uri=uri, name=name):
            return {"type": "text", "text": f"{name or 'Resource'}: {uri}"}
        case Resource(resource=resource):
            if not isinstance(resource.get("blob"), str):
                return {"type": "text", "text": str(resource.get("text", ""))}
            data = f"data:{resource.get('mimeType') or 'application/octet-stream'};base64,{resource['blob']}"
            return {"type": "file", "file_data": data, "filename": str(resource.get("uri", "file")).rpartition("/")[2] or "file"}
