"""Encode a conversation as a request for Ollama's `/api/chat`.

Ollama has no tool choice: `none` offers no tools, and the name of one tool offers that one alone. For a parameter, its SDK sends the type,
the description, the items and the enum only, so the type and the description have what other keywords say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from callgate._json import json_text
from callgate.content_parts import Image, part_text
from callgate.messages import AssistantMessage, Message, Reasoning, SystemMessage, ToolCall, ToolMessage, UserMessage
from callgate.models.wire.gemini_generate.schema_subset import FollowedReferences, reduce_schema
from callgate.models.wire.history_encoding import argument_object, encode_body, group_results, images, offered_tools, result_text
from callgate.models.wire.image_types import with_accepted_images
from callgate.models.wire.json_fields import as_object, as_objects, as_text
from callgate.models.wire.request import HttpRequest, ModelRequest, ToolSpec
from callgate.models.wire.result_order import order_results
from callgate.models.wire.tool_names import WireNames
from callgate.models.wire.tool_schemas import resolve_reference, tool_schema

__all__ = ["encode", "encode_history", "encode_result", "encode_tools"]

_HIDDEN = frozenset({"anyOf", "oneOf", "allOf", "$ref", "properties", "const"})
_MAX_DEPTH = 8
_TYPE_NAMES: Mapping[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
    list: "array",
    dict: "object",
}


def encode(request: ModelRequest, names: WireNames, quirks: Mapping[str, object]) -> HttpRequest:
    """Return the request for `/api/chat`."""
    messages = encode_history(request, names, quirks)
    body: dict[str, object] = {"model": request.model, "messages": messages, "stream": request.stream}
    if tools := offered_tools(request):
        body["tools"] = encode_tools(tools, names, quirks)
    options: dict[str, object] = {}
    if request.max_tokens is not None:
        options["num_predict"] = request.max_tokens
    if request.temperature is not None:
        options["temperature"] = request.temperature
    if options:
        body["options"] = options
    if request.output_schema is not None:
        body["format"] = request.output_schema
    return HttpRequest(path="/api/chat", body=encode_body(body, request.extra, settings_key="options"))


def encode_history(request: ModelRequest, names: WireNames, quirks: Mapping[str, object]) -> list[dict[str, object]]:
    """Return the conversation as the request's `messages`."""
    messages: list[dict[str, object]] = []
    for message in group_results(order_results(with_accepted_images(request.messages))):
        messages.extend(_encode_results(message, names) if isinstance(message, list) else [_encode_message(message, names)])
    return messages


def encode_tools(tools: Sequence[ToolSpec], names: WireNames, quirks: Mapping[str, object]) -> list[dict[str, object]]:
    """Return the value of the request's `tools`."""
    return [_encode_tool(tool, names) for tool in tools]


def encode_result(message: ToolMessage, names: WireNames) -> dict[str, object]:
    """Return a result as a `tool` message, with the tool's name, and the call's id if the server gave one."""
    item: dict[str, object] = {"role": "tool", "content": result_text(message), "tool_name": names.to_wire(message.name)}
    return item if message.made_id else item | {"tool_call_id": message.call_id}


def _encode_results(results: list[ToolMessage], names: WireNames) -> list[dict[str, object]]:
    items = [encode_result(message, names) for message in results]
    if result_images := images(results):
        items.append({"role": "user", "content": "Pictures from the results above:", "images": [image.data for image in result_images]})
    return items


def _encode_message(message: Message, names: WireNames) -> dict[str, object]:
    match message:
        case SystemMessage(text=text):
            return {"role": "system", "content": text}
        case UserMessage(content=content):
            return _encode_user(content)
        case AssistantMessage():
            return _encode_answer(message, names)
        case ToolMessage():
            return encode_result(message, names)


def _encode_user(content: object) -> dict[str, object]:
    if not isinstance(content, tuple):
        return {"role": "user", "content": content}
    item: dict[str, object] = {"role": "user", "content": "\n".join(part_text(part) for part in content if not isinstance(part, Image))}
    image_data = [part.data for part in content if isinstance(part, Image)]
    return item | {"images": image_data} if image_data else item


def _encode_answer(message: AssistantMessage, names: WireNames) -> dict[str, object]:
    item: dict[str, object] = {"role": "assistant", "content": message.text}
    thinking = "".join(part.text for part in message.parts if isinstance(part, Reasoning))
    if thinking and message.api == "ollama.chat":
        item["thinking"] = thinking
    if message.calls:
        item["tool_calls"] = [_encode_call(call, names) for call in message.calls]
    return item


def _encode_call(call: ToolCall, names: WireNames) -> dict[str, object]:
    item: dict[str, object] = {"function": {"name": names.to_wire(call.name), "arguments": argument_object(call)}}
    return item if call.made_id else {"id": call.id} | item


def _encode_tool(tool: ToolSpec, names: WireNames) -> dict[str, object]:
    schema = tool_schema(tool)
    references, properties = FollowedReferences(schema), as_object(schema["properties"])
    parameters = {**schema, "properties": {name: _with_visible_type(one, schema, references) for name, one in properties.items()}}
    head = {"name": names.to_wire(tool.name), "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": head}


def _with_visible_type(parameter: object, root: Mapping[str, object], references: FollowedReferences) -> object:
    """Return the schema of a parameter with a type and a description that say what alternatives, references and properties say."""
    schema = as_object(parameter)
    if _HIDDEN.isdisjoint(schema):
        return parameter
    types = list(dict.fromkeys(_types(schema, root)))
    visible = {**schema, "type": types[0] if len(types) == 1 else types} if types else dict(schema)
    branches = as_objects(schema.get("anyOf"))
    if types and branches and all(branch.keys() <= {"type", "title"} for branch in branches):
        return visible
    hidden = {key: value for key, value in schema.items() if key not in ("description", "title", "default")}
    if '"$ref"' in json_text(hidden):
        hidden = reduce_schema(hidden, references)
    return {**visible, "description": f"{as_text(schema.get('description'))} JSON Schema: {json_text(hidden)}".lstrip()}


def _types(schema: Mapping[str, object], root: Mapping[str, object], depth: int = 0) -> list[str]:
    """Return the types that a value may have; empty if the schema does not say it, or refers to itself."""
    schema = resolve_reference(schema, root) if depth < _MAX_DEPTH else {}
    if "type" in schema:
        kinds = schema["type"]
        return [str(kind) for kind in kinds] if isinstance(kinds, list) else [str(kinds)]
    if "properties" in schema:
        return ["object"]
    if branches := [*as_objects(schema.get("anyOf")), *as_objects(schema.get("oneOf"))]:
        found = [_types(branch, root, depth + 1) for branch in branches]
        return [kind for kinds in found for kind in kinds] if all(found) else []
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    return [_TYPE_NAMES[type(value)] for value in values] if isinstance(values, list) else []
