"""Calls written as tags: one tag for the call, one for each parameter.

Families use different tags in the same order: call, parameters, end. A value is the text between its tags, with the type that the tool's
schema names. A call without its last tag counts only if the message is complete and no value is open. Knows the tags of no family.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping

from msgspec import Struct

from callgate.models.dialects.dialect import ParsedCalls
from callgate.models.dialects.json_calls import normalise_arguments
from callgate.models.dialects.known_tools import MAX_HEADER_CHARS, MAX_NAME_CHARS, KnownTools
from callgate.models.dialects.marked_json import read_arguments
from callgate.models.dialects.tag_values import TURN_ENDS, ValueTags, is_message_end, read_value, tag_name
from callgate.models.dialects.text_and_call_parts import FoundCall
from callgate.models.dialects.text_cursor import Incremental, NotACall, TextCursor
from callgate.models.dialects.typed_values import allowed_types, has_parameter, json_object, json_string, parameter_schema, to_typed_json

__all__ = ["CallTags", "invoke_tags", "read_parameters", "read_tagged_call", "read_tagged_calls", "with_space_variants"]

_CDATA = re.compile(r"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)
_LINE_BREAK, _LAST_LINE_BREAK = re.compile(r"\r?\n"), re.compile(r"\r?\n\Z")
_WORD_CHARACTER = re.compile(r"\w")
_PARAMETER_IN_HEADER = re.compile(r"\s*([\w.\-]+)\s*[=:]\s*([^<]*?)\s*</parameter\s*")
_WRAPPER_NAMES = frozenset({"arguments", "parameters", "properties", "input"})
_SPACE_VARIANTS = {">": (" >",), "=": (" =",), " ": ("\n", "\t")}


class CallTags(Struct, frozen=True, kw_only=True):
    """The tags of one family, without the closing angle bracket where a name follows."""

    call: tuple[str, ...]
    end: tuple[str, ...]
    parameter: tuple[str, ...]
    end_parameter: tuple[str, ...]
    trim_line_breaks: bool = False
    """Whether line breaks directly before and after a value are not part of it."""
    is_xml: bool = False
    """Whether values are XML, with entities and CDATA."""
    has_namespace: bool = False
    """Whether tool names are written with a namespace and a dot before them."""
    unique_parameters: bool = False
    """Whether text with a repeated parameter is not a call. Otherwise the last of the repeated parameters counts."""
    inline_tags_are_text: bool = False
    """Whether text in a value may contain the tag of a parameter. A tag then ends a value only at the start of a line."""
    ignored_tags: tuple[str, ...] = ()
    """Tags around parameters that have no meaning."""

    def value_tags(self, closers: tuple[str, ...]) -> ValueTags:
        """Return the tags that may end a value, in calls that one of `closers` closes."""
        return ValueTags(
            call=self.call,
            end=self.end,
            parameter=self.parameter,
            end_parameter=self.end_parameter,
            end_name=">",
            call_followers=(*closers, *self.call, *TURN_ENDS),
            value_followers=(*self.parameter, *self.end, *self.ignored_tags, *closers, *self.call, *TURN_ENDS),
            drops_last_line_break=not self.trim_line_breaks,
            inline_tags_are_text=self.inline_tags_are_text,
        )


def with_space_variants(*tags: str) -> tuple[str, ...]:
    """Return the tags, each also with the white space that some models write in it."""
    return (*tags, *(tag[:-1] + other for tag in tags for other in _SPACE_VARIANTS[tag[-1]]))


def invoke_tags(*prefixes: str) -> CallTags:
    """Return the tags `invoke` and `parameter`, whose names are attributes, with any of these prefixes."""
    return CallTags(
        call=with_space_variants(*(f"<{prefix}invoke " for prefix in prefixes)),
        end=with_space_variants(*(f"</{prefix}invoke>" for prefix in prefixes)),
        parameter=with_space_variants(*(f"<{prefix}parameter " for prefix in prefixes)),
        end_parameter=with_space_variants(*(f"</{prefix}parameter>" for prefix in prefixes)),
        inline_tags_are_text="" in prefixes,
    )


def read_tagged_call(cursor: TextCursor, tools: KnownTools, tags: CallTags, *closers: str) -> Incremental[FoundCall]:
    """Read one call from behind the start of its tag to its end, or to what closes all calls."""
    header, _ = yield from cursor.read_until(">", limit=MAX_HEADER_CHARS)
    name = tools.clean_name(tag_name(header))
    name = _strip_namespace(name, tools) if tags.has_namespace else name
    if len(name) > MAX_NAME_CHARS or "<" in name or not _WORD_CHARACTER.search(name):
        raise NotACall
    if header.rstrip().endswith("/"):
        return FoundCall(name=name, arguments="{}")
    yield from cursor.skip_space()
    if (yield from cursor.peek()) == "{":
        return (yield from _read_json_body(cursor, tags, name, closers))
    return (yield from read_parameters(cursor, tools, tags, name, *closers))


def read_parameters(cursor: TextCursor, tools: KnownTools, tags: CallTags, name: str, *closers: str) -> Incremental[FoundCall]:
    """Read the parameters of a call of `name` to its end, or to what closes all calls."""
    members: dict[str, str] = {}
    while True:
        yield from cursor.skip_space()
        if (yield from cursor.take(*tags.parameter)):
            key, value = yield from _read_parameter(cursor, tools, tags, name, closers)
            if tags.unique_parameters and key in members:
                raise NotACall
            members[key] = value
        elif (yield from cursor.take(*tags.ignored_tags)):
            continue
        elif (yield from cursor.take(*tags.end)) or (yield from cursor.at_any(*closers)):
            return FoundCall(name=name, arguments=_unwrap_arguments(members, tools.schema(name)))
        elif members and (yield from is_message_end(cursor)):
            return FoundCall(name=name, arguments=_unwrap_arguments(members, tools.schema(name)), closed="finished")
        else:
            raise NotACall


def _strip_namespace(name: str, tools: KnownTools) -> str:
    """Return a tool's name without its namespace."""
    group, dot, own = name.rpartition(".")
    return own if dot and not tools.has(name) and (tools.has(own) or group == own) else name


def read_tagged_calls(cursor: TextCursor, tools: KnownTools, tags: CallTags, *closers: str) -> ParsedCalls:
    """Read consecutive calls behind their opening marker, up to the one that closes them."""
    count = 0
    while True:
        yield from cursor.skip_space()
        if (yield from cursor.take(*tags.call)):
            yield (yield from read_tagged_call(cursor, tools, tags, *closers))
            count += 1
        elif (yield from cursor.take(*closers)) or count:
            return
        else:
            raise NotACall


def _read_json_body(cursor: TextCursor, tags: CallTags, name: str, closers: tuple[str, ...]) -> Incremental[FoundCall]:
    """Read the arguments as one object, up to the end of the call. The end tag may be missing where another call or the end follows."""
    text = yield from read_arguments(cursor, *tags.end, *closers, stops=(*tags.call, *TURN_ENDS))
    yield from cursor.skip_space()
    if (
        (yield from cursor.take(*tags.end))
        or not (yield from cursor.peek())
        or (yield from cursor.at_any(*closers, *tags.call, *TURN_ENDS))
    ):
        return FoundCall(name=name, arguments=normalise_arguments(text))
    raise NotACall


def _read_parameter(
    cursor: TextCursor, tools: KnownTools, tags: CallTags, name: str, closers: tuple[str, ...]
) -> Incremental[tuple[str, str]]:
    """Return the name and the JSON value of one parameter."""
    header, _ = yield from cursor.read_until(">", limit=MAX_HEADER_CHARS)
    if "<" in header:
        key, text = _split_header(header, tools, name)
        return key, _convert_value(text, "", key, tools, name)
    key = tag_name(header)
    if tags.is_xml and (yield from cursor.take("<![CDATA[")):
        text, _ = yield from cursor.read_until("]]>")
        yield from cursor.read_until(*tags.end_parameter)
    else:
        text = _trim_value((yield from read_value(cursor, tags.value_tags(closers), tools.schema(name), key)), tags)
        text = html.unescape(_CDATA.sub(lambda found: found[1], text)) if tags.is_xml else text
    return key, _convert_value(text, header, key, tools, name)


def _split_header(header: str, tools: KnownTools, name: str) -> tuple[str, str]:
    """Return the name and the value of a parameter whose value was written into its tag, as in `<parameter=city=Paris</parameter>`."""
    written = _PARAMETER_IN_HEADER.fullmatch(header)
    if written is None or not has_parameter(tools.schema(name), written[1]):
        raise NotACall
    return written[1], written[2]


def _trim_value(text: str, tags: CallTags) -> str:
    first, last = (_LINE_BREAK.match(text), _LAST_LINE_BREAK.search(text))
    if tags.trim_line_breaks or (first and last and first.end() <= last.start()):
        text = text[: last.start()] if last else text
        return text[first.end() :] if first else text
    return text


def _convert_value(text: str, header: str, key: str, tools: KnownTools, name: str) -> str:
    """Return a value as JSON: the type comes from the tool's schema, then from the tag."""
    root = tools.schema(name)
    schema = parameter_schema(root, key)
    says_text = 'string="true"' in header or 'type="string"' in header
    if says_text and "string" in allowed_types(schema, root):
        return json_string(text)
    return to_typed_json(text, schema, root)


def _unwrap_arguments(members: dict[str, str], schema: Mapping[str, object] | None) -> str:
    """Return the object inside a single member whose name means all arguments."""
    if len(members) == 1:
        ((key, value),) = members.items()
        inner = normalise_arguments(value)
        if key in _WRAPPER_NAMES and inner.startswith("{") and parameter_schema(schema, key) is None:
            return inner
    return json_object(members)
