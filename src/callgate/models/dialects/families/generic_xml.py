"""Models that were prompted with, or trained on, calls in the common XML form, such as dots.

    <function_calls>
    <invoke name="get_weather">
    <parameter name="city">Paris</parameter>
    </invoke>
    </function_calls>

Some put a namespace before every tag. Others write the name in a tag of its own, and the arguments as JSON:

    <tool_call><function>get_weather</function>{"city": "Paris"}</tool_call>
    <tool_use><name>get_weather</name><arguments>{"city": "Paris"}</arguments></tool_use>

Source: Anthropic's guide to tool use by prompt; the answers of models that imitate it; SGLang's tool parser for dots.
"""

from __future__ import annotations

from callgate.models.dialects.dialect import Dialect, ParsedCalls
from callgate.models.dialects.json_calls import normalise_arguments
from callgate.models.dialects.known_tools import MAX_HEADER_CHARS, KnownTools
from callgate.models.dialects.marked_json import read_arguments
from callgate.models.dialects.tagged_calls import invoke_tags, read_tagged_calls
from callgate.models.dialects.text_and_call_parts import FoundCall
from callgate.models.dialects.text_cursor import Incremental, NotACall, TextCursor

__all__ = ["OTHER_XML"]

_SPACES = ("", "antml:")
_TAGS = invoke_tags(*_SPACES)
_SECTIONS = (*(f"{space}function_calls>" for space in _SPACES), "tool_calls>", "dots_function_call>")
_CLOSERS = (*(f"</{section}" for section in _SECTIONS), "</minimax:tool_call>")
_NAMED_CALLS = ("<tool_call>", "<tool_use>")
_NAMES, _ARGUMENTS = ("<function>", "<name>", "<tool_name>"), ("<arguments>", "<parameters>", "<args>")


def _read(cursor: TextCursor, tools: KnownTools, opener: str) -> ParsedCalls:
    if opener in _NAMED_CALLS:
        yield (yield from _read_named_call(cursor, tools, _end_tag(opener)))
        return
    if opener in _TAGS.call:
        cursor.give_back(opener)
    yield from read_tagged_calls(cursor, tools, _TAGS, *_CLOSERS)


def _read_named_call(cursor: TextCursor, tools: KnownTools, end: str) -> Incremental[FoundCall]:
    """Read a call whose name has a tag of its own, and whose arguments are an object, with or without a tag."""
    yield from cursor.skip_space()
    name, _ = yield from cursor.read_until(_end_tag((yield from cursor.expect(*_NAMES))), limit=MAX_HEADER_CHARS)
    yield from cursor.skip_space()
    closer = _end_tag((yield from cursor.take(*_ARGUMENTS)))
    yield from cursor.skip_space()
    if not tools.is_name(name) or (yield from cursor.peek()) != "{":
        raise NotACall
    text = yield from read_arguments(cursor, *filter(None, (closer, end)))
    for tag in filter(None, (closer, end)):
        yield from cursor.skip_space()
        yield from cursor.expect(tag)
    return FoundCall(name=tools.clean_name(name), arguments=normalise_arguments(text))


def _end_tag(tag: str) -> str:
    return f"</{tag[1:]}" if tag else ""


OTHER_XML = Dialect(
    name="other-xml",
    families="prompted models, dots",
    example='<function_calls>\n<invoke name="get_weather">\n<parameter name="city">Paris</parameter>\n</invoke>\n</function_calls>',
    openers=(*(f"<{section}" for section in _SECTIONS), *_TAGS.call, *_NAMED_CALLS),
    read=_read,
)
