"""Gemma 4 and FunctionGemma: a call in a notation of their own, with a token for quotes.

    <|tool_call>call:get_weather{city:<|"|>Paris<|"|>}<tool_call|>
    <start_function_call>call:get_weather{city:<escape>Paris<escape>}<end_function_call>

The first token may be missing; then the tool has to exist, or another token has to be there. Text may stand without quotes: it goes on
to the next parameter of the tool, or to the end of the call.

Source: the chat templates of gemma-4-31B-it and functiongemma-270m-it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress

from callgate.models.dialects.dialect import Dialect, ParsedCalls
from callgate.models.dialects.known_tools import MAX_NAME_CHARS, KnownTools
from callgate.models.dialects.parsed_parts import FoundCall
from callgate.models.dialects.text_cursor import Incremental, NotACall, TextCursor
from callgate.models.dialects.typed_values import is_text_only, items_schema, json_object, json_string, parameter_schema, to_typed_json

__all__ = ["GEMMA", "GEMMA_BARE"]

_CALL = "call:"
_ENDS = ("<tool_call|>", "<end_function_call>")
_TOKENS = ('<|"|>', "<escape>")
_QUOTES = (*_TOKENS, '"', "'")
_BRACKETS = {"{": "}", "(": ")"}
_NAME = re.compile(r"[^{<(\n]*")
_WORD = re.compile(r"[\w.\-]*")
_KEY = re.compile(r"[^:,\]}\[{<]*")
_NEXT = re.compile(r"\s*([^\s:,]+)\s*:")
_NEXT_CHARS = 100
_MAX_DEPTH = 64
Schema = Mapping[str, object]


def _read(cursor: TextCursor, tools: KnownTools, opener: str) -> ParsedCalls:
    again = True
    while again:
        yield from cursor.skip_space()
        prefix = yield from cursor.take(_CALL, ":")
        name = tools.clean_name((yield from cursor.take_while(_NAME)))
        if not name or len(name) > MAX_NAME_CHARS or not (prefix or _WORD.fullmatch(name)):
            raise NotACall
        arguments = yield from _arguments(cursor, tools.schema(name))
        yield from cursor.skip_space()
        again = yield from cursor.at(_CALL)
        yield from cursor.take(*_ENDS)
        yield FoundCall(name=name, arguments=arguments)


def _read_bare(cursor: TextCursor, tools: KnownTools, opener: str) -> ParsedCalls:
    name = yield from cursor.take_while(_WORD)
    if not name or not (yield from cursor.at("{")):
        raise NotACall
    arguments = yield from _arguments(cursor, tools.schema(name))
    yield from cursor.skip_space()
    sure = (yield from cursor.take(*_ENDS)) or any(token in cursor.candidate_text() for token in _TOKENS)
    if not sure and (tools.is_empty or not tools.has(name)):
        raise NotACall
    yield FoundCall(name=tools.clean_name(name), arguments=arguments)


def _arguments(cursor: TextCursor, root: Schema | None) -> Incremental[str]:
    bracket = yield from cursor.take(*_BRACKETS)
    if bracket:
        return (yield from _object(cursor, 0, root, root, _BRACKETS[bracket]))
    end = yield from cursor.expect(*_ENDS)
    cursor.give_back(end)
    return "{}"


def _object(cursor: TextCursor, depth: int, schema: Schema | None, root: Schema | None, closer: str = "}") -> Incremental[str]:
    members: dict[str, str] = {}
    while True:
        yield from cursor.skip_space()
        if (yield from cursor.take(closer)):
            return json_object(members)
        quote = yield from cursor.take(*_QUOTES)
        key = (yield from _string(cursor, quote)) if quote else (yield from cursor.take_while(_KEY)).strip()
        yield from cursor.skip_space()
        yield from cursor.expect(":")
        members[key] = yield from _value(cursor, depth, parameter_schema(schema, key), root, closer, schema)
        yield from _separator(cursor, closer)


def _list(cursor: TextCursor, depth: int, schema: Schema | None, root: Schema | None) -> Incremental[str]:
    items: list[str] = []
    while True:
        yield from cursor.skip_space()
        if (yield from cursor.take("]")):
            return f"[{', '.join(items)}]"
        items.append((yield from _value(cursor, depth, schema, root, "]")))
        yield from _separator(cursor, "]")


def _separator(cursor: TextCursor, closer: str) -> Incremental[None]:
    yield from cursor.skip_space()
    if not (yield from cursor.take(",")) and (yield from cursor.peek()) != closer:
        raise NotACall


def _value(
    cursor: TextCursor, depth: int, schema: Schema | None, root: Schema | None, closer: str, parent: Schema | None = None
) -> Incremental[str]:
    """One value, up to the comma behind it, or to what closes the object, or the list, that it is in."""
    if depth > _MAX_DEPTH:
        raise NotACall
    yield from cursor.skip_space()
    quote = yield from cursor.take(*_QUOTES)
    if quote:
        return json_string((yield from _string(cursor, quote)))
    if not is_text_only(schema, root):
        if (yield from cursor.take("{")):
            return (yield from _object(cursor, depth + 1, schema, root))
        if (yield from cursor.take("[")):
            return (yield from _list(cursor, depth + 1, items_schema(schema), root))
        bare, mark = yield from cursor.read_until(",", closer, *_TOKENS, *_ENDS)
        cursor.give_back(mark)
        return to_typed_json(bare.strip(), schema, root)
    return json_string((yield from _bare_text(cursor, closer, parent)).strip())


def _string(cursor: TextCursor, quote: str) -> Incremental[str]:
    if quote in _TOKENS:
        text, mark = yield from cursor.read_until(quote, *(f"{closer}{end}" for closer in _BRACKETS.values() for end in _ENDS))
        cursor.give_back("" if mark == quote else mark)
        return text
    parts: list[str] = []
    while True:
        text, mark = yield from cursor.read_until(quote, f"\\{quote}", "\\\\")
        parts.append(text)
        if mark == quote:
            yield from cursor.take(*_TOKENS)
            return _unescaped("".join(parts), quote)
        parts.append(mark)


def _unescaped(text: str, quote: str) -> str:
    """What stood between quotes that are no tokens."""
    with suppress(ValueError):
        return str(json.loads(f'"{text}"', strict=False)) if quote == '"' else text.replace(f"\\{quote}", quote)
    return text


def _bare_text(cursor: TextCursor, closer: str, parent: Schema | None) -> Incremental[str]:
    """Text without quotes. A comma ends it in a list, and before another parameter; a bracket where a value may end."""
    parts: list[str] = []
    while True:
        text, mark = yield from cursor.read_until(",", closer, *_TOKENS, *_ENDS)
        parts.append(text)
        cursor.give_back(mark)
        if mark == ",":
            over = parent is None or (yield from _before_a_parameter(cursor, parent))
        else:
            over = mark != closer or (yield from cursor.is_followed_by(mark, *_ENDS, ",", "}", "]", "<|", _CALL))
        if over:
            return "".join(parts)
        parts.append((yield from cursor.expect(mark)))


def _before_a_parameter(cursor: TextCursor, parent: Schema | None) -> Incremental[bool]:
    """Whether the name of another parameter comes behind the comma."""
    while True:
        ahead = cursor.ahead(_NEXT_CHARS)[1:]
        found = _NEXT.match(ahead)
        if found is not None:
            return parameter_schema(parent, found[1].strip("\"'")) is not None
        if "," in ahead or len(ahead) == _NEXT_CHARS - 1 or not (yield from cursor.wait_more()):
            return False


GEMMA = Dialect(
    name="gemma",
    families="Gemma 4, FunctionGemma",
    example='<|tool_call>call:get_weather{city:<|"|>Paris<|"|>}<tool_call|>',
    openers=("<|tool_call>", "<start_function_call>"),
    read=_read,
    silent=("<turn|>", "<tool_call|>", "<|tool_response>", "<start_function_response>", "<end_of_turn>", "<|turn>model"),
    thoughts=(("<|channel>thought", "<channel|>"),),
)
GEMMA_BARE = Dialect(
    name="gemma-bare",
    families="Gemma 4 without its first token",
    example='call:get_weather{city:<|"|>Paris<|"|>}<tool_call|>',
    openers=(_CALL,),
    read=_read_bare,
    bare=True,
)
