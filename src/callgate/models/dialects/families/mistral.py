"""Mistral, Ministral, Magistral, Devstral: a marker, then a list, or a name and its arguments.

    [TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Paris"}, "id": "abc123def"}]
    [TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}

Arguments without a name are a call that names nothing, for the engine to end.

Source: the tokenizers v3 and v11 of mistral-common.
"""

from __future__ import annotations

import re

from callgate.models.dialects.cursor import Cursor, NoCall, Wait
from callgate.models.dialects.json_calls import call_of
from callgate.models.dialects.marked import Marked
from callgate.models.dialects.names import MAX_NAME, ToolNames
from callgate.models.dialects.parts import Found
from callgate.models.dialects.shape import Dialect, Reads

__all__ = ["MISTRAL"]

_NAME, _WORD = re.compile(r"[^\[{<\n]*"), re.compile(r"[\w.\-]*")
_JSON = Marked("[/TOOL_CALLS]")


def _read(cursor: Cursor, tools: ToolNames, opener: str) -> Reads:
    yield from cursor.white()
    while (yield from cursor.take(opener)):
        yield from cursor.white()
    name, mark, call_id = yield from _header(cursor, _NAME)
    if not mark and (yield from cursor.peek()) == "[":
        yield from _JSON(cursor, tools, opener)
        return
    yield (yield from _call(cursor, tools, name, call_id))
    while True:
        yield from cursor.white()
        name, mark, call_id = yield from _header(cursor, _WORD)
        if not name or not mark:
            raise NoCall
        yield (yield from _call(cursor, tools, name, call_id))


def _header(cursor: Cursor, of_name: re.Pattern[str]) -> Wait[tuple[str, str, str]]:
    """What comes before the arguments: the name, the mark behind it and the identifier, as far as they are there."""
    name, call_id = (yield from cursor.run(of_name)).strip(), ""
    mark = yield from cursor.take("[CALL_ID]", "[ARGS]")
    if mark == "[CALL_ID]":
        call_id, _ = yield from cursor.until("[ARGS]")
    yield from cursor.white()
    return name, mark, call_id.strip()


def _call(cursor: Cursor, tools: ToolNames, name: str, call_id: str) -> Wait[Found]:
    if len(name) > MAX_NAME:
        raise NoCall
    if name and (yield from cursor.take("null")):
        return Found(name=tools.written(name), arguments="{}", id=call_id)
    if (yield from cursor.peek()) != "{":
        raise NoCall
    text = yield from cursor.value()
    call = None if name else call_of(text)
    if call is not None and call.arguments.startswith("{"):
        return call.found(tools)
    return Found(name=tools.written(name), arguments=text, id=call_id)


MISTRAL = Dialect(
    name="mistral",
    families="Mistral, Ministral, Magistral, Devstral",
    example='[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}',
    openers=("[TOOL_CALLS]",),
    read=_read,
    silent=("[/TOOL_CALLS]",),
    thoughts=(("[THINK]", "[/THINK]"),),
)
