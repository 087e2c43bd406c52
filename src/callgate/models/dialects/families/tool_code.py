"""Gemma 2 and 3: Python calls in a `tool_code` fence or tag.

    ```tool_code
    get_weather(city="Paris")
    ```

Source: Google's function-calling page for Gemma.
"""

from __future__ import annotations

from callgate.models.dialects.dialect import Dialect, ParsedCalls
from callgate.models.dialects.known_tools import KnownTools
from callgate.models.dialects.python_calls import read_python_calls
from callgate.models.dialects.schema_matching import peek_known_name
from callgate.models.dialects.text_cursor import TextCursor

__all__ = ["TOOL_CODE"]


def _read(cursor: TextCursor, tools: KnownTools, opener: str) -> ParsedCalls:
    yield from cursor.skip_space()
    has_more = True
    while has_more:
        printed = yield from cursor.take("print(")
        yield from read_python_calls(cursor, tools, known_only=True)
        yield from cursor.skip_space()
        if printed:
            yield from cursor.take(")")
            yield from cursor.skip_space()
        has_more = (yield from cursor.at("print(")) or bool((yield from peek_known_name(cursor, tools)))
    yield from cursor.take("</tool_code>" if opener == "<tool_code>" else "```")


TOOL_CODE = Dialect(
    name="tool-code",
    families="Gemma 2 and 3",
    example='```tool_code\nget_weather(city="Paris")\n```',
    openers=("```tool_code", "<tool_code>"),
    read=_read,
    line_start_only=True,
)
