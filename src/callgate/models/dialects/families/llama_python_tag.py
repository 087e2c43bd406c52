"""Llama 3.1 to 4: JSON or Python calls behind the Python tag.

    <|python_tag|>{"name": "get_weather", "parameters": {"city": "Paris"}}
    <|python_start|>[get_weather(city="Paris")]<|python_end|>

Source: Meta's prompt formats for Llama 3.1 and Llama 4.
"""

from __future__ import annotations

from callgate.models.dialects.cursor import Cursor
from callgate.models.dialects.marked import Marked
from callgate.models.dialects.names import ToolNames
from callgate.models.dialects.python_calls import python_calls
from callgate.models.dialects.shape import Dialect, Reads

__all__ = ["LLAMA_PYTHON_TAG"]

_ENDS = ("<|python_end|>", "<|eom_id|>", "<|eot_id|>", "<|eom|>", "<|eot|>")
_JSON = Marked(*_ENDS)


def _read(cursor: Cursor, tools: ToolNames, opener: str) -> Reads:
    yield from cursor.white()
    if (yield from cursor.peek()) == "{":
        yield from _JSON(cursor, tools, opener)
        return
    yield from python_calls(cursor, tools)
    yield from cursor.white()
    yield from cursor.take(*_ENDS)


LLAMA_PYTHON_TAG = Dialect(
    name="llama-python-tag",
    families="Llama 3.1, 3.2, 3.3, 4",
    example='<|python_start|>[get_weather(city="Paris")]<|python_end|>',
    openers=("<|python_tag|>", "<|python_start|>"),
    read=_read,
    silent=("<|eom_id|>", "<|eot_id|>", "<|eom|>", "<|eot|>"),
)
