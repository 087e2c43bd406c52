"""Write a conversation as a request for Ollama's `/api/chat`.

Ollama has no choice of tools: `none` offers none, and the name of one tool offers that one alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from callgate.calls import Image
from callgate.messages import AssistantMessage, Message, Reasoning, SystemMessage, ToolCall, ToolMessage, UserMessage
from callgate.models.wire.history_encoding import argument_object, encode_body, group_results, images, offered_tools, part_text, result_text
from callgate.models.wire.request import HttpRequest, ModelRequest, ToolSpec
from callgate.models.wire.result_order import order_results
from callgate.models.wire.tool_names import WireNames
from callgate.models.wire.tool_schemas import tool_schema

__all__ = ["encode", "encode_result"]


def encode(request: ModelRequest, names: WireNames, quirks: Mapping[str, object]) -> HttpRequest:
    """The request for `/api/chat`."""
    messages: list[dict[str, object]] = []
    for message in group_results(order_results(request.messages)):
        messages.extend(_results(message, names) if isinstance(message, list) else [_message(message, names)])
    body: dict[str, object] = {"model": request.model, "messages": messages, "stream": request.stream}
    if tools := offered_tools(request):
        body["tools"] = [_tool(tool, names) for tool in tools]
    options: dict[str, object] = {}
    if request.max_tokens is not None:
        options["num_predict"] = request.max_tokens
    if request.temperature is not None:
        options["temperature"] = request.temperature
    if options:
        body["options"] = options
    if request.output_schema is not None:
        body["format"] = request.output_schema
    return HttpRequest(path="/api/chat", body=encode_body(body, request.extra, inside="options"))


def encode_result(message: ToolMessage, names: WireNames) -> dict[str, object]:
    """A result as a `tool` message: by the tool's name, and by the call's id if it had one."""
    item: dict[str, object] = {"role": "tool", "content": result_text(message), "tool_name": names.to_wire(message.name)}
    return item if message.made_id else item | {"tool_call_id": message.call_id}


def _results(run: list[ToolMessage], names: WireNames) -> list[dict[str, object]]:
    items = [encode_result(message, names) for message in run]
    if seen := images(run):
        items.append({"role": "user", "content": "Pictures from the results above:", "images": [image.data for image in seen]})
    return items


def _message(message: Message, names: WireNames) -> dict[str, object]:
    match message:
        case SystemMessage(text=text):
            return {"role": "system", "content": text}
        case UserMessage(content=content):
            return _user(content)
        case AssistantMessage():
            return _assistant(message, names)
        case ToolMessage():
            return encode_result(message, names)


def _user(content: object) -> dict[str, object]:
    if not isinstance(content, tuple):
        return {"role": "user", "content": content}
    item: dict[str, object] = {"role": "user", "content": "\n".join(part_text(part) for part in content if not isinstance(part, Image))}
    images = [part.data for part in content if isinstance(part, Image)]
    return item | {"images": images} if images else item


def _assistant(message: AssistantMessage, names: WireNames) -> dict[str, object]:
    item: dict[str, object] = {"role": "assistant", "content": message.text}
    thought = "".join(part.text for part in message.parts if isinstance(part, Reasoning))
    if thought and message.api == "ollama.chat":
        item["thinking"] = thought
    if message.calls:
        item["tool_calls"] = [_call(call, names) for call in message.calls]
    return item


def _call(call: ToolCall, names: WireNames) -> dict[str, object]:
    item: dict[str, object] = {"function": {"name": names.to_wire(call.name), "arguments": argument_object(call)}}
    return item if call.made_id else {"id": call.id} | item


def _tool(tool: ToolSpec, names: WireNames) -> dict[str, object]:
    head = {"name": names.to_wire(tool.name), "description": tool.description, "parameters": tool_schema(tool)}
    return {"type": "function", "function": head}
