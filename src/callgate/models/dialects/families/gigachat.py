"""GigaChat 2 and 3: an object behind a message of the role `function call`.

    <|message_sep|>

    function call<|role_sep|>
    {"name": "get_weather", "arguments": {"city": "Paris"}}

Source: the chat template of GigaChat3-10B.
"""

from __future__ import annotations

from callgate.models.dialects.cursor import Cursor
from callgate.models.dialects.marked import Marked
from callgate.models.dialects.names import ToolNames
from callgate.models.dialects.shape import Dialect, Reads

__all__ = ["GIGACHAT"]

_JSON = Marked("<|message_sep|>")
_UNSEPARATED = 'function call{"name"'


def _read(cursor: Cursor, tools: ToolNames, opener: str) -> Reads:
    if opener == "<|message_sep|>":
        yield from cursor.white()
        if not (yield from cursor.take("function call<|role_sep|>")):
            return
    if opener == _UNSEPARATED:
        cursor.unread('{"name"')
    yield from _JSON(cursor, tools, opener)


GIGACHAT = Dialect(
    name="gigachat",
    families="GigaChat 2 and 3",
    example='<|message_sep|>\n\nfunction call<|role_sep|>\n{"name": "get_weather", "arguments": {"city": "Paris"}}',
    openers=("<|message_sep|>", "<|function_call|>", "function call<|role_sep|>", _UNSEPARATED),
    read=_read,
    silent=("assistant<|role_sep|>",),
)
