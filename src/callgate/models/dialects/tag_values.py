"""Values that stand as text between tags: where a value ends, although it may contain tags itself.

A model that writes a file about tools writes such tags into a value. So a call that a value quotes is text with all its tags; the tag of
another parameter counts only if the tool has that parameter; and the end of the call counts only if nothing but calls follow. The dialects
pass their tags; known here are only those that several families share.
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
"""The end of a turn begins with one of these."""
_ATTRIBUTE = re.compile(r"""([\w-]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'=<>/]+))""")
_MAX_TAG_CHARS = 300
_SHARED_END = "</parameter>"
_SHARED_CALLS, _SHARED_CALL_ENDS, _SHARED_PARAMETERS = (
    ("<function=", "<function name=", "<invoke "),
    ("</function>", "</invoke>"),
    ("<parameter=", "<parameter "),
)
"""Tags of the families that end parameters alike: a value of one may quote calls of another."""


class ValueTags(Struct, frozen=True, kw_only=True):
    """The tags that may end a value, and those of calls that it may quote."""

    call: tuple[str, ...]
    end: tuple[str, ...]
    parameter: tuple[str, ...]
    end_parameter: tuple[str, ...]
    end_name: str
    """Ends a parameter's name."""
    call_followers: tuple[str, ...]
    """What may follow the end of a call."""


def tag_name(header: str) -> str:
    """Return the name in a tag: from its attribute, or from behind the equals sign."""
    for attribute in _ATTRIBUTE.finditer(header):
        if attribute[1].endswith("name") or attribute[1] in ("tool", "key"):
            return next(group for group in attribute.groups()[1:] if group is not None)
    bare = header.strip().rstrip("/").strip()
    return "" if "=" in bare and '"' in bare else bare.strip("\"'= ")


def read_value(cursor: TextCursor, tags: ValueTags, schema: Schema | None) -> Incremental[str]:
    """Consume a value and its end tag. A tag of the next parameter, or of the call's end, ends it too and is not consumed."""
    parts: list[str] = []
    quoted_calls, in_quoted_value = 0, False
    calls, ends, parameters = tags.call, tags.end, tags.parameter
    if _SHARED_END in tags.end_parameter:
        calls, ends, parameters = (*calls, *_SHARED_CALLS), (*ends, *_SHARED_CALL_ENDS), (*parameters, *_SHARED_PARAMETERS)
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
        elif tag in (*tags.parameter, *tags.end) and (yield from _ends_value(cursor, tag, tags, schema)):
            return "".join(parts)
        parts.append(tag)


def read_balanced(cursor: TextCursor, openers: tuple[str, ...], closers: tuple[str, ...]) -> Incremental[str]:
    """Consume a value and its closing mark. A mark that the value itself opens is closed first."""
    parts: list[str] = []
    quoted = 0
    while True:
        text, marker = yield from cursor.read_until(*openers, *closers)
        parts.append(text)
        if marker in closers and not quoted:
            return "".join(parts)
        quoted += 1 if marker in openers else -1
        parts.append(marker)


def _ends_value(cursor: TextCursor, tag: str, tags: ValueTags, schema: Schema | None) -> Incremental[bool]:
    """Return whether a consumed tag ends the value; if so, give it back."""
    cursor.give_back(tag)
    if tag in tags.end:
        ends = yield from cursor.is_followed_by(tag, *tags.call_followers)
    else:
        name = tag_name((yield from cursor.peek_until(tags.end_name, _MAX_TAG_CHARS))[len(tag) :])
        ends = has_parameter(schema, name)
    if not ends:
        yield from cursor.expect(tag)
    return ends
