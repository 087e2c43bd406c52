"""Solar Open: a special token before each part of a call; Solar Open 2 has tokens for each argument.

    <|tool_call:begin|>1<|tool_call:name|>get_weather<|tool_call:args|>{"city": "Paris"}<|tool_call:end|>

    <|tool_call:start|>get_weather
    <|tool_arg:start|>city<|tool_arg:value|>Paris<|tool_arg:end|>
    <|tool_call:end|>

Source: the chat template of Solar-Open-100B; the tool parser for Solar Open 2.
"""

from __future__ import annotations

from callgate.models.dialects.dialect import Dialect, ParsedCalls
from callgate.models.dialects.known_tools import MAX_HEADER_CHARS, KnownTools
from callgate.models.dialects.marked_json import read_arguments
from callgate.models.dialects.text_and_call_parts import FoundCall
from callgate.models.dialects.text_cursor import Incremental, NotACall, TextCursor
from callgate.models.dialects.typed_values import json_object, parameter_schema, to_typed_json

__all__ = ["SOLAR"]

_NAME, _ARGUMENTS, _END = "<|tool_call:name|>", "<|tool_call:args|>", "<|tool_call:end|>"
_START = "<|tool_call:start|>"
_ARGUMENT, _VALUE, _END_ARGUMENT = "<|tool_arg:start|>", "<|tool_arg:value|>", "<|tool_arg:end|>"


def _read(cursor: TextCursor, tools: KnownTools, opener: str) -> ParsedCalls:
    if opener == _START:
        yield (yield from _read_arguments_call(cursor, tools))
        return
    call_id, _ = yield from cursor.read_until(_NAME, limit=MAX_HEADER_CHARS)
    name, marker = yield from cursor.read_until(_ARGUMENTS, _END, limit=MAX_HEADER_CHARS)
    if marker != _ARGUMENTS or not tools.is_name(name):
        raise NotACall
    yield from cursor.skip_space()
    if (yield from cursor.peek()) != "{":
        raise NotACall
    text = yield from read_arguments(cursor, _END, stops=("<|tool_call:begin|>",))
    yield FoundCall(name=tools.clean_name(name), arguments=text, id=call_id.strip())
    yield from cursor.skip_space()
    yield from cursor.take(_END)


def _read_arguments_call(cursor: TextCursor, tools: KnownTools) -> Incremental[FoundCall]:
    """Read a call with tokens for each argument. The token at the end of a value may be missing."""
    name, marker = yield from cursor.read_until("\n", _ARGUMENT, _END, limit=MAX_HEADER_CHARS)
    name = tools.clean_name(name)
    cursor.give_back(marker)
    if not tools.is_name(name):
        raise NotACall
    schema = tools.schema(name)
    members: dict[str, str] = {}
    yield from cursor.skip_space()
    while (yield from cursor.take(_ARGUMENT)):
        key, _ = yield from cursor.read_until(_VALUE, limit=MAX_HEADER_CHARS)
        value, marker = yield from cursor.read_until(_END_ARGUMENT, _ARGUMENT, _END)
        cursor.give_back("" if marker == _END_ARGUMENT else marker)
        members.setdefault(key.strip(), to_typed_json(value, parameter_schema(schema, key.strip()), schema))
        yield from cursor.skip_space()
    if not (yield from cursor.take(_END)) and not (yield from cursor.at(_START)):
        raise NotACall
    return FoundCall(name=name, arguments=json_object(members))


SOLAR = Dialect(
    name="solar",
    families="Solar Open, Solar Open 2",
    example='<|tool_call:begin|>1<|tool_call:name|>get_weather<|tool_call:args|>{"city": "Paris"}<|tool_call:end|>',
    openers=("<|tool_call:begin|>", _START),
    read=_read,
    ignored_markers=("<|tool_calls|>", "<|begin|>assistant", "<|content|>", "<|calls|>", "<|flush|>"),
    reasoning_markers=(("<|think|>", "<|end|>"),),
)
