"""Function tools of Microsoft Agent Framework: their descriptions, and their results as JSON data and back.

Must not know of agents, sessions or approvals.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, cast

from agent_framework import Content, FunctionTool
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from callgate.calls import Audio, Image, Link, Part, Resource, Text, ToolResult
from callgate.integrations._model_arguments import ModelArguments
from callgate.integrations.framework_call import CallsEngine, FrameworkCall, until_ended, whole_value
from callgate.integrations.import_tools import ToolDescription
from callgate.tools import ToolContext

__all__ = ["describe", "encode", "is_sync", "output_of", "plain"]

_CONTENT = "agent_framework.content"


def describe(item: object) -> tuple[ToolDescription, ...] | None:
    """Return a function tool's description; None if `item` is something else, or a declaration without code."""
    if not isinstance(item, FunctionTool) or item.declaration_only:
        return None
    tool = item

    async def run(context: ToolContext, arguments: dict[str, Any]) -> object:
        work = tool.invoke(arguments=arguments, tool_call_id=context.call_id)
        return encode(await (until_ended(work) if is_sync(tool) else work))

    source = f"the function tool {tool.name} of Microsoft Agent Framework"
    schema = tool.parameters()
    model = None if tool._schema_supplied else tool.input_model
    forms = None if model is None else ModelArguments(model.model_validate, schema, dumped=True).forms
    return (ToolDescription(name=tool.name, description=tool.description, parameters=schema, run=run, source=source, forms=forms),)


def is_sync(tool: FunctionTool) -> bool:
    """Return whether the framework runs the tool's code in a thread, so that a cancellation does not stop it."""
    function = tool.func.func if isinstance(tool.func, FunctionTool) else tool.func
    return not inspect.iscoroutinefunction(function)


def plain(arguments: BaseModel | Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call as JSON data."""
    values = arguments if isinstance(arguments, Mapping) else arguments.model_dump(exclude_unset=True)
    return cast("dict[str, Any]", to_jsonable_python(dict(values), by_alias=True))


def encode(native: Any) -> object:
    """Return the result of a tool as JSON data: its text, or its contents if there are images or files among them."""
    if not isinstance(native, list) or not all(isinstance(one, Content) for one in native):
        return native
    if all(one.type == "text" for one in native):
        return "\n".join(one.text or "" for one in native)
    return {_CONTENT: [one.to_dict() for one in native]}


def output_of(engine: CallsEngine, call: FrameworkCall, result: ToolResult) -> Any:
    """Return the result for the framework. Images and files are never shortened, and the engine's notes on a result are added."""
    notes = result.content[1 + result.metadata.truncated :]
    stored = _restore(whole_value(engine, result)) if result.success else None
    if stored is not None:
        return [*stored, *map(_from_part, notes)]
    if result.success and not notes and not result.metadata.truncated and call.unchanged(result):
        return call.native
    return _from_parts(result.content) or result.error


def _restore(value: object) -> list[Content] | None:
    """Return the contents of a recorded result; None if it is text or other data."""
    if not isinstance(value, dict) or value.keys() != {_CONTENT}:
        return None
    return [Content.from_dict(one) for one in value[_CONTENT]]


def _from_parts(parts: tuple[Part, ...]) -> str | list[Content]:
    """Return a result's parts for the model: text, or contents if there are images or files among them."""
    if all(isinstance(part, Text) for part in parts):
        return "\n".join(part.text for part in parts if isinstance(part, Text))
    return [_from_part(part) for part in parts]


def _from_part(part: Part) -> Content:
    """Return a part of a result as content."""
    match part:
        case Text(text=text):
            return Content.from_text(text)
        case Image(data=data, mime_type=mime) | Audio(data=data, mime_type=mime):
            return Content.from_uri(f"data:{mime};base64,{data}", media_type=mime)
        case Link(uri=uri, name=name):
            return Content.from_text(f"{name or 'Resource'}: {uri}")
        case Resource(resource=resource):
            mime, blob = str(resource.get("mimeType") or "application/octet-stream"), resource.get("blob")
            if not isinstance(blob, str):
                return Content.from_text(str(resource.get("text", "")))
            return Content.from_uri(f"data:{mime};base64,{blob}", media_type=mime)
