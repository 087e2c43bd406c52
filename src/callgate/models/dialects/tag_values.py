"""Values that stand as bare text between tags: where one ends, though it may speak of tags itself.

A model that writes a file about tools writes such tags into a value. So a call that a value quotes is text with all its tags, another
parameter's tag counts only where the tool has that parameter, and the end of the call only where nothing but calls follow. Dialects say
which tags are theirs; known here are only those of the families that end a parameter alike.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from callgate.models.dialects.text_cursor import Incremental, TextCursor
from callgate.models.dialects.typed_values import has_parameter

__all__ = ["TURN_ENDS", "ValueTags", "read_balanced", "read_value", "tag_name"]

Schema = Mapping[str, object]
TURN_ENDS = ("<|", "<\uff5c", "</s>")
"""What a turn ends with, begins so."""
_ATTRIBUTE = re.compile(r"""([\w-]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'=<>/]+))""")
_NAME_CHARS = 300
_SHARED = "</parameter>"
_CALLS, _ENDS, _PARAMETERS = ("<function=", "<function name=", "<invoke "), ("</function>", "</invoke>"), ("<parameter=", "<parameter ")
"""Of the families that end their parameters alike: in a value of one, the calls of another may be quoted."""


class ValueTags(Struct, frozen=True, kw_only=True):
    """The tags that may end a value, and those of calls that it may quote."""

    call: tuple[str, ...]
    end: tuple[str, ...]
    parameter: tuple[str, ...]
    end_parameter: tuple[str, ...]
    end_name: str
    """What ends a parameter's name."""
    followers: tuple[str, ...]
    """What may follow the end of a call."""


def tag_name(header: str) -> str:
    """The name in a tag: its attribute, or what stands behind the equals sign."""
    for attribute in _ATTRIBUTE.finditer(header):
        if attribute[1].endswith("name") or attribute[1] in ("tool", "key"):
            return next(group for group in attribute.groups()[1:] if group is not None)
    bare = header.strip().rstrip("/").strip()
    return "" if "=" in bare and '"' in bare else bare.strip("\"'= ")


def read_value(cursor: TextCursor, tags: ValueTags, schema: Schema | None) -> Incremental[str]:
    """Read a value and its end tag. What else ends it, of the tool's next parameter or of the call, is not read."""
    parts: list[str] = []
    quoted_calls, in_quoted_value = 0, False
    calls, ends, parameters = tags.call, tags.end, tags.parameter
    if _SHARED in tags.end_parameter:
        calls, ends, parameters = (*calls, *_CALLS), (*ends, *_ENDS), (*parameters, *_PARAMETERS)
    while True:
        text, tag = yield from cursor.read_until(*tags.end_parameter, *parameters, *ends, *calls)
        parts.append(text)
        if tag in tags.end_parameter:
            if not in_quoted_value:
                return "".join(parts)
            in_quoted_value = False
        elif tag in calls:
            quoted_calls += 1
        elif quoted_calls:
            in_quoted_value = tag in parameters
            quoted_calls -= tag in ends
        elif tag in (*tags.parameter, *tags.end) and (yield from _ends(cursor, tag, tags, schema)):
            return "".join(parts)
        parts.append(tag)


def read_balanced(cursor: TextCursor, opens: tuple[str, ...], closes: tuple[str, ...]) -> Incremental[str]:
    """Read a value up to what closes it, and over that. What it opens itself closes first."""
    parts: list[str] = []
    quoted = 0
    while True:
        text, mark = yield from cursor.read_until(*opens, *closes)
        parts.append(text)
        if mark in closes and not quoted:
            return "".join(parts)
        quoted += 1 if mark in opens else -1
        parts.append(mark)


def _ends(cursor: TextCursor, tag: str, tags: ValueTags, schema: Schema | None) -> Incremental[bool]:
    """Whether a tag that was read ends the value that it stands in. If so, it is given back."""
    cursor.give_back(tag)
    if tag in tags.end:
        ends = yield from cursor.is_followed_by(tag, *tags.followers)
    else:
        name = tag_name((yield from cursor.peek_until(tags.end_name, _NAME_CHARS))[len(tag) :])
        ends = has_parameter(schema, name)
    if not ends:
        yield from cursor.expect(tag)
    return ends
