"""Solar Open: a token before each part of a call; Solar Open 2 has tokens for each argument.

    <|tool_call:begin|>1<|tool_call:name|>get_weather<|tool_call:args|>{"city": "Paris"}<|tool_call:end|>

    <|tool_call:start|>get_weather
    <|tool_arg:start|>city<|tool_arg:value|>Paris<|tool_arg:end|>
    <|tool_call:end|>

Source: the chat template of Solar-Open-100B; the tool parser for Solar Open 2.
"""

from __future__ import annotations

from callgate.models.dialects.cursor import Cursor, NoCall, Wait
from callgate.models.dialects.names import MAX_NAME, ToolNames
from callgate.models.dialects.parts import Found
from callgate.models.dialects.shape import Dialect, Reads
from callgate.models.dialects.typed import as_object, parameter_schema, typed

__all__ = ["SOLAR"]

_NAME, _ARGUMENTS, _END = "<|tool_call:name|>", "<|tool_call:args|>", "<|tool_call:end|>"
_START = "<|tool_call:start|>"
_ARGUMENT, _VALUE, _END_ARGUMENT = "<|tool_arg:start|>", "<|tool_arg:value|>", "<|tool_arg:end|>"


def _read(cursor: Cursor, tools: ToolNames, opener: str) -> Reads:
    if opener == _START:
        yield (yield from _by_arguments(cursor, tools))
        return
    call_id, _ = yield from cursor.until(_NAME)
    name, mark = yield from cursor.until(_ARGUMENTS, _END)
    if mark != _ARGUMENTS or not name.strip() or len(name) > MAX_NAME:
        raise NoCall
    yield from cursor.white()
    if (yield from cursor.peek()) != "{":
        raise NoCall
    text = yield from cursor.value()
    yield Found(name=tools.written(name), arguments=text, id=call_id.strip())
    yield from cursor.white()
    yield from cursor.take(_END)


def _by_arguments(cursor: Cursor, tools: ToolNames) -> Wait[Found]:
    """A call with tokens for each argument. A token that is missing at the end of a value is forgiven."""
    name, mark = yield from cursor.until("\n", _ARGUMENT, _END)
    name = tools.written(name)
    cursor.unread(mark)
    if not name or len(name) > MAX_NAME:
        raise NoCall
    schema = tools.schema(name)
    members: dict[str, str] = {}
    yield from cursor.white()
    while (yield from cursor.take(_ARGUMENT)):
        key, _ = yield from cursor.until(_VALUE)
        value, mark = yield from cursor.until(_END_ARGUMENT, _ARGUMENT, _END)
        cursor.unread("" if mark == _END_ARGUMENT else mark)
        members.setdefault(key.strip(), typed(value, parameter_schema(schema, key.strip()), schema))
        yield from cursor.white()
    if not (yield from cursor.take(_END)) and not (yield from cursor.at(_START)):
        raise NoCall
    return Found(name=name, arguments=as_object(members))


SOLAR = Dialect(
    name="solar",
    families="Solar Open, Solar Open 2",
    example='<|tool_call:begin|>1<|tool_call:name|>get_weather<|tool_call:args|>{"city": "Paris"}<|tool_call:end|>',
    openers=("<|tool_call:begin|>", _START),
    read=_read,
    silent=("<|tool_calls|>", "<|begin|>assistant", "<|content|>", "<|calls|>", "<|flush|>"),
    thoughts=(("<|think|>", "<|end|>"),),
)
