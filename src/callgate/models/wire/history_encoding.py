"""Helpers that all encoders share: arguments that every provider accepts, groups of results, images that a result cannot hold, and the
body's bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

import msgspec

from callgate._json import json_text
from callgate.calls import Audio, Image, Link, Part, Resource, Text
from callgate.messages import Message, SystemMessage, ToolCall, ToolMessage
from callgate.models.wire.request import ModelRequest, ToolSpec

__all__ = [
    "argument_object",
    "argument_text",
    "encode_body",
    "group_results",
    "images",
    "images_of_failed_results",
    "offered_tools",
    "part_text",
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
        value = None if call.arguments.strip() != "null" else {}
    if isinstance(value, dict):
        return value
    return {"malformed_arguments": call.arguments.encode("utf-8", "replace").decode()}


def argument_text(call: ToolCall) -> str:
    """Return the call's arguments as JSON text; unchanged if they are one object already."""
    value = argument_object(call)
    return call.arguments if value and not call.custom and "malformed_arguments" not in value else json_text(value)


def part_text(part: Part) -> str:
    """Return a content part as text, for APIs that accept nothing else."""
    match part:
        case Text(text=text):
            return text
        case Link(uri=uri, name=name):
            return f"{name} <{uri}>" if name else uri
        case Resource(resource=resource):
            inner = resource.get("text")
            return inner if isinstance(inner, str) else f"[resource {resource.get('uri', '')}]"
        case Image(mime_type=mime) | Audio(mime_type=mime):
            return f"[{mime}]"


def result_text(message: ToolMessage) -> str:
    """Return a result as one text; empty if the result is empty."""
    return "\n".join(part_text(part) for part in message.content if not isinstance(part, Image))


def images(messages: Iterable[ToolMessage]) -> list[Image]:
    """Return the images of a group of results, for APIs whose results hold text only."""
    return [part for message in messages for part in message.content if isinstance(part, Image)]


def images_of_failed_results(messages: Sequence[ToolMessage]) -> list[Part]:
    """Return the images of the failed results with an introducing text, for APIs whose failed results hold text only."""
    found = images(message for message in messages if message.is_error)
    return [Text(text="Pictures from the results above:"), *found] if found else []


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
