"""OLMo 3, and others with the tags of Hermes: Python calls, one per line, in tags.

    <function_calls>get_weather(city="Paris")</function_calls>

Source: the chat template of Olmo-3-7B-Instruct.
"""

from __future__ import annotations

from callgate.models.dialects.dialect import Dialect, ParsedCalls
from callgate.models.dialects.known_tools import KnownTools
from callgate.models.dialects.python_calls import read_python_calls
from callgate.models.dialects.text_cursor import TextCursor

__all__ = ["OLMO_XML"]


def _read(cursor: TextCursor, tools: KnownTools, opener: str) -> ParsedCalls:
    yield from read_python_calls(cursor, tools)
    yield from cursor.skip_space()
    yield from cursor.take("</function_calls>" if opener == "<function_calls>" else "</tool_call>")


OLMO_XML = Dialect(
    name="olmo-xml",
    families="OLMo 3",
    example='<function_calls>get_weather(city="Paris")</function_calls>',
    openers=("<function_calls>", "<tool_call>"),
    read=_read,
)
