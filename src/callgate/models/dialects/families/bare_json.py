"""Llama 3, xLAM, prompted models of every family, callgate's fallback: a JSON object without markers, fenced or not.

    {"tool": "get_weather", "parameters": {"city": "Paris"}, "reasoning": "I was asked."}

An object is a call only at the start of a line or as the whole content of a fence, alone on its lines, and only if it
names a known tool. If no tools are known, it must have a name and arguments, and no keys that calls do not have. All
other JSON is part of the answer, also the definition of a tool, which has a schema instead of arguments.

If the prompt taught this format, an object in exactly this format is a call with any name. If it is not strict JSON, or
if it names a known tool and its parameters are not an object, it is a call with malformed arguments. The engine reports
both an unknown name and malformed arguments to the model.

Source: the chat template of Llama-3.1; the model card of xLAM-2; callgate's fallback format.
"""

from __future__ import annotations

import json
import re

from msgspec.structs import replace

from callgate.models.dialects.dialect import Dialect, ParsedCalls
from callgate.models.dialects.json_calls import JsonCall, may_start_call, parse_unmarked_calls
from callgate.models.dialects.known_tools import KnownTools
from callgate.models.dialects.schema_matching import is_tool_definition, matches_known_schema
from callgate.models.dialects.text_and_call_parts import FoundCall
from callgate.models.dialects.text_cursor import Incremental, NotACall, TextCursor

__all__ = ["BARE_JSON", "FENCED_JSON", "JSON_IN_TAGS", "JSON_IN_TEXT"]

_LINE_SPACE = re.compile(r"[ \t]*")
_TRAILING = re.compile(r"[\s;,\]}]*")
_CLOSING_BRACKETS = re.compile(r"[;,\]}]*")
_FOLLOWING = frozenset({"", "\n", "\r", ";", ",", "{", "<", "`", "[", "]", "}"})
_PREVIEW_CHARS = 600
_TAGS = ("<tool>", "<tools>", "<tool_use>", "<TOOL_CALL>", "<function>", "<json>", "<JSON>", "<xml>", "<response>")
_FENCED_TAGS = (*_TAGS, "<function_call>", "<tool_call>")


def _read_object(cursor: TextCursor, tools: KnownTools) -> Incremental[list[FoundCall]]:
    """Read an object that may be a call without markers; fail as soon as it cannot be one."""
    while True:
        verdict = may_start_call(cursor.ahead(_PREVIEW_CHARS), tools)
        if verdict is not None:
            break
        if len(cursor.ahead(_PREVIEW_CHARS)) == _PREVIEW_CHARS or not (yield from cursor.wait_more()):
            raise NotACall
    if not verdict:
        raise NotACall
    text = yield from cursor.read_bracketed()
    calls = [_lift_arguments(call, tools) for call in parse_unmarked_calls(text)]
    if not calls or not all(_is_call(call, tools) for call in calls):
        raise NotACall
    if tools.fallback_taught and not _is_json(
        text
    ):  # the taught format is JSON: the engine reports Python syntax or a surplus comma to the model
        calls = [replace(call, arguments=text) if _is_json(call.arguments) else call for call in calls]
    return [call.to_found_call(tools) for call in calls]


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _lift_arguments(call: JsonCall, tools: KnownTools) -> JsonCall:
    """Return `call` with the members beside its empty parameters as arguments, if its tool is known to take exactly those."""
    schema = tools.schema(call.name)
    if not call.sibling_arguments or tools.is_empty or not matches_known_schema(call.sibling_arguments, schema):
        return call
    return replace(call, arguments=call.sibling_arguments, has_other_keys=False, lifted=True)


def _is_call(call: JsonCall, tools: KnownTools) -> bool:
    recognisable = not tools.is_empty or call.has_standard_keys
    if not recognisable or call.has_other_keys:
        return False
    is_known, is_fallback = tools.may_call(call.name), tools.fallback_taught and call.is_fallback
    arguments = call.to_found_call(tools).arguments
    if not arguments.startswith("{"):  # malformed arguments count only in the taught format with a known name
        return is_known and is_fallback
    return (is_known or (is_fallback and bool(call.name.strip()))) and not is_tool_definition(arguments, tools.schema(call.name))


def _read(cursor: TextCursor, tools: KnownTools, opener: str) -> ParsedCalls:
    if opener == "[":
        yield from _read_list(cursor, tools)
    else:
        cursor.give_back(opener)
        calls = yield from _read_object(cursor, tools)
        yield from cursor.take_while(_LINE_SPACE)
        if (yield from cursor.peek()) not in _FOLLOWING:
            raise NotACall
        yield from calls
    yield from cursor.take_while(_TRAILING)


def _read_list(cursor: TextCursor, tools: KnownTools) -> ParsedCalls:
    while True:
        yield from cursor.skip_space()
        if (yield from cursor.peek()) != "{":
            raise NotACall
        yield from (yield from _read_object(cursor, tools))
        yield from cursor.skip_space()
        if not (yield from cursor.take(",", ";")):
            yield from cursor.take("]")
            return


def _read_fenced(cursor: TextCursor, tools: KnownTools, opener: str) -> ParsedCalls:
    yield from cursor.skip_space()
    tag = yield from cursor.take(*_FENCED_TAGS)
    yield from cursor.skip_space()
    start = yield from cursor.expect("[", "{")
    yield from _read(cursor, tools, start)
    while (yield from cursor.take("{")):
        yield from _read(cursor, tools, "{")
    if tag:
        yield from cursor.take(_make_closing_tag(tag))
        yield from cursor.skip_space()
    yield from cursor.take("```")


def _read_in_tags(cursor: TextCursor, tools: KnownTools, opener: str) -> ParsedCalls:
    yield from cursor.skip_space()
    start = yield from cursor.expect("[", "{")
    yield from _read(cursor, tools, start)
    yield from cursor.take(_make_closing_tag(opener))


def _make_closing_tag(tag: str) -> str:
    return f"</{tag[1:]}"


def _read_inline(cursor: TextCursor, tools: KnownTools, opener: str) -> ParsedCalls:
    if opener == "[":
        yield from _read_list(cursor, tools)
    else:
        cursor.give_back(opener)
        yield from (yield from _read_object(cursor, tools))
    yield from cursor.take_while(_CLOSING_BRACKETS)


BARE_JSON = Dialect(
    name="bare-json",
    families="Llama 3, xLAM, prompted models, the fallback format",
    example='{"tool": "get_weather", "parameters": {"city": "Paris"}, "reasoning": "I was asked."}',
    openers=("{", "["),
    read=_read,
    line_start_only=True,
    read_hinted=_read_inline,
)
FENCED_JSON = Dialect(
    name="fenced-json",
    families="prompted models, the fallback format",
    example='```json\n{"tool": "get_weather", "parameters": {"city": "Paris"}}\n```',
    openers=("```json", "```JSON", "```tool_code", "```tool_call", "```tool_calls", "```tool_use", "```function_call", "```xml", "```"),
    read=_read_fenced,
    line_start_only=True,
)
JSON_IN_TAGS = Dialect(
    name="json-in-tags",
    families="prompted models",
    example='<tool>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool>',
    openers=_TAGS,
    read=_read_in_tags,
    line_start_only=True,
)
JSON_IN_TEXT = Dialect(
    name="json-in-text",
    families="models that write calls into their sentences; only by hint",
    example='Let me look: {"name": "get_weather", "arguments": {"city": "Paris"}}',
    openers=("{", "["),
    read=_read_inline,
    hint_only=True,
)
