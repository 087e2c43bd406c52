"""GPT-OSS: messages on channels, one kind of which is addressed to a tool.

    <|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Paris"}<|call|>

The address may stand before the channel. Analysis is thought, unless it is addressed to a tool. Where a server has dropped the tokens, an
object stands directly behind the address of a function, `commentary to=functions.get_weather json{"city": "Paris"}`.

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
_FUNCTION = re.compile(r"(?:\w+ )?to=functions\.([\w.\-]+)\s*(?:json|code)?\s*")


def _read(cursor: Cursor, tools: ToolNames, opener: str) -> Reads:
    header, mark = yield from cursor.until(_MESSAGE, "\n", "{")
    cursor.unread("{" if mark == "{" else "")
    to = (_FUNCTION.fullmatch if mark == "{" else _TO.search)(opener + header)
    if mark == "\n" or (mark == "{" and (to is None or not tools.may_call(to[1]))):
        raise NoCall
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
