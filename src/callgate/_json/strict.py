"""Read one JSON object from untrusted text, or say exactly why not.

msgspec is strict about syntax, numbers and Unicode, but keeps the last of two equal keys without a word. So every text that it accepts
is also proved to hold no duplicate: by counting colons where that suffices, by a second reading where it does not. Refusals are
classified only after the fast path has failed. Must not know what the object is for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import pairwise

import msgspec

from callgate._json import refuse
from callgate._json.mapping import copied_object
from callgate._json.text import SURROGATE, ends_inside, outside_strings
from callgate._limits import Limits

__all__ = ["strict_object", "strict_value"]

_decode = msgspec.json.Decoder().decode
_LEAST, _END = -(2**63), 2**64
_SMALL = 2**30
_SCALARS = frozenset({str, bool, float, type(None)})
_NO_NUMBER = re.compile(r"(?<![\w.])-?(?:NaN|Infinity)\b")
_LONE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_WHITE = " \t\r\n"


def strict_object(text: str | bytes | Mapping[str, object], limits: Limits) -> dict[str, object]:
    """The JSON object that `text` is. Empty text, white space and `null` are `{}`: what it was, the caller can see.

    Args:
        text: Untrusted. A mapping is held to the same rules as text and copied.
        limits: Of these, `arguments_bytes`, `arguments_depth` and `arguments_keys`.

    Raises:
        ArgumentsMalformed: With code `invalid_json`, `not_object`, `duplicate_key`, `bad_number`, `bad_unicode`, `too_deep` or `too_large`.
        ArgumentsTruncated: The text ends inside a list, an object or a string.
    """
    if not isinstance(text, str):
        if not isinstance(text, bytes):
            return copied_object(text, limits)
        text = _utf8(text, limits)
    value = strict_value(text, limits)
    if value.__class__ is not dict:
        return {} if value is None else refuse.not_object(value)
    return value


def strict_value(text: str, limits: Limits) -> object:
    """The JSON value that `text` is, by the same rules; None also for empty text."""
    if len(text) * 4 > limits.arguments_bytes:
        _check_size(text, limits)
    try:
        value = _decode(text)
    except (ValueError, RecursionError, MemoryError) as error:
        _explain(text, error, limits)
        return None
    kind = value.__class__
    if kind is dict:
        members = _members(value, limits) if _is_nested(value) else len(value)
    elif kind is list:
        members = _members(value, limits)
    else:
        return value
    if text.count(":") != members:
        _prove_unique(text, value, members)
    if members > limits.arguments_keys:
        refuse.too_many_keys(limits)
    return value


def _is_nested(value: dict[str, object]) -> bool:
    """Whether the careful walk is needed: a value is a container, or an integer large enough to look at."""
    for item in value.values():
        if item.__class__ in _SCALARS:
            continue
        if item.__class__ is not int or not -_SMALL < item < _SMALL:
            return True
    return False


def _members(root: object, limits: Limits) -> int:
    """How many members all objects have together, within the limits of depth and of integers."""
    count, depth, level = 0, 0, [root]
    while level:
        depth += 1
        if depth > limits.arguments_depth:
            refuse.too_deep(limits)
        below: list[object] = []
        for node in level:
            if isinstance(node, dict):
                count += len(node)
                node = node.values()
            for item in node:  # type: ignore[attr-defined]
                if item.__class__ is dict or item.__class__ is list:
                    below.append(item)
                elif item.__class__ is int and not _LEAST <= item < _END:
                    refuse.bad_number("an integer outside the range from -2^63 to 2^64-1")
        level = below
    return count


def _prove_unique(text: str, value: object, members: int) -> None:
    """Raise if `text` says a key twice.

    A colon of the text follows a key or stands inside a string. If none is written as an escape and the decoded value accounts for all
    of them, no member was lost.
    """
    if "\\u003" not in text and text.count(":") == members + _colons(value):
        return
    json.loads(text, object_pairs_hook=_unique)


def _colons(root: object) -> int:
    count, stack = 0, [root]
    while stack:
        node = stack.pop()
        if isinstance(node, str):
            count += node.count(":")
        elif isinstance(node, dict):
            stack += node
            stack += node.values()
        elif isinstance(node, list):
            stack += node
    return count


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = sorted(key for key, _ in pairs)
        refuse.duplicate_key(next(one for one, other in pairwise(keys) if one == other))
    return found


def _check_size(text: str, limits: Limits) -> None:
    size = len(text)
    if size <= limits.arguments_bytes and not text.isascii():
        size = len(text.encode("utf-8", "surrogatepass"))
    if size > limits.arguments_bytes:
        refuse.too_large(size, limits)


def _utf8(data: bytes, limits: Limits) -> str:
    if len(data) > limits.arguments_bytes:
        refuse.too_large(len(data), limits)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        return refuse.bad_unicode(f"are not valid UTF-8 (at byte {error.start})")


def _explain(text: str, error: BaseException, limits: Limits) -> None:
    """Raise why msgspec refused `text`, the most telling reason first; return if it is empty."""
    if not text.strip(_WHITE):
        return
    if isinstance(error, (RecursionError, MemoryError)):
        refuse.too_deep(limits)
    if SURROGATE.search(text):
        refuse.bad_unicode("hold half of a surrogate pair, which is no character")
    if ends_inside(text):
        refuse.truncated()
    if isinstance(error, msgspec.ValidationError):
        refuse.bad_number("too large or too long")
    if _NO_NUMBER.search(outside_strings(text)):
        refuse.bad_number("NaN or infinite, which JSON does not have")
    if _LONE_ESCAPE.search(text) and _is_json_otherwise(text):
        refuse.bad_unicode("hold half of a surrogate pair, which is no character")
    refuse.invalid(str(error)[:200].removeprefix("JSON is malformed: "))


def _is_json_otherwise(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
