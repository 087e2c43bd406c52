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

from callgate.models.dialects.cursor import Cursor, NoCall, Wait
from callgate.models.dialects.json_calls import argument_text
from callgate.models.dialects.names import MAX_NAME, ToolNames
from callgate.models.dialects.parts import Found
from callgate.models.dialects.shape import Reads
from callgate.models.dialects.typed import as_object, kinds_of, parameter_schema, quoted, typed
from callgate.models.dialects.values import AFTER_A_CALL, ValueTags, name_in, read_value

__all__ = ["Tags", "invoke_tags", "read_tagged", "read_tagged_calls", "spaced"]

_CDATA = re.compile(r"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)
_BREAK, _LAST_BREAK = re.compile(r"\r?\n"), re.compile(r"\r?\n\Z")
_WRAPPERS = frozenset({"arguments", "parameters", "properties", "input"})
_SPACED = {">": (" >",), "=": (" =",), " ": ("\n", "\t")}


class Tags(Struct, frozen=True, kw_only=True):
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
            followers=(*closers, *self.call, *AFTER_A_CALL),
        )


def spaced(*tags: str) -> tuple[str, ...]:
    """Tags, each also with the white space that some models put into it."""
    return (*tags, *(tag[:-1] + other for tag in tags for other in _SPACED[tag[-1]]))


def invoke_tags(*prefixes: str) -> Tags:
    """The tags `invoke` and `parameter`, whose names are attributes, behind any of these prefixes."""
    return Tags(
        call=spaced(*(f"<{prefix}invoke " for prefix in prefixes)),
        end=spaced(*(f"</{prefix}invoke>" for prefix in prefixes)),
        parameter=spaced(*(f"<{prefix}parameter " for prefix in prefixes)),
        end_parameter=spaced(*(f"</{prefix}parameter>" for prefix in prefixes)),
    )


def read_tagged(cursor: Cursor, tools: ToolNames, tags: Tags, *closers: str) -> Wait[Found]:
    """Read one call, from behind the opening of its tag to its end, or to what closes all calls."""
    header, _ = yield from cursor.until(">")
    name = tools.written(name_in(header))
    name = _within(name, tools) if tags.grouped else name
    if len(name) > MAX_NAME or not name or "<" in name:
        raise NoCall
    if header.rstrip().endswith("/"):
        return Found(name=name, arguments="{}")
    yield from cursor.white()
    if (yield from cursor.peek()) == "{":
        return (yield from _json_body(cursor, tags, name))
    members: dict[str, str] = {}
    while True:
        yield from cursor.white()
        if (yield from cursor.take(*tags.parameter)):
            key, value = yield from _parameter(cursor, tools, tags, name, closers)
            if tags.once and key in members:
                raise NoCall
            members[key] = value
        elif (yield from cursor.take(*tags.around)):
            continue
        elif (yield from cursor.take(*tags.end)) or (yield from cursor.at_any(*closers)):
            return Found(name=name, arguments=_unwrapped(members, tools.schema(name)))
        elif (yield from cursor.peek()) == "" and members and not cursor.cut:
            return Found(name=name, arguments=_unwrapped(members, tools.schema(name)), closed="finished")
        else:
            raise NoCall


def _within(name: str, tools: ToolNames) -> str:
    """A tool's name without that of its group."""
    group, dot, own = name.rpartition(".")
    return own if dot and not tools.has(name) and (tools.has(own) or group == own) else name


def read_tagged_calls(cursor: Cursor, tools: ToolNames, tags: Tags, *closers: str) -> Reads:
    """Read one call after the other behind a marker that opens them, up to the one that closes them."""
    count = 0
    while True:
        yield from cursor.white()
        if (yield from cursor.take(*tags.call)):
            yield (yield from read_tagged(cursor, tools, tags, *closers))
            count += 1
        elif (yield from cursor.take(*closers)) or count:
            return
        else:
            raise NoCall


def _json_body(cursor: Cursor, tags: Tags, name: str) -> Wait[Found]:
    text = yield from cursor.value()
    yield from cursor.white()
    if (yield from cursor.take(*tags.end)) or not (yield from cursor.peek()):
        return Found(name=name, arguments=argument_text(text))
    raise NoCall


def _parameter(cursor: Cursor, tools: ToolNames, tags: Tags, name: str, closers: tuple[str, ...]) -> Wait[tuple[str, str]]:
    """The name and the value, as JSON, of one parameter."""
    header, _ = yield from cursor.until(">")
    if tags.markup and (yield from cursor.take("<![CDATA[")):
        text, _ = yield from cursor.until("]]>")
        yield from cursor.until(*tags.end_parameter)
    else:
        text = _trimmed((yield from read_value(cursor, tags.of_values(closers), tools.schema(name))), tags)
        text = html.unescape(_CDATA.sub(lambda found: found[1], text)) if tags.markup else text
    key = name_in(header)
    return key, _value(text, header, key, tools, name)


def _trimmed(text: str, tags: Tags) -> str:
    first, last = (_BREAK.match(text), _LAST_BREAK.search(text))
    if tags.trim or (first and last and first.end() <= last.start()):
        text = text[: last.start()] if last else text
        return text[first.end() :] if first else text
    return text


def _value(text: str, header: str, key: str, tools: ToolNames, name: str) -> str:
    """A value as JSON: the tool's schema decides, then what the tag says of it."""
    root = tools.schema(name)
    schema = parameter_schema(root, key)
    says_text = 'string="true"' in header or 'type="string"' in header
    if says_text and "string" in kinds_of(schema, root):
        return quoted(text)
    return typed(text, schema, root)


def _unwrapped(members: dict[str, str], schema: Mapping[str, object] | None) -> str:
    """An object that is the only member, and named for all of them, is all of them."""
    if len(members) == 1:
        ((key, value),) = members.items()
        inner = argument_text(value)
        if key in _WRAPPERS and inner.startswith("{") and parameter_schema(schema, key) is None:
            return inner
    return as_object(members)
