"""Parse one JSON object from untrusted text, or raise an error with the exact reason.

msgspec is strict about syntax, numbers and Unicode, but of two equal keys it silently keeps the last. Therefore every
text that it accepts is checked for duplicate keys: by counting colons if that suffices, otherwise by parsing the text
again. The reason of an error is determined only after msgspec has refused the text. Does not know what the object is
for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import pairwise

import msgspec

from callgate._engine_limits import Limits
from callgate._json import argument_errors as refuse
from callgate._json.malformed_text import SURROGATE, outside_strings, unclosed
from callgate._json.mapping_arguments import copied_object

__all__ = ["read_object", "strict_object", "strict_value"]

_decode = msgspec.json.Decoder().decode
_LEAST, _END = -(2**63), 2**64
_SMALL = 2**30
_PLAIN = frozenset({str, bool, type(None)})
_NO_NUMBER = re.compile(r"(?<![\w.])-?(?:NaN|Infinity)\b")
_LONE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_WHITE = " \t\r\n"


def strict_object(text: str | bytes | Mapping[str, object], limits: Limits) -> dict[str, object]:
    """Parse `text` as a JSON object. Empty text, white space and `null` give `{}`.

    Args:
        text: Untrusted. A mapping is checked by the same rules and copied.
        limits: Uses `arguments_bytes`, `arguments_depth` and `arguments_keys`.

    Raises:
        ArgumentsMalformed: With code `invalid_json`, `not_object`, `duplicate_key`, `bad_number`, `bad_unicode`, `too_deep` or `too_large`.
        ArgumentsTruncated: The text ends inside a list, an object or a string.
    """
    return read_object(text, limits)[0]


def read_object(text: str | bytes | Mapping[str, object], limits: Limits) -> tuple[dict[str, object], bool]:
    """Return the object that `strict_object` returns, and whether it may contain a float without a fraction."""
    if not isinstance(text, str):
        if not isinstance(text, bytes):
            return copied_object(text, limits), True
        text = _decode_utf8(text, limits)
    read = _parse(text, limits)
    if read[0].__class__ is dict:
        return read  # type: ignore[return-value]
    return ({}, False) if read[0] is None else refuse.not_object(read[0])


def strict_value(text: str, limits: Limits) -> object:
    """Parse `text` as any JSON value, by the rules of `strict_object`. Return None for empty text."""
    return _parse(text, limits)[0]


def _parse(text: str, limits: Limits) -> tuple[object, bool]:
    """Return the JSON value of `text`, and whether it may contain a float without a fraction."""
    if len(text) * 4 > limits.arguments_bytes:
        _check_size(text, limits)
    try:
        value = _decode(text)
    except (ValueError, RecursionError, MemoryError) as error:
        _raise_cause(text, error, limits)
        return None, False
    kind, whole = value.__class__, False
    if kind is dict and _is_plain(value):
        members = len(value)
    elif kind is dict or kind is list:
        members, whole = _count_members(value, limits)
    else:
        return value, True
    if text.count(":") != members:
        _prove_unique(text, value, members)
    if members > limits.arguments_keys:
        refuse.too_many_keys(limits)
    return value, whole


def _is_plain(value: dict[str, object]) -> bool:
    """Return whether the object needs no further checks: it has no list, object, float or large integer."""
    for item in value.values():
        if item.__class__ in _PLAIN:
            continue
        if item.__class__ is not int or not -_SMALL < item < _SMALL:
            return False
    return True


def _count_members(root: object, limits: Limits) -> tuple[int, bool]:
    """Count the members of all objects, and return whether a float has no fraction.

    Check the depth and the integers.
    """
    count, depth, whole, level = 0, 0, False, [root]
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
                elif item.__class__ is float and item.is_integer():
                    whole = True
        level = below
    return count, whole


def _prove_unique(text: str, value: object, members: int) -> None:
    """Raise if an object in `text` contains a key twice.

    Each colon in the text follows a key or is inside a string. If no colon is escaped, and their number equals that of
    the members and of the colons in decoded strings, no member was lost. Otherwise the text is parsed again.
    """
    if "\\u003" not in text and text.count(":") == members + _count_colons(value):
        return
    json.loads(text, object_pairs_hook=_refuse_duplicates)


def _count_colons(root: object) -> int:
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


def _refuse_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
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


def _decode_utf8(data: bytes, limits: Limits) -> str:
    if len(data) > limits.arguments_bytes:
        refuse.too_large(len(data), limits)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        return refuse.bad_unicode(f"are not valid UTF-8 (at byte {error.start})")


def _raise_cause(text: str, error: BaseException, limits: Limits) -> None:
    """Raise the most specific error for a text that msgspec refused. Return if the text is empty."""
    if not text.strip(_WHITE):
        return
    if isinstance(error, (RecursionError, MemoryError)):
        refuse.too_deep(limits)
    if SURROGATE.search(text):
        refuse.bad_unicode("hold half of a surrogate pair, which is not a character")
    outside = outside_strings(text)
    if unclosed(outside):
        refuse.truncated()
    if isinstance(error, msgspec.ValidationError):
        refuse.bad_number("too large or too long")
    if _NO_NUMBER.search(outside):
        refuse.bad_number("NaN or infinite, which JSON does not have")
    if _LONE_ESCAPE.search(text) and _is_json_otherwise(text):
        refuse.bad_unicode("hold half of a surrogate pair, which is not a character")
    refuse.invalid(str(error)[:200].removeprefix("JSON is malformed: "))


def _is_json_otherwise(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
