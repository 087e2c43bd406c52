"""Write a conversation as a chat completion request.

What servers of this form want differently is in the quirks: `max_tokens_key`, `stream_usage`, `system_role`, `reasoning_key`, `id_chars`,
`custom_tools` (off where tools that take free text are not known), `answers_results` (the assistant must speak between results and the
user; known of Mistral's models by their names).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence

from callgate.calls import Audio, Image, Part, Text
from callgate.messages import AssistantMessage, Message, Reasoning, SystemMessage, ToolCall, ToolMessage, UserMessage
from callgate.models.wire.history_encoding import argument_text, encode_body, group_results, images, part_text, result_text
from callgate.models.wire.request import HttpRequest, ModelRequest, ToolSpec
from callgate.models.wire.result_order import order_results
from callgate.models.wire.tool_names import WireNames
from callgate.models.wire.tool_schemas import tool_schema

__all__ = ["encode", "encode_messages", "encode_result", "encode_tool_choice"]


_STRICT_TURNS = re.compile(r"[sx]tral")
"""How the names of Mistral's models end: mistral, codestral, devstral, pixtral, mixtral."""
_SOUNDS = {"audio/mpeg": "mp3", "audio/x-wav": "wav", "audio/wave": "wav"}
"""What is called otherwise there."""
_BRIDGE = "I have the results."


def encode(request: ModelRequest, names: WireNames, quirks: Mapping[str, object]) -> HttpRequest:
    """The request for `/chat/completions`."""
    messages = encode_messages(request.messages, names, quirks)
    if quirks.get("answers_results", bool(_STRICT_TURNS.search(request.model.lower()))):
        messages = _bridged(messages)
    body: dict[str, object] = {"model": request.model, "messages": messages, "stream": request.stream}
    if request.stream and quirks.get("stream_usage", True):
        body["stream_options"] = {"include_usage": True}
    if request.tools:
        body["tools"] = [_tool(tool, names, quirks) for tool in request.tools]
        body["tool_choice"] = encode_tool_choice(request, names, quirks)
    if request.max_tokens is not None:
        body[str(quirks.get("max_tokens_key", "max_completion_tokens"))] = request.max_tokens
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.output_schema is not None:
        schema = {"name": "answer", "schema": request.output_schema}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    return HttpRequest(path="/chat/completions", body=encode_body(body, request.extra))


def encode_messages(messages: Sequence[Message], names: WireNames, quirks: Mapping[str, object]) -> list[dict[str, object]]:
    """The conversation as chat messages."""
    items: list[dict[str, object]] = []
    for message in group_results(order_results(messages)):
        items.extend(_results(message, names, quirks) if isinstance(message, list) else [_message(message, names, quirks)])
    return [item for item in items if not _says_nothing(item)]


def encode_result(message: ToolMessage, names: WireNames, quirks: Mapping[str, object] = {}) -> dict[str, object]:
    """A result as a `tool` message."""
    return {"role": "tool", "tool_call_id": _id(message.call_id, quirks), "content": result_text(message)}


def encode_tool_choice(request: ModelRequest, names: WireNames, quirks: Mapping[str, object]) -> object:
    """`auto`, `none`, `required`, or one tool by name."""
    choice = request.tool_choice
    if choice in ("auto", "none", "required"):
        return choice
    free = quirks.get("custom_tools", True) and any(tool.custom and tool.name == choice for tool in request.tools)
    kind = "custom" if free else "function"
    return {"type": kind, kind: {"name": names.to_wire(choice)}}


def _results(run: list[ToolMessage], names: WireNames, quirks: Mapping[str, object]) -> list[dict[str, object]]:
    items = [encode_result(message, names, quirks) for message in run]
    if seen := images(run):
        items.append({"role": "user", "content": [{"type": "text", "text": "Pictures from the results above:"}, *map(_part, seen)]})
    return items


def _message(message: Message, names: WireNames, quirks: Mapping[str, object]) -> dict[str, object]:
    match message:
        case SystemMessage(text=text):
            return {"role": quirks.get("system_role", "system"), "content": text}
        case UserMessage(content=content):
            return {"role": "user", "content": content if isinstance(content, str) else [_part(part) for part in content]}
        case AssistantMessage():
            return _assistant(message, names, quirks)
        case ToolMessage():
            return encode_result(message, names, quirks)


def _bridged(items: Sequence[dict[str, object]]) -> list[dict[str, object]]:
    """The same with an answer of the assistant wherever the user speaks right behind results."""
    bridged: list[dict[str, object]] = []
    for item in items:
        if item["role"] == "user" and bridged and bridged[-1]["role"] == "tool":
            bridged.append({"role": "assistant", "content": _BRIDGE})
        bridged.append(item)
    return bridged


def _says_nothing(item: Mapping[str, object]) -> bool:
    """Whether a message is one that servers refuse for being empty. What a user or a tool said stays, also where it is nothing."""
    return item["role"] not in ("user", "tool") and not item["content"] and "tool_calls" not in item


def _assistant(message: AssistantMessage, names: WireNames, quirks: Mapping[str, object]) -> dict[str, object]:
    item: dict[str, object] = {"role": "assistant", "content": message.text or (None if message.calls else "")}
    if message.calls:
        item["tool_calls"] = [_call(call, names, quirks) for call in message.calls]
    key = quirks.get("reasoning_key")
    thoughts = [part for part in message.parts if isinstance(part, Reasoning) and message.api == "openai.chat"]
    thought = "".join(part.text for part in thoughts)
    if isinstance(key, str) and thought:
        item[key] = thought
    return item | _echo(thoughts, quirks)


def _echo(thoughts: Sequence[Reasoning], quirks: Mapping[str, object]) -> dict[str, object]:
    """What the server gave with its answer in fields of its own, and wants back."""
    echoes = [part.opaque["echo"] for part in thoughts if part.opaque and "echo" in part.opaque and _is_its_own(part.opaque, quirks)]
    return {key: value for echo in echoes if isinstance(echo, Mapping) for key, value in echo.items()}


def _call(call: ToolCall, names: WireNames, quirks: Mapping[str, object]) -> dict[str, object]:
    item: dict[str, object] = {"id": _id(call.id, quirks)}
    if call.custom and quirks.get("custom_tools", True):
        item |= {"type": "custom", "custom": {"name": names.to_wire(call.name), "input": call.arguments}}
    else:
        item |= {"type": "function", "function": {"name": names.to_wire(call.name), "arguments": argument_text(call)}}
    opaque = call.opaque or {}
    if opaque.get("extra_content") is not None and _is_its_own(opaque, quirks):
        item["extra_content"] = opaque["extra_content"]
    return item


def _is_its_own(opaque: Mapping[str, object], quirks: Mapping[str, object]) -> bool:
    """Whether the server that is asked gave this; where one of the two is not known, it may be."""
    asked, gave = quirks.get("server"), opaque.get("server")
    return not asked or not gave or asked == gave


def _tool(tool: ToolSpec, names: WireNames, quirks: Mapping[str, object]) -> dict[str, object]:
    head = {"name": names.to_wire(tool.name), "description": tool.description}
    if tool.custom and quirks.get("custom_tools", True):
        return {"type": "custom", "custom": head}
    return {"type": "function", "function": head | {"parameters": tool_schema(tool)}}


def _part(part: Part) -> dict[str, object]:
    match part:
        case Text(text=text):
            return {"type": "text", "text": text}
        case Image(data=data, mime_type=mime):
            return {"type": "image_url", "image_url": {"url": f"data:{mime};base64,{data}"}}
        case Audio(data=data, mime_type=mime):
            return {"type": "input_audio", "input_audio": {"data": data, "format": _SOUNDS.get(mime, mime.rpartition("/")[2])}}
        case _:
            return {"type": "text", "text": part_text(part)}


def _id(call_id: str, quirks: Mapping[str, object]) -> str:
    """The call's id; where the server takes only ids of so many letters and digits, a digest of it."""
    chars = quirks.get("id_chars")
    if not isinstance(chars, int) or (len(call_id) == chars and call_id.isalnum() and call_id.isascii()):
        return call_id
    return hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:chars]
