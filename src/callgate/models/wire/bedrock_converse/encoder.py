"""Write a conversation as a Converse request.

Bedrock wants turns that alternate, the user's first; all results of one answer in the turn after it, before anything else; no blank text;
ids of letters, digits and few signs; and the tools declared wherever the history has calls.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from urllib.parse import quote

from msgspec.structs import replace

from callgate._json import json_text
from callgate.calls import Image, Part, Text
from callgate.messages import AssistantMessage, Message, Native, Reasoning, SystemMessage, ToolCall, ToolMessage, UserMessage
from callgate.models.wire.anthropic_messages.encoder import PARAMETER_NAME
from callgate.models.wire.history_encoding import (
    argument_object,
    encode_body,
    group_results,
    images_of_failed_results,
    part_text,
    system_text,
)
from callgate.models.wire.json_fields import as_object
from callgate.models.wire.request import HttpRequest, ModelRequest, ToolSpec
from callgate.models.wire.result_order import order_results
from callgate.models.wire.tool_names import WireNames
from callgate.models.wire.tool_schemas import rename_properties, tool_schema

__all__ = ["encode", "encode_result"]

_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_CLAUDES_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PICTURES = frozenset({"png", "jpeg", "gif", "webp"})
_BEGIN = "(The conversation begins.)"
_NOTHING = "(no text)"

Block = dict[str, object]


def encode(request: ModelRequest, names: WireNames, quirks: Mapping[str, object]) -> HttpRequest:
    """The request for `/model/{model}/converse` or `/converse-stream`."""
    tools = _tools(request, names)
    body: dict[str, object] = {"messages": _turns(request, names)}
    if system := system_text(request.messages).strip():
        body["system"] = [{"text": system}]
    config: dict[str, object] = {}
    if request.max_tokens is not None:
        config["maxTokens"] = request.max_tokens
    if request.temperature is not None:
        config["temperature"] = request.temperature
    if config:
        body["inferenceConfig"] = config
    if tools:
        body["toolConfig"] = tools
    if request.output_schema is not None:
        schema = {"name": "answer", "schema": json_text(request.output_schema)}
        body["outputConfig"] = {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": schema}}}
    path = f"/model/{quote(request.model, safe='')}/{'converse-stream' if request.stream else 'converse'}"
    return HttpRequest(path=path, body=encode_body(body, request.extra, inside="inferenceConfig"))


def encode_result(message: ToolMessage, names: WireNames) -> dict[str, object]:
    """A result as a `toolResult` block. The status is told only where it is an error: some models know none, and with it only text."""
    parts = [part for part in message.content if not (message.is_error and isinstance(part, Image))]
    content = [block for part in parts for block in _part(part)]
    result: dict[str, object] = {"toolUseId": _id(message.call_id), "content": content or [{"text": "(no output)"}]}
    if message.is_error:
        result["status"] = "error"
    return {"toolResult": result}


def _turns(request: ModelRequest, names: WireNames) -> list[dict[str, object]]:
    """The conversation as alternating turns, the user's first."""
    turns: list[tuple[str, list[Block]]] = [("user", [])]
    plain = "anthropic" in request.model.lower()
    for message in group_results(_with_plain_ids(message) if plain else message for message in order_results(request.messages)):
        role = "assistant" if isinstance(message, AssistantMessage) else "user"
        blocks = _blocks(message, names)
        if not blocks:
            continue
        if role != turns[-1][0]:
            turns.append((role, []))
        turns[-1][1].extend(blocks)
    if not turns[0][1]:
        turns[0][1].append({"text": _BEGIN})
    return [{"role": role, "content": blocks} for role, blocks in turns]


def _with_plain_ids(message: Message) -> Message:
    """The message with ids that Anthropic's models take, who refuse some that Bedrock itself takes, and others' models give."""
    match message:
        case ToolMessage(call_id=call_id):
            return replace(message, call_id=_id(call_id, _CLAUDES_ID))
        case AssistantMessage(parts=parts):
            own = [replace(part, id=_id(part.id, _CLAUDES_ID)) if isinstance(part, ToolCall) else part for part in parts]
            return replace(message, parts=tuple(own))
        case _:
            return message


def _blocks(message: Message | list[ToolMessage], names: WireNames) -> list[Block]:
    match message:
        case list():
            results: list[Block] = [encode_result(result, names) for result in message]
            return [*results, *(block for part in images_of_failed_results(message) for block in _part(part))]
        case SystemMessage():
            return []
        case UserMessage(content=content):
            parts = (Text(text=content),) if isinstance(content, str) else content
            return [block for part in parts for block in _part(part)] or [{"text": _NOTHING}]
        case ToolMessage():
            return [encode_result(message, names)]
        case AssistantMessage():
            return [block for part in message.parts for block in _answer_part(part, names, own=message.api == "bedrock.converse")]


def _answer_part(part: object, names: WireNames, *, own: bool) -> list[Block]:
    match part:
        case ToolCall():
            given = names.wire_arguments(part.name, argument_object(part))
            return [{"toolUse": {"toolUseId": _id(part.id), "name": names.to_wire(part.name), "input": given}}]
        case Reasoning(text=text, opaque=opaque) if own and opaque:
            if "redactedContent" in opaque:
                return [{"reasoningContent": {"redactedContent": opaque["redactedContent"]}}]
            return [{"reasoningContent": {"reasoningText": {"text": text, "signature": opaque.get("signature")}}}]
        case Native(item=item) if own:
            return [dict(item)]
        case Reasoning() | Native():
            return []
        case _:
            text = getattr(part, "text", "")
            return [{"text": text}] if text.strip() else []


def _part(part: Part) -> list[Block]:
    kind = part.mime_type.rpartition("/")[2].replace("jpg", "jpeg") if isinstance(part, Image) else ""
    if isinstance(part, Image) and kind in _PICTURES:
        return [{"image": {"format": kind, "source": {"bytes": part.data}}}]
    text = part_text(part)
    return [{"text": text}] if text.strip() else []


def _tools(request: ModelRequest, names: WireNames) -> dict[str, object] | None:
    """The tools and the choice. `none` is not a choice that Bedrock knows: then only what the history needs is declared."""
    tools = () if request.tool_choice == "none" else request.tools
    choice: dict[str, object] | None = None
    if tools and request.tool_choice == "required":
        choice = {"any": {}}
    elif tools and request.tool_choice not in ("auto", "required"):
        choice = {"tool": {"name": names.to_wire(request.tool_choice)}}
    called = {part.name for message in request.messages if isinstance(message, AssistantMessage) for part in message.calls}
    if not tools and called:
        known = [tool for tool in request.tools if tool.name in called]
        tools = (*known, *(ToolSpec(name=name) for name in sorted(called - {tool.name for tool in known})))
    if not tools:
        return None
    config: dict[str, object] = {"tools": [_tool(tool, names) for tool in tools]}
    return config | {"toolChoice": choice} if choice else config


def _tool(tool: ToolSpec, names: WireNames) -> dict[str, object]:
    schema = tool_schema(tool)
    schema = rename_properties(schema, names.rename_parameters(tool.name, as_object(schema.get("properties")), PARAMETER_NAME))
    spec: dict[str, object] = {"name": names.to_wire(tool.name), "inputSchema": {"json": schema}}
    if tool.description.strip():
        spec["description"] = tool.description
    return {"toolSpec": spec}


def _id(call_id: str, taken: re.Pattern[str] = _ID) -> str:
    """The call's id; a digest of it where it would not be `taken`."""
    if taken.fullmatch(call_id):
        return call_id
    return f"call_{hashlib.sha256(call_id.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"
