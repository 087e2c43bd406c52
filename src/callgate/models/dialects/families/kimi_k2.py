"""Kimi K2: a section of calls, each with an id that contains the name.

    <|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{"city": "Paris"}
    <|tool_call_end|><|tool_calls_section_end|>

In longer conversations the id may lose its punctuation, as in `functionsget_weather5`.

Source: the chat template and the tool-calling guide of Kimi-K2-Instruct.
"""

from __future__ import annotations

import re

from callgate.models.dialects.dialect import Dialect, ParsedCalls
from callgate.models.dialects.json_calls import normalise_arguments
from callgate.models.dialects.known_tools import MAX_HEADER_CHARS, KnownTools
from callgate.models.dialects.marked_json import read_arguments
from callgate.models.dialects.text_and_call_parts import FoundCall
from callgate.models.dialects.text_cursor import NotACall, TextCursor

__all__ = ["KIMI_K2"]

_ID = re.compile(r"(?:functions\.)?(?P<name>.+):\d+", re.DOTALL)
_NAMESPACE, _NUMBER = re.compile(r"functions?[.:_]?"), re.compile(r"[.:_]?\d*\Z")
_ARGUMENTS, _END = "<|tool_call_argument_begin|>", "<|tool_call_end|>"
_SECTION_ENDS = ("<|tool_calls_section_end|>", "<|tool_call_section_end|>")


def _read(cursor: TextCursor, tools: KnownTools, opener: str) -> ParsedCalls:
    call_id, marker = yield from cursor.read_until(_ARGUMENTS, _END, "<|tool_call_begin|>", limit=MAX_HEADER_CHARS)
    name = _parse_name(call_id.strip(), tools)
    if marker != _ARGUMENTS or not tools.is_name(name):
        raise NotACall
    yield from cursor.skip_space()
    if (yield from cursor.peek()) not in ("{", '"', _END[0]):
        raise NotACall
    if (yield from cursor.take(_END)):
        text = "{}"
    elif (yield from cursor.peek()) == "{":
        text = (yield from read_arguments(cursor, _END, *_SECTION_ENDS, stops=("<|tool_call_begin|>",))).rstrip()
    else:
        text = normalise_arguments((yield from cursor.read_until(_END))[0].strip())
        cursor.give_back(_END)
        if not text.startswith("{"):
            raise NotACall
    yield FoundCall(name=tools.clean_name(name), arguments=text, id=call_id.strip())
    yield from cursor.skip_space()
    yield from cursor.take(_END)


def _parse_name(call_id: str, tools: KnownTools) -> str:
    """Return the tool's name in an id; empty if it has none.

    An id in another form counts only if it can mean exactly one known tool.
    """
    named = _ID.fullmatch(call_id)
    name = named["name"] if named is not None else ""
    for exact in filter(tools.has, (name, call_id)):
        return exact
    found = _find_known_names(call_id, tools)
    return found.pop() if len(found) == 1 else name


def _find_known_names(call_id: str, tools: KnownTools) -> set[str]:
    """Return the known tools that an inexact id can mean: the number may be part of a name, and so may the namespace."""
    starts = (0, found.end()) if (found := _NAMESPACE.match(call_id)) else (0,)
    number = _NUMBER.search(call_id)
    ends = range(number.start() if number else len(call_id), len(call_id) + 1)
    return {tools.clean_name(name) for start in starts for end in ends if tools.has(name := call_id[start:end])}


KIMI_K2 = Dialect(
    name="kimi-k2",
    families="Kimi K2, K2 Thinking, K2.5",
    example='<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{"city": "Paris"}<|tool_call_end|>',
    openers=("<|tool_call_begin|>",),
    read=_read,
    ignored_markers=(
        "<|tool_calls_section_begin|>",
        "<|tool_call_section_begin|>",
        *_SECTION_ENDS,
        _END,
    ),
    reasoning_markers=(("◁think▷", "◁/think▷"),),
)
