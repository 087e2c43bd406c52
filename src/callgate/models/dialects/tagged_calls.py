"""Calls written as tags: one tag for the call, one for each parameter.

The tags differ between families, the order does not: call, parameters, end. A value is everything between its tags, and its type comes
from the tool's schema. A call whose last tag is missing counts only if the message ended well and no value is left open. Knows the tags
of no family: dialects do.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping

from msgspec import Struct

from callgate.models.dialects.dialect import ParsedCalls
from callgate.models.dialects.json_calls import normalise_arguments
from callgate.models.dialects.known_tools import MAX_NAME_CHARS, KnownTools
from callgate.models.dialects.parsed_parts import FoundCall
from callgate.models.dialects.tag_values import TURN_ENDS, ValueTags, read_value, tag_name
from callgate.models.dialects.text_cursor import Incremental, NotACall, TextCursor
from callgate.models.dialects.typed_values import allowed_types, json_object, json_string, parameter_schema, to_typed_json

__all__ = ["CallTags", "invoke_tags", "read_tagged_call", "read_tagged_calls", "with_space_variants"]

_CDATA = re.compile(r"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)
_BREAK, _LAST_BREAK = re.compile(r"\r?\n"), re.compile(r"\r?\n\Z")
_WRAPPERS = frozenset({"arguments", "parameters", "properties", "input"})
_SPACED = {">": (" >",), "=": (" =",), " ": ("\n", "\t")}


class CallTags(Struct, frozen=True, kw_only=True):
    """The tags of one family, without the closing angle bracket where a name follows."""

    call: tuple[str, ...]
    end: tuple[str, ...]
    parameter: tuple[str, ...]
    end_parameter: tuple[str, ...]
    trim: bool = False
    """A line break on either side of a value belongs to the tags."""
    markup: bool = False
    """Values are XML: entities and CDATA stand for what they mean."""
    grouped: bool = False
    """Names come behind the name of a group and a dot."""
    once: bool = False
    """A parameter that comes twice makes it no call; else the last one counts."""
    around: tuple[str, ...] = ()
    """What may stand around parameters and says nothing."""

    def of_values(self, closers: tuple[str, ...]) -> ValueTags:
        """Those that a value may end at, in calls that one of `closers` closes."""
        return ValueTags(
            call=self.call,
            end=self.end,
            parameter=self.parameter,
            end_parameter=self.end_parameter,
            end_name=">",
            followers=(*closers, *self.call, *TURN_ENDS),
        )


def with_space_variants(*tags: str) -> tuple[str, ...]:
    """Tags, each also with the white space that some models put into it."""
    return (*tags, *(tag[:-1] + other for tag in tags for other in _SPACED[tag[-1]]))


def invoke_tags(*prefixes: str) -> CallTags:
    """The tags `invoke` and `parameter`, whose names are attributes, behind any of these prefixes."""
    return CallTags(
        call=with_space_variants(*(f"<{prefix}invoke " for prefix in prefixes)),
        end=with_space_variants(*(f"</{prefix}invoke>" for prefix in prefixes)),
        parameter=with_space_variants(*(f"<{prefix}parameter " for prefix in prefixes)),
        end_parameter=with_space_variants(*(f"</{prefix}parameter>" for prefix in prefixes)),
    )


def read_tagged_call(cursor: TextCursor, tools: KnownTools, tags: CallTags, *closers: str) -> Incremental[FoundCall]:
    """Read one call, from behind the opening of its tag to its end, or to what closes all calls."""
    header, _ = yield from cursor.read_until(">")
    name = tools.clean_name(tag_name(header))
    name = _within(name, tools) if tags.grouped else name
    if len(name) > MAX_NAME_CHARS or not name or "<" in name:
        raise NotACall
    if header.rstrip().endswith("/"):
        return FoundCall(name=name, arguments="{}")
    yield from cursor.skip_space()
    if (yield from cursor.peek()) == "{":
        return (yield from _json_body(cursor, tags, name))
    members: dict[str, str] = {}
    while True:
        yield from cursor.skip_space()
        if (yield from cursor.take(*tags.parameter)):
            key, value = yield from _parameter(cursor, tools, tags, name, closers)
            if tags.once and key in members:
                raise NotACall
            members[key] = value
        elif (yield from cursor.take(*tags.around)):
            continue
        elif (yield from cursor.take(*tags.end)) or (yield from cursor.at_any(*closers)):
            return FoundCall(name=name, arguments=_unwrapped(members, tools.schema(name)))
        elif (yield from cursor.peek()) == "" and members and not cursor.truncated:
            return FoundCall(name=name, arguments=_unwrapped(members, tools.schema(name)), closed="finished")
        else:
            raise NotACall


def _within(name: str, tools: KnownTools) -> str:
    """A tool's name without that of its group."""
    group, dot, own = name.rpartition(".")
    return own if dot and not tools.has(name) and (tools.has(own) or group == own) else name


def read_tagged_calls(cursor: TextCursor, tools: KnownTools, tags: CallTags, *closers: str) -> ParsedCalls:
    """Read one call after the other behind a marker that opens them, up to the one that closes them."""
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


def _json_body(cursor: TextCursor, tags: CallTags, name: str) -> Incremental[FoundCall]:
    text = yield from cursor.read_bracketed()
    yield from cursor.skip_space()
    if (yield from cursor.take(*tags.end)) or not (yield from cursor.peek()):
        return FoundCall(name=name, arguments=normalise_arguments(text))
    raise NotACall


def _parameter(cursor: TextCursor, tools: KnownTools, tags: CallTags, name: str, closers: tuple[str, ...]) -> Incremental[tuple[str, str]]:
    """The name and the value, as JSON, of one parameter."""
    header, _ = yield from cursor.read_until(">")
    if tags.markup and (yield from cursor.take("<![CDATA[")):
        text, _ = yield from cursor.read_until("]]>")
        yield from cursor.read_until(*tags.end_parameter)
    else:
        text = _trimmed((yield from read_value(cursor, tags.of_values(closers), tools.schema(name))), tags)
        text = html.unescape(_CDATA.sub(lambda found: found[1], text)) if tags.markup else text
    key = tag_name(header)
    return key, _value(text, header, key, tools, name)


def _trimmed(text: str, tags: CallTags) -> str:
    first, last = (_BREAK.match(text), _LAST_BREAK.search(text))
    if tags.trim or (first and last and first.end() <= last.start()):
        text = text[: last.start()] if last else text
        return text[first.end() :] if first else text
    return text


def _value(text: str, header: str, key: str, tools: KnownTools, name: str) -> str:
    """A value as JSON: the tool's schema decides, then what the tag says of it."""
    root = tools.schema(name)
    schema = parameter_schema(root, key)
    says_text = 'string="true"' in header or 'type="string"' in header
    if says_text and "string" in allowed_types(schema, root):
        return json_string(text)
    return to_typed_json(text, schema, root)


def _unwrapped(members: dict[str, str], schema: Mapping[str, object] | None) -> str:
    """An object that is the only member, and named for all of them, is all of them."""
    if len(members) == 1:
        ((key, value),) = members.items()
        inner = normalise_arguments(value)
        if key in _WRAPPERS and inner.startswith("{") and parameter_schema(schema, key) is None:
            return inner
    return json_object(members)
