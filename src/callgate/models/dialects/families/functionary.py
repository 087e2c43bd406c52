"""Functionary 2 and 3.2: a recipient, then its content.

    <|recipient|>get_weather
    <|content|>{"city": "Paris"}<|stop|>

    >>>get_weather
    {"city": "Paris"}

The recipient `all` is the user.

Source: the prompt templates v2 and v3.llama3 of functionary.
"""

from __future__ import annotations

import re

from callgate.models.dialects.dialect import Dialect, ParsedCalls
from callgate.models.dialects.known_tools import MAX_HEADER_CHARS, KnownTools
from callgate.models.dialects.marked_json import read_arguments
from callgate.models.dialects.schema_matching import matches_schema, peek_known_name, single_text_argument
from callgate.models.dialects.text_and_call_parts import FoundCall
from callgate.models.dialects.text_cursor import Incremental, NotACall, TextCursor

__all__ = ["FUNCTIONARY"]

_NAME = re.compile(r"[\w.\-/]+")
_RECIPIENT, _CONTENT, _ARROWS = "<|recipient|>", "<|content|>", ">>>"
_USER = "all"
_ENDS = ("<|stop|>", "<|eot_id|>")
_PART_STARTS = (*_ENDS, "<|from|>", _RECIPIENT, _ARROWS)


def _read(cursor: TextCursor, tools: KnownTools, opener: str) -> ParsedCalls:
    line = (yield from cursor.read_until("\n", limit=MAX_HEADER_CHARS))[0].rstrip("\r")
    name = line if opener == _ARROWS else tools.clean_name(line)
    if opener == _RECIPIENT:
        yield from cursor.skip_space()
        yield from cursor.expect(_CONTENT)
    if name == _USER:
        return
    if not tools.is_name(name) or (opener == _ARROWS and not (_NAME.fullmatch(name) and tools.may_call(name))):
        raise NotACall
    yield from cursor.skip_space()
    if (yield from cursor.peek()) == "{":
        yield FoundCall(name=name, arguments=(yield from read_arguments(cursor, *_ENDS, stops=_PART_STARTS)))
        yield from cursor.skip_space()
        yield from cursor.take(*_ENDS)
    else:
        yield (yield from _read_text_argument(cursor, tools, name))


def _read_text_argument(cursor: TextCursor, tools: KnownTools, name: str) -> Incremental[FoundCall]:
    """Read text up to the next part, for a tool that takes only text."""
    text, marker = yield from cursor.read_until(*_PART_STARTS, end=True)
    cursor.give_back("" if marker in _ENDS else marker)
    arguments = single_text_argument(text.strip(), tools.schema(name))
    if arguments is None:
        raise NotACall
    return FoundCall(name=name, arguments=arguments, closed="sealed" if marker else "finished")


def _read_first(cursor: TextCursor, tools: KnownTools, opener: str) -> ParsedCalls:
    """Read the first part of a message, whose opening token is part of the prompt.

    The tool must be known, and the end of the message or the next part must follow.
    """
    yield from cursor.skip_space()
    if (yield from cursor.take(f"{_USER}\n{_CONTENT}")):
        return
    name = yield from peek_known_name(cursor, tools)
    if not name:
        raise NotACall
    yield from cursor.expect(f"{name}\n", f"{name}\r\n")
    yield from cursor.take(_CONTENT)
    if (yield from cursor.peek()) != "{":
        raise NotACall
    text = yield from cursor.read_bracketed()
    if not matches_schema(text, tools.schema(name)):  # before the end of the message is looked for: the object is whole
        raise NotACall
    yield from cursor.skip_space()
    if (yield from cursor.peek()) != "" and not (yield from _is_at_part_start(cursor)):
        raise NotACall
    yield FoundCall(name=tools.clean_name(name), arguments=text)


def _is_at_part_start(cursor: TextCursor) -> Incremental[bool]:
    found = yield from cursor.take(*_PART_STARTS)
    cursor.give_back(found)
    return bool(found)


FUNCTIONARY = Dialect(
    name="functionary",
    families="Functionary 2.2 to 3.2",
    example='<|recipient|>get_weather\n<|content|>{"city": "Paris"}<|stop|>',
    openers=(_RECIPIENT, _ARROWS),
    read=_read,
    read_first=_read_first,
    ignored_markers=("<|from|>assistant", "<|stop|>"),
)
