"""What all writers of requests share: arguments that every provider takes back, runs of results, pictures that a result cannot hold."""

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
    """The call's arguments as an object. What was no object stays readable under one key: a provider refuses a history with broken JSON."""
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
    """The same as JSON text; untouched where it is one object already."""
    value = argument_object(call)
    return call.arguments if value and not call.custom and "malformed_arguments" not in value else json_text(value)


def part_text(part: Part) -> str:
    """A content part as text, for places that take nothing else."""
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
    """A result as one text, as it is: an empty one stays empty."""
    return "\n".join(part_text(part) for part in message.content if not isinstance(part, Image))


def images(messages: Iterable[ToolMessage]) -> list[Image]:
    """The pictures of a run of results, for providers whose results hold text only."""
    return [part for message in messages for part in message.content if isinstance(part, Image)]


def images_of_failed_results(messages: Sequence[ToolMessage]) -> list[Part]:
    """The same, of those results alone that failed, for providers whose failed results hold text only; told as what they are."""
    found = images(message for message in messages if message.is_error)
    return [Text(text="Pictures from the results above:"), *found] if found else []


def group_results(messages: Iterable[Message]) -> Iterator[Message | list[ToolMessage]]:
    """The conversation with each unbroken run of results as one list."""
    for is_tool, group in groupby(messages, key=lambda message: isinstance(message, ToolMessage)):
        if is_tool:
            yield [message for message in group if isinstance(message, ToolMessage)]
        else:
            yield from group


def system_text(messages: Sequence[Message]) -> str:
    """All system messages as one text, for APIs that take it beside the conversation."""
    return "\n\n".join(message.text for message in messages if isinstance(message, SystemMessage))


def offered_tools(request: ModelRequest) -> tuple[ToolSpec, ...]:
    """The tools that a provider without a choice of tools is told of: none, the one chosen, or all."""
    if request.tool_choice in ("auto", "required"):
        return request.tools
    return tuple(tool for tool in request.tools if tool.name == request.tool_choice)


def encode_body(body: dict[str, object], extra: Mapping[str, object], *, inside: str = "") -> bytes:
    """The body as bytes, with what the caller adds.

    Args:
        body: As written here.
        extra: Replaces fields of the body.
        inside: The field of settings that both may add to, rather than one replace the other's.
    """
    both, settings, more = body | dict(extra), body.get(inside), extra.get(inside)
    if isinstance(settings, dict) and isinstance(more, Mapping):
        both[inside] = settings | dict(more)
    try:
        return msgspec.json.encode(both)
    except UnicodeEncodeError:  # half a character, from somewhere in the history
        return json.dumps(both, ensure_ascii=False, default=dict).encode("utf-8", "replace")
