"""Encode a conversation as a generateContent request: contents of user and model, and results as parts that name the function.

The model's name determines its generation: the third requires signatures and accepts images inside results. Quirks: `json_schema` (send
tool schemas unchanged, in `parametersJsonSchema`), `generation` (if the name does not contain it).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote

from callgate.content_parts import Audio, Image, Part, Resource, Text, part_text
from callgate.messages import AssistantMessage, Message, Native, Reasoning, ToolCall, ToolMessage, UserMessage
from callgate.models.wire.gemini_generate.schema_subset import FollowedReferences, reduce_schema
from callgate.models.wire.history_encoding import (
    argument_object,
    encode_body,
    group_results,
    parts_after_results,
    pdf_data,
    result_text,
    system_text,
)
from callgate.models.wire.image_types import GEMINI_IMAGES, with_accepted_images
from callgate.models.wire.request import HttpRequest, ModelRequest, ToolSpec
from callgate.models.wire.result_order import order_results
from callgate.models.wire.tool_names import WireNames
from callgate.models.wire.tool_schemas import tool_schema

__all__ = ["encode", "encode_history", "encode_result", "encode_tools"]

_API = "gemini.generate"
_MODEL_GENERATION = re.compile(r"gemini-(\d+)")
_NO_SIGNATURE = "skip_thought_signature_validator"
"""The signature that the API accepts if another model wrote the call, or none was kept."""

_Item = dict[str, object]

_MEDIA = ("audio/", "video/", "text/")
_INSIDE = frozenset({"image/png", "image/jpeg", "image/webp"})
"""The images that a result may hold."""


def encode(request: ModelRequest, names: WireNames, quirks: Mapping[str, object]) -> HttpRequest:
    """Return the request for `/models/{model}:generateContent`, or its streaming form as server-sent events."""
    generation = _model_generation(request.model, quirks)
    body: _Item = {"contents": encode_history(request, names, quirks)}
    if system := system_text(request.messages).strip():
        body["systemInstruction"] = {"parts": [{"text": system}]}
    if request.tools:
        body["tools"] = encode_tools(request.tools, names, quirks)
        body["toolConfig"] = {"functionCallingConfig": _encode_tool_choice(request.tool_choice, names)}
    if settings := _generation_config(request, generation):
        body["generationConfig"] = settings
    model = request.model if "/" in request.model else f"models/{request.model}"
    method = "streamGenerateContent?alt=sse" if request.stream else "generateContent"
    return HttpRequest(path=f"/{quote(model)}:{method}", body=encode_body(body, request.extra))


def encode_history(request: ModelRequest, names: WireNames, quirks: Mapping[str, object]) -> list[_Item]:
    """Return the conversation as the request's `contents`."""
    return _encode_contents(request.messages, names, _model_generation(request.model, quirks))


def encode_tools(tools: Sequence[ToolSpec], names: WireNames, quirks: Mapping[str, object]) -> list[_Item]:
    """Return the value of the request's `tools`: one item that declares all functions."""
    return [{"functionDeclarations": [_encode_tool(tool, names, quirks) for tool in tools]}] if tools else []


def encode_result(message: ToolMessage, names: WireNames) -> _Item:
    """Return a result as a `functionResponse` part, with an id only if the model gave one."""
    text = result_text(message, _is_media)
    response: _Item = {"name": names.to_wire(message.name), "response": {"error" if message.is_error else "result": text}}
    if message.call_id and not message.made_id:
        response["id"] = message.call_id
    return {"functionResponse": response}


def _model_generation(model: str, quirks: Mapping[str, object]) -> int:
    configured = quirks.get("generation")
    found = _MODEL_GENERATION.search(model)
    return configured if isinstance(configured, int) else int(found[1]) if found else 0


def _generation_config(request: ModelRequest, generation: int) -> _Item:
    settings: _Item = {}
    if request.max_tokens is not None:
        settings["maxOutputTokens"] = request.max_tokens
    if request.temperature is not None:
        settings["temperature"] = request.temperature
    if request.output_schema is not None and (not request.tools or generation >= 3):  # earlier generations refuse both together
        settings["responseMimeType"] = "application/json"
        settings["responseSchema"] = reduce_schema(request.output_schema, FollowedReferences(request.output_schema))
    return settings


def _encode_contents(messages: Sequence[Message], names: WireNames, generation: int) -> list[_Item]:
    contents: list[_Item] = []
    for message in group_results(order_results(with_accepted_images(messages, GEMINI_IMAGES))):
        match message:
            case UserMessage(content=content):
                _append_content(contents, "user", _encode_parts((Text(text=content),) if isinstance(content, str) else content))
            case AssistantMessage():
                if not contents:
                    contents.append(_first_user_content())
                _append_content(contents, "model", _encode_answer(message, names, generation))
            case list():
                contents += _encode_results(message, names, generation)
            case _:
                pass
    return contents or [_first_user_content()]


def _first_user_content() -> _Item:
    """Return the user's content that opens a conversation which would otherwise begin without one."""
    return {"role": "user", "parts": [{"text": "(The conversation begins here.)"}]}


def _append_content(contents: list[_Item], role: str, parts: list[_Item]) -> None:
    """Append to the last content if it has the same role; results stay in a content of their own."""
    last = contents[-1] if contents else None
    before = last["parts"] if last is not None and last["role"] == role else None
    if isinstance(before, list) and "functionResponse" not in before[0]:
        before.extend(parts)
    elif parts:
        contents.append({"role": role, "parts": parts})


def _encode_results(results: list[ToolMessage], names: WireNames, generation: int) -> list[_Item]:
    """Return all results of one answer in one content, with their images inside or after them."""
    items = [encode_result(message, names) for message in results]
    if generation >= 3:
        items = [_with_media(item, message) for item, message in zip(items, results, strict=True)]
    after = parts_after_results(results, _is_after if generation >= 3 else _is_media)
    contents: list[_Item] = [{"role": "user", "parts": items}]
    return [*contents, {"role": "user", "parts": [_encode_part(part) for part in after]}] if after else contents


def _is_media(part: Part) -> bool:
    """Whether a part is sent as media, not as text."""
    return isinstance(part, (Image, Audio)) or bool(_media_blob(part))


def _is_after(part: Part) -> bool:
    """Whether a part is sent after the results in any generation: they hold no audio, no video and not every image."""
    return _is_media(part) and not _is_inside(part)


def _is_inside(part: Part) -> bool:
    """Whether a result of the third generation may hold a part."""
    return bool(pdf_data(part)) or (isinstance(part, Image) and part.mime_type in _INSIDE)


def _media_blob(part: Part) -> tuple[str, str] | None:
    """Return media type and Base64 of a file that the API takes; it refuses the whole request for any other file."""
    match part:
        case Resource(resource={"blob": str(blob), "mimeType": str(mime)}) if (
            mime == "application/pdf" or mime in GEMINI_IMAGES or mime.startswith(_MEDIA)
        ):
            return mime, blob
        case _:
            return None


def _with_media(item: _Item, message: ToolMessage) -> _Item:
    """Return a result with its images and documents inside."""
    parts = [_encode_part(part) for part in message.content if _is_inside(part)]
    response = item["functionResponse"]
    return {"functionResponse": {**response, "parts": parts}} if parts and isinstance(response, dict) else item


def _encode_answer(message: AssistantMessage, names: WireNames, generation: int) -> list[_Item]:
    parts: list[_Item] = []
    same_api = message.api == _API
    for part in message.parts:
        match part:
            case Text(text=text):
                parts += [{"text": text}] if text else []
            case ToolCall():
                parts.append(_encode_call(part, names, same_api))
            case Native(item=item) if same_api:
                parts.append(dict(item))
            case Reasoning() if same_api:
                _restore_signature(parts, part)
            case _:
                pass
    _sign_first_call(parts, generation)
    return parts


def _encode_call(call: ToolCall, names: WireNames, same_api: bool) -> _Item:
    function: _Item = {"name": names.to_wire(call.name), "args": argument_object(call)}
    if not call.made_id:
        function["id"] = call.id
    signature = (call.opaque or {}).get("thoughtSignature") if same_api else None
    return {"functionCall": function, "thoughtSignature": signature} if signature else {"functionCall": function}


def _restore_signature(parts: list[_Item], part: Reasoning) -> None:
    """Put a signature back in its original place: the reasoning, the text before it, or an empty text."""
    opaque = part.opaque or {}
    if signature := opaque.get("textSignature"):
        if parts and set(parts[-1]) == {"text"}:
            parts[-1]["thoughtSignature"] = signature
        else:
            parts.append({"text": "", "thoughtSignature": signature})
    elif signature := opaque.get("thoughtSignature"):
        parts.append({"text": part.text, "thought": True, "thoughtSignature": signature})


def _sign_first_call(parts: list[_Item], generation: int) -> None:
    """Add a signature to the first call: the third generation refuses an answer without one."""
    first = next((part for part in parts if "functionCall" in part), None)
    if first is not None and generation >= 3:
        first.setdefault("thoughtSignature", _NO_SIGNATURE)


def _encode_tool(tool: ToolSpec, names: WireNames, quirks: Mapping[str, object]) -> _Item:
    item: _Item = {"name": names.to_wire(tool.name), "description": tool.description}
    schema = tool_schema(tool)
    if quirks.get("json_schema"):
        return item | {"parametersJsonSchema": schema}
    parameters = reduce_schema(schema, FollowedReferences(schema))
    return item | {"parameters": parameters} if "properties" in parameters else item


def _encode_tool_choice(choice: str, names: WireNames) -> _Item:
    mode = {"auto": "AUTO", "none": "NONE", "required": "ANY"}.get(choice)
    return {"mode": mode} if mode else {"mode": "ANY", "allowedFunctionNames": [names.to_wire(choice)]}


def _encode_parts(parts: Iterable[Part]) -> list[_Item]:
    return [item for item in map(_encode_part, parts) if item.get("text") != ""]


def _encode_part(part: Part) -> _Item:
    if isinstance(part, (Image, Audio)):
        return {"inlineData": {"mimeType": part.mime_type, "data": part.data}}
    if blob := _media_blob(part):
        return {"inlineData": {"mimeType": blob[0], "data": blob[1]}}
    return {"text": part_text(part)}
