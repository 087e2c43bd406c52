"""Encode a conversation as a Converse request.

Bedrock requires alternating turns, the user's first; all results of one answer at the start of the turn after it; no blank text; ids of
letters, digits and few other characters; another name for each document of the conversation; and declared tools wherever the history has
calls.

Quirks: `as_received` (send cited texts with their sources, as the model wrote them; without it, the text alone).
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote

from msgspec.structs import replace

from callgate._json import json_text
from callgate.content_parts import Image, Part, Text, part_text
from callgate.messages import AssistantMessage, Message, Native, Reasoning, SystemMessage, ToolCall, ToolMessage, UserMessage
from callgate.models.wire.anthropic_messages.encoder import PARAMETER_NAME
from callgate.models.wire.history_encoding import (
    argument_object,
    encode_body,
    file_name,
    group_results,
    images_of_failed_results,
    pdf_data,
    system_text,
)
from callgate.models.wire.image_types import with_accepted_images
from callgate.models.wire.json_fields import as_object, as_objects, as_text
from callgate.models.wire.request import HttpRequest, ModelRequest, ToolSpec
from callgate.models.wire.result_order import order_results
from callgate.models.wire.tool_names import WireNames
from callgate.models.wire.tool_schemas import rename_properties, tool_schema

__all__ = ["encode", "encode_history", "encode_result", "encode_tools"]

_CALL_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_ANTHROPIC_CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_FIRST_USER_TEXT = "(The conversation begins.)"
_EMPTY_TEXT = "(no text)"

_Block = dict[str, object]


def encode(request: ModelRequest, names: WireNames, quirks: Mapping[str, object]) -> HttpRequest:
    """Return the request for `/model/{model}/converse` or `/converse-stream`."""
    tools = _encode_tool_config(request, names, quirks)
    body: dict[str, object] = {"messages": encode_history(request, names, quirks)}
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
    return HttpRequest(path=path, body=encode_body(body, request.extra, settings_key="inferenceConfig"))


def encode_tools(tools: Sequence[ToolSpec], names: WireNames, quirks: Mapping[str, object]) -> list[dict[str, object]]:
    """Return the value of the request's `toolConfig.tools`."""
    return [_encode_tool(tool, names) for tool in tools]


def encode_result(message: ToolMessage, names: WireNames) -> dict[str, object]:
    """Return a result as a `toolResult` block.

    The status is sent only for an error, because some models accept no status. An error contains only text.
    """
    parts = [part for part in message.content if not (message.is_error and isinstance(part, Image))]
    encode_part = _encode_text if message.is_error else _encode_part
    content = [block for part in parts for block in encode_part(part)]
    _name_documents_by_call(content, message.call_id)
    result: dict[str, object] = {"toolUseId": _encode_id(message.call_id), "content": content or [{"text": "(no output)"}]}
    if message.is_error:
        result["status"] = "error"
    return {"toolResult": result}


def encode_history(request: ModelRequest, names: WireNames, quirks: Mapping[str, object]) -> list[dict[str, object]]:
    """Return the conversation as the request's `messages`: alternating turns, the user's first."""
    turns: list[tuple[str, list[_Block]]] = [("user", [])]
    is_anthropic = "anthropic" in request.model.lower()
    placed = order_results(with_accepted_images(request.messages, bounded=True))
    for message in group_results(_with_anthropic_ids(message) if is_anthropic else message for message in placed):
        role = "assistant" if isinstance(message, AssistantMessage) else "user"
        blocks = _encode_message(message, names, as_received=bool(quirks.get("as_received")))
        if not blocks:
            continue
        if role != turns[-1][0]:
            turns.append((role, []))
        turns[-1][1].extend(blocks)
    if not turns[0][1]:
        turns[0][1].append({"text": _FIRST_USER_TEXT})
    _number_equal_names([block for _, blocks in turns for block in blocks])
    return [{"role": role, "content": blocks} for role, blocks in turns]


def _with_anthropic_ids(message: Message) -> Message:
    """Return the message with call ids that Anthropic's models accept.

    Bedrock and its other models also use ids that Anthropic's models refuse.
    """
    match message:
        case ToolMessage(call_id=call_id):
            return replace(message, call_id=_encode_id(call_id, _ANTHROPIC_CALL_ID))
        case AssistantMessage(parts=parts):
            renamed = [replace(part, id=_encode_id(part.id, _ANTHROPIC_CALL_ID)) if isinstance(part, ToolCall) else part for part in parts]
            return replace(message, parts=tuple(renamed))
        case _:
            return message


def _encode_message(message: Message | list[ToolMessage], names: WireNames, *, as_received: bool) -> list[_Block]:
    match message:
        case list():
            results: list[_Block] = [encode_result(result, names) for result in message]
            return [*results, *(block for part in images_of_failed_results(message) for block in _encode_part(part))]
        case SystemMessage():
            return []
        case UserMessage(content=content):
            parts = (Text(text=content),) if isinstance(content, str) else content
            return [block for part in parts for block in _encode_part(part)] or [{"text": _EMPTY_TEXT}]
        case ToolMessage():
            return [encode_result(message, names)]
        case AssistantMessage():
            same_api = message.api == "bedrock.converse"
            blocks: list[_Block] = []
            for part in message.parts:
                cited = (part.opaque or {}).get("citationsContent") if isinstance(part, Reasoning) and same_api else None
                if cited is None:
                    blocks += _encode_answer_part(part, names, same_api=same_api)
                elif as_received:
                    _cite(blocks, as_object(cited))
            return blocks


def _cite(blocks: list[_Block], cited: Mapping[str, object]) -> None:
    """Replace the text at the end of the blocks by the block with this text and its sources, as the model wrote it."""
    text = "".join(as_text(part.get("text")) for part in as_objects(cited.get("content")))
    before = as_text(blocks[-1].get("text")) if blocks else ""
    if not text or not before.endswith(text):
        return
    del blocks[-1]
    if before := before.removesuffix(text):
        blocks.append({"text": before})
    blocks.append({"citationsContent": dict(cited)})


def _encode_answer_part(part: object, names: WireNames, *, same_api: bool) -> list[_Block]:
    match part:
        case ToolCall():
            arguments = names.wire_arguments(part.name, argument_object(part))
            return [{"toolUse": {"toolUseId": _encode_id(part.id), "name": names.to_wire(part.name), "input": arguments}}]
        case Reasoning(text=text, opaque=opaque) if same_api and opaque:
            if "redactedContent" in opaque:
                return [{"reasoningContent": {"redactedContent": opaque["redactedContent"]}}]
            return [{"reasoningContent": {"reasoningText": {"text": text, "signature": opaque.get("signature")}}}]
        case Native(item=item) if same_api:
            return [dict(item)]
        case Reasoning() | Native():
            return []
        case _:
            text = getattr(part, "text", "")
            return [{"text": text}] if text.strip() else []


def _encode_part(part: Part) -> list[_Block]:
    if isinstance(part, Image):
        return [{"image": {"format": part.mime_type.rpartition("/")[2], "source": {"bytes": part.data}}}]
    if data := pdf_data(part):
        return [{"document": {"format": "pdf", "name": _document_name(part), "source": {"bytes": data}}}]
    return _encode_text(part)


def _encode_text(part: Part) -> list[_Block]:
    text = part_text(part)
    return [{"text": text}] if text.strip() else []


def _document_name(part: Part) -> str:
    """Return a file's name with the characters that the API accepts."""
    return re.sub(r"[^A-Za-z0-9()\[\]-]+", "-", file_name(part)).strip("-") or "file"


def _documents(blocks: Iterable[_Block]) -> list[dict[str, object]]:
    return [found for block in blocks if isinstance(found := block.get("document"), dict)]


def _name_documents_by_call(content: Iterable[_Block], call_id: str) -> None:
    """Add to the name of each document of a result what no other call has: a host may send this result beside others."""
    for number, document in enumerate(_documents(content)):
        digest = hashlib.sha256(f"{call_id}/{number}".encode("utf-8", "surrogatepass")).hexdigest()
        document["name"] = f"{document['name']}-{digest[:8]}"


def _number_equal_names(blocks: Iterable[_Block]) -> None:
    """Number documents of the user that share a name."""
    used: Counter[object] = Counter()
    for document in _documents(blocks):
        used[document["name"]] += 1
        if used[document["name"]] > 1:
            document["name"] = f"{document['name']} ({used[document['name']]})"


def _encode_tool_config(request: ModelRequest, names: WireNames, quirks: Mapping[str, object]) -> dict[str, object] | None:
    """Return tools and tool choice.

    Bedrock has no choice `none`. In its place, only the tools that the history needs are declared.
    """
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
    config: dict[str, object] = {"tools": encode_tools(tools, names, quirks)}
    return config | {"toolChoice": choice} if choice else config


def _encode_tool(tool: ToolSpec, names: WireNames) -> dict[str, object]:
    schema = tool_schema(tool)
    schema = rename_properties(schema, names.rename_parameters(tool.name, as_object(schema.get("properties")), PARAMETER_NAME))
    spec: dict[str, object] = {"name": names.to_wire(tool.name), "inputSchema": {"json": schema}}
    if tool.description.strip():
        spec["description"] = tool.description
    return {"toolSpec": spec}


def _encode_id(call_id: str, accepted: re.Pattern[str] = _CALL_ID) -> str:
    """Return the call's id; a digest if it is not `accepted`."""
    if accepted.fullmatch(call_id):
        return call_id
    return f"call_{hashlib.sha256(call_id.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"
