"""Gemma 2 and 3: Python calls in a fence, or tags, of their own.

    ```tool_code
    get_weather(city="Paris")
    ```

Source: Google's function-calling page for Gemma.
"""

from __future__ import annotations

from callgate.models.dialects.cursor import Cursor
from callgate.models.dialects.names import ToolNames
from callgate.models.dialects.python_calls import python_calls
from callgate.models.dialects.shape import Dialect, Reads

__all__ = ["TOOL_CODE"]


def _read(cursor: Cursor, tools: ToolNames, opener: str) -> Reads:
    yield from cursor.white()
    printed = yield from cursor.take("print(")
    yield from python_calls(cursor, tools, known=True)
    if printed:
        yield from cursor.white()
        yield from cursor.take(")")
    yield from cursor.white()
    yield from cursor.take("</tool_code>" if opener == "<tool_code>" else "```")


TOOL_CODE = Dialect(
    name="tool-code",
    families="Gemma 2 and 3",
    example='```tool_code\nget_weather(city="Paris")\n```',
    openers=("```tool_code", "<tool_code>"),
    read=_read,
    bare=True,
)
