"""Mistral, Ministral, Magistral, Devstral: a marker, then a list of calls, or a name and its arguments.

    [TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Paris"}, "id": "abc123def"}]
    [TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}

Arguments without a name are a call with an empty name, which the engine rejects.

Source: the tokenizers v3 and v11 of mistral-common.
"""

from __future__ import annotations

import re

from callgate.models.dialects.dialect import Dialect, ParsedCalls
from callgate.models.dialects.json_calls import parse_call
from callgate.models.dialects.known_tools import MAX_HEADER_CHARS, KnownTools
from callgate.models.dialects.marked_json import MarkedJson, read_arguments
from callgate.models.dialects.text_and_call_parts import FoundCall
from callgate.models.dialects.text_cursor import Incremental, NotACall, TextCursor

__all__ = ["MISTRAL"]

_NAME, _WORD = re.compile(r"[^\[{<\n]*"), re.compile(r"[\w.\-]*")
_read_json = MarkedJson("[/TOOL_CALLS]")


def _read(cursor: TextCursor, tools: KnownTools, opener: str) -> ParsedCalls:
    yield from cursor.skip_space()
    while (yield from cursor.take(opener)):
        yield from cursor.skip_space()
    name, marker, call_id = yield from _read_header(cursor, _NAME)
    if not marker and (yield from cursor.peek()) == "[":
        yield from _read_json(cursor, tools, opener)
        return
    yield (yield from _read_call(cursor, tools, name, call_id))
    while True:
        yield from cursor.skip_space()
        name, marker, call_id = yield from _read_header(cursor, _WORD)
        if not name or not marker:
            raise NotACall
        yield (yield from _read_call(cursor, tools, name, call_id))


def _read_header(cursor: TextCursor, name_pattern: re.Pattern[str]) -> Incremental[tuple[str, str, str]]:
    """Return the name, the marker after it, and the id, which come before the arguments. Each may be empty."""
    name, call_id = (yield from cursor.take_while(name_pattern)).strip(), ""
    yield from cursor.skip_space()
    marker = yield from cursor.take("[CALL_ID]", "[ARGS]")
    if marker == "[CALL_ID]":
        call_id, _ = yield from cursor.read_until("[ARGS]", limit=MAX_HEADER_CHARS)
    yield from cursor.skip_space()
    return name, marker, call_id.strip()


def _read_call(cursor: TextCursor, tools: KnownTools, name: str, call_id: str) -> Incremental[FoundCall]:
    if name and not tools.is_name(name):
        raise NotACall
    if name and (yield from cursor.take("null")):
        return FoundCall(name=tools.clean_name(name), arguments="{}", id=call_id)
    if (yield from cursor.peek()) != "{":
        raise NotACall
    text = yield from read_arguments(cursor, stops=("[TOOL_CALLS]", "[/TOOL_CALLS]", "</s>"))
    call = None if name else parse_call(text)
    if call is not None and call.arguments.startswith("{"):
        return call.to_found_call(tools)
    return FoundCall(name=tools.clean_name(name), arguments=text, id=call_id)


MISTRAL = Dialect(
    name="mistral",
    families="Mistral, Ministral, Magistral, Devstral",
    example='[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}',
    openers=("[TOOL_CALLS]",),
    read=_read,
    ignored_markers=("[/TOOL_CALLS]",),
    reasoning_markers=(("[THINK]", "[/THINK]"),),
)
