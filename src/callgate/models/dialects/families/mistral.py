"""Mistral, Ministral, Magistral, Devstral: a marker, then a list, or a name and its arguments.

    [TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Paris"}, "id": "abc123def"}]
    [TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}

Arguments without a name are a call that names nothing, for the engine to end.

Source: the tokenizers v3 and v11 of mistral-common.
"""

from __future__ import annotations

import re

from callgate.models.dialects.cursor import Cursor, NoCall
from callgate.models.dialects.json_calls import call_of
from callgate.models.dialects.marked import Marked
from callgate.models.dialects.names import ToolNames
from callgate.models.dialects.parts import Found
from callgate.models.dialects.shape import Dialect, Reads

__all__ = ["MISTRAL"]

_NAME = re.compile(r"[^\[{<\n]*")
_JSON = Marked("[/TOOL_CALLS]")


def _read(cursor: Cursor, tools: ToolNames, opener: str) -> Reads:
    yield from cursor.white()
    while (yield from cursor.take(opener)):
        yield from cursor.white()
    name = (yield from cursor.run(_NAME)).strip()
    call_id = ""
    if (yield from cursor.take("[CALL_ID]")):
        call_id, _ = yield from cursor.until("[ARGS]")
    elif not (yield from cursor.take("[ARGS]")) and (yield from cursor.peek()) == "[":
        yield from _JSON(cursor, tools, opener)
        return
    yield from cursor.white()
    if (yield from cursor.peek()) != "{" or len(name) > 200:
        raise NoCall
    text = yield from cursor.value()
    call = None if name else call_of(text)
    if call is not None and call.arguments.startswith("{"):
        yield call.found(tools)
    else:
        yield Found(name=tools.written(name), arguments=text, id=call_id.strip())


MISTRAL = Dialect(
    name="mistral",
    families="Mistral, Ministral, Magistral, Devstral",
    example='[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}',
    openers=("[TOOL_CALLS]",),
    read=_read,
    silent=("[/TOOL_CALLS]",),
    thoughts=(("[THINK]", "[/THINK]"),),
)
