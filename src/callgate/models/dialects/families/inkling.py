"""Inkling: messages of typed content. One of the types is a call.

    <|content_invoke_tool_json|>{"name": "get_weather", "args": {"city": "Paris"}}<|end_message|>

The tool's name may be repeated between `<|message_model|>` and the type; there it is not text of the answer.

Source: the chat template of Inkling.
"""

from __future__ import annotations

import re

from callgate.models.dialects.dialect import Dialect, ParsedCalls
from callgate.models.dialects.known_tools import KnownTools
from callgate.models.dialects.marked_json import MarkedJson
from callgate.models.dialects.text_cursor import NotACall, TextCursor

__all__ = ["INKLING"]

_HEADER = re.compile(r"[^<\n]*")
_CALL = "<|content_invoke_tool_json|>"
_END = "<|end_message|>"
_read_json = MarkedJson(_END)


def _read(cursor: TextCursor, tools: KnownTools, opener: str) -> ParsedCalls:
    if opener != _CALL:
        yield from cursor.take_while(_HEADER)
        yield from cursor.expect(_CALL)
        if (yield from cursor.peek()) != "{":
            raise NotACall
    yield from _read_json(cursor, tools, opener)


INKLING = Dialect(
    name="inkling",
    families="Inkling",
    example='<|content_invoke_tool_json|>{"name": "get_weather", "args": {"city": "Paris"}}<|end_message|>',
    openers=(_CALL, "<|message_model|>"),
    read=_read,
    ignored_markers=(
        "<|message_model|>",
        "<|content_text|>",
        "<|content_invoke_tool_text|>",
        "<|content_tool_error|>",
        _END,
        "<|content_model_end_sampling|>",
        _CALL,
    ),
    reasoning_markers=(("<|content_thinking|>", _END),),
)
