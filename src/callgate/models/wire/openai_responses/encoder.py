"""Encode a conversation as a request of the responses API: one input item for each text, call and result.

Items that this API sent are sent back one by one. A reasoning item precedes the item that it led to; if that item is
not sent back, the reasoning item is left out too, because the API refuses it alone. Quirks: `store` (whether the server
keeps responses; without it, only encrypted reasoning is sent back), `encrypted_reasoning` (request it), `result_parts`
(results may hold images), `strict`, `host_calls` (keep the calls that the host answers after this history), `as_received` (send citations,
refusals and single texts of a message back as they were).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

from callgate.content_parts import Image, Part, Resource, Text, part_text
from callgate.messages import AssistantMessage, Message, Native, Reasoning, SystemMessage, ToolCall, ToolMessage, UserMessage
from callgate.models.wire.history_encoding import (
    argument_text,
    encode_body,
    file_name,
    group_results,
    is_image,
    parts_after_results,
    pdf_data,
)
from callgate.models.wire.image_types import with_accepted_images
from callgate.models.wire.openai_responses.host_calls import is_host_call, is_unanswered
from callgate.models.wire.request import HttpRequest, ModelRequest, ToolSpec
from callgate.models.wire.result_order import order_results
from callgate.models.wire.tool_names import WireNames
from callgate.models.wire.tool_schemas import tool_schema, with_item_schemas

__all__ = ["encode", "encode_history", "encode_result", "encode_tools"]

_API = "openai.responses"
_MAX_ID_CHARS = 64
_CALL_FIELDS = ("namespace", "caller")
"""The fields that are sent back with a call, in addition to its id."""

_NULLABLE_FIELDS = frozenset({"code", "keys", "outputs", "result"})
"""The fields of calls of the provider's own tools that the API requires, and that may be null."""

_Item = dict[str, object]


def encode(request: ModelRequest, names: WireNames, quirks: Mapping[str, object]) -> HttpRequest:
    """Return the request for `/responses`."""
    instructions, messages = _split_instructions(order_results(with_accepted_images(request.messages)))
    items = _encode_items(messages, names, quirks)
    body: _Item = {"model": request.model, "input": items, "stream": request.stream}
    if instructions:
        body["instructions"] = instructions
    if request.tools:
        body["tools"] = encode_tools(request.tools, names, quirks)
        body["tool_choice"] = _encode_tool_choice(request, names)
    if request.max_tokens is not None:
        body["max_output_tokens"] = request.max_tokens
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.output_schema is not None:
        body["text"] = {"format": {"type": "json_schema", "name": "answer", "schema": request.output_schema}}
    if isinstance(quirks.get("store"), bool):
        body["store"] = quirks["store"]
    if quirks.get("encrypted_reasoning"):
        body["include"] = ["reasoning.encrypted_content"]
    return HttpRequest(path="/responses", body=encode_body(body, request.extra))


def encode_history(request: ModelRequest, names: WireNames, quirks: Mapping[str, object]) -> list[_Item]:
    """Return the conversation as the request's `input`, without the instructions at its start. The host may append to it."""
    messages = order_results(with_accepted_images(request.messages))
    return _encode_items(_split_instructions(messages)[1], names, {**quirks, "host_calls": True})


def _encode_items(messages: Sequence[Message], names: WireNames, quirks: Mapping[str, object]) -> list[_Item]:
    items = [item for message in group_results(messages) for item in _encode_message(message, names, quirks)]
    _add_callers(items)
    return items


def encode_tools(tools: Sequence[ToolSpec], names: WireNames, quirks: Mapping[str, object]) -> list[_Item]:
    """Return the value of the request's `tools`."""
    return [_encode_tool(tool, names, quirks) for tool in tools]


def encode_result(message: ToolMessage, names: WireNames, quirks: Mapping[str, object] = {}) -> _Item:
    """Return a result as the output of its call."""
    kind = "custom_tool_call_output" if message.custom else "function_call_output"
    return {"type": kind, "call_id": _encode_id(message.call_id), "output": _encode_output(message.content, quirks)}


def _add_callers(items: list[_Item]) -> None:
    """Add to the output of each call the `caller` of that call: the program that made it."""
    callers = {item["call_id"]: item["caller"] for item in items if "caller" in item and "call_id" in item}
    for item in items:
        if str(item["type"]).endswith("_call_output") and item.get("call_id") in callers:
            item["caller"] = callers[item["call_id"]]


def _encode_output(content: Sequence[Part], quirks: Mapping[str, object]) -> object:
    if quirks.get("result_parts", True) and any(isinstance(part, Image) or pdf_data(part) for part in content):
        return _encode_parts(content)
    return "\n".join(part_text(part) for part in content if not isinstance(part, Image))


def _split_instructions(messages: Sequence[Message]) -> tuple[str, Sequence[Message]]:
    """Return the system text at the start of the conversation, and the rest."""
    first = next((position for position, message in enumerate(messages) if not isinstance(message, SystemMessage)), len(messages))
    texts = [message.text for message in messages[:first] if isinstance(message, SystemMessage)]
    return "\n\n".join(text for text in texts if text.strip()), messages[first:]


def _encode_message(message: Message | list[ToolMessage], names: WireNames, quirks: Mapping[str, object]) -> list[_Item]:
    match message:
        case SystemMessage(text=text):
            return [{"type": "message", "role": "developer", "content": text}] if text.strip() else []
        case UserMessage(content=content):
            parts = _encode_parts((Text(text=content),) if isinstance(content, str) else content)
            return [{"type": "message", "role": "user", "content": parts}] if parts else []
        case AssistantMessage():
            return _encode_answer(message, names, quirks)
        case ToolMessage():
            return [encode_result(message, names, quirks)]
        case _:
            return _encode_results(message, names, quirks)


def _encode_results(results: list[ToolMessage], names: WireNames, quirks: Mapping[str, object]) -> list[_Item]:
    items = [encode_result(message, names, quirks) for message in results]
    if not quirks.get("result_parts", True) and (found := parts_after_results(results, is_image)):
        items.append({"type": "message", "role": "user", "content": _encode_parts(found)})
    return items


def _encode_answer(message: AssistantMessage, names: WireNames, quirks: Mapping[str, object]) -> list[_Item]:
    """Return the items of an answer.

    The parts are read from the end, because a reasoning item is sent back only if its successor is.
    """
    same_api = message.api == _API
    with_ids = same_api and _all_reasoning_goes_back(message, quirks)
    items: list[_Item] = []
    has_successor = False
    for position in range(len(message.parts) - 1, -1, -1):
        item: _Item | None = None
        match message.parts[position]:
            case Text(text=text):
                mark = _message_mark(message, position) if same_api else {}
                item = _encode_text(text, mark, quirks, with_ids=with_ids) if text else None
            case ToolCall() as call:
                item = _encode_call(call, names, ("id", *_CALL_FIELDS) if with_ids else _CALL_FIELDS if same_api else ())
            case Native() as native if same_api:
                item = _encode_native(native.item) if _goes_back(native, message, quirks) else None
            case Reasoning(opaque=opaque) if same_api and opaque and "item" in opaque:
                item = _encode_reasoning(opaque["item"], quirks) if has_successor else None
                has_successor = has_successor and item is not None
            case Reasoning():
                continue
        if item is not None:
            items.append(item)
        has_successor = item is not None
    return items[::-1]


def _message_mark(message: AssistantMessage, position: int) -> Mapping[str, object]:
    """Return the message's own id and phase, and perhaps its content, which are stored in the part before its text."""
    before = message.parts[position - 1] if position else None
    mark = before.opaque.get("message") if isinstance(before, Reasoning) and before.opaque else None
    return mark if isinstance(mark, dict) else {}


def _encode_text(text: str, mark: Mapping[str, object], quirks: Mapping[str, object], *, with_ids: bool) -> _Item:
    item: _Item = {"type": "message", "role": "assistant"}
    if mark.get("phase"):
        item["phase"] = mark["phase"]
    if with_ids and mark.get("id"):
        content = mark.get("content") if quirks.get("as_received") else None
        content = content or [{"type": "output_text", "text": text, "annotations": []}]
        return item | {"id": mark["id"], "status": "completed", "content": content}
    return item | {"content": text}


def _encode_call(call: ToolCall, names: WireNames, fields: Sequence[str]) -> _Item:
    if call.custom:
        text = call.arguments.encode("utf-8", "replace").decode()
        item: _Item = {"type": "custom_tool_call", "call_id": _encode_id(call.id), "name": names.to_wire(call.name), "input": text}
    else:
        item = {"type": "function_call", "call_id": _encode_id(call.id), "name": names.to_wire(call.name), "arguments": argument_text(call)}
    opaque = call.opaque or {}
    return item | {key: opaque[key] for key in fields if key in opaque}


def _encode_reasoning(item: object, quirks: Mapping[str, object]) -> _Item | None:
    """Return a reasoning item as it arrived.

    An item without encrypted content is known only to a server that stored it.
    """
    if not isinstance(item, Mapping) or not _is_known(item, quirks):
        return None
    kept = {key: item[key] for key in ("type", "id", "summary", "content", "encrypted_content") if item.get(key) is not None}
    return {"type": "reasoning", "summary": [], **kept}


def _encode_native(item: Mapping[str, object]) -> _Item:
    """Return an item of the provider's own action as the API takes it back.

    An item that was dumped by the SDK has null for each field that the API left out, such as `status`, and the API refuses most of these.
    """
    kept = _without_nulls(item)
    action = kept.get("action")
    return {**kept, "action": _without_nulls(action)} if isinstance(action, Mapping) else kept


def _without_nulls(fields: Mapping[str, object]) -> _Item:
    return {key: value for key, value in fields.items() if value is not None or key in _NULLABLE_FIELDS}


def _is_known(item: Mapping[str, object], quirks: Mapping[str, object]) -> bool:
    return bool(item.get("encrypted_content") or (item.get("id") and quirks.get("store") is not False))


def _all_reasoning_goes_back(message: AssistantMessage, quirks: Mapping[str, object]) -> bool:
    """Whether all reasoning is sent back.

    Ids bind items to the reasoning before them, so ids are sent only together with all reasoning.
    """
    items = [part.opaque["item"] for part in message.parts if isinstance(part, Reasoning) and part.opaque and "item" in part.opaque]
    return all(isinstance(item, Mapping) and _is_known(item, quirks) for item in items)


def _goes_back(native: Native, message: AssistantMessage, quirks: Mapping[str, object]) -> bool:
    """Whether an action of the provider is sent back. The API refuses a call without its output, which a host may append."""
    return not is_unanswered(native, message) or (bool(quirks.get("host_calls")) and is_host_call(native, message))


def _encode_tool(tool: ToolSpec, names: WireNames, quirks: Mapping[str, object]) -> _Item:
    head: _Item = {"name": names.to_wire(tool.name), "description": tool.description}
    if tool.custom:
        return {"type": "custom", **head}
    return {"type": "function", **head, "parameters": with_item_schemas(tool_schema(tool)), "strict": bool(quirks.get("strict", False))}


def _encode_tool_choice(request: ModelRequest, names: WireNames) -> object:
    if request.tool_choice in ("auto", "none", "required"):
        return request.tool_choice
    custom = any(tool.custom and tool.name == request.tool_choice for tool in request.tools)
    return {"type": "custom" if custom else "function", "name": names.to_wire(request.tool_choice)}


def _encode_parts(parts: Iterable[Part]) -> list[_Item]:
    return [item for item in map(_encode_part, parts) if item.get("text") != ""]


def _encode_part(part: Part) -> _Item:
    match part:
        case Image(data=data, mime_type=mime):
            return {"type": "input_image", "image_url": f"data:{mime};base64,{data}", "detail": "auto"}
        case Resource() if data := pdf_data(part):
            return {"type": "input_file", "filename": _pdf_name(part), "file_data": f"data:application/pdf;base64,{data}"}
        case _:
            return {"type": "input_text", "text": part_text(part)}


def _pdf_name(part: Part) -> str:
    name = file_name(part)
    return name if name.lower().endswith(".pdf") else f"{name}.pdf"


def _encode_id(call_id: str) -> str:
    """Return the call's id; a digest if it is too long for the API."""
    if 0 < len(call_id) <= _MAX_ID_CHARS:
        return call_id
    return f"call_{hashlib.sha256(call_id.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}"
