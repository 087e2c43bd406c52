"""Gemma 4 and FunctionGemma: a call in their own notation, with a special token for quotes.

    <|tool_call>call:get_weather{city:<|"|>Paris<|"|>}<tool_call|>
    <start_function_call>call:get_weather{city:<escape>Paris<escape>}<end_function_call>

The first token may be missing; then the tool must be known, or another token must be present. Text may be unquoted: it extends to the
next parameter of the tool, or to the end of the call.

Source: the chat templates of gemma-4-31B-it and functiongemma-270m-it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress

from callgate.models.dialects.dialect import Dialect, ParsedCalls
from callgate.models.dialects.known_tools import MAX_NAME_CHARS, KnownTools
from callgate.models.dialects.marked_json import read_rest
from callgate.models.dialects.text_and_call_parts import FoundCall
from callgate.models.dialects.text_cursor import Incremental, NotACall, TextCursor
from callgate.models.dialects.typed_values import is_text_only, items_schema, json_object, json_string, parameter_schema, to_typed_json

__all__ = ["GEMMA", "GEMMA_BARE"]

_CALL_PREFIX = "call:"
_OPENERS = ("<|tool_call>", "<start_function_call>")
_ENDS = ("<tool_call|>", "<end_function_call>")
_QUOTE_TOKENS = ('<|"|>', "<escape>")
_QUOTES = (*_QUOTE_TOKENS, '"', "'")
_BRACKETS = {"{": "}", "(": ")"}
_NAME = re.compile(r"[^{<(\n]*")
_CALL_OR_BRACKET = re.compile(r"call:[\w.\-]+[{(]|[{}()]")
_WORD, _WORD_CHARACTER = re.compile(r"[\w.\-]*"), re.compile(r"\w")
_KEY, _KEYWORD = re.compile(r"[^:,\]}\[{<]*"), re.compile(r"[^:=,\]}\[{<()]*")
_NEXT_KEY = re.compile(r"\s*([^\s:,]+)\s*:")
_NEXT_KEY_CHARS = 100
_NULLS = ("null", "None")
_PYTHON_CONSTANTS = {"True": "true", "False": "false", "None": "null"}
_MAX_NESTING = 64
Schema = Mapping[str, object]


def _read(cursor: TextCursor, tools: KnownTools, opener: str) -> ParsedCalls:
    has_next = True
    while has_next:
        yield from cursor.skip_space()
        prefix = yield from cursor.take(_CALL_PREFIX, ":")
        name = tools.clean_name((yield from cursor.take_while(_NAME)))
        name = _strip_namespace(name, tools)
        if not _WORD_CHARACTER.search(name) or len(name) > MAX_NAME_CHARS or not (prefix or _WORD.fullmatch(name)):
            raise NotACall
        arguments = yield from _read_arguments(cursor, tools.schema(name))
        yield from cursor.skip_space()
        has_next = yield from cursor.at(_CALL_PREFIX)
        ended = yield from cursor.take(*_ENDS)
        if not ended and not (tools.is_name(name) and (has_next or not (yield from read_rest(cursor, _ENDS, _OPENERS)))):
            raise NotACall
        yield FoundCall(name=name, arguments=arguments)


def _strip_namespace(name: str, tools: KnownTools) -> str:
    """Return the name of a known tool without the namespaces that the model wrote before it, as in `google:mcp:search`."""
    own = name.rpartition(":")[2]
    return own if tools.has(own) and not tools.has(name) else name


def _read_bare(cursor: TextCursor, tools: KnownTools, opener: str) -> ParsedCalls:
    name = yield from cursor.take_while(_WORD)
    if not name or (yield from cursor.peek()) not in _BRACKETS:
        raise NotACall
    arguments = yield from _read_arguments(cursor, tools.schema(name))
    yield from cursor.skip_space()
    is_marked = (yield from cursor.take(*_ENDS)) or any(token in cursor.candidate_text() for token in _QUOTE_TOKENS)
    if not is_marked and (tools.is_empty or not tools.has(name)):
        raise NotACall
    yield FoundCall(name=tools.clean_name(name), arguments=arguments)


def _read_arguments(cursor: TextCursor, root: Schema | None) -> Incremental[str]:
    bracket = yield from cursor.take(*_BRACKETS)
    if bracket:
        return (yield from _read_object(cursor, 0, root, root, _BRACKETS[bracket]))
    end = yield from cursor.expect(*_ENDS)
    cursor.give_back(end)
    return "{}"


def _read_object(cursor: TextCursor, depth: int, schema: Schema | None, root: Schema | None, closer: str = "}") -> Incremental[str]:
    members: dict[str, str] = {}
    is_python = closer == ")"
    while True:
        yield from cursor.skip_space()
        if (yield from cursor.take(closer)):
            return json_object(members)
        quote = yield from cursor.take(*_QUOTES)
        if quote:
            key = yield from _read_string(cursor, quote, ":=", None)
        else:
            key = (yield from cursor.take_while(_KEYWORD if is_python else _KEY)).strip()
        yield from cursor.skip_space()
        yield from cursor.expect(*(":", "=") if is_python else ":")
        members[key] = yield from _read_value(cursor, depth, parameter_schema(schema, key), root, closer, schema)
        yield from _read_separator(cursor, closer)


def _read_list(cursor: TextCursor, depth: int, schema: Schema | None, root: Schema | None) -> Incremental[str]:
    items: list[str] = []
    while True:
        yield from cursor.skip_space()
        if (yield from cursor.take("]")):
            return f"[{', '.join(items)}]"
        items.append((yield from _read_value(cursor, depth, schema, root, "]")))
        yield from _read_separator(cursor, "]")


def _read_separator(cursor: TextCursor, closer: str) -> Incremental[None]:
    yield from cursor.skip_space()
    if not (yield from cursor.take(",")) and (yield from cursor.peek()) != closer:
        raise NotACall


def _read_value(
    cursor: TextCursor, depth: int, schema: Schema | None, root: Schema | None, closer: str, parent: Schema | None = None
) -> Incremental[str]:
    """Read one value, up to the comma after it or to the bracket that closes the enclosing object or list."""
    if depth > _MAX_NESTING:
        raise NotACall
    yield from cursor.skip_space()
    quote = yield from cursor.take(*_QUOTES)
    if quote:
        return json_string((yield from _read_string(cursor, quote, closer, parent)))
    if not is_text_only(schema, root):
        if (yield from cursor.take("{")):
            return (yield from _read_object(cursor, depth + 1, schema, root))
        if (yield from cursor.take("[")):
            return (yield from _read_list(cursor, depth + 1, items_schema(schema), root))
        bare, marker = yield from cursor.read_until(",", closer, *_QUOTE_TOKENS, *_ENDS)
        cursor.give_back(marker)
        bare = bare.strip()
        return _PYTHON_CONSTANTS.get(bare) or to_typed_json(bare, schema, root)
    text = (yield from _read_bare_text(cursor, closer, parent)).strip()
    return "null" if text in _NULLS else json_string(text)


def _read_string(cursor: TextCursor, quote: str, closer: str, parent: Schema | None) -> Incremental[str]:
    """Read a string after its quote.

    `closer` closes the object or list that the string is in; for a key, it has the characters that may follow.
    """
    if quote in _QUOTE_TOKENS:
        return (yield from _read_token_string(cursor, quote, closer, parent))
    parts: list[str] = []
    while True:
        text, marker = yield from cursor.read_until(quote, f"\\{quote}", "\\\\")
        parts.append(text)
        if marker == quote:
            yield from cursor.take(*_QUOTE_TOKENS)
            return _decode_string("".join(parts), quote)
        parts.append(marker)


def _read_token_string(cursor: TextCursor, quote: str, closer: str, parent: Schema | None) -> Incremental[str]:
    """Read a string that ends with a token before a separator, or with the end of the call.

    A call that the string quotes may contain both. Other pairs of tokens in the string mean quotation marks.
    """
    parts: list[str] = []
    inner: list[int] = []
    """The indices in `parts` of the tokens outside of quoted calls."""
    depth = 0
    while True:
        text, marker = yield from cursor.read_until(quote, *(f"{closer}{end}" for closer in _BRACKETS.values() for end in _ENDS))
        parts.append(text)
        depth = _follow_quoted_call(text, depth)
        if not depth and (marker != quote or (yield from _is_after_string(cursor, closer, parent, is_paired=not len(inner) % 2))):
            cursor.give_back("" if marker == quote else marker)
            is_paired = not len(inner) % 2
            if marker != quote and not is_paired:  # one of the tokens in the string may have ended it
                raise NotACall
            for index in inner if is_paired else ():
                parts[index] = '"'
            return "".join(parts)
        if marker == quote and not depth:
            inner.append(len(parts))
        depth = _follow_quoted_call(marker, depth)
        parts.append(marker)


def _is_after_string(cursor: TextCursor, closer: str, parent: Schema | None, *, is_paired: bool) -> Incremental[bool]:
    """Return whether what comes next may follow a string: a separator, or the end of the call.

    If a quotation is open in the string, as `is_paired` tells, a comma is a separator only before a known parameter.
    """
    if (yield from cursor.is_followed_by("", *closer, *_ENDS)):
        return True
    if not (yield from cursor.is_followed_by("", ",")):
        return False
    return is_paired or (parent is not None and (yield from _is_before_parameter(cursor, parent)))


def _follow_quoted_call(text: str, depth: int) -> int:
    """Return the depth of the brackets of a quoted call after `text`; `depth` is the one before."""
    for bracket in _CALL_OR_BRACKET.findall(text):
        if depth or len(bracket) > 1:
            depth += 1 if bracket[-1] in _BRACKETS else -1
    return depth


def _decode_string(text: str, quote: str) -> str:
    """Return the content of a string in ordinary quotes."""
    with suppress(ValueError):
        return str(json.loads(f'"{text}"', strict=False)) if quote == '"' else text.replace(f"\\{quote}", quote)
    return text


def _read_bare_text(cursor: TextCursor, closer: str, parent: Schema | None) -> Incremental[str]:
    """Read unquoted text.

    In a list, it ends at a comma; in an object, at a comma before another parameter. A closing bracket ends it only if
    a value may end there.
    """
    parts: list[str] = []
    while True:
        text, marker = yield from cursor.read_until(",", closer, *_QUOTE_TOKENS, *_ENDS)
        parts.append(text)
        cursor.give_back(marker)
        if marker == ",":
            over = parent is None or (yield from _is_before_parameter(cursor, parent))
        else:
            over = marker != closer or (yield from cursor.is_followed_by(marker, *_ENDS, ",", "}", "]", "<|", _CALL_PREFIX))
        if over:
            return "".join(parts)
        parts.append((yield from cursor.expect(marker)))


def _is_before_parameter(cursor: TextCursor, parent: Schema | None) -> Incremental[bool]:
    """Return whether the name of another parameter follows the comma that comes next."""
    while True:
        window = cursor.ahead(_NEXT_KEY_CHARS)
        ahead = window.lstrip()[1:]
        found = _NEXT_KEY.match(ahead)
        if found is not None:
            return parameter_schema(parent, found[1].strip("\"'")) is not None
        if "," in ahead or len(window) == _NEXT_KEY_CHARS or not (yield from cursor.wait_more()):
            return False


GEMMA = Dialect(
    name="gemma",
    families="Gemma 4, FunctionGemma",
    example='<|tool_call>call:get_weather{city:<|"|>Paris<|"|>}<tool_call|>',
    openers=_OPENERS,
    read=_read,
    ignored_markers=("<turn|>", "<tool_call|>", "<|tool_response>", "<start_function_response>", "<end_of_turn>", "<|turn>model"),
    reasoning_markers=(("<|channel>thought", "<channel|>"),),
)
GEMMA_BARE = Dialect(
    name="gemma-bare",
    families="Gemma 4 without its first token",
    example='call:get_weather{city:<|"|>Paris<|"|>}<tool_call|>',
    openers=(_CALL_PREFIX,),
    read=_read_bare,
    line_start_only=True,
)
