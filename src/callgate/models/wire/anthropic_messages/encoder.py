"""Encode a conversation as a request of the messages API: alternating turns of user and assistant, results first in their turn.

Quirks: `max_tokens` (the API requires one), `version_in_body` (Vertex and Bedrock name no model in the body), `as_received` (send citations
back, because the conversation still has their sources), `own_ids` (the server has made the ids of all calls, and takes them back whatever
characters they have), `turn_ended` (a message of the user follows, so that the provider does not go on with its own calls in the last
answer). Codecs of other hosts with the same format call `messages_body` with their own `api`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence

from callgate.content_parts import Image, Part, Resource, Text, part_text
from callgate.messages import AssistantMessage, Message, Native, Reasoning, SystemMessage, ToolCall, ToolMessage, UserMessage
from callgate.models.wire.history_encoding import (
    argument_object,
    encode_body,
    group_results,
    images_of_failed_results,
    pdf_data,
    result_text,
    system_text,
)
from callgate.models.wire.image_types import with_accepted_images
from callgate.models.wire.json_fields import as_object, as_text
from callgate.models.wire.request import HttpRequest, ModelRequest, ToolSpec
from callgate.models.wire.result_order import order_results
from callgate.models.wire.tool_names import WireNames
from callgate.models.wire.tool_schemas import close_objects, rename_properties, tool_schema

__all__ = ["PARAMETER_NAME", "encode", "encode_history", "encode_result", "encode_tools", "messages_body"]

_API = "anthropic.messages"
_DEFAULT_MAX_TOKENS = 8192
_EMPTY_RESULT = "(no output)"
PARAMETER_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""Parameter names that Anthropic's models accept on every host."""
_CALL_FIELDS = ("caller", "toolset_name", "name")
"""Fields of a call that are sent back as they came; a member of a toolset has its own name only there."""
_NULLABLE_FIELDS = frozenset({"content"})
"""The fields of blocks that the API requires, and that may be null: a compaction that failed has no content."""
_CALL_ID = re.compile(r"[A-Za-z0-9_-]+")

_NO_QUIRKS: Mapping[str, object] = {}

_Item = dict[str, object]


def encode(request: ModelRequest, names: WireNames, quirks: Mapping[str, object]) -> HttpRequest:
    """Return the request for `/messages`."""
    body = messages_body(request, names, quirks)
    return HttpRequest(path="/messages", body=encode_body(body, request.extra), headers={"anthropic-version": "2023-06-01"})


def messages_body(request: ModelRequest, names: WireNames, quirks: Mapping[str, object], *, api: str = _API) -> _Item:
    """Return the request's body without the caller's extra fields.

    Args:
        request: What to ask.
        names: Maps tool names to wire names.
        quirks: What the host wants differently.
        api: Whose reasoning and opaque parts are sent back.
    """
    body: _Item = {"max_tokens": request.max_tokens or quirks.get("max_tokens", _DEFAULT_MAX_TOKENS)}
    version = quirks.get("version_in_body")
    body |= {"anthropic_version": version} if version else {"model": request.model}
    tools = _encode_tool_fields(request, names, quirks)
    body["messages"] = encode_history(request, names, quirks, api=api)
    if system := system_text(request.messages).strip():
        body["system"] = system
    body |= tools
    if request.stream:
        body["stream"] = True
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.output_schema is not None:
        body["output_config"] = {"format": {"type": "json_schema", "schema": close_objects(request.output_schema)}}
    return body


def encode_tools(tools: Sequence[ToolSpec], names: WireNames, quirks: Mapping[str, object]) -> list[_Item]:
    """Return the value of the request's `tools`."""
    return [_encode_tool(tool, names) for tool in tools]


def encode_result(message: ToolMessage, names: WireNames, quirks: Mapping[str, object] = _NO_QUIRKS) -> _Item:
    """Return a result as a `tool_result` block. The block of a failed result contains only text."""
    item: _Item = {"type": "tool_result", "tool_use_id": _encode_id(message.call_id, quirks)}
    if not message.is_error:
        return item | {"content": _encode_content(message.content)}
    return item | {"content": result_text(message) if result_text(message).strip() else _EMPTY_RESULT, "is_error": True}


def _encode_content(content: Sequence[Part]) -> object:
    blocks = _encode_parts(content)
    if any(block["type"] != "text" for block in blocks):
        return blocks
    return "\n".join(part_text(part) for part in content)


def encode_history(request: ModelRequest, names: WireNames, quirks: Mapping[str, object], *, api: str = _API) -> list[_Item]:
    """Return the conversation as the request's `messages`: alternating turns, the user's first.

    Args:
        api: Whose reasoning and opaque parts are sent back.
    """
    messages = with_accepted_images(request.messages, bounded=True)
    turns: list[_Item] = []
    answered_ids = _answered_native_calls(messages)
    placed = list(group_results(order_results(messages)))
    call_fields: dict[str, Mapping[str, object]] = {}
    last = max((at for at, message in enumerate(placed) if isinstance(message, (UserMessage, AssistantMessage))), default=0)
    for at, message in enumerate(placed):
        role, blocks = "user", []
        match message:
            case SystemMessage():
                continue
            case UserMessage(content=content):
                blocks = _encode_parts((Text(text=content),) if isinstance(content, str) else content)
            case list():
                blocks = _encode_results(message, [call_fields.pop(result.call_id, {}) for result in message], names, quirks)
            case AssistantMessage():
                goes_on = at == last and not quirks.get("turn_ended")
                role, blocks = "assistant", _encode_answer(message, names, quirks, api, None if goes_on else answered_ids)
                if quirks.get("as_received") and message.api == api:
                    _add_citations(blocks, message)
                call_fields |= {call.id: call.opaque for call in message.calls if message.api == api and call.opaque}
        if not turns and (role == "assistant" or not blocks):
            turns.append(_first_user_turn())
        if blocks:
            _append_turn(turns, role, blocks)
    return _without_trailing_space(turns or [_first_user_turn()])


def _encode_results(
    results: Sequence[ToolMessage], call_fields: Sequence[Mapping[str, object]], names: WireNames, quirks: Mapping[str, object]
) -> list[_Item]:
    """Return the blocks of results. Beside results of calls that the model's code made, the API refuses any other block.

    Args:
        call_fields: For each result, the fields of its call that the API sent.
    """
    blocks = [encode_result(result, names, quirks) for result in results]
    for block, fields in zip(blocks, call_fields, strict=True):
        block |= {"toolset_name": fields["toolset_name"]} if "toolset_name" in fields else {}
    if any("caller" in fields for fields in call_fields):
        return blocks
    return blocks + _encode_parts(images_of_failed_results(results))


def _first_user_turn() -> _Item:
    """Return the user's turn that opens a conversation which would otherwise begin without one."""
    return {"role": "user", "content": [{"type": "text", "text": "(The conversation begins here.)"}]}


def _append_turn(turns: list[_Item], role: str, blocks: list[_Item]) -> None:
    last = turns[-1] if turns else None
    if last is not None and last["role"] == role:
        content = last["content"]
        assert isinstance(content, list)
        content.extend(blocks)
    else:
        turns.append({"role": role, "content": blocks})


def _without_trailing_space(turns: list[_Item]) -> list[_Item]:
    """Remove white space at the end of an answer that the model continues, because the API refuses it."""
    content = turns[-1]["content"] if turns and turns[-1]["role"] == "assistant" else None
    if isinstance(content, list) and content[-1]["type"] == "text":
        content[-1] = content[-1] | {"text": content[-1]["text"].rstrip()}
    return turns


def _answered_native_calls(messages: Iterable[Message]) -> frozenset[object]:
    """Return the ids of provider-run calls whose results are in the conversation."""
    natives = (part for message in messages if isinstance(message, AssistantMessage) for part in message.parts if isinstance(part, Native))
    return frozenset(part.item.get("tool_use_id") for part in natives)


def _encode_answer(
    message: AssistantMessage, names: WireNames, quirks: Mapping[str, object], api: str, answered_ids: frozenset[object] | None
) -> list[_Item]:
    blocks: list[_Item] = []
    same_api = message.api == api
    unanswered = frozenset() if answered_ids is None else _unanswered_native_calls(message, answered_ids)
    for part in message.parts:
        match part:
            case Text(text=text):
                _append_text(blocks, text)
            case ToolCall():
                blocks.append(_encode_call(part, names, quirks, same_api, unanswered))
            case Reasoning() if same_api:
                blocks += _encode_reasoning(part)
            case Native(id=native_id, item=item) if same_api and native_id not in unanswered:
                blocks.append(_encode_native(item))
            case _:
                pass
    return blocks if any(block["type"] not in ("thinking", "redacted_thinking") for block in blocks) else []


def _append_text(blocks: list[_Item], text: str) -> None:
    """Append a text. The API refuses one of white space only: it is added to the text before it, or left out."""
    last = blocks[-1] if blocks else None
    if text.strip():
        blocks.append({"type": "text", "text": text})
    elif last is not None and last["type"] == "text":
        last["text"] = f"{last['text']}{text}"


def _add_citations(blocks: Sequence[_Item], message: AssistantMessage) -> None:
    """Add to each text the citations that follow it in the message: the model refers to its sources by them."""
    texts = (block for block in blocks if block["type"] == "text")
    block: _Item | None = None
    for part in message.parts:
        if isinstance(part, Text) and part.text.strip():
            block = next(texts, None)
        elif isinstance(part, Reasoning) and part.opaque and "citations" in part.opaque and block is not None:
            block["citations"] = part.opaque["citations"]


def _unanswered_native_calls(message: AssistantMessage, answered_ids: frozenset[object]) -> frozenset[object]:
    """Return the ids of the message's provider-run calls without a result: refused in the middle of a conversation."""
    natives = (part for part in message.parts if isinstance(part, Native) and part.kind.endswith("_tool_use"))
    return frozenset(part.id for part in natives if part.id not in answered_ids)


def _encode_native(item: Mapping[str, object]) -> _Item:
    """Return a block as the API takes it back.

    A block that was dumped by the SDK has null for each field that the API left out, such as `caller`, and the API refuses most of these.
    Within the block, in the results of the provider's tools, null is a value that the API takes.
    """
    return {key: value for key, value in item.items() if value is not None or key in _NULLABLE_FIELDS}


def _encode_call(call: ToolCall, names: WireNames, quirks: Mapping[str, object], same_api: bool, unanswered: frozenset[object]) -> _Item:
    """Return a call. One that was made by code whose own call is left out loses the reference to it."""
    item: _Item = {
        "type": "tool_use",
        "id": _encode_id(call.id, quirks),
        "name": names.to_wire(call.name),
        "input": names.wire_arguments(call.name, argument_object(call)),
    }
    fields = {key: value for key, value in (call.opaque or {}).items() if same_api and key in _CALL_FIELDS}
    if as_text(as_object(fields.get("caller")).get("tool_id")) in unanswered:
        fields.pop("caller", None)
    return item | fields


def _encode_reasoning(part: Reasoning) -> list[_Item]:
    """Return the original block; a block without its signature would be refused."""
    opaque = part.opaque or {}
    if "redacted" in opaque:
        return [{"type": "redacted_thinking", "data": opaque["redacted"]}]
    return [{"type": "thinking", "thinking": part.text, "signature": opaque["signature"]}] if opaque.get("signature") else []


def _encode_parts(parts: Iterable[Part]) -> list[_Item]:
    return [block for block in map(_encode_part, parts) if block["type"] != "text" or str(block["text"]).strip()]


def _encode_part(part: Part) -> _Item:
    match part:
        case Image(data=data, mime_type=mime):
            return {"type": "image", "source": {"type": "base64", "media_type": mime, "data": data}}
        case Resource() if data := pdf_data(part):
            return {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": data}}
        case _:
            return {"type": "text", "text": part_text(part)}


def _encode_tool_fields(request: ModelRequest, names: WireNames, quirks: Mapping[str, object]) -> _Item:
    """Return tools and tool choice. A conversation with calls is refused without any tool, so the called ones are declared."""
    if request.tools:
        return {
            "tools": encode_tools(request.tools, names, quirks),
            "tool_choice": _encode_tool_choice(request.tool_choice, names),
        }
    called = {call.name: None for message in request.messages if isinstance(message, AssistantMessage) for call in message.calls}
    if not called:
        return {}
    return {"tools": [_encode_tool(ToolSpec(name=name), names) for name in called], "tool_choice": {"type": "none"}}


def _encode_tool(tool: ToolSpec, names: WireNames) -> _Item:
    schema = tool_schema(tool)
    item: _Item = {"name": names.to_wire(tool.name)}
    item["input_schema"] = rename_properties(
        schema, names.rename_parameters(tool.name, as_object(schema.get("properties")), PARAMETER_NAME)
    )
    return item | {"description": tool.description} if tool.description else item


def _encode_tool_choice(choice: str, names: WireNames) -> _Item:
    plain = {"auto": "auto", "none": "none", "required": "any"}.get(choice)
    return {"type": plain} if plain else {"type": "tool", "name": names.to_wire(choice)}


def _encode_id(call_id: str, quirks: Mapping[str, object]) -> str:
    """Return the call's id; a digest if it has characters that the API refuses, and the server has not made it."""
    if quirks.get("own_ids") or _CALL_ID.fullmatch(call_id):
        return call_id
    return f"toolu_{hashlib.sha256(call_id.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}"
