"""Qwen 3 and others whose history shows calls as text: a call in a bracketed note.

    [Calling tool: get_weather({"city": "Paris"})]

The tool must be known, and the note must begin a line.

Source: the tool parser for Qwen of vllm-mlx.
"""

from __future__ import annotations

import re

from callgate.models.dialects.dialect import Dialect, ParsedCalls
from callgate.models.dialects.known_tools import KnownTools
from callgate.models.dialects.python_calls import parse_python_arguments
from callgate.models.dialects.text_and_call_parts import FoundCall
from callgate.models.dialects.text_cursor import NotACall, TextCursor

__all__ = ["BRACKETED"]

_NAME = re.compile(r"[\w.\-]*")


def _read(cursor: TextCursor, tools: KnownTools, opener: str) -> ParsedCalls:
    yield from cursor.skip_space()
    name = yield from cursor.take_while(_NAME)
    if not tools.may_call(name) or (yield from cursor.peek()) != "(":
        raise NotACall
    text = (yield from cursor.read_bracketed())[1:-1].strip()
    yield from cursor.skip_space()
    yield from cursor.expect("]")
    arguments = text if text.startswith("{") else parse_python_arguments(name, text, tools)
    yield FoundCall(name=tools.clean_name(name), arguments=arguments)


BRACKETED = Dialect(
    name="bracketed",
    families="Qwen 3",
    example='[Calling tool: get_weather({"city": "Paris"})]',
    openers=("[Calling tool:", "[Calling Tool:", "[calling tool:"),
    read=_read,
    line_start_only=True,
)
