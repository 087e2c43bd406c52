"""Encode a conversation as a request for an interaction: every message as steps, nothing stored by the provider.

Quirks: `store` lets the provider store interactions, and `extra` may then name the previous one; `revision`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from callgate.content_parts import Audio, Image, Part, Resource, Text, part_text
from callgate.messages import AssistantMessage, Message, Native, Reasoning, SystemMessage, ToolCall, ToolMessage, UserMessage
from callgate.models.wire.history_encoding import argument_object, encode_body, pdf_data, system_text
from callgate.models.wire.image_types import INTERACTION_IMAGES, with_accepted_images
from callgate.models.wire.request import HttpRequest, ModelRequest, ToolSpec
from callgate.models.wire.result_order import order_results
from callgate.models.wire.tool_names import WireNames
from callgate.models.wire.tool_schemas import tool_schema

__all__ = ["encode", "encode_history", "encode_result", "encode_tools"]

_StepItem = dict[str, object]


def encode(request: ModelRequest, names: WireNames, quirks: Mapping[str, object]) -> HttpRequest:
    """Return the request for `/interactions`."""
    steps = encode_history(request, names, quirks)
    body: dict[str, object] = {"model": request.model, "input": steps, "stream": request.stream, "store": quirks.get("store", False)}
    if system := system_text(request.messages).strip():
        body["system_instruction"] = system
    if request.tools:
        body["tools"] = encode_tools(request.tools, names, quirks)
    if config := _generation_config(request, names):
        body["generation_config"] = config
    if request.output_schema is not None:
        body["response_format"] = [{"type": "text", "mime_type": "application/json", "schema": request.output_schema}]
    headers = {"Api-Revision": str(quirks.get("revision", "2026-05-20"))}
    return HttpRequest(path="/interactions", body=encode_body(body, request.extra, settings_key="generation_config"), headers=headers)


def encode_history(request: ModelRequest, names: WireNames, quirks: Mapping[str, object]) -> list[_StepItem]:
    """Return the conversation as the request's `input`."""
    messages = with_accepted_images(request.messages, INTERACTION_IMAGES)
    return [step for message in order_results(messages) for step in _encode_message(message, names)]


def encode_tools(tools: Sequence[ToolSpec], names: WireNames, quirks: Mapping[str, object]) -> list[_StepItem]:
    """Return the value of the request's `tools`."""
    return [_encode_tool(tool, names) for tool in tools]


def encode_result(message: ToolMessage, names: WireNames) -> dict[str, object]:
    """Return a result as a `function_result` step."""
    content = _encode_parts(message.content)
    only_text = all(part["type"] == "text" for part in content)
    item: _StepItem = {
        "type": "function_result",
        "call_id": message.call_id,
        "name": names.to_wire(message.name),
        "result": "\n".join(str(part["text"]) for part in content) if only_text else content,
    }
    return item | {"is_error": True} if message.is_error else item


def _encode_message(message: Message, names: WireNames) -> list[_StepItem]:
    match message:
        case SystemMessage():
            return []
        case UserMessage(content=content):
            parts = _encode_parts((Text(text=content),) if isinstance(content, str) else content)
            return [{"type": "user_input", "content": parts}] if parts else []
        case ToolMessage():
            return [encode_result(message, names)]
        case AssistantMessage():
            same_api = message.api == "gemini.interactions"
            return [step for part in message.parts for step in _encode_answer_part(part, names, same_api=same_api)]


def _encode_answer_part(part: Text | Reasoning | ToolCall | Native, names: WireNames, *, same_api: bool) -> list[_StepItem]:
    match part:
        case ToolCall():
            call: _StepItem = {"type": "function_call", "id": part.id, "name": names.to_wire(part.name), "arguments": argument_object(part)}
            return [call | dict(part.opaque)] if same_api and part.opaque else [call]
        case Text(text=text):
            return [{"type": "model_output", "content": [{"type": "text", "text": text}]}] if text else []
        case Reasoning(text=text, opaque=opaque) if same_api and opaque:
            step: _StepItem = {"type": "thought", **opaque}
            return [step | {"summary": [{"type": "text", "text": text}]}] if text else [step]
        case Native(kind=kind, item=item) if same_api:
            return [dict(item)] if kind.endswith(("_call", "_result")) else [{"type": "model_output", "content": [dict(item)]}]
        case _:
            return []


def _encode_parts(parts: Iterable[Part]) -> list[_StepItem]:
    found = [_encode_part(part) for part in parts]
    return [part for part in found if part["type"] != "text" or part["text"]]


def _encode_part(part: Part) -> _StepItem:
    match part:
        case Image(data=data, mime_type=mime):
            return {"type": "image", "data": data, "mime_type": mime}
        case Audio(data=data, mime_type=mime):
            return {"type": "audio", "data": data, "mime_type": mime}
        case Resource() if data := pdf_data(part):
            return {"type": "document", "data": data, "mime_type": "application/pdf"}
        case _:
            return {"type": "text", "text": part_text(part)}


def _generation_config(request: ModelRequest, names: WireNames) -> dict[str, object]:
    config: dict[str, object] = {}
    if request.max_tokens is not None:
        config["max_output_tokens"] = request.max_tokens
    if request.temperature is not None:
        config["temperature"] = request.temperature
    if request.tools and request.tool_choice != "auto":
        plain = {"none": "none", "required": "any"}.get(request.tool_choice)
        config["tool_choice"] = plain or {"allowed_tools": {"mode": "any", "tools": [names.to_wire(request.tool_choice)]}}
    return config


def _encode_tool(tool: ToolSpec, names: WireNames) -> dict[str, object]:
    return {"type": "function", "name": names.to_wire(tool.name), "description": tool.description, "parameters": tool_schema(tool)}
