"""Encode a conversation as a chat completion request.

Quirks of servers: `max_tokens_key`, `stream_usage`, `system_role`, `reasoning_key`, `id_chars` (for Mistral's models, by name, only of ids
that callgate made), `plain_audio` (audio is Base64 without its format), `custom_tools` (off if the server does not know free-text tools),
`answers_results` (the assistant must speak between results and the user; detected for Mistral's models by name), `result_audio` (whether
the audio of results is sent; not to OpenAI's models that take none, by name), `as_received` (a refusal and a spoken answer go back in their
own fields).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from callgate.content_parts import Audio, Image, Part, Resource, Text, part_text
from callgate.messages import AssistantMessage, Message, Native, Reasoning, SystemMessage, ToolCall, ToolMessage, UserMessage
from callgate.models.wire.history_encoding import (
    argument_text,
    encode_body,
    file_name,
    group_results,
    parts_after_results,
    pdf_data,
    result_text,
)
from callgate.models.wire.image_types import with_accepted_images
from callgate.models.wire.openai_chat.provider_fields import THINKING_MARKS
from callgate.models.wire.request import HttpRequest, ModelRequest, ToolSpec
from callgate.models.wire.result_order import order_results
from callgate.models.wire.tool_names import WireNames
from callgate.models.wire.tool_schemas import tool_schema, with_item_schemas

__all__ = ["encode", "encode_history", "encode_messages", "encode_result", "encode_tool_choice", "encode_tools"]


_API = "openai.chat"
_MISTRAL_MODEL = re.compile(r"[sx]tral")
"""Matches the names of Mistral's models: mistral, codestral, devstral, pixtral, mixtral."""
_MISTRAL_ID_CHARS = 9
"""The length of an id that the servers of Mistral's models accept."""
_TEXT_MODEL = re.compile(r"(^|/)(gpt-\d|o\d|chatgpt)(?!.*audio)")
"""Matches the names of OpenAI's models that refuse a request with audio."""
_AUDIO_FORMATS = {"audio/mpeg": "mp3", "audio/x-wav": "wav", "audio/wave": "wav"}
"""Format names that differ from the MIME subtype."""
_AUDIO = frozenset({"mp3", "wav"})
_BESIDE_CONTENT = frozenset({"tool_calls", "refusal", "audio"})
"""The fields with which an answer may have no content."""
_ASSISTANT_BRIDGE = "I have the results."


def encode(request: ModelRequest, names: WireNames, quirks: Mapping[str, object]) -> HttpRequest:
    """Return the request for `/chat/completions`."""
    messages = encode_history(request, names, quirks)
    body: dict[str, object] = {"model": request.model, "messages": messages, "stream": request.stream}
    if request.stream and quirks.get("stream_usage", True):
        body["stream_options"] = {"include_usage": True}
    if request.tools:
        body["tools"] = encode_tools(request.tools, names, quirks)
        body["tool_choice"] = encode_tool_choice(request, names, quirks)
    if request.max_tokens is not None:
        body[str(quirks.get("max_tokens_key", "max_completion_tokens"))] = request.max_tokens
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.output_schema is not None:
        schema = {"name": "answer", "schema": request.output_schema}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    return HttpRequest(path="/chat/completions", body=encode_body(body, request.extra))


def encode_history(request: ModelRequest, names: WireNames, quirks: Mapping[str, object]) -> list[dict[str, object]]:
    """Return the conversation as the request's `messages`."""
    model = request.model.lower()
    of_mistral = bool(_MISTRAL_MODEL.search(model))
    quirks = {"result_audio": not _TEXT_MODEL.search(model), "made_id_chars": _MISTRAL_ID_CHARS if of_mistral else None, **quirks}
    messages = encode_messages(with_accepted_images(request.messages), names, quirks)
    if quirks.get("answers_results", of_mistral):
        return _insert_bridges(messages)
    return messages


def encode_messages(messages: Sequence[Message], names: WireNames, quirks: Mapping[str, object]) -> list[dict[str, object]]:
    """Return the conversation as chat messages."""
    items: list[dict[str, object]] = []
    for message in group_results(order_results(messages)):
        items.extend(_encode_results(message, names, quirks) if isinstance(message, list) else [_encode_message(message, names, quirks)])
    return [item for item in items if not _is_empty(item)]


def encode_tools(tools: Sequence[ToolSpec], names: WireNames, quirks: Mapping[str, object]) -> list[dict[str, object]]:
    """Return the value of the request's `tools`."""
    return [_encode_tool(tool, names, quirks) for tool in tools]


def encode_result(message: ToolMessage, names: WireNames, quirks: Mapping[str, object] = {}) -> dict[str, object]:
    """Return a result as a `tool` message."""
    call_id = _encode_id(message.call_id, quirks, is_made=message.made_id)
    return {"role": "tool", "tool_call_id": call_id, "content": result_text(message, _is_apart(quirks))}


def encode_tool_choice(request: ModelRequest, names: WireNames, quirks: Mapping[str, object]) -> object:
    """Return `auto`, `none`, `required`, or the choice of one tool by name."""
    choice = request.tool_choice
    if choice in ("auto", "none", "required"):
        return choice
    is_custom = quirks.get("custom_tools", True) and any(tool.custom and tool.name == choice for tool in request.tools)
    kind = "custom" if is_custom else "function"
    return {"type": kind, kind: {"name": names.to_wire(choice)}}


def _encode_results(results: list[ToolMessage], names: WireNames, quirks: Mapping[str, object]) -> list[dict[str, object]]:
    items = [encode_result(message, names, quirks) for message in results]
    if found := parts_after_results(results, _is_apart(quirks)):
        items.append({"role": "user", "content": [_encode_part(part, quirks) for part in found]})
    return items


def _is_apart(quirks: Mapping[str, object]) -> Callable[[Part], bool]:
    """Return whether a part of a result is sent after the results, which hold text only."""

    def is_apart(part: Part) -> bool:
        if isinstance(part, Audio):
            return bool(quirks.get("result_audio", True)) and _audio_format(part) in _AUDIO
        return isinstance(part, Image) or _takes_file(part, quirks)

    return is_apart


def _takes_file(part: Part, quirks: Mapping[str, object]) -> bool:
    """Whether a part is a PDF file and the server is known to take one."""
    return bool(quirks.get("files", quirks.get("server") == "openai.com")) and bool(pdf_data(part))


def _audio_format(audio: Audio) -> str:
    return _AUDIO_FORMATS.get(audio.mime_type, audio.mime_type.rpartition("/")[2])


def _encode_message(message: Message, names: WireNames, quirks: Mapping[str, object]) -> dict[str, object]:
    match message:
        case SystemMessage(text=text):
            return {"role": quirks.get("system_role", "system"), "content": text}
        case UserMessage(content=content):
            return {"role": "user", "content": content if isinstance(content, str) else [_encode_part(part, quirks) for part in content]}
        case AssistantMessage():
            return _encode_answer(message, names, quirks)
        case ToolMessage():
            return encode_result(message, names, quirks)


def _insert_bridges(items: Sequence[dict[str, object]]) -> list[dict[str, object]]:
    """Insert an answer of the assistant wherever a user message directly follows results."""
    result: list[dict[str, object]] = []
    for item in items:
        if item["role"] == "user" and result and result[-1]["role"] == "tool":
            result.append({"role": "assistant", "content": _ASSISTANT_BRIDGE})
        result.append(item)
    return result


def _is_empty(item: Mapping[str, object]) -> bool:
    """Whether servers refuse this message for being empty. Empty messages of a user or a tool are kept."""
    return item["role"] not in ("user", "tool") and not item["content"] and _BESIDE_CONTENT.isdisjoint(item)


def _encode_answer(message: AssistantMessage, names: WireNames, quirks: Mapping[str, object]) -> dict[str, object]:
    message, fields = _split_fields(message) if quirks.get("as_received") and message.api == _API else (message, {})
    content = _answer_content(message, quirks)
    item: dict[str, object] = {"role": "assistant", "content": (content or None) if fields else content, **fields}
    if message.calls:
        item["tool_calls"] = [_encode_call(call, names, quirks) for call in message.calls]
    key = quirks.get("reasoning_key")
    reasoning_parts = [part for part in message.parts if isinstance(part, Reasoning) and message.api == _API]
    reasoning = "".join(part.text for part in reasoning_parts)
    if isinstance(key, str) and reasoning:
        item[key] = reasoning
    return item | _provider_fields(reasoning_parts, quirks)


def _split_fields(message: AssistantMessage) -> tuple[AssistantMessage, dict[str, object]]:
    """Return the message without the texts of other fields than its content, a refusal or a spoken answer, and these fields.

    A part before a text names its field, which is that of all later texts up to the next such part.
    """
    parts, refusal, audio = list[Text | Reasoning | ToolCall | Native](), "", dict[str, object]()
    mark: Mapping[str, object] = {}
    for part in message.parts:
        if isinstance(part, Reasoning) and part.opaque and "field" in part.opaque:
            mark = part.opaque
        elif isinstance(part, Text) and mark.get("field") == "refusal":
            refusal += part.text
        elif isinstance(part, Text) and mark.get("field") == "audio" and mark.get("audio"):
            audio = {"audio": mark["audio"]}
        else:
            parts.append(part)
    return replace(message, parts=tuple(parts)), {**({"refusal": refusal} if refusal else {}), **audio}


def _answer_content(message: AssistantMessage, quirks: Mapping[str, object]) -> object:
    """Return the text of an answer; with parts of another kind, such as Mistral's thinking and references, the parts in order."""
    parts = [part for part in map(partial(_content_part, message, quirks), message.parts) if part is not None]
    if any(part["type"] != "text" for part in parts):
        return parts
    return message.text or (None if message.calls else "")


def _content_part(
    message: AssistantMessage, quirks: Mapping[str, object], part: Text | Reasoning | ToolCall | Native
) -> dict[str, object] | None:
    """Return a part of an answer's content; None for a part that does not belong to it."""
    if isinstance(part, Text):
        return {"type": "text", "text": part.text} if part.text else None
    if isinstance(part, Native):
        return dict(part.item) if quirks.get("as_received") and message.api == _API else None
    opaque = part.opaque if isinstance(part, Reasoning) and message.api == _API else None
    if not isinstance(part, Reasoning) or not opaque or opaque.get("key") != "thinking" or not _is_same_server(opaque, quirks):
        return None
    marks = {key: opaque[key] for key in THINKING_MARKS if opaque.get(key)}
    return {"type": "thinking", "thinking": [{"type": "text", "text": part.text}], **marks} if part.text else None


def _provider_fields(reasoning_parts: Sequence[Reasoning], quirks: Mapping[str, object]) -> dict[str, object]:
    """Return the provider-specific fields that the server requires back."""
    echoes = [
        part.opaque["echo"] for part in reasoning_parts if part.opaque and "echo" in part.opaque and _is_same_server(part.opaque, quirks)
    ]
    return {key: value for echo in echoes if isinstance(echo, Mapping) for key, value in echo.items()}


def _encode_call(call: ToolCall, names: WireNames, quirks: Mapping[str, object]) -> dict[str, object]:
    item: dict[str, object] = {"id": _encode_id(call.id, quirks, is_made=call.made_id)}
    if call.custom and quirks.get("custom_tools", True):
        item |= {"type": "custom", "custom": {"name": names.to_wire(call.name), "input": call.arguments}}
    else:
        item |= {"type": "function", "function": {"name": names.to_wire(call.name), "arguments": argument_text(call)}}
    opaque = call.opaque or {}
    if opaque.get("extra_content") is not None and _is_same_server(opaque, quirks):
        item["extra_content"] = opaque["extra_content"]
    return item


def _is_same_server(opaque: Mapping[str, object], quirks: Mapping[str, object]) -> bool:
    """Whether the target server sent this; assumed if either server is unknown."""
    target, origin = quirks.get("server"), opaque.get("server")
    return not target or not origin or target == origin


def _encode_tool(tool: ToolSpec, names: WireNames, quirks: Mapping[str, object]) -> dict[str, object]:
    head = {"name": names.to_wire(tool.name), "description": tool.description}
    if tool.custom and quirks.get("custom_tools", True):
        return {"type": "custom", "custom": head}
    return {"type": "function", "function": head | {"parameters": with_item_schemas(tool_schema(tool))}}


def _encode_part(part: Part, quirks: Mapping[str, object]) -> dict[str, object]:
    match part:
        case Text(text=text):
            return {"type": "text", "text": text}
        case Image(data=data, mime_type=mime):
            return {"type": "image_url", "image_url": {"url": f"data:{mime};base64,{data}"}}
        case Audio(data=data) if quirks.get("plain_audio"):
            return {"type": "input_audio", "input_audio": data}
        case Audio(data=data):
            return {"type": "input_audio", "input_audio": {"data": data, "format": _audio_format(part)}}
        case Resource() if _takes_file(part, quirks):
            file = {"filename": file_name(part), "file_data": f"data:application/pdf;base64,{pdf_data(part)}"}
            return {"type": "file", "file": file}
        case _:
            return {"type": "text", "text": part_text(part)}


def _encode_id(call_id: str, quirks: Mapping[str, object], *, is_made: bool) -> str:
    """Return the call's id; a digest if the server accepts only ids of a fixed number of letters and digits.

    The server's own id is changed only for a server that is known to be so, because the host may have sent it back itself.
    """
    chars = quirks.get("id_chars") or (quirks.get("made_id_chars") if is_made else None)
    if not isinstance(chars, int) or (len(call_id) == chars and call_id.isalnum() and call_id.isascii()):
        return call_id
    return hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:chars]
