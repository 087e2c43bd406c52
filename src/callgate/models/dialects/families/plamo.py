"""PLaMo 3: tokens around the name and the arguments of each call.

    <|plamo:begin_tool_requests:plamo|><|plamo:begin_tool_request:plamo|>
    <|plamo:begin_tool_name:plamo|>get_weather<|plamo:end_tool_name:plamo|>
    <|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>{"city": "Paris"}<|plamo:end_tool_arguments:plamo|>
    <|plamo:end_tool_request:plamo|><|plamo:end_tool_requests:plamo|>

The tokens directly before the arguments may be missing.

Source: the tool parsers for PLaMo 3 of vLLM and SGLang.
"""

from __future__ import annotations

from callgate.models.dialects.dialect import Dialect, ParsedCalls
from callgate.models.dialects.known_tools import MAX_HEADER_CHARS, KnownTools
from callgate.models.dialects.marked_json import read_arguments
from callgate.models.dialects.text_and_call_parts import FoundCall
from callgate.models.dialects.text_cursor import NotACall, TextCursor

__all__ = ["PLAMO"]


def _make_token(words: str) -> str:
    return f"<|plamo:{words}:plamo|>"


_BEGIN, _END = _make_token("begin_tool_request"), _make_token("end_tool_request")
_NAME, _END_NAME = _make_token("begin_tool_name"), _make_token("end_tool_name")
_ARGUMENTS, _END_ARGUMENTS = _make_token("begin_tool_arguments"), _make_token("end_tool_arguments")
_CONSTRAINT, _BODY = "<|plamo:constrain|>json", "<|plamo:msg|>"


def _read(cursor: TextCursor, tools: KnownTools, opener: str) -> ParsedCalls:
    yield from cursor.skip_space()
    yield from cursor.expect(_NAME)
    name, _ = yield from cursor.read_until(_END_NAME, limit=MAX_HEADER_CHARS)
    yield from cursor.skip_space()
    for token in (_ARGUMENTS, _CONSTRAINT, _BODY):
        yield from (cursor.expect if token == _ARGUMENTS else cursor.take)(token)
        yield from cursor.skip_space()
    if not tools.is_name(name.strip()):
        raise NotACall
    is_empty = yield from cursor.at(_END_ARGUMENTS)
    if not is_empty and (yield from cursor.peek()) != "{":
        raise NotACall
    text = "{}" if is_empty else (yield from read_arguments(cursor, _END_ARGUMENTS))
    yield from cursor.skip_space()
    yield from cursor.expect(_END_ARGUMENTS)
    yield FoundCall(name=tools.clean_name(name), arguments=text)
    yield from cursor.skip_space()
    yield from cursor.take(_END)


PLAMO = Dialect(
    name="plamo",
    families="PLaMo 3",
    example=(
        "<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>get_weather<|plamo:end_tool_name:plamo|>"
        '<|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>{"city": "Paris"}<|plamo:end_tool_arguments:plamo|>'
        "<|plamo:end_tool_request:plamo|>"
    ),
    openers=(_BEGIN,),
    read=_read,
    ignored_markers=(_make_token("begin_tool_requests"), _make_token("end_tool_requests"), "<|plamo:tag|>"),
    reasoning_markers=((_make_token("begin_think"), _make_token("end_think")),),
)
