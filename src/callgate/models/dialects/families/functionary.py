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

from callgate.models.dialects.cursor import Cursor, NoCall
from callgate.models.dialects.names import ToolNames
from callgate.models.dialects.parts import Found
from callgate.models.dialects.shape import Dialect, Reads

__all__ = ["FUNCTIONARY"]

_NAME = re.compile(r"[\w.\-]+")
_RECIPIENT, _ARROWS = "<|recipient|>", ">>>"
_ENDS = ("<|stop|>", "<|eot_id|>")


def _read(cursor: Cursor, tools: ToolNames, opener: str) -> Reads:
    line, _ = yield from cursor.until("\n")
    name = line if opener == _ARROWS else tools.written(line)
    if opener == _RECIPIENT:
        yield from cursor.white()
        yield from cursor.expect("<|content|>")
    if name == "all":
        return
    if not name or len(name) > 200 or (opener == _ARROWS and not (_NAME.fullmatch(name) and tools.may_call(name))):
        raise NoCall
    yield from cursor.white()
    if (yield from cursor.peek()) != "{":
        raise NoCall
    yield Found(name=name, arguments=(yield from cursor.value()))
    yield from cursor.white()
    yield from cursor.take(*_ENDS)


FUNCTIONARY = Dialect(
    name="functionary",
    families="Functionary 2.2 to 3.2",
    example='<|recipient|>get_weather\n<|content|>{"city": "Paris"}<|stop|>',
    openers=(_RECIPIENT, _ARROWS),
    read=_read,
    silent=("<|from|>assistant", "<|stop|>"),
)
