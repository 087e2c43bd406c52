"""LFM2 and MiniCPM 3: Python calls between tokens.

    <|tool_call_start|>[get_weather(city="Paris")]<|tool_call_end|>

Source: the chat templates of LFM2-1.2B and MiniCPM3-4B.
"""

from __future__ import annotations

from callgate.models.dialects.cursor import Cursor
from callgate.models.dialects.names import ToolNames
from callgate.models.dialects.python_calls import python_calls
from callgate.models.dialects.shape import Dialect, Reads

__all__ = ["LFM2"]

_END = "<|tool_call_end|>"


def _read(cursor: Cursor, tools: ToolNames, opener: str) -> Reads:
    yield from cursor.white()
    yield from cursor.take("```python", "```")
    yield from python_calls(cursor, tools)
    yield from cursor.white()
    yield from cursor.take("```")
    yield from cursor.white()
    if (yield from cursor.take(_END)):
        yield from _echo(cursor)


def _echo(cursor: Cursor) -> Reads:
    """Pass over a list that another end follows: these models now and then repeat the calls behind their end."""
    yield from cursor.white()
    if (yield from cursor.peek()) == "[":
        yield from cursor.value()
        yield from cursor.white()
        yield from cursor.expect(_END)


LFM2 = Dialect(
    name="lfm2",
    families="LFM2, LFM2.5, MiniCPM 3",
    example='<|tool_call_start|>[get_weather(city="Paris")]<|tool_call_end|>',
    openers=("<|tool_call_start|>",),
    read=_read,
    thoughts=(("<|thought_start|>", "<|thought_end|>"),),
)
