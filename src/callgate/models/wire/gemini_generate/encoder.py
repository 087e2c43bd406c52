"""Write a conversation as a generateContent request: contents of user and model, a call's result as a part that names the function.

What a model generation takes differently is read from its name: the third demands signatures and takes pictures inside results. Quirks:
`json_schema` (send tool schemas as they are, in `parametersJsonSchema`), `generation` (where the name does not say it).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote

from callgate.calls import Audio, Image, Part, Resource, Text
from callgate.messages import AssistantMessage, Message, Native, Reasoning, ToolCall, ToolMessage, UserMessage
from callgate.models.wire.gemini_generate.schema_subset import reduce_schema
from callgate.models.wire.history_encoding import argument_object, encode_body, group_results, images, part_text, system_text
from callgate.models.wire.request import HttpRequest, ModelRequest, ToolSpec
from callgate.models.wire.result_order import order_results
from callgate.models.wire.tool_names import WireNames
from callgate.models.wire.tool_schemas import tool_schema

__all__ = ["encode", "encode_result"]

_API = "gemini.generate"
_GENERATION = re.compile(r"gemini-(\d+)")
_NO_SIGNATURE = "skip_thought_signature_validator"
"""What the API takes where another model wrote the call, or none was kept."""

_Item = dict[str, object]


def encode(request: ModelRequest, names: WireNames, quirks: Mapping[str, object]) -> HttpRequest:
    """The request for `/models/{model}:generateContent`, or its streaming form as server-sent events."""
    generation = _generation(request.model, quirks)
    body: _Item = {"contents": _contents(request.messages, names, generation)}
    if system := system_text(request.messages).strip():
        body["systemInstruction"] = {"parts": [{"text": system}]}
    if request.tools:
        body["tools"] = [{"functionDeclarations": [_tool(tool, names, quirks) for tool in request.tools]}]
        body["toolConfig"] = {"functionCallingConfig": _choice(request.tool_choice, names)}
    if settings := _settings(request, generation):
        body["generationConfig"] = settings
    model = request.model if "/" in request.model else f"models/{request.model}"
    method = "streamGenerateContent?alt=sse" if request.stream else "generateContent"
    return HttpRequest(path=f"/{quote(model)}:{method}", body=encode_body(body, request.extra))


def encode_result(message: ToolMessage, names: WireNames) -> _Item:
    """A result as a `functionResponse` part; with an id only where the model gave one."""
    text = "\n".join(part_text(part) for part in message.content if not isinstance(part, Image))
    response: _Item = {"name": names.to_wire(message.name), "response": {"error" if message.is_error else "result": text}}
    if message.call_id and not message.made_id:
        response["id"] = message.call_id
    return {"functionResponse": response}


def _generation(model: str, quirks: Mapping[str, object]) -> int:
    said = quirks.get("generation")
    found = _GENERATION.search(model)
    return said if isinstance(said, int) else int(found[1]) if found else 0


def _settings(request: ModelRequest, generation: int) -> _Item:
    settings: _Item = {}
    if request.max_tokens is not None:
        settings["maxOutputTokens"] = request.max_tokens
    if request.temperature is not None:
        settings["temperature"] = request.temperature
    if request.output_schema is not None and (not request.tools or generation >= 3):  # earlier ones refuse both together
        settings["responseMimeType"] = "application/json"
        settings["responseSchema"] = reduce_schema(request.output_schema, request.output_schema)
    return settings


def _contents(messages: Sequence[Message], names: WireNames, generation: int) -> list[_Item]:
    contents: list[_Item] = []
    for message in group_results(order_results(messages)):
        match message:
            case UserMessage(content=content):
                _add(contents, "user", _parts((Text(text=content),) if isinstance(content, str) else content))
            case AssistantMessage():
                if not contents:
                    contents.append(_begin())
                _add(contents, "model", _answer(message, names, generation))
            case list():
                contents += _results(message, names, generation)
            case _:
                pass
    return contents or [_begin()]


def _begin() -> _Item:
    """A content of the user, who must have the first."""
    return {"role": "user", "parts": [{"text": "(The conversation begins here.)"}]}


def _add(contents: list[_Item], role: str, parts: list[_Item]) -> None:
    """Add to the last content if it is of the same side; results stand in a content of their own."""
    last = contents[-1] if contents else None
    before = last["parts"] if last is not None and last["role"] == role else None
    if isinstance(before, list) and "functionResponse" not in before[0]:
        before.extend(parts)
    elif parts:
        contents.append({"role": role, "parts": parts})


def _results(run: list[ToolMessage], names: WireNames, generation: int) -> list[_Item]:
    """All results of one answer in one content, and the pictures in them where the model takes them."""
    items = [encode_result(message, names) for message in run]
    seen = images(run)
    if not seen:
        return [{"role": "user", "parts": items}]
    if generation >= 3:
        return [{"role": "user", "parts": [_with_pictures(item, message) for item, message in zip(items, run, strict=True)]}]
    return [{"role": "user", "parts": items}, {"role": "user", "parts": [{"text": "Pictures from the results above:"}, *map(_part, seen)]}]


def _with_pictures(item: _Item, message: ToolMessage) -> _Item:
    parts = [_part(part) for part in message.content if isinstance(part, Image)]
    response = item["functionResponse"]
    return {"functionResponse": {**response, "parts": parts}} if parts and isinstance(response, dict) else item


def _answer(message: AssistantMessage, names: WireNames, generation: int) -> list[_Item]:
    parts: list[_Item] = []
    own = message.api == _API
    for part in message.parts:
        match part:
            case Text(text=text):
                parts += [{"text": text}] if text else []
            case ToolCall():
                parts.append(_call(part, names, own))
            case Native(item=item) if own:
                parts.append(dict(item))
            case Reasoning() if own:
                _thought(parts, part)
            case _:
                pass
    _sign(parts, generation)
    return parts


def _call(call: ToolCall, names: WireNames, own: bool) -> _Item:
    function: _Item = {"name": names.to_wire(call.name), "args": argument_object(call)}
    if not call.made_id:
        function["id"] = call.id
    signature = (call.opaque or {}).get("thoughtSignature") if own else None
    return {"functionCall": function, "thoughtSignature": signature} if signature else {"functionCall": function}


def _thought(parts: list[_Item], part: Reasoning) -> None:
    """Put a signature back where it came from: on a thought, on the text before it, or on a text that was empty."""
    opaque = part.opaque or {}
    if signature := opaque.get("textSignature"):
        if parts and set(parts[-1]) == {"text"}:
            parts[-1]["thoughtSignature"] = signature
        else:
            parts.append({"text": "", "thoughtSignature": signature})
    elif signature := opaque.get("thoughtSignature"):
        parts.append({"text": part.text, "thought": True, "thoughtSignature": signature})


def _sign(parts: list[_Item], generation: int) -> None:
    """The third generation refuses an answer whose first call has no signature."""
    first = next((part for part in parts if "functionCall" in part), None)
    if first is not None and generation >= 3:
        first.setdefault("thoughtSignature", _NO_SIGNATURE)


def _tool(tool: ToolSpec, names: WireNames, quirks: Mapping[str, object]) -> _Item:
    item: _Item = {"name": names.to_wire(tool.name), "description": tool.description}
    schema = tool_schema(tool)
    if quirks.get("json_schema"):
        return item | {"parametersJsonSchema": schema}
    parameters = reduce_schema(schema, schema)
    return item | {"parameters": parameters} if "properties" in parameters else item


def _choice(choice: str, names: WireNames) -> _Item:
    mode = {"auto": "AUTO", "none": "NONE", "required": "ANY"}.get(choice)
    return {"mode": mode} if mode else {"mode": "ANY", "allowedFunctionNames": [names.to_wire(choice)]}


def _parts(parts: Iterable[Part]) -> list[_Item]:
    return [item for item in map(_part, parts) if item.get("text") != ""]


def _part(part: Part) -> _Item:
    match part:
        case Image(data=data, mime_type=mime) | Audio(data=data, mime_type=mime):
            return {"inlineData": {"mimeType": mime, "data": data}}
        case Resource(resource={"blob": str(blob), "mimeType": str(mime)}):
            return {"inlineData": {"mimeType": mime, "data": blob}}
        case _:
            return {"text": part_text(part)}
