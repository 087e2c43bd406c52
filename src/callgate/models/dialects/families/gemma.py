"""Gemma 4 and FunctionGemma: a call in a notation of their own, with a token for quotes.

    <|tool_call>call:get_weather{city:<|"|>Paris<|"|>}<tool_call|>
    <start_function_call>call:get_weather{city:<escape>Paris<escape>}<end_function_call>

Source: the chat templates of gemma-4-31B-it and functiongemma-270m-it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from callgate.models.dialects.cursor import Cursor, NoCall, Wait
from callgate.models.dialects.names import ToolNames
from callgate.models.dialects.parts import Found
from callgate.models.dialects.shape import Dialect, Reads
from callgate.models.dialects.typed import as_object, items_schema, parameter_schema, quoted, typed

__all__ = ["GEMMA"]

_ENDS = ("<tool_call|>", "<end_function_call>")
_STRINGS = ('<|"|>', "<escape>", '"')
_NAME = re.compile(r"[^{<(\n]*")
_BARE = re.compile(r"[^,\]}\[{<]*")
_KEY = re.compile(r"[^:,\]}\[{<]*")
_MAX_DEPTH = 64
Schema = Mapping[str, object]


def _read(cursor: Cursor, tools: ToolNames, opener: str) -> Reads:
    yield from cursor.white()
    yield from cursor.expect("call:")
    name = tools.written((yield from cursor.run(_NAME)))
    if not name or len(name) > 200:
        raise NoCall
    if (yield from cursor.take("{")):
        root = tools.schema(name)
        arguments = yield from _object(cursor, 0, root, root)
        yield from cursor.white()
        yield from cursor.take(*_ENDS)
        yield Found(name=name, arguments=arguments)
    else:
        yield from cursor.expect(*_ENDS)
        yield Found(name=name, arguments="{}")


def _value(cursor: Cursor, depth: int, schema: Schema | None, root: Schema | None) -> Wait[str]:
    if depth > _MAX_DEPTH:
        raise NoCall
    yield from cursor.white()
    quote = yield from cursor.take(*_STRINGS)
    if quote:
        return quoted((yield from _string(cursor, quote)))
    if (yield from cursor.take("{")):
        return (yield from _object(cursor, depth + 1, schema, root))
    if (yield from cursor.take("[")):
        return (yield from _list(cursor, depth + 1, items_schema(schema), root))
    return typed((yield from cursor.run(_BARE)).strip(), schema, root)


def _string(cursor: Cursor, quote: str) -> Wait[str]:
    if quote != '"':
        return (yield from cursor.until(quote))[0]
    parts: list[str] = []
    while True:
        text, mark = yield from cursor.until('"', '\\"')
        parts.append(text)
        if mark == '"':
            return "".join(parts)
        parts.append('"')


def _object(cursor: Cursor, depth: int, schema: Schema | None, root: Schema | None) -> Wait[str]:
    members: dict[str, str] = {}
    while True:
        yield from cursor.white()
        if (yield from cursor.take("}")):
            return as_object(members)
        quote = yield from cursor.take(*_STRINGS)
        key = (yield from _string(cursor, quote)) if quote else (yield from cursor.run(_KEY)).strip()
        yield from cursor.white()
        yield from cursor.expect(":")
        members[key] = yield from _value(cursor, depth, parameter_schema(schema, key), root)
        yield from _separator(cursor, "}")


def _list(cursor: Cursor, depth: int, schema: Schema | None, root: Schema | None) -> Wait[str]:
    items: list[str] = []
    while True:
        yield from cursor.white()
        if (yield from cursor.take("]")):
            return f"[{', '.join(items)}]"
        items.append((yield from _value(cursor, depth, schema, root)))
        yield from _separator(cursor, "]")


def _separator(cursor: Cursor, closer: str) -> Wait[None]:
    yield from cursor.white()
    if not (yield from cursor.take(",")) and (yield from cursor.peek()) != closer:
        raise NoCall


GEMMA = Dialect(
    name="gemma",
    families="Gemma 4, FunctionGemma",
    example='<|tool_call>call:get_weather{city:<|"|>Paris<|"|>}<tool_call|>',
    openers=("<|tool_call>", "<start_function_call>"),
    read=_read,
    silent=("<turn|>", "<tool_call|>", "<|tool_response>", "<start_function_response>", "<end_of_turn>", "<|turn>model"),
    thoughts=(("<|channel>thought", "<channel|>"),),
)
