"""LFM2 and MiniCPM 3: Python calls between special tokens.

    <|tool_call_start|>[get_weather(city="Paris")]<|tool_call_end|>

Source: the chat templates of LFM2-1.2B and MiniCPM3-4B.
"""

from __future__ import annotations

from callgate.models.dialects.dialect import Dialect, ParsedCalls
from callgate.models.dialects.known_tools import KnownTools
from callgate.models.dialects.python_calls import read_python_calls
from callgate.models.dialects.text_cursor import TextCursor

__all__ = ["LFM2"]

_END = "<|tool_call_end|>"


def _read(cursor: TextCursor, tools: KnownTools, opener: str) -> ParsedCalls:
    yield from cursor.skip_space()
    yield from cursor.take("```python", "```")
    yield from read_python_calls(cursor, tools)
    yield from cursor.skip_space()
    yield from cursor.take("```")
    yield from cursor.skip_space()
    if (yield from cursor.take(_END)):
        yield from _skip_repeated_calls(cursor)


def _skip_repeated_calls(cursor: TextCursor) -> ParsedCalls:
    """Skip a second list that has an end marker of its own.

    These models sometimes repeat their calls after the end marker.
    """
    yield from cursor.skip_space()
    if (yield from cursor.peek()) == "[":
        yield from cursor.read_bracketed()
        yield from cursor.skip_space()
        yield from cursor.expect(_END)


LFM2 = Dialect(
    name="lfm2",
    families="LFM2, LFM2.5, MiniCPM 3",
    example='<|tool_call_start|>[get_weather(city="Paris")]<|tool_call_end|>',
    openers=("<|tool_call_start|>",),
    read=_read,
    reasoning_markers=(("<|thought_start|>", "<|thought_end|>"),),
)
