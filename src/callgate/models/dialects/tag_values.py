"""Values that are written as text between tags: find where a value ends, although it may contain tags itself.

A model that writes a file about tools may write call tags into a value. Four rules handle this:

- A complete call inside a value, with all its tags, is text.
- The tag that ends a parameter ends the value only if a parameter, or the end of the call, follows.
- The tag of another parameter ends the value only if the tool has that parameter, and in some families only at the start
  of a line.
- The tag that ends the call ends the value only if nothing but further calls follows, and no end tag of a parameter.

If the end tag is missing, a misspelt one at the end of the value is not part of it. If the end tag is written twice, each time on a line
of its own, neither tag is part of the value.

Each dialect passes its own tags. This module knows only the tags that several families share.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from callgate.models.dialects.text_cursor import Incremental, TextCursor
from callgate.models.dialects.typed_values import has_parameter

__all__ = ["TURN_ENDS", "ValueTags", "is_message_end", "read_balanced", "read_value", "tag_name"]

Schema = Mapping[str, object]
TURN_ENDS = ("<|", "<\uff5c", "</s>")
"""The end of a turn begins with one of these."""
_TURN_TOKEN = re.compile("</s>|<[|\uff5c][^<>|\uff5c\\s]+[|\uff5c]>")
_TURN_TOKEN_START = re.compile("(?:<(?:/s?|[|\uff5c](?:[^<>|\uff5c\\s]+[|\uff5c]?)?)?)?")
"""Matches text that may become a token."""
_MAX_TOKEN_CHARS = 64
_ATTRIBUTE = re.compile(r"""([\w-]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'=<>/]+))""")
_LAST_LINE_BREAK = re.compile(r"\r?\n[ \t]*\Z")
_CLOSING_TAG = re.compile(r"</([\w.\-\uff5c]+)/?[ \t]*>?\s*\Z")
_NAMESPACE = re.compile(r".*[:|\uff5c ]")
_MIN_TAG_CHARS = 5
"""Minimum length of the start of a tag's name that is taken for the name."""
_MAX_TAG_CHARS = 300
_MAX_LOOK_AHEAD_CHARS = 2_000
"""How far the text behind the end of a call is searched for the end of a value that seems to have none."""
_SHARED_END = "</parameter>"
_SHARED_CALLS, _SHARED_CALL_ENDS, _SHARED_PARAMETERS = (
    ("<function=", "<function name=", "<invoke "),
    ("</function>", "</invoke>"),
    ("<parameter=", "<parameter "),
)
"""Tags of the families that end parameters with the same tag. A value in one family may contain a call of another."""


class ValueTags(Struct, frozen=True, kw_only=True):
    """The tags that may end a value, and the tags of calls that a value may contain as text."""

    call: tuple[str, ...]
    end: tuple[str, ...]
    parameter: tuple[str, ...]
    end_parameter: tuple[str, ...]
    end_name: str
    """The text that ends a parameter's name."""
    call_followers: tuple[str, ...]
    """What may follow the end of a call."""
    value_followers: tuple[str, ...]
    """What may follow the end of a value."""
    drops_last_line_break: bool = True
    """Whether the line break before the next tag is not part of a value whose own end tag is missing. If the value also begins with a
    line break, the dialect decides about both.
    """
    inline_tags_are_text: bool = False
    """Whether text in a value may contain the tag of a parameter. A tag then ends a value only at the start of a line."""


def is_message_end(cursor: TextCursor) -> Incremental[bool]:
    """Return whether the message ends here: with a whole token that ends a turn, or without it if the message is complete."""
    while True:
        ahead = cursor.ahead(_MAX_TOKEN_CHARS)
        if _TURN_TOKEN.match(ahead):
            return True
        if not _TURN_TOKEN_START.fullmatch(ahead) or len(ahead) == _MAX_TOKEN_CHARS or not (yield from cursor.wait_more()):
            return ahead == "" and not cursor.truncated


def tag_name(header: str) -> str:
    """Return the name in a tag: from its attribute, or from behind the equals sign."""
    for attribute in _ATTRIBUTE.finditer(header):
        if attribute[1].endswith("name") or attribute[1] in ("tool", "key"):
            return next(group for group in attribute.groups()[1:] if group is not None)
    bare = header.strip().rstrip("/").strip()
    return "" if "=" in bare and '"' in bare else bare.strip("\"'= ")


def read_value(cursor: TextCursor, tags: ValueTags, schema: Schema | None, key: str) -> Incremental[str]:
    """Consume the value of the parameter `key`, and its end tag.

    A tag of the next parameter, or of the call's end, also ends the value; it is not consumed.
    """
    parts: list[str] = []
    quoted_calls, in_quoted_value = 0, False
    calls, ends, parameters = tags.call, tags.end, tags.parameter
    if _SHARED_END in tags.end_parameter:
        calls, ends, parameters = (*calls, *_SHARED_CALLS), (*ends, *_SHARED_CALL_ENDS), (*parameters, *_SHARED_PARAMETERS)
    while True:
        text, tag = yield from cursor.read_until(*tags.end_parameter, *parameters, *ends, *calls)
        parts.append(text)
        if tag in tags.end_parameter:
            if not in_quoted_value and (yield from _is_before(cursor, tags.value_followers)):
                return _strip_repeated_end("".join(parts), tags)
            in_quoted_value = False
        elif tag in calls:
            quoted_calls += 1
        elif quoted_calls:
            in_quoted_value = tag in parameters
            quoted_calls -= tag in ends
        elif tag in (*tags.parameter, *tags.end) and (yield from _ends_value(cursor, tag, tags, schema, key, _is_line_start(parts))):
            value = _strip_damaged_end("".join(parts), tags, key)
            return _LAST_LINE_BREAK.sub("", value) if tags.drops_last_line_break and not value.startswith(("\n", "\r\n")) else value
        parts.append(tag)


def _strip_repeated_end(value: str, tags: ValueTags) -> str:
    """Return a value without an end tag on its last line, if other text comes before it and no tag of that name is opened in it."""
    text, line, last = value.rstrip().rpartition("\n")
    is_repeated = line and last.strip() in tags.end_parameter and text.strip() and f"<{last.strip()[2:-1].strip()}" not in text
    return text + line if is_repeated else value


def _strip_damaged_end(value: str, tags: ValueTags, key: str) -> str:
    """Return a value that lacks its end tag without what a model wrote instead: an end tag that is misspelt or lacks its namespace, or the
    end of a tag named `key`.

    If the value contains the start of such a tag, its end belongs to the value.
    """
    tail = value[-_MAX_TAG_CHARS:]
    found = _CLOSING_TAG.search(tail)
    word = found[1].lower() if found else ""
    ends = [end[2:].rstrip(" >") for end in tags.end_parameter]
    names = {name for end in ends for name in (end, _NAMESPACE.sub("", end))}
    is_end = word == key.lower() or any(word.startswith(name) or (len(word) >= _MIN_TAG_CHARS and name.startswith(word)) for name in names)
    if found is None or not is_end or f"<{word}" in value.lower():
        return value
    return value[: len(value) - len(tail) + found.start()]


def read_balanced(cursor: TextCursor, openers: tuple[str, ...], closers: tuple[str, ...]) -> Incremental[str]:
    """Consume a value and its closing marker.

    If the value contains opening markers, the closing markers that belong to them do not end it.
    """
    parts: list[str] = []
    quoted = 0
    while True:
        text, marker = yield from cursor.read_until(*openers, *closers)
        parts.append(text)
        if marker in closers and not quoted:
            return "".join(parts)
        quoted += 1 if marker in openers else -1
        parts.append(marker)


def _is_before(cursor: TextCursor, followers: tuple[str, ...]) -> Incremental[bool]:
    """Return whether white space and one of `followers`, or the end of the message, come next. Consumes nothing."""
    if cursor.truncated and not cursor.ahead(1):
        return False
    return (yield from cursor.is_followed_by("", *followers))


def _is_line_start(parts: list[str]) -> bool:
    """Whether the value so far is empty, or ends with a line break and white space."""
    for part in reversed(parts):
        _, line, last = part.rpartition("\n")
        if line or last.strip():
            return bool(line) and not last.strip()
    return True


def _ends_value(cursor: TextCursor, tag: str, tags: ValueTags, schema: Schema | None, key: str, at_line_start: bool) -> Incremental[bool]:
    """Return whether a consumed tag ends the value. If it does, the tag is given back."""
    cursor.give_back(tag)
    if tag in tags.end:
        ends = yield from cursor.is_followed_by(tag, *tags.call_followers)
        if ends:  # not if the value's own end tag still comes
            following = yield from cursor.peek_first(_MAX_LOOK_AHEAD_CHARS, *tags.end_parameter, *tags.parameter, *tags.call)
            cut_off = cursor.truncated and len(cursor.ahead(_MAX_LOOK_AHEAD_CHARS)) < _MAX_LOOK_AHEAD_CHARS
            ends = following not in tags.end_parameter and (bool(following) or not cut_off)
    else:
        name = tag_name((yield from cursor.peek_until(tags.end_name, _MAX_TAG_CHARS))[len(tag) :])
        ends = name != key and "<" not in name and has_parameter(schema, name) and (at_line_start or not tags.inline_tags_are_text)
    if not ends:
        yield from cursor.expect(tag)
    return ends
