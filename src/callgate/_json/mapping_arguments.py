"""Copy arguments that a host passes as a mapping, so that later changes by the host have no effect.

The same rules apply as for text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from callgate._engine_limits import Limits
from callgate._json import argument_errors as refuse
from callgate.errors import ArgumentsMalformed

__all__ = ["copied_object", "text_if_small"]

Arguments = str | bytes | Mapping[str, object]

_encode = msgspec.json.Encoder().encode
_SMALL_KEYS = 64
_SMALL_CHARS = 4_096
_SMALL_NUMBER = 2**30
_WORDS = frozenset({bool, type(None)})


def text_if_small(source: Arguments) -> Arguments:
    """Return the JSON text of a small dict of texts, numbers and truth values, which is cheaper to check and to keep than a copy.

    Return any other arguments as they are, and those that JSON does not have.
    """
    if source.__class__ is not dict or len(source) > _SMALL_KEYS:
        return source
    chars = _SMALL_CHARS
    for key, value in source.items():
        kind = value.__class__
        if key.__class__ is not str:
            return source
        if kind is str:
            chars -= len(value)
        elif kind not in _WORDS and not ((kind is int or kind is float) and -_SMALL_NUMBER < value < _SMALL_NUMBER):
            return source
        chars -= len(key)
    try:
        return _encode(source).decode() if chars >= 0 else source
    except UnicodeEncodeError:
        return source


def copied_object(source: object, limits: Limits) -> dict[str, object]:
    """Return a deep copy of `source` as plain JSON data; raise the same errors as `strict_object`."""
    if not isinstance(source, Mapping):
        refuse.not_plain(f"of type {type(source).__name__}, which is none")
    try:
        return _ArgumentsCopier(limits).mapped(source, 1)
    except ArgumentsMalformed:
        raise
    except RecursionError:
        refuse.too_deep(limits)
    except Exception as error:
        refuse.not_plain(f"that cannot be read ({type(error).__name__})")


class _ArgumentsCopier:
    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.bytes_left = limits.arguments_bytes
        self.keys_left = limits.arguments_keys

    def mapped(self, source: Mapping[str, object], depth: int) -> dict[str, object]:
        self._enter_level(depth)
        copy: dict[str, object] = {}
        for key in source:
            if not isinstance(key, str):
                refuse.not_plain(f"with a key of type {type(key).__name__}; JSON has only text keys")
            self.keys_left -= 1
            if self.keys_left < 0:
                refuse.too_many_keys(self.limits)
            copy[self._copy_text(key)] = self._copy_value(source[key], depth + 1)
        return copy

    def _copy_value(self, value: object, depth: int) -> object:
        if value is None or value is True or value is False:
            self._spend_bytes(5)
            return value
        if isinstance(value, str):
            return self._copy_text(value)
        if type(value) is int or type(value) is float:
            return self._check_number(value)
        if isinstance(value, (list, tuple)):
            self._enter_level(depth)
            if 2 * len(value) > self.bytes_left:  # each item takes at least two bytes: refuse before walking it
                self._spend_bytes(2 * len(value))
            return [self._copy_value(item, depth + 1) for item in value]
        if isinstance(value, Mapping):
            return self.mapped(value, depth)
        return refuse.not_plain(f"that holds a {type(value).__name__}, which is not a JSON value")

    def _check_number(self, value: int | float) -> int | float:
        self._spend_bytes(2)
        if not math.isfinite(value) if isinstance(value, float) else not -(2**63) <= value < 2**64:
            refuse.bad_number("NaN, infinite, or an integer outside the range from -2^63 to 2^64-1")
        return value

    def _copy_text(self, value: str) -> str:
        plain = value if type(value) is str else str.__str__(value)
        self._spend_bytes(len(plain) + 2)
        if not plain.isascii():
            try:
                self._spend_bytes(len(plain.encode()) - len(plain))
            except UnicodeEncodeError:
                refuse.bad_unicode("hold half of a surrogate pair, which is not a character")
        return plain

    def _enter_level(self, depth: int) -> None:
        if depth > self.limits.arguments_depth:
            refuse.too_deep(self.limits)
        self._spend_bytes(2)

    def _spend_bytes(self, size: int) -> None:
        self.bytes_left -= size
        if self.bytes_left < 0:
            refuse.too_large(self.limits.arguments_bytes - self.bytes_left, self.limits)
