"""Encode a conversation as a request for Ollama's `/api/chat`.

Ollama has no tool choice: `none` offers no tools, and the name of one tool offers that one alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from callgate.content_parts import Image, part_text
from callgate.messages import AssistantMessage, Message, Reasoning, SystemMessage, ToolCall, ToolMessage, UserMessage
from callgate.models.wire.history_encoding import argument_object, encode_body, group_results, images, offered_tools, result_text
from callgate.models.wire.image_types import with_accepted_images
from callgate.models.wire.request import HttpRequest, ModelRequest, ToolSpec
from callgate.models.wire.result_order import order_results
from callgate.models.wire.tool_names import WireNames
from callgate.models.wire.tool_schemas import tool_schema

__all__ = ["encode", "encode_history", "encode_result", "encode_tools"]


def encode(request: ModelRequest, names: WireNames, quirks: Mapping[str, object]) -> HttpRequest:
    """Return the request for `/api/chat`."""
    messages = encode_history(request, names, quirks)
    body: dict[str, object] = {"model": request.model, "messages": messages, "stream": request.stream}
    if tools := offered_tools(request):
        body["tools"] = encode_tools(tools, names, quirks)
    options: dict[str, object] = {}
    if request.max_tokens is not None:
        options["num_predict"] = request.max_tokens
    if request.temperature is not None:
        options["temperature"] = request.temperature
    if options:
        body["options"] = options
    if request.output_schema is not None:
        body["format"] = request.output_schema
    return HttpRequest(path="/api/chat", body=encode_body(body, request.extra, settings_key="options"))


def encode_history(request: ModelRequest, names: WireNames, quirks: Mapping[str, object]) -> list[dict[str, object]]:
    """Return the conversation as the request's `messages`."""
    messages: list[dict[str, object]] = []
    for message in group_results(order_results(with_accepted_images(request.messages))):
        messages.extend(_encode_results(message, names) if isinstance(message, list) else [_encode_message(message, names)])
    return messages


def encode_tools(tools: Sequence[ToolSpec], names: WireNames, quirks: Mapping[str, object]) -> list[dict[str, object]]:
    """Return the value of the request's `tools`."""
    return [_encode_tool(tool, names) for tool in tools]


def encode_result(message: ToolMessage, names: WireNames) -> dict[str, object]:
    """Return a result as a `tool` message, with the tool's name, and the call's id if the server gave one."""
    item: dict[str, object] = {"role": "tool", "content": result_text(message), "tool_name": names.to_wire(message.name)}
    return item if message.made_id else item | {"tool_call_id": message.call_id}


def _encode_results(results: list[ToolMessage], names: WireNames) -> list[dict[str, object]]:
    items = [encode_result(message, names) for message in results]
    if result_images := images(results):
        items.append({"role": "user", "content": "Pictures from the results above:", "images": [image.data for image in result_images]})
    return items


def _encode_message(message: Message, names: WireNames) -> dict[str, object]:
    match message:
        case SystemMessage(text=text):
            return {"role": "system", "content": text}
        case UserMessage(content=content):
            return _encode_user(content)
        case AssistantMessage():
            return _encode_answer(message, names)
        case ToolMessage():
            return encode_result(message, names)


def _encode_user(content: object) -> dict[str, object]:
    if not isinstance(content, tuple):
        return {"role": "user", "content": content}
    item: dict[str, object] = {"role": "user", "content": "\n".join(part_text(part) for part in content if not isinstance(part, Image))}
    image_data = [part.data for part in content if isinstance(part, Image)]
    return item | {"images": image_data} if image_data else item


def _encode_answer(message: AssistantMessage, names: WireNames) -> dict[str, object]:
    item: dict[str, object] = {"role": "assistant", "content": message.text}
    thinking = "".join(part.text for part in message.parts if isinstance(part, Reasoning))
    if thinking and message.api == "ollama.chat":
        item["thinking"] = thinking
    if message.calls:
        item["tool_calls"] = [_encode_call(call, names) for call in message.calls]
    return item


def _encode_call(call: ToolCall, names: WireNames) -> dict[str, object]:
    item: dict[str, object] = {"function": {"name": names.to_wire(call.name), "arguments": argument_object(call)}}
    return item if call.made_id else {"id": call.id} | item


def _encode_tool(tool: ToolSpec, names: WireNames) -> dict[str, object]:
    head = {"name": names.to_wire(tool.name), "description": tool.description, "parameters": tool_schema(tool)}
    return {"type": "function", "function": head}
