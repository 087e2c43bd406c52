"""Solar Open: a token before each part of a call.

    <|tool_call:begin|>1<|tool_call:name|>get_weather<|tool_call:args|>{"city": "Paris"}<|tool_call:end|>

Source: the chat template of Solar-Open-100B.
"""

from __future__ import annotations

from callgate.models.dialects.cursor import Cursor, NoCall
from callgate.models.dialects.names import ToolNames
from callgate.models.dialects.parts import Found
from callgate.models.dialects.shape import Dialect, Reads

__all__ = ["SOLAR"]

_NAME, _ARGUMENTS, _END = "<|tool_call:name|>", "<|tool_call:args|>", "<|tool_call:end|>"


def _read(cursor: Cursor, tools: ToolNames, opener: str) -> Reads:
    call_id, _ = yield from cursor.until(_NAME)
    name, mark = yield from cursor.until(_ARGUMENTS, _END)
    if mark != _ARGUMENTS or not name.strip() or len(name) > 200:
        raise NoCall
    yield from cursor.white()
    if (yield from cursor.peek()) != "{":
        raise NoCall
    text = yield from cursor.value()
    yield Found(name=tools.written(name), arguments=text, id=call_id.strip())
    yield from cursor.white()
    yield from cursor.take(_END)


SOLAR = Dialect(
    name="solar",
    families="Solar Open",
    example='<|tool_call:begin|>1<|tool_call:name|>get_weather<|tool_call:args|>{"city": "Paris"}<|tool_call:end|>',
    openers=("<|tool_call:begin|>",),
    read=_read,
    silent=("<|tool_calls|>", "<|begin|>assistant", "<|content|>", "<|calls|>", "<|flush|>"),
    thoughts=(("<|think|>", "<|end|>"),),
)
