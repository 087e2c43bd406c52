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
from callgate.models.dialects.names import ToolNames
from callgate.models.dialects.parts import Found
from callgate.models.dialects.shape import Reads
from callgate.models.dialects.typed import as_object, parameter_schema, quoted, typed

__all__ = ["AFTER_A_CALL", "Tags", "read_tagged", "read_tagged_calls"]

_ATTRIBUTE = re.compile(r"""([\w-]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'=<>/]+))""")
_CDATA = re.compile(r"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)
_BREAK, _LAST_BREAK = re.compile(r"\r?\n"), re.compile(r"\r?\n\Z")
AFTER_A_CALL = ("<|", "<\uff5c", "</s>")
"""What a turn ends with, begins so."""
_WRAPPERS = frozenset({"arguments", "parameters", "properties"})


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


def read_tagged(cursor: Cursor, tools: ToolNames, tags: Tags, *closers: str) -> Wait[Found]:
    """Read one call, from behind the opening of its tag to its end, or to what closes all calls."""
    header, _ = yield from cursor.until(">")
    name = tools.written(_name(header))
    name = _within(name, tools) if tags.grouped else name
    if len(name) > 200 or not name or "<" in name:
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
            members[key] = value
        elif (yield from cursor.take(*tags.end)) or (yield from _closes(cursor, closers)):
            return Found(name=name, arguments=_unwrapped(members, tools.schema(name)))
        elif (yield from cursor.peek()) == "" and members and not cursor.cut:
            return Found(name=name, arguments=_unwrapped(members, tools.schema(name)), closed="finished")
        else:
            raise NoCall


def _closes(cursor: Cursor, closers: tuple[str, ...]) -> Wait[bool]:
    """Whether one of these comes next. It is not read."""
    closer = yield from cursor.take(*closers)
    cursor.unread(closer)
    return bool(closer)


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


def _name(header: str) -> str:
    """The name in a tag: its attribute, or what stands behind the equals sign."""
    for attribute in _ATTRIBUTE.finditer(header):
        if attribute[1].endswith("name") or attribute[1] in ("tool", "key"):
            return next(group for group in attribute.groups()[1:] if group is not None)
    bare = header.strip().rstrip("/").strip()
    return "" if "=" in bare and '"' in bare else bare.strip("\"'= ")


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
        text = _trimmed((yield from _raw(cursor, tags, closers)), tags)
        text = html.unescape(_CDATA.sub(lambda found: found[1], text)) if tags.markup else text
    key = _name(header)
    return key, _value(text, header, key, tools, name)


def _raw(cursor: Cursor, tags: Tags, closers: tuple[str, ...]) -> Wait[str]:
    """A value up to its end tag. The next parameter ends it, too, as does the end of the call, unless text goes on behind that."""
    parts: list[str] = []
    while True:
        text, mark = yield from cursor.until(*tags.end_parameter, *tags.parameter, *tags.end)
        parts.append(text)
        if mark in tags.end_parameter:
            return "".join(parts)
        cursor.unread(mark)
        if mark in tags.parameter or (yield from cursor.followed(mark, *closers, *tags.call, *AFTER_A_CALL)):
            return "".join(parts)
        yield from cursor.expect(mark)
        parts.append(mark)


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
    if schema is not None:
        return typed(text, schema, root)
    if 'string="true"' in header or 'type="string"' in header:
        return quoted(text)
    return typed(text, None)


def _unwrapped(members: dict[str, str], schema: Mapping[str, object] | None) -> str:
    """An object that is the only member, and named for all of them, is all of them."""
    if len(members) == 1:
        ((key, value),) = members.items()
        if key in _WRAPPERS and value.startswith("{") and parameter_schema(schema, key) is None:
            return value
    return as_object(members)
