"""Convert values that a model wrote as text to the type that the schema requires, if no information is lost.

Text that contains a number, boolean, null, list or object becomes that value. The errors of a failed validation
determine what is converted: a value that the schema accepts is not changed, nor is text where the schema allows text.
The caller validates again and drops a conversion that does not help. Pure.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

from callgate._engine_limits import Limits
from callgate._json import strict_value
from callgate._schema.integral_floats import exact_integer
from callgate._schema.schema_compiler import CompiledSchema
from callgate._schema.subschemas import pointer
from callgate._schema.value_descriptions import clear_path
from callgate.calls import Note
from callgate.errors import ArgumentsMalformed, ArgumentsTruncated

__all__ = ["coerce_values"]

_ROUNDS = 4
"""Maximum number of conversion rounds.

Several are needed because converted text may contain further text to convert.
"""
_MAX_NOTES = 50
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,18})(?:\.0+)?")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,30})(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,3})?")
_BOOLEANS = {"true": True, "True": True, "false": False, "False": False}
_LIMITS = Limits()


class _NoValue:
    """The type of a sentinel for "no value", for places where None is a value."""


_NOTHING = _NoValue()
_Place = tuple[str | int, ...]


def coerce_values(value: dict[str, object], schema: CompiledSchema) -> tuple[dict[str, object], tuple[Note, ...]]:
    """Return a copy of `value` with every possible conversion applied, and a note for each. The copy may still be invalid."""
    notes: dict[_Place, Note] = {}
    current = value
    for _ in range(_ROUNDS):
        changes = dict(_changes(schema.errors(current)))
        if not changes:
            break
        if current is value:
            current = copy.deepcopy(value)
        for place, new in changes.items():
            _replace(current, place, new)
            if len(notes) < _MAX_NOTES:
                notes.setdefault(place, _note(place, new))
    return current, tuple(notes.values())


def _note(place: _Place, new: object) -> Note:
    kind = {bool: "boolean", int: "integer", float: "number", list: "list", dict: "object"}.get(type(new), "null")
    text = f"{clear_path(list(place))} came as text that says so and was taken as {kind}."
    return Note(kind="coerced", path=pointer(list(place)), text=text)


def _changes(errors: list[Any]) -> Iterator[tuple[_Place, object]]:
    for error in errors:
        if error is None:
            continue
        name = type(error.kind).__name__
        if name in ("AnyOf", "OneOfNotValid"):
            yield from _of_alternatives(error)
        else:
            new = _read_from_text(error.instance, _accepted_instead(error))
            if new is not _NOTHING:
                yield tuple(error.instance_path), new


def _of_alternatives(error: Any) -> Iterator[tuple[_Place, object]]:
    """Yield conversions for a value that matches no alternative of a schema.

    Text is converted only if no alternative accepts text. Values inside a list or object are converted only if the list
    or object itself matches exactly one alternative.
    """
    here = error.instance_path
    branches = [branch for branch in error.kind.context if branch]
    at_top = [[inner for inner in branch if inner.instance_path == here] for branch in branches]
    if isinstance(error.instance, str):
        wanted = [_accepted_instead(inner) for inners in at_top for inner in inners]
        if all(any(_accepted_instead(inner) is not None for inner in inners) for inners in at_top):
            new = _read_from_text(error.instance, frozenset[Any]().union(*(types for types in wanted if types)))
            if new is not _NOTHING:
                yield tuple(here), new
        return
    reached = [branch for branch, inners in zip(branches, at_top, strict=True) if not any(_accepted_instead(inner) for inner in inners)]
    if len(reached) == 1:
        yield from _changes(reached[0])


def _accepted_instead(error: Any) -> frozenset[Any] | None:
    """Return what the schema accepts instead, for a type, enum or const error. Return None for other errors.

    Types are returned by name. Of the options of an enum or const, null, booleans and numbers are returned as `("is",
    type, value)`.
    """
    name = type(error.kind).__name__
    if name == "Type":
        return frozenset(error.kind.types)
    options = error.kind.options if name == "Enum" else [error.kind.expected_value] if name == "Constant" else None
    if options is None:
        return None
    return frozenset(("is", type(option), option) for option in options if option is None or isinstance(option, (bool, int, float)))


def _read_from_text(value: object, wanted: frozenset[Any] | None) -> object:
    if not isinstance(value, str) or not wanted:
        return _NOTHING
    for kind, read in _READERS.items():
        new = read(value)
        if new is _NOTHING:
            continue
        if kind in wanted or (kind == "integer" and "number" in wanted and _INTEGER.fullmatch(value)):
            return new
        if not isinstance(new, (list, dict)) and ("is", type(new), new) in wanted:
            return new
    return _NOTHING


def _integer(text: str) -> object:
    if _INTEGER.fullmatch(text):
        return int(text.partition(".")[0])
    from decimal import Decimal

    whole = exact_integer(Decimal(text)) if _NUMBER.fullmatch(text) else None
    return _NOTHING if whole is None else whole


def _number(text: str) -> object:
    if not _NUMBER.fullmatch(text):
        return _NOTHING
    from decimal import Decimal

    number = float(text)
    return number if math.isfinite(number) and Decimal(text) == Decimal(repr(number)) else _NOTHING


def _boolean(text: str) -> object:
    return _BOOLEANS.get(text, _NOTHING)


def _null(text: str) -> object:
    return None if text == "null" else _NOTHING


def _container(kind: type) -> Callable[[str], object]:
    def read(text: str) -> object:
        if not text.lstrip(" \t\r\n").startswith("[" if kind is list else "{"):
            return _NOTHING
        try:
            return strict_value(text, _LIMITS)
        except (ArgumentsMalformed, ArgumentsTruncated):
            return _NOTHING

    return read


_READERS: dict[str, Callable[[str], object]] = {
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "null": _null,
    "array": _container(list),
    "object": _container(dict),
}


def _replace(root: Any, place: _Place, new: object) -> None:
    for step in place[:-1]:
        root = root[step]
    root[place[-1]] = new
