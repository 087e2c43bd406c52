"""GPT-OSS: messages on channels, one kind of which is addressed to a tool.

    <|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Paris"}<|call|>

The address may stand before the channel. Analysis is thought, unless it is addressed to a tool.

Source: the harmony response format of gpt-oss.
"""

from __future__ import annotations

import re

from callgate.models.dialects.cursor import Cursor, NoCall
from callgate.models.dialects.names import ToolNames
from callgate.models.dialects.parts import Found
from callgate.models.dialects.shape import Dialect, Reads

__all__ = ["HARMONY"]

_ENDS = ("<|call|>", "<|end|>", "<|return|>")
_TO = re.compile(r"to=([^\s<]+)")
_MESSAGE = "<|message|>"


def _read(cursor: Cursor, tools: ToolNames, opener: str) -> Reads:
    header, mark = yield from cursor.until(_MESSAGE, "\n")
    if mark != _MESSAGE:
        raise NoCall
    to = _TO.search(opener + header)
    if to is None:
        return
    yield from cursor.white()
    if (yield from cursor.peek()) != "{":
        raise NoCall
    text = yield from cursor.value()
    yield from cursor.white()
    yield from cursor.take(*_ENDS)
    yield Found(name=tools.written(to[1]), arguments=text)


HARMONY = Dialect(
    name="harmony",
    families="GPT-OSS",
    example='<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Paris"}<|call|>',
    openers=("<|channel|>", "to=", "commentary to=", "analysis to="),
    read=_read,
    silent=(
        "<|start|>assistant",
        "<|end|>",
        "<|return|>",
        "<|call|>",
        "<|channel|>final<|message|>",
        "<|channel|>commentary<|message|>",
    ),
    thoughts=(
        ("<|channel|>analysis<|message|>", "<|end|>"),
        ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),
    ),
)
