"""Write a conversation as a request of the messages API: turns of user and assistant that alternate, results first in their turn.

What hosts want differently is in the quirks: `max_tokens` (the API demands one), `version_in_body` (Vertex and Bedrock name no model in
the body). A room of another host with the same form uses `messages_body` with its own `api`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence

from callgate.calls import Image, Part, Resource, Text
from callgate.messages import AssistantMessage, Message, Native, Reasoning, SystemMessage, ToolCall, ToolMessage, UserMessage
from callgate.models.wire.history_encoding import (
    argument_object,
    encode_body,
    group_results,
    images_of_failed_results,
    part_text,
    result_text,
    system_text,
)
from callgate.models.wire.json_fields import as_object
from callgate.models.wire.request import HttpRequest, ModelRequest, ToolSpec
from callgate.models.wire.result_order import order_results
from callgate.models.wire.tool_names import WireNames
from callgate.models.wire.tool_schemas import close_objects, rename_properties, tool_schema

__all__ = ["PARAMETER_NAME", "encode", "encode_result", "messages_body"]

_API = "anthropic.messages"
_MAX_TOKENS = 8192
_NOTHING = "(no output)"
_PICTURES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
PARAMETER_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""The names of parameters that Anthropic's models take, wherever they are served."""
_ID = re.compile(r"[A-Za-z0-9_-]+")

_Item = dict[str, object]


def encode(request: ModelRequest, names: WireNames, quirks: Mapping[str, object]) -> HttpRequest:
    """The request for `/messages`."""
    body = messages_body(request, names, quirks)
    return HttpRequest(path="/messages", body=encode_body(body, request.extra), headers={"anthropic-version": "2023-06-01"})


def messages_body(request: ModelRequest, names: WireNames, quirks: Mapping[str, object], *, api: str = _API) -> _Item:
    """The request's body without the caller's extra.

    Args:
        api: Whose reasoning and opaque parts go back.
    """
    body: _Item = {"max_tokens": request.max_tokens or quirks.get("max_tokens", _MAX_TOKENS)}
    version = quirks.get("version_in_body")
    body |= {"anthropic_version": version} if version else {"model": request.model}
    tools = _tools(request, names)
    body["messages"] = _turns(request.messages, names, api)
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


def encode_result(message: ToolMessage, names: WireNames) -> _Item:
    """A result as a `tool_result` block. One that failed must hold text, and nothing else."""
    item: _Item = {"type": "tool_result", "tool_use_id": _id(message.call_id)}
    if not message.is_error:
        return item | {"content": _result(message.content)}
    return item | {"content": result_text(message) if result_text(message).strip() else _NOTHING, "is_error": True}


def _result(content: Sequence[Part]) -> object:
    blocks = _blocks(content)
    if any(block["type"] != "text" for block in blocks):
        return blocks
    return "\n".join(part_text(part) for part in content)


def _turns(messages: Sequence[Message], names: WireNames, api: str) -> list[_Item]:
    """The conversation as alternating turns; the user's is the first."""
    turns: list[_Item] = []
    answered = _answered(messages)
    placed = list(group_results(order_results(messages)))
    toolsets: dict[str, _Item] = {}
    last = max((at for at, message in enumerate(placed) if isinstance(message, (UserMessage, AssistantMessage))), default=0)
    for at, message in enumerate(placed):
        role, blocks = "user", []
        match message:
            case SystemMessage():
                continue
            case UserMessage(content=content):
                blocks = _blocks((Text(text=content),) if isinstance(content, str) else content)
            case list():
                blocks = [encode_result(result, names) | toolsets.pop(result.call_id, {}) for result in message]
                blocks += _blocks(images_of_failed_results(message))
            case AssistantMessage():
                role, blocks = "assistant", _assistant(message, names, api, None if at == last else answered)
                toolsets |= _toolsets(message, api)
        if not turns and (role == "assistant" or not blocks):
            turns.append(_begin())
        if blocks:
            _add(turns, role, blocks)
    return _trimmed(turns or [_begin()])


def _toolsets(message: AssistantMessage, api: str) -> dict[str, _Item]:
    """For calls of one of the API's toolsets, what their results have to say of it, by the calls' ids."""
    calls = [call for call in message.calls if message.api == api and call.opaque and "toolset_name" in call.opaque]
    return {call.id: {"toolset_name": (call.opaque or {})["toolset_name"]} for call in calls}


def _begin() -> _Item:
    """A turn of the user, who must have the first."""
    return {"role": "user", "content": [{"type": "text", "text": "(The conversation begins here.)"}]}


def _add(turns: list[_Item], role: str, blocks: list[_Item]) -> None:
    last = turns[-1] if turns else None
    if last is not None and last["role"] == role:
        content = last["content"]
        assert isinstance(content, list)
        content.extend(blocks)
    else:
        turns.append({"role": role, "content": blocks})


def _trimmed(turns: list[_Item]) -> list[_Item]:
    """An answer that the model is to go on with must not end in white space."""
    content = turns[-1]["content"] if turns and turns[-1]["role"] == "assistant" else None
    if isinstance(content, list) and content[-1]["type"] == "text":
        content[-1] = content[-1] | {"text": content[-1]["text"].rstrip()}
    return turns


def _answered(messages: Iterable[Message]) -> frozenset[object]:
    """The ids of provider-run calls whose results are somewhere in the conversation."""
    natives = (part for message in messages if isinstance(message, AssistantMessage) for part in message.parts if isinstance(part, Native))
    return frozenset(part.item.get("tool_use_id") for part in natives)


def _assistant(message: AssistantMessage, names: WireNames, api: str, answered: frozenset[object] | None) -> list[_Item]:
    blocks: list[_Item] = []
    own = message.api == api
    for part in message.parts:
        match part:
            case Text(text=text):
                blocks += [{"type": "text", "text": text}] if text.strip() else []
            case ToolCall():
                blocks.append(_call(part, names, own))
            case Reasoning() if own:
                blocks += _thought(part)
            case Native(item=item) if own and (answered is None or not _lonely(part, answered)):
                blocks.append(dict(item))
            case _:
                pass
    return blocks if any(block["type"] not in ("thinking", "redacted_thinking") for block in blocks) else []


def _lonely(part: Native, answered: frozenset[object]) -> bool:
    """A call that the provider began and never gave a result for: refused in the middle of a conversation."""
    return part.kind.endswith("_tool_use") and part.id not in answered


def _call(call: ToolCall, names: WireNames, own: bool) -> _Item:
    item: _Item = {
        "type": "tool_use",
        "id": _id(call.id),
        "name": names.to_wire(call.name),
        "input": names.wire_arguments(call.name, argument_object(call)),
    }
    return item | {key: value for key, value in (call.opaque or {}).items() if own and key in ("caller", "toolset_name")}


def _thought(part: Reasoning) -> list[_Item]:
    """The block that it came as; without its signature it would be refused."""
    opaque = part.opaque or {}
    if "redacted" in opaque:
        return [{"type": "redacted_thinking", "data": opaque["redacted"]}]
    return [{"type": "thinking", "thinking": part.text, "signature": opaque["signature"]}] if opaque.get("signature") else []


def _blocks(parts: Iterable[Part]) -> list[_Item]:
    return [block for block in map(_block, parts) if block["type"] != "text" or str(block["text"]).strip()]


def _block(part: Part) -> _Item:
    match part:
        case Image(data=data, mime_type=mime) if mime in _PICTURES:
            return {"type": "image", "source": {"type": "base64", "media_type": mime, "data": data}}
        case Resource(resource=resource) if resource.get("mimeType") == "application/pdf" and isinstance(resource.get("blob"), str):
            return {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": resource["blob"]}}
        case _:
            return {"type": "text", "text": part_text(part)}


def _tools(request: ModelRequest, names: WireNames) -> _Item:
    """Tools and choice; a conversation with calls in it is refused without any tool, so those that it names stand in."""
    if request.tools:
        return {"tools": [_tool(tool, names) for tool in request.tools], "tool_choice": _choice(request.tool_choice, names)}
    called = {call.name: None for message in request.messages if isinstance(message, AssistantMessage) for call in message.calls}
    if not called:
        return {}
    return {"tools": [_tool(ToolSpec(name=name), names) for name in called], "tool_choice": {"type": "none"}}


def _tool(tool: ToolSpec, names: WireNames) -> _Item:
    schema = tool_schema(tool)
    item: _Item = {"name": names.to_wire(tool.name)}
    item["input_schema"] = rename_properties(
        schema, names.rename_parameters(tool.name, as_object(schema.get("properties")), PARAMETER_NAME)
    )
    return item | {"description": tool.description} if tool.description else item


def _choice(choice: str, names: WireNames) -> _Item:
    plain = {"auto": "auto", "none": "none", "required": "any"}.get(choice)
    return {"type": plain} if plain else {"type": "tool", "name": names.to_wire(choice)}


def _id(call_id: str) -> str:
    """The call's id; what has characters that the API refuses, as a digest."""
    if _ID.fullmatch(call_id):
        return call_id
    return f"toolu_{hashlib.sha256(call_id.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}"
