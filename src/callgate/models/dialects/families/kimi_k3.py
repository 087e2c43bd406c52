"""Kimi K3: parts with opening and closing markers, each argument with its type.

    <|open|>tools<|sep|><|open|>call tool="get_weather" index="1"<|sep|><|open|>argument key="city" type="string"<|sep|>Paris
    <|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>

Source: the chat template of Kimi-K3.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import unescape

from callgate.models.dialects.dialect import Dialect, ParsedCalls
from callgate.models.dialects.known_tools import MAX_HEADER_CHARS, KnownTools
from callgate.models.dialects.tag_values import read_balanced
from callgate.models.dialects.text_and_call_parts import FoundCall
from callgate.models.dialects.text_cursor import NotACall, TextCursor
from callgate.models.dialects.typed_values import json_object, json_string, json_type, parameter_schema, to_typed_json

__all__ = ["KIMI_K3"]

_SEPARATOR = "<|sep|>"


def _make_openers(name: str) -> tuple[str, ...]:
    return f"<|open|>{name} ", f"<|open|> {name} "


def _make_marker(kind: str, name: str) -> tuple[str, ...]:
    """Return a marker without attributes, with and without the spaces that some servers put between its tokens."""
    return f"<|{kind}|>{name}{_SEPARATOR}", f"<|{kind}|> {name} {_SEPARATOR}"


_ARGUMENT, _END_ARGUMENT = _make_openers("argument"), _make_marker("close", "argument")
_CALL, _END_CALL = _make_openers("call"), _make_marker("close", "call")
_NAME = re.compile(r'(?:tool|name)="([^"]*)"')
_KEY = re.compile(r'(?:key|name)="([^"]*)"')


def _make_part_markers(*names: str) -> tuple[str, ...]:
    return tuple(marker for name in names for kind in ("open", "close") for marker in _make_marker(kind, name))


def _read(cursor: TextCursor, tools: KnownTools, opener: str) -> ParsedCalls:
    header, _ = yield from cursor.read_until(_SEPARATOR, limit=MAX_HEADER_CHARS)
    named = _NAME.search(header)
    if named is None:
        raise NotACall
    name = tools.clean_name(unescape(named[1]))
    root = tools.schema(name)
    members: dict[str, str] = {}
    while True:
        yield from cursor.skip_space()
        if (yield from cursor.take(*_END_CALL)):
            yield FoundCall(name=name, arguments=json_object(members))
            return
        if members and not cursor.truncated and not (yield from cursor.peek()):
            yield FoundCall(name=name, arguments=json_object(members), closed="finished")
            return
        yield from cursor.expect(*_ARGUMENT)
        header, _ = yield from cursor.read_until(_SEPARATOR, limit=MAX_HEADER_CHARS)
        found = _KEY.search(header)
        if found is None:
            raise NotACall
        key = unescape(found[1])
        text = yield from read_balanced(cursor, _ARGUMENT, _END_ARGUMENT)
        members[key] = _convert_value(text, header, parameter_schema(root, key), root)


def _convert_value(text: str, header: str, schema: Mapping[str, object] | None, root: Mapping[str, object] | None) -> str:
    """Return a value as JSON: the argument's own type takes precedence over the schema."""
    if 'type="string"' in header:
        return json_string(text)
    return text.strip() if json_type(text) else to_typed_json(text, schema, root)


KIMI_K3 = Dialect(
    name="kimi-k3",
    families="Kimi K3",
    example=(
        '<|open|>call tool="get_weather" index="1"<|sep|><|open|>argument key="city" type="string"<|sep|>Paris'
        "<|close|>argument<|sep|><|close|>call<|sep|>"
    ),
    openers=_CALL,
    read=_read,
    ignored_markers=(*_make_part_markers("response", "tools", "message"), "<|end_of_msg|>"),
    reasoning_markers=tuple(zip(_make_marker("open", "think"), _make_marker("close", "think"), strict=True)),
)
