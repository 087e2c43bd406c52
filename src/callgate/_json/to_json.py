"""Convert a tool's return value to plain JSON data, or raise an error with the path of the value that has no JSON form.

Nothing is lost silently: a type with one obvious JSON form is converted and noted, any other type is refused with its
path. The depth, the number of values and the bytes are limited, so that cycles end. `python_types` converts types
without a JSON equivalent. Reading a value may run its own code for any length of time; `small_jsonable` reads only
values that certainly have none. Does not know which tool the value came from.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import islice

from callgate._abort_signals import is_own_failure
from callgate._json.malformed_text import SURROGATE, clip, utf8_size, without_surrogates
from callgate._json.unsupported_values import NotJson, type_name
from callgate.errors import ResultNotSerializable

__all__ = ["small_jsonable", "to_jsonable"]

_NEXT = {
    "non_serializable": "Return JSON data: dicts with text keys, lists, text, finite numbers, booleans, null.",
    "output_too_large": "Return a part of it, and take an argument that says which.",
}
_PLAIN_BYTES = 131_072
"""An upper bound of the size of values on the fast path. If `max_bytes` is at least this, their size is not checked."""
_PLAIN_CHARS = 4_096
_MOST_BITS = 13_000  # fewer than the 4,300 digits that Python converts between int and str
_SMALL_VALUES = 2_000
_SMALL_BYTES = 65_536


def small_jsonable(value: object, max_bytes: int) -> tuple[object, tuple[str, ...]] | None:
    """Return what `to_jsonable` returns for a small value of built-in types. Return None for any other value.

    Also returns None for a value without a JSON form. Takes at most a millisecond and runs no foreign code, so that it
    can run on the event loop.
    """
    if type(value) is str and len(value) < _PLAIN_CHARS and value.isascii() and max_bytes >= _PLAIN_BYTES:
        return value, ()
    if max_bytes >= _PLAIN_BYTES and _is_plain(value):
        return (value if type(value) is not dict else value.copy()), ()
    maker = _SmallJsonMaker(200, _SMALL_VALUES, min(_SMALL_BYTES, max_bytes))
    try:
        return maker.plain(value, 0), tuple(maker.notes.values())
    except (NotJson, RecursionError):
        return None


def to_jsonable(
    value: object, *, max_depth: int = 200, max_values: int = 250_000, max_bytes: int = 67_108_864
) -> tuple[object, tuple[str, ...]]:
    """Return `value` as plain JSON data, and notes on the conversions. The data shares no list or dict with `value`.

    Args:
        max_depth: Maximum nesting depth. A cycle exceeds any depth.
        max_values: Maximum number of values after conversion.
        max_bytes: Maximum size of the text after conversion.

    Raises:
        ResultNotSerializable: `code` is `non_serializable` or `output_too_large`. The message names the path and the
            Python type.
    """
    if type(value) is str and len(value) < _PLAIN_CHARS and value.isascii() and max_bytes >= _PLAIN_BYTES:
        return value, ()
    if max_bytes >= _PLAIN_BYTES and _is_plain(value):
        return (value if type(value) is not dict else value.copy()), ()
    maker = _JsonMaker(max_depth, max_values, max_bytes)
    try:
        return maker.plain(value, 0), tuple(maker.notes.values())
    except NotJson as refusal:
        raise ResultNotSerializable(
            f"The tool's result{refusal.where} {refusal.fact}. {_NEXT[refusal.code]}",
            code=refusal.code,
        ) from refusal.__cause__
    except RecursionError:
        raise ResultNotSerializable(
            "The tool's result nests too deep or contains itself. Return a flatter value.", code="non_serializable"
        ) from None


def _is_plain(value: object) -> bool:
    """Return whether the value is a small scalar or a small dict of scalars.

    Return False if a check would take long.
    """
    if type(value) is str:
        return len(value) < _PLAIN_CHARS and value.isascii()
    if type(value) is not dict:
        return value is None or type(value) is bool
    if len(value) > 16:
        return False
    for key, item in value.items():
        kind = type(item)
        if type(key) is not str or not key.isascii() or not (kind is int or (kind is not dict and _is_plain(item))):
            return False
        if kind is int and not -(2**63) <= item < 2**64:
            return False
    return True


class _JsonMaker:
    def __init__(self, max_depth: int, max_values: int, max_bytes: int) -> None:
        self.max_depth = max_depth
        self.values_left = max_values
        self.bytes_left = max_bytes
        self.notes: dict[str, str] = {}

    def plain(self, value: object, depth: int) -> object:
        kind = type(value)
        if kind is str:
            return self._convert_text(value)  # type: ignore[arg-type]
        if value is None or kind is bool:
            return value
        if kind is int:
            return self._convert_integer(value)  # type: ignore[arg-type]
        if kind is float:
            return self._convert_number(value)  # type: ignore[arg-type]
        if kind is dict:
            return self.mapped(value.items(), depth)  # type: ignore[attr-defined]
        if kind is list:
            return self.listed(value, depth)  # type: ignore[arg-type]
        return self._convert_other(value, depth)

    def _convert_text(self, value: str) -> str:
        self._spend_bytes(len(value))
        if value.isascii():
            return value
        size = utf8_size(value, len(value) + self.bytes_left)
        if size is None:
            self._add_note("surrogate", "halves of surrogate pairs in text were replaced by U+FFFD")
            value = without_surrogates(value)
            size = utf8_size(value, len(value) + self.bytes_left) or 0
        self._spend_bytes(size - len(value))
        return value

    def check_size(self, size: int) -> None:
        """Raise `NotJson` if `size` more bytes exceed the limit."""
        if size > self.bytes_left:
            raise NotJson("is larger than a result may be (Limits.result_bytes)", "output_too_large")

    def _spend_bytes(self, size: int) -> None:
        self.check_size(size)
        self.bytes_left -= size

    def _convert_integer(self, value: int) -> int:
        if value.bit_length() > _MOST_BITS:
            raise NotJson(f"is an integer of {value.bit_length()} bits")
        return value

    def _convert_number(self, value: float) -> float:
        if not math.isfinite(value):
            raise NotJson(f"is the number {value}, which JSON does not have")
        return value

    def _enter_level(self, depth: int, size: int) -> None:
        if depth >= self.max_depth:
            raise NotJson(f"nests deeper than {self.max_depth} levels or contains itself")
        self.values_left -= size
        if self.values_left < 0:
            raise NotJson("holds more values than a result may", "output_too_large")

    def mapped(self, items: Iterable[tuple[object, object]], depth: int) -> dict[str, object]:
        made: dict[str, object] = {}
        pairs = list(islice(items, self.values_left + 1))
        self._enter_level(depth, len(pairs))
        for key, value in pairs:
            try:
                name = key if type(key) is str and key.isascii() else self._convert_key(key)
                self._spend_bytes(len(name))
                if name in made:
                    raise NotJson(f"has two keys that JSON writes alike: {clip(name)}")
                made[name] = self.plain(value, depth + 1)
            except NotJson as refusal:
                raise refusal.below(key) from refusal.__cause__
        return made

    def _convert_key(self, key: object) -> str:
        if type(key) is int:
            self._add_note("key", "integer keys were written as text")
            return str(self._convert_integer(key))
        if not isinstance(key, str):
            raise NotJson(f"has a key of type {type_name(key)}")
        plain = str.__str__(key)
        if SURROGATE.search(plain):
            raise NotJson("has a key with half of a surrogate pair")
        return plain

    def listed(self, values: Iterable[object], depth: int) -> list[object]:
        items = list(islice(values, self.values_left + 1))
        self._enter_level(depth, len(items))
        made: list[object] = []
        for value in items:
            try:
                made.append(self.plain(value, depth + 1))
            except NotJson as refusal:
                raise refusal.below(len(made)) from refusal.__cause__
        return made

    def _convert_other(self, value: object, depth: int) -> object:
        from callgate._json.python_types import unfold

        try:
            made = unfold(value, self, depth)
        except (NotJson, RecursionError):
            raise
        except BaseException as error:
            if not is_own_failure(error):
                raise
            raise NotJson(f"is of type {type_name(value)}, which cannot be read ({type_name(error)})") from error
        self._add_note(type_name(value), f"{type_name(value)} was written as {_name_json_type(made)}")
        return made

    def _add_note(self, key: str, text: str) -> None:
        if len(self.notes) < 20:
            self.notes.setdefault(key, text)


class _SmallJsonMaker(_JsonMaker):
    """Refuses a value whose type may run code of its own."""

    def _convert_other(self, value: object, depth: int) -> object:
        from callgate._json.python_types import has_own_code

        if has_own_code(value):
            raise NotJson("may have code of its own")
        return super()._convert_other(value, depth)


def _name_json_type(value: object) -> str:
    return {dict: "an object", list: "a list", str: "text", bool: "a boolean", type(None): "null"}.get(type(value), "a number")
