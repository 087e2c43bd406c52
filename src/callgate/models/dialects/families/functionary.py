"""Functionary 2 and 3.2: a recipient, then what it gets.

    <|recipient|>get_weather
    <|content|>{"city": "Paris"}<|stop|>

    >>>get_weather
    {"city": "Paris"}

The recipient `all` is the user.

Source: the prompt templates v2 and v3.llama3 of functionary.
"""

from __future__ import annotations

import re

from callgate.models.dialects.cursor import Cursor, NoCall, Wait
from callgate.models.dialects.fit import fits, known_name, text_argument
from callgate.models.dialects.names import MAX_NAME, ToolNames
from callgate.models.dialects.parts import Found
from callgate.models.dialects.shape import Dialect, Reads

__all__ = ["FUNCTIONARY"]

_NAME = re.compile(r"[\w.\-]+")
_RECIPIENT, _CONTENT, _ARROWS = "<|recipient|>", "<|content|>", ">>>"
_USER = "all"
_ENDS = ("<|stop|>", "<|eot_id|>")
_NEXT = (*_ENDS, "<|from|>", _RECIPIENT, _ARROWS)


def _read(cursor: Cursor, tools: ToolNames, opener: str) -> Reads:
    line = (yield from cursor.until("\n"))[0].rstrip("\r")
    name = line if opener == _ARROWS else tools.written(line)
    if opener == _RECIPIENT:
        yield from cursor.white()
        yield from cursor.expect(_CONTENT)
    if name == _USER:
        return
    if not name or len(name) > MAX_NAME or (opener == _ARROWS and not (_NAME.fullmatch(name) and tools.may_call(name))):
        raise NoCall
    yield from cursor.white()
    if (yield from cursor.peek()) == "{":
        yield Found(name=name, arguments=(yield from cursor.value()))
        yield from cursor.white()
        yield from cursor.take(*_ENDS)
    else:
        yield (yield from _bare(cursor, tools, name))


def _bare(cursor: Cursor, tools: ToolNames, name: str) -> Wait[Found]:
    """Text up to the next part, for a tool that takes nothing else."""
    text, mark = yield from cursor.until(*_NEXT, end=True)
    cursor.unread("" if mark in _ENDS else mark)
    arguments = text_argument(text.strip(), tools.schema(name))
    if arguments is None:
        raise NoCall
    return Found(name=name, arguments=arguments, closed="sealed" if mark else "finished")


def _read_first(cursor: Cursor, tools: ToolNames, opener: str) -> Reads:
    """The first part, whose recipient the prompt opened: the tool has to exist, and nothing but the next part may follow."""
    yield from cursor.white()
    if (yield from cursor.take(f"{_USER}\n{_CONTENT}")):
        return
    name = yield from known_name(cursor, tools)
    if not name:
        raise NoCall
    yield from cursor.expect(f"{name}\n", f"{name}\r\n")
    yield from cursor.take(_CONTENT)
    if (yield from cursor.peek()) != "{":
        raise NoCall
    text = yield from cursor.value()
    yield from cursor.white()
    over = (yield from cursor.peek()) == "" or (yield from _at_next(cursor))
    if not over or not fits(text, tools.schema(name)):
        raise NoCall
    yield Found(name=tools.written(name), arguments=text)


def _at_next(cursor: Cursor) -> Wait[bool]:
    found = yield from cursor.take(*_NEXT)
    cursor.unread(found)
    return bool(found)


FUNCTIONARY = Dialect(
    name="functionary",
    families="Functionary 2.2 to 3.2",
    example='<|recipient|>get_weather\n<|content|>{"city": "Paris"}<|stop|>',
    openers=(_RECIPIENT, _ARROWS),
    read=_read,
    read_first=_read_first,
    silent=("<|from|>assistant", "<|stop|>"),
)
