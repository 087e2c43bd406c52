"""GPT-OSS: messages on channels, one kind of which is addressed to a tool.

    <|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Paris"}<|call|>

The address may stand before the channel. Analysis is thought, unless it is addressed to a tool.

Source: the harmony response format of gpt-oss.
"""

from __future__ import annotations

import re

from callgate.models.dialects.cursor import Cursor, NoCall, Wait
from callgate.models.dialects.fit import text_argument
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
    name = tools.written(to[1])
    if (yield from cursor.peek()) == "{":
        text = yield from cursor.value()
        yield from cursor.white()
        yield from cursor.take(*_ENDS)
    else:
        text = yield from _bare(cursor, tools, name, header)
    yield Found(name=name, arguments=text)


def _bare(cursor: Cursor, tools: ToolNames, name: str, header: str) -> Wait[str]:
    """What no object holds, up to its own end: nothing, or the text for a tool that takes nothing else."""
    body = (yield from cursor.until(*_ENDS))[0].strip()
    text = "{}" if not body else None if "<|constrain|>" in header else text_argument(body, tools.schema(name))
    if text is None:
        raise NoCall
    return text


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
        ("analysis<|message|>", "<|end|>"),
    ),
)
