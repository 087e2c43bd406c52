"""Encode a conversation as a request of Cohere's chat API, version 2.

To force one tool, only that tool is offered. The API accepts no schema for the answer together with tools.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from callgate.content_parts import Image, Part, part_text
from callgate.messages import AssistantMessage, Message, Reasoning, SystemMessage, ToolCall, ToolMessage, UserMessage
from callgate.models.wire.history_encoding import argument_text, encode_body, group_results, images, offered_tools, result_text
from callgate.models.wire.image_types import with_accepted_images
from callgate.models.wire.request import HttpRequest, ModelRequest, ToolSpec
from callgate.models.wire.result_order import order_results
from callgate.models.wire.tool_names import WireNames
from callgate.models.wire.tool_schemas import tool_schema

__all__ = ["encode", "encode_history", "encode_result", "encode_tools"]


def encode(request: ModelRequest, names: WireNames, quirks: Mapping[str, object]) -> HttpRequest:
    """Return the request for `/v2/chat`."""
    messages = encode_history(request, names, quirks)
    body: dict[str, object] = {"model": request.model, "messages": messages, "stream": request.stream}
    if tools := offered_tools(request):
        body["tools"] = encode_tools(tools, names, quirks)
        if request.tool_choice != "auto":
            body["tool_choice"] = "REQUIRED"
    elif request.output_schema is not None:
        body["response_format"] = {"type": "json_object", "schema": request.output_schema}
    if request.max_tokens is not None:
        body["max_tokens"] = request.max_tokens
    if request.temperature is not None:
        body["temperature"] = request.temperature
    return HttpRequest(path="/v2/chat", body=encode_body(body, request.extra))


def encode_history(request: ModelRequest, names: WireNames, quirks: Mapping[str, object]) -> list[dict[str, object]]:
    """Return the conversation as the request's `messages`."""
    messages: list[dict[str, object]] = []
    for message in group_results(order_results(with_accepted_images(request.messages))):
        items = _encode_results(message, names) if isinstance(message, list) else _encode_message(message, names)
        if items and quirks.get("as_received") and isinstance(message, AssistantMessage) and (citations := _citations(message)):
            items[0]["citations"] = citations
        messages.extend(items)
    return messages


def encode_tools(tools: Sequence[ToolSpec], names: WireNames, quirks: Mapping[str, object]) -> list[dict[str, object]]:
    """Return the value of the request's `tools`."""
    return [_encode_tool(tool, names) for tool in tools]


def encode_result(message: ToolMessage, names: WireNames) -> dict[str, object]:
    """Return a result as a `tool` message."""
    return {"role": "tool", "tool_call_id": message.call_id, "content": result_text(message)}


def _encode_results(results: list[ToolMessage], names: WireNames) -> list[dict[str, object]]:
    items = [encode_result(message, names) for message in results]
    if result_images := images(results):
        items.append(
            {"role": "user", "content": [{"type": "text", "text": "Pictures from the results above:"}, *map(_encode_part, result_images)]}
        )
    return items


def _encode_message(message: Message, names: WireNames) -> list[dict[str, object]]:
    match message:
        case SystemMessage(text=text):
            return [{"role": "system", "content": text}] if text else []
        case UserMessage(content=content):
            return [{"role": "user", "content": content if isinstance(content, str) else [_encode_part(part) for part in content]}]
        case AssistantMessage():
            return _encode_answer(message, names)
        case ToolMessage():
            return [encode_result(message, names)]


def _encode_answer(message: AssistantMessage, names: WireNames) -> list[dict[str, object]]:
    """Return the answer as messages. An answer without text and calls is left out, because the API refuses it."""
    item: dict[str, object] = {"role": "assistant"}
    thinking = _reasoning_text(message, "thinking")
    if thinking:
        text = [{"type": "text", "text": message.text}] if message.text else []
        item["content"] = [{"type": "thinking", "thinking": thinking}, *text]
    elif message.text:
        item["content"] = message.text
    if message.calls:
        item["tool_calls"] = [_encode_call(call, names) for call in message.calls]
        if plan := _reasoning_text(message, "tool_plan"):
            item["tool_plan"] = plan
    return [item] if message.text or message.calls else []


def _citations(message: AssistantMessage) -> object:
    """Return the citations of an answer that Cohere's API sent, None without any."""
    found = (part.opaque for part in message.parts if isinstance(part, Reasoning) and part.opaque and message.api == "cohere.chat")
    return next((opaque["citations"] for opaque in found if opaque.get("kind") == "citations"), None)


def _reasoning_text(message: AssistantMessage, kind: str) -> str:
    """Return the plan or the thinking of an answer that Cohere's API sent; empty for other answers."""
    reasoning = [part for part in message.parts if isinstance(part, Reasoning) and part.opaque and message.api == "cohere.chat"]
    return "".join(part.text for part in reasoning if part.opaque and part.opaque.get("kind") == kind)


def _encode_call(call: ToolCall, names: WireNames) -> dict[str, object]:
    return {"id": call.id, "type": "function", "function": {"name": names.to_wire(call.name), "arguments": argument_text(call)}}


def _encode_tool(tool: ToolSpec, names: WireNames) -> dict[str, object]:
    head = {"name": names.to_wire(tool.name), "description": tool.description, "parameters": tool_schema(tool)}
    return {"type": "function", "function": head}


def _encode_part(part: Part) -> dict[str, object]:
    if isinstance(part, Image):
        return {"type": "image_url", "image_url": {"url": f"data:{part.mime_type};base64,{part.data}"}}
    return {"type": "text", "text": part_text(part)}
