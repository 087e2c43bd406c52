"""Inkling: messages of typed content, one type of which is a call.

    <|content_invoke_tool_json|>{"name": "get_weather", "args": {"city": "Paris"}}<|end_message|>

The tool's name may stand once more between `<|message_model|>` and the type; that is not text.

Source: the chat template of Inkling.
"""

from __future__ import annotations

import re

from callgate.models.dialects.cursor import Cursor, NoCall
from callgate.models.dialects.marked import Marked
from callgate.models.dialects.names import ToolNames
from callgate.models.dialects.shape import Dialect, Reads

__all__ = ["INKLING"]

_HEADER = re.compile(r"[^<\n]*")
_CALL = "<|content_invoke_tool_json|>"
_END = "<|end_message|>"
_JSON = Marked(_END)


def _read(cursor: Cursor, tools: ToolNames, opener: str) -> Reads:
    if opener != _CALL:
        yield from cursor.run(_HEADER)
        yield from cursor.expect(_CALL)
        if (yield from cursor.peek()) != "{":
            raise NoCall
    yield from _JSON(cursor, tools, opener)


INKLING = Dialect(
    name="inkling",
    families="Inkling",
    example='<|content_invoke_tool_json|>{"name": "get_weather", "args": {"city": "Paris"}}<|end_message|>',
    openers=(_CALL, "<|message_model|>"),
    read=_read,
    silent=(
        "<|message_model|>",
        "<|content_text|>",
        "<|content_invoke_tool_text|>",
        "<|content_tool_error|>",
        _END,
        "<|content_model_end_sampling|>",
        _CALL,
    ),
    thoughts=(("<|content_thinking|>", _END),),
)
