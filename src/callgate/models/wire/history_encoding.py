"""What all encoders share: arguments that every provider accepts, groups of results, images that a result cannot hold, and the body."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from urllib.parse import unquote

import msgspec

from callgate._json import json_text
from callgate.content_parts import Image, Part, Resource, Text, part_text
from callgate.messages import Message, SystemMessage, ToolCall, ToolMessage
from callgate.models.wire.request import ModelRequest, ToolSpec

__all__ = [
    "argument_object",
    "argument_text",
    "encode_body",
    "file_name",
    "group_results",
    "images",
    "images_of_failed_results",
    "is_image",
    "offered_tools",
    "parts_after_results",
    "pdf_data",
    "result_text",
    "system_text",
]

_decode = msgspec.json.Decoder().decode


def argument_object(call: ToolCall) -> dict[str, object]:
    """Return the call's arguments as an object.

    Malformed arguments become an object with their text under one key, because providers refuse malformed JSON.
    """
    if call.custom:
        return {"input": call.arguments.encode("utf-8", "replace").decode()}
    try:
        value = _decode(call.arguments) if call.arguments.strip() else {}
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        value = call.arguments
    if value is None:  # as the parser reads it
        return {}
    if isinstance(value, dict):
        return value
    return {"malformed_arguments": call.arguments.encode("utf-8", "replace").decode()}


def argument_text(call: ToolCall) -> str:
    """Return the call's arguments as JSON text; unchanged if they are one object already."""
    value = argument_object(call)
    return call.arguments if value and not call.custom and "malformed_arguments" not in value else json_text(value)


def is_image(part: Part) -> bool:
    return isinstance(part, Image)


def pdf_data(part: Part) -> str:
    """Return the Base64 of a PDF file; empty for any other part."""
    match part:
        case Resource(resource={"mimeType": "application/pdf", "blob": str(blob)}):
            return blob
        case _:
            return ""


def file_name(part: Part) -> str:
    """Return the name of a file."""
    uri = str(part.resource.get("uri", "")) if isinstance(part, Resource) else ""
    return unquote(uri.rstrip("/").rpartition("/")[2])[-100:] or "file"


def result_text(message: ToolMessage, apart: Callable[[Part], bool] = is_image) -> str:
    """Return a result as one text; empty if the result is empty.

    Args:
        apart: Whether a part is sent after the result; see `parts_after_results`.
    """
    return "\n".join(part_text(part) for part in message.content if not apart(part))


def images(messages: Iterable[ToolMessage]) -> list[Image]:
    """Return the images of a group of results, for APIs whose results hold text only."""
    return [part for message in messages for part in message.content if isinstance(part, Image)]


def parts_after_results(messages: Iterable[ToolMessage], apart: Callable[[Part], bool]) -> list[Part]:
    """Return the parts of a group of results that are sent after them with an introducing text; empty if there are none."""
    found = [part for message in messages for part in message.content if apart(part)]
    kind = "Pictures" if all(map(is_image, found)) else "Files"
    return [Text(text=f"{kind} from the results above:"), *found] if found else []


def images_of_failed_results(messages: Sequence[ToolMessage]) -> list[Part]:
    """Return the images of the failed results with an introducing text, for APIs whose failed results hold text only."""
    return parts_after_results((message for message in messages if message.is_error), is_image)


def group_results(messages: Iterable[Message]) -> Iterator[Message | list[ToolMessage]]:
    """Yield the conversation with consecutive results as one list."""
    for is_tool, group in groupby(messages, key=lambda message: isinstance(message, ToolMessage)):
        if is_tool:
            yield [message for message in group if isinstance(message, ToolMessage)]
        else:
            yield from group


def system_text(messages: Sequence[Message]) -> str:
    """Return all system messages as one text, for APIs with a separate system field."""
    return "\n\n".join(message.text for message in messages if isinstance(message, SystemMessage))


def offered_tools(request: ModelRequest) -> tuple[ToolSpec, ...]:
    """Return the tools to offer where an API has no tool choice: none, the chosen one, or all."""
    if request.tool_choice in ("auto", "required"):
        return request.tools
    return tuple(tool for tool in request.tools if tool.name == request.tool_choice)


def encode_body(body: dict[str, object], extra: Mapping[str, object], *, settings_key: str = "") -> bytes:
    """Return the body as JSON bytes, with the caller's extra fields.

    Args:
        body: The encoded request.
        extra: Replaces fields of the body.
        settings_key: A field whose objects are merged instead of replaced.
    """
    combined, settings, added = body | dict(extra), body.get(settings_key), extra.get(settings_key)
    if isinstance(settings, dict) and isinstance(added, Mapping):
        combined[settings_key] = settings | dict(added)
    try:
        return msgspec.json.encode(combined)
    except UnicodeEncodeError:  # a lone surrogate, from somewhere in the history
        return json.dumps(combined, ensure_ascii=False, default=dict).encode("utf-8", "replace")
