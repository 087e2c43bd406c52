"""Qwen 1.5 and 2 as Qwen-Agent prompts them: keywords between `✿` characters.

    ✿FUNCTION✿: get_weather
    ✿ARGS✿: {"city": "Paris"}

Source: the function-calling prompt of Qwen-Agent.
"""

from __future__ import annotations

from callgate.models.dialects.dialect import Dialect, ParsedCalls
from callgate.models.dialects.known_tools import MAX_HEADER_CHARS, KnownTools
from callgate.models.dialects.marked_json import read_arguments
from callgate.models.dialects.text_and_call_parts import FoundCall
from callgate.models.dialects.text_cursor import NotACall, TextCursor

__all__ = ["QWEN_AGENT"]

_ARGUMENTS = "✿ARGS✿:"


def _read(cursor: TextCursor, tools: KnownTools, opener: str) -> ParsedCalls:
    name, marker = yield from cursor.read_until("\n", _ARGUMENTS, limit=MAX_HEADER_CHARS)
    name = tools.clean_name(name)
    if marker != _ARGUMENTS:
        yield from cursor.skip_space()
        yield from cursor.expect(_ARGUMENTS)
    yield from cursor.skip_space()
    if not tools.is_name(name) or (yield from cursor.peek()) != "{":
        raise NotACall
    yield FoundCall(name=name, arguments=(yield from read_arguments(cursor, stops=("✿",))))
    yield from cursor.skip_space()
    yield from cursor.take("✿RESULT✿:", "✿RESULT✿")


QWEN_AGENT = Dialect(
    name="qwen-agent",
    families="Qwen 1.5, Qwen 2",
    example='✿FUNCTION✿: get_weather\n✿ARGS✿: {"city": "Paris"}',
    openers=("✿FUNCTION✿:",),
    read=_read,
    ignored_markers=("✿RETURN✿:", "✿RETURN✿"),
)
