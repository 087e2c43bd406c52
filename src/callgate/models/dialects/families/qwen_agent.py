"""Qwen 1.5 and 2 as Qwen-Agent prompts them: words between flowers.

    ✿FUNCTION✿: get_weather
    ✿ARGS✿: {"city": "Paris"}

Source: the function-calling prompt of Qwen-Agent.
"""

from __future__ import annotations

from callgate.models.dialects.cursor import Cursor, NoCall
from callgate.models.dialects.names import ToolNames
from callgate.models.dialects.parts import Found
from callgate.models.dialects.shape import Dialect, Reads

__all__ = ["QWEN_AGENT"]

_ARGUMENTS = "✿ARGS✿:"


def _read(cursor: Cursor, tools: ToolNames, opener: str) -> Reads:
    name, mark = yield from cursor.until("\n", _ARGUMENTS)
    name = tools.written(name)
    if mark != _ARGUMENTS:
        yield from cursor.white()
        yield from cursor.expect(_ARGUMENTS)
    yield from cursor.white()
    if not name or (yield from cursor.peek()) != "{":
        raise NoCall
    yield Found(name=name, arguments=(yield from cursor.value()))
    yield from cursor.white()
    yield from cursor.take("✿RESULT✿:", "✿RESULT✿")


QWEN_AGENT = Dialect(
    name="qwen-agent",
    families="Qwen 1.5, Qwen 2",
    example='✿FUNCTION✿: get_weather\n✿ARGS✿: {"city": "Paris"}',
    openers=("✿FUNCTION✿:",),
    read=_read,
    silent=("✿RETURN✿:", "✿RETURN✿"),
)
