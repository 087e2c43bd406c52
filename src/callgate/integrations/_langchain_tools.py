"""LangChain's tools: their descriptions, and their results as JSON data and back.

Needs `langchain_core` only. `ToolMessage` and LangGraph's `Command` are written so that the model's text is the content
and the rest can be restored from the record. Must not know of calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import NoneType
from typing import Any, TypeGuard

from langchain_core.messages import BaseMessage, ToolMessage, message_to_dict, messages_from_dict
from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.tools import Tool as TextTool
from pydantic import BaseModel

from callgate._json import to_jsonable
from callgate.calls import Text, ToolResult
from callgate.errors import ResultNotSerializable
from callgate.integrations._model_arguments import ModelArguments, without_fields
from callgate.integrations.external_tool import Forms
from callgate.integrations.framework_call import until_ended
from callgate.integrations.import_tools import ToolDescription
from callgate.tools import ToolContext

__all__ = ["describe", "encode", "is_async", "is_sync", "restore", "text_of", "with_notes"]

_KEY = "langchain"
_KEPT = ("artifact", "additional_kwargs", "response_metadata", "id")
"""The fields of a tool message that are recorded beside its content, if they are set."""


def describe(item: object) -> tuple[ToolDescription, ...] | None:
    """Return a LangChain tool's description; None if `item` is something else."""
    if not isinstance(item, BaseTool):
        return None
    tool = item

    async def run(context: ToolContext, arguments: dict[str, Any]) -> object:
        call = {"type": "tool_call", "name": tool.name, "args": arguments, "id": context.call_id}
        work = tool.ainvoke(call)
        return encode(await (until_ended(work) if is_sync(tool) else work))

    source = f"the LangChain tool {tool.name}"
    parameters = _schema(tool)
    return (
        ToolDescription(
            name=tool.name,
            description=tool.description,
            parameters=parameters,
            run=run,
            source=source,
            forms=_forms(tool, parameters),
            content_key="content",
        ),
    )


def is_sync(tool: BaseTool) -> bool:
    """Return whether LangChain runs the tool's code in a thread, so that a cancellation does not stop it."""
    return getattr(tool, "coroutine", None) is None and type(tool)._arun in (BaseTool._arun, StructuredTool._arun, TextTool._arun)


def is_async(tool: BaseTool) -> bool:
    """Return whether the tool has only async code, which LangChain does not run without an event loop."""
    return isinstance(tool, (StructuredTool, TextTool)) and tool.func is None


def _schema(tool: BaseTool) -> Mapping[str, Any]:
    schema = tool.tool_call_schema
    return schema if isinstance(schema, dict) else schema.model_json_schema()  # type: ignore[union-attr]


def _forms(tool: BaseTool, schema: Mapping[str, Any]) -> Forms | None:
    """Return what checks a tool's arguments as LangChain does; None if it reads them without a model of the current pydantic."""
    model, visible = tool.args_schema, tool.tool_call_schema
    if _is_model(model) and _is_model(visible):
        hidden = model.model_fields.keys() - visible.model_fields.keys()
        return ModelArguments(without_fields(model, hidden).model_validate, schema, {*hidden, *tool._injected_args_keys}).forms
    if model is not None or isinstance(tool, TextTool):
        return None
    inputs = tool.get_input_schema()
    fields = inputs.model_fields if _is_model(inputs) else {}
    shown = {name: fields[name].default for name, one in schema.get("properties", {}).items() if "default" in one and name in fields}
    plain = {name: value for name, value in shown.items() if isinstance(value, (str, int, float, NoneType))}
    return lambda arguments: (plain | arguments, arguments)


def _is_model(schema: object) -> TypeGuard[type[BaseModel]]:
    return isinstance(schema, type) and issubclass(schema, BaseModel)


# Results


def text_of(content: object) -> str:
    """Return the text of a message's content."""
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else [content]
    return "\n".join(one if isinstance(one, str) else str(one.get("text", "")) for one in blocks if isinstance(one, (str, dict)))


def encode(output: Any) -> object:
    """Return the result of a tool as JSON data: a text, or a dict with the content for the model in `content`."""
    if isinstance(output, ToolMessage):
        return _encode_message(output)
    if isinstance(output, list) and all(isinstance(one, ToolMessage) or _is_command(one) for one in output):
        several = [encode(one) for one in output]
        return {"content": "\n".join(filter(None, map(_content_text, several))), _KEY: {"outputs": several}}
    if _is_command(output):
        fields = {"graph": output.graph, "update": _with_messages(output.update), "goto": _encode_goto(output.goto)}
        if _is_pairs(output.update):
            fields["pairs"] = True
        return {"content": _tool_text(output.update), _KEY: {"command": fields}}
    return output


def _encode_message(message: ToolMessage) -> object:
    if message.status == "error":
        return {"success": False, "error": text_of(message.content) or "the tool reported an error"}
    fields = {name: _recordable(value) for name in _KEPT if (value := getattr(message, name))}
    if not fields and isinstance(message.content, str):
        return message.content
    return {"content": message.content, _KEY: {"message": fields}}


def restore(value: Any, result: ToolResult, call: Mapping[str, Any]) -> Any:
    """Return LangChain's own result from the record of a successful call.

    Args:
        value: The whole value of the result.
        call: LangChain's tool call.
    """
    kept = value.get(_KEY) if isinstance(value, dict) else None
    if not isinstance(kept, dict):
        return _message(result.text, call)
    if "command" in kept:
        from langgraph.types import Command

        fields = kept["command"]
        update = _from_messages(fields["update"])
        update = [tuple(pair) for pair in update] if fields.get("pairs") else update
        _answer_with(_tool_messages(update), result, call)
        return Command(graph=fields["graph"], update=update, goto=_from_goto(fields["goto"]))
    if "outputs" in kept:
        return [restore(one, result, call) if isinstance(one, dict) else _message(one, call) for one in kept["outputs"]]
    content = value["content"]
    is_text = isinstance(content, str) or (result.metadata.truncated and not _has_files(content))
    return _message(result.text if is_text else _add_notes(content, result), call, **kept["message"])


def _notes(result: ToolResult) -> list[str]:
    """Return the engine's notes for the model beside the tool's own content."""
    return [part.text for part in result.content[1:] if isinstance(part, Text) and part.text.startswith("Note: ")]


def _has_files(content: list[Any]) -> bool:
    """Return whether a message has blocks other than text, such as images, which are not shortened."""
    return any(isinstance(block, dict) and block.get("type") != "text" for block in content)


def _message(content: Any, call: Mapping[str, Any], **fields: Any) -> ToolMessage:
    return ToolMessage(content=content, tool_call_id=call["id"], name=call["name"], **fields)


def _is_command(value: object) -> bool:
    return type(value).__name__ == "Command" and type(value).__module__ == "langgraph.types"


def _content_text(encoded: object) -> str:
    return encoded if isinstance(encoded, str) else text_of(encoded.get("content", "")) if isinstance(encoded, dict) else ""


def _tool_text(update: object) -> str:
    return "\n".join(text_of(one.content) for one in _tool_messages(update))


def _tool_messages(update: Any) -> list[ToolMessage]:
    """Return the tool messages in a command's update."""
    values = update.values() if isinstance(update, dict) else [value for _, value in update] if _is_pairs(update) else [update]
    return [one for value in values if isinstance(value, (list, tuple)) for one in value if isinstance(one, ToolMessage)]


def _is_pairs(update: Any) -> bool:
    """Return whether a command's update is a sequence of pairs of a key of the state and a value, which LangGraph takes as a dict."""
    if not isinstance(update, (list, tuple)) or not update:
        return False
    return all(isinstance(one, tuple) and len(one) == 2 and isinstance(one[0], str) for one in update)


def _answer_with(messages: Sequence[ToolMessage], result: ToolResult, call: Mapping[str, Any]) -> None:
    """Make the tool message of a restored command the answer to this call, with the engine's notes on the result.

    The command may have been returned to an earlier call with the same key, or to the call whose result the cache has. Providers refuse a
    call without a result, and a result without its call.
    """
    if not messages:
        return
    own = _answer_to(call, messages)
    if own is None:
        own = next((one for one in reversed(messages) if one.name == call["name"]), messages[-1])
        own.tool_call_id, own.id = call["id"], None
    own.content = _add_notes(own.content, result)


def _answer_to(call: Mapping[str, Any], messages: Sequence[ToolMessage]) -> ToolMessage | None:
    return next((one for one in messages if one.tool_call_id == call["id"]), None)


def with_notes(output: Any, result: ToolResult, call: Mapping[str, Any]) -> Any:
    """Return a tool's own command with the engine's notes on the result, such as that a human has changed the arguments.

    Any other output is returned as it is.
    """
    own = _answer_to(call, _tool_messages(output.update)) if _is_command(output) else None
    if own is None:
        return output
    noted = own.model_copy(update={"content": _add_notes(own.content, result)})
    return replace(output, update=_replace(output.update, own, noted))


def _replace(update: Any, old: ToolMessage, new: ToolMessage) -> Any:
    if isinstance(update, dict):
        return {key: _replace(value, old, new) for key, value in update.items()}
    if isinstance(update, (list, tuple)):
        return type(update)(new if one is old else _replace(one, old, new) for one in update)
    return update


def _add_notes(content: Any, result: ToolResult) -> Any:
    """Return the content of a message with the engine's notes on the result."""
    notes = _notes(result)
    if isinstance(content, str):
        return "\n".join([content, *notes])
    return [*content, *({"type": "text", "text": note} for note in notes)]


def _recordable(value: object) -> object:
    """Return a value as JSON data, or a description of it if it has no JSON form."""
    try:
        return to_jsonable(value)[0]
    except ResultNotSerializable:
        return {"not_recorded": f"{type(value).__module__}.{type(value).__qualname__}"}


def _with_messages(value: Any) -> Any:
    """Return a state update as JSON data, with messages in LangChain's own form."""
    if isinstance(value, BaseMessage):
        return {_KEY: _recordable(message_to_dict(value))}
    if isinstance(value, Mapping):
        return {str(key): _with_messages(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return [_with_messages(item) for item in value]
    return _recordable(value.model_dump() if isinstance(value, BaseModel) else value)


def _from_messages(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {_KEY}:
            return messages_from_dict([value[_KEY]])[0]
        return {key: _from_messages(item) for key, item in value.items()}
    return [_from_messages(item) for item in value] if isinstance(value, list) else value


def _encode_goto(goto: Any) -> Any:
    if isinstance(goto, (list, tuple)):
        return [_encode_goto(one) for one in goto]
    return goto if isinstance(goto, str) else {"node": goto.node, "arg": _with_messages(goto.arg)}


def _from_goto(goto: Any) -> Any:
    from langgraph.types import Send

    if isinstance(goto, list):
        return [_from_goto(one) for one in goto]
    return goto if isinstance(goto, str) else Send(goto["node"], _from_messages(goto["arg"]))
