"""Write a conversation as a request of the responses API: input items, one for each thing that was said, called or given back.

What was read from this API goes back item by item, reasoning before what it led to; a reasoning item that would stand alone is left out,
since the API refuses it. Quirks: `store` (whether the server keeps responses; without it only encrypted reasoning goes back),
`encrypted_reasoning` (ask for it), `result_parts` (results may hold pictures), `strict`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

from callgate.calls import Image, Part, Resource, Text
from callgate.messages import AssistantMessage, Message, Native, Reasoning, SystemMessage, ToolCall, ToolMessage, UserMessage
from callgate.models.wire.history_encoding import argument_text, encode_body, group_results, images, part_text
from callgate.models.wire.request import HttpRequest, ModelRequest, ToolSpec
from callgate.models.wire.result_order import order_results
from callgate.models.wire.tool_names import WireNames
from callgate.models.wire.tool_schemas import tool_schema

__all__ = ["encode", "encode_result"]

_API = "openai.responses"
_LONGEST_ID = 64
_OWN = ("namespace", "caller")
"""What goes back with a call, besides its id."""

_Item = dict[str, object]


def encode(request: ModelRequest, names: WireNames, quirks: Mapping[str, object]) -> HttpRequest:
    """The request for `/responses`."""
    instructions, messages = _instructions(order_results(request.messages))
    items = [item for message in group_results(messages) for item in _items(message, names, quirks)]
    _name_callers(items)
    body: _Item = {"model": request.model, "input": items, "stream": request.stream}
    if instructions:
        body["instructions"] = instructions
    if request.tools:
        body["tools"] = [_tool(tool, names, quirks) for tool in request.tools]
        body["tool_choice"] = _choice(request, names)
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


def encode_result(message: ToolMessage, names: WireNames, quirks: Mapping[str, object] = {}) -> _Item:
    """A result as the output of its call."""
    kind = "custom_tool_call_output" if message.custom else "function_call_output"
    return {"type": kind, "call_id": _id(message.call_id), "output": _output(message.content, quirks)}


def _name_callers(items: list[_Item]) -> None:
    """Say on each output which program its call came from, if one did; the call says so already."""
    callers = {item["call_id"]: item["caller"] for item in items if "caller" in item and "call_id" in item}
    for item in items:
        if str(item["type"]).endswith("_call_output") and item.get("call_id") in callers:
            item["caller"] = callers[item["call_id"]]


def _output(content: Sequence[Part], quirks: Mapping[str, object]) -> object:
    if quirks.get("result_parts", True) and any(isinstance(part, Image) for part in content):
        return _parts(content)
    return "\n".join(part_text(part) for part in content if not isinstance(part, Image))


def _instructions(messages: Sequence[Message]) -> tuple[str, Sequence[Message]]:
    """System text that the conversation begins with, and the rest."""
    first = next((at for at, message in enumerate(messages) if not isinstance(message, SystemMessage)), len(messages))
    texts = [message.text for message in messages[:first] if isinstance(message, SystemMessage)]
    return "\n\n".join(text for text in texts if text.strip()), messages[first:]


def _items(message: Message | list[ToolMessage], names: WireNames, quirks: Mapping[str, object]) -> list[_Item]:
    match message:
        case SystemMessage(text=text):
            return [{"type": "message", "role": "developer", "content": text}] if text.strip() else []
        case UserMessage(content=content):
            parts = _parts((Text(text=content),) if isinstance(content, str) else content)
            return [{"type": "message", "role": "user", "content": parts}] if parts else []
        case AssistantMessage():
            return _assistant(message, names, quirks)
        case ToolMessage():
            return [encode_result(message, names, quirks)]
        case _:
            return _results(message, names, quirks)


def _results(run: list[ToolMessage], names: WireNames, quirks: Mapping[str, object]) -> list[_Item]:
    items = [encode_result(message, names, quirks) for message in run]
    if not quirks.get("result_parts", True) and (seen := images(run)):
        told: list[Part] = [Text(text="Pictures from the results above:"), *seen]
        items.append({"type": "message", "role": "user", "content": _parts(told)})
    return items


def _assistant(message: AssistantMessage, names: WireNames, quirks: Mapping[str, object]) -> list[_Item]:
    """The items of an answer, read from its end: what a reasoning item led to decides whether it goes back."""
    own = message.api == _API
    ids = own and _all_reasoning_goes_back(message, quirks)
    items: list[_Item] = []
    led_to_something = False
    for at in range(len(message.parts) - 1, -1, -1):
        item: _Item | None = None
        match message.parts[at]:
            case Text(text=text):
                item = _said(text, _mark(message, at) if own else {}, ids=ids) if text else None
            case ToolCall() as call:
                item = _call(call, names, ("id", *_OWN) if ids else _OWN if own else ())
            case Native() as native if own:
                item = dict(native.item) if not _waits_for_us(native, message) else None
            case Reasoning(opaque=opaque) if own and opaque and "item" in opaque:
                item = _thought(opaque["item"], quirks) if led_to_something else None
                led_to_something = led_to_something and item is not None
            case Reasoning():
                continue
        if item is not None:
            items.append(item)
        led_to_something = item is not None
    return items[::-1]


def _mark(message: AssistantMessage, at: int) -> Mapping[str, object]:
    """A message's own id and phase, which stand before its text."""
    before = message.parts[at - 1] if at else None
    mark = before.opaque.get("message") if isinstance(before, Reasoning) and before.opaque else None
    return mark if isinstance(mark, dict) else {}


def _said(text: str, mark: Mapping[str, object], *, ids: bool) -> _Item:
    item: _Item = {"type": "message", "role": "assistant"}
    if mark.get("phase"):
        item["phase"] = mark["phase"]
    if ids and mark.get("id"):
        return item | {"id": mark["id"], "status": "completed", "content": [{"type": "output_text", "text": text, "annotations": []}]}
    return item | {"content": text}


def _call(call: ToolCall, names: WireNames, own: Sequence[str]) -> _Item:
    if call.custom:
        text = call.arguments.encode("utf-8", "replace").decode()
        item: _Item = {"type": "custom_tool_call", "call_id": _id(call.id), "name": names.to_wire(call.name), "input": text}
    else:
        item = {"type": "function_call", "call_id": _id(call.id), "name": names.to_wire(call.name), "arguments": argument_text(call)}
    opaque = call.opaque or {}
    return item | {key: opaque[key] for key in own if key in opaque}


def _thought(item: object, quirks: Mapping[str, object]) -> _Item | None:
    """A reasoning item as it came. Without its encrypted content only a server that stored it knows it."""
    if not isinstance(item, Mapping) or not _knows(item, quirks):
        return None
    kept = {key: item[key] for key in ("type", "id", "summary", "content", "encrypted_content") if item.get(key) is not None}
    return {"type": "reasoning", "summary": [], **kept}


def _knows(item: Mapping[str, object], quirks: Mapping[str, object]) -> bool:
    return bool(item.get("encrypted_content") or (item.get("id") and quirks.get("store") is not False))


def _all_reasoning_goes_back(message: AssistantMessage, quirks: Mapping[str, object]) -> bool:
    """Ids bind items to the reasoning before them, so they go back only together with all of it."""
    items = [part.opaque["item"] for part in message.parts if isinstance(part, Reasoning) and part.opaque and "item" in part.opaque]
    return all(isinstance(item, Mapping) and _knows(item, quirks) for item in items)


def _waits_for_us(native: Native, message: AssistantMessage) -> bool:
    """A call of a kind that we do not run, whose output is not in the same answer: the API would refuse it unanswered."""
    call_id = native.item.get("call_id")
    if not call_id or not native.kind.endswith("_call"):
        return False
    others = (part for part in message.parts if isinstance(part, Native) and part is not native)
    return not any(other.item.get("call_id") == call_id for other in others)


def _tool(tool: ToolSpec, names: WireNames, quirks: Mapping[str, object]) -> _Item:
    head: _Item = {"name": names.to_wire(tool.name), "description": tool.description}
    if tool.custom:
        return {"type": "custom", **head}
    return {"type": "function", **head, "parameters": tool_schema(tool), "strict": bool(quirks.get("strict", False))}


def _choice(request: ModelRequest, names: WireNames) -> object:
    if request.tool_choice in ("auto", "none", "required"):
        return request.tool_choice
    custom = any(tool.custom and tool.name == request.tool_choice for tool in request.tools)
    return {"type": "custom" if custom else "function", "name": names.to_wire(request.tool_choice)}


def _parts(parts: Iterable[Part]) -> list[_Item]:
    return [item for item in map(_part, parts) if item.get("text") != ""]


def _part(part: Part) -> _Item:
    match part:
        case Image(data=data, mime_type=mime):
            return {"type": "input_image", "image_url": f"data:{mime};base64,{data}", "detail": "auto"}
        case Resource(resource=resource) if resource.get("mimeType") == "application/pdf" and isinstance(resource.get("blob"), str):
            return {"type": "input_file", "filename": "file.pdf", "file_data": f"data:application/pdf;base64,{resource['blob']}"}
        case _:
            return {"type": "input_text", "text": part_text(part)}


def _id(call_id: str) -> str:
    """The call's id; one that is too long for the API, as a digest."""
    if 0 < len(call_id) <= _LONGEST_ID:
        return call_id
    return f"call_{hashlib.sha256(call_id.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}"
