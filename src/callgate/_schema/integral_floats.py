"""Convert integral floats (`5.0`, `1e3`) to integers where the tool's schema requires integers.

JSON Schema accepts these floats as integers, but Python code such as `range` does not. This is separate from
`coercion`, because the value is valid and no error names the place. Nothing is lost: a float above 2^53 may stand for
several integers; then the JSON text decides, or the model is asked again. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from callgate._json import decode, plain_bytes
from callgate._schema.schema_compiler import CompiledSchema
from callgate._schema.subschemas import pointer
from callgate._schema.validation_errors import ValidationProblem
from callgate._schema.value_descriptions import clear_path, describe_value
from callgate.calls import Note

if TYPE_CHECKING:
    from decimal import Decimal

__all__ = ["exact_integer", "whole_numbers"]

_MAX_NOTES = 50
_MAX_FLOATS = 1_000
"""If there are more floats than this, the schema is tested once per list instead of once per float."""
_MAX_TOLD_APART = 20_000
"""If there are more floats than this, all of them are converted."""
_MAX_LISTS = 8
_EXACT = 2**53
"""From this number on, one float may represent several integers."""
_Place = tuple[str | int, ...]


def whole_numbers(
    value: dict[str, object], schema: CompiledSchema, source: object = None
) -> tuple[dict[str, object], tuple[Note, ...], list[ValidationProblem]]:
    """Return `value`, which must be valid, with integers instead of integral floats where the schema requires integers.

    The schema itself identifies these places: in a copy of the value, a fraction is added to each integral float, and
    the validation errors of the copy name the places. From 2^53 on, a float may stand for several integers; such
    numbers are read from the original text.

    Args:
        source: What `value` was parsed from. If this is text, large numbers are read from it again. Otherwise, the
            float's own value is used.

    Returns:
        The value, a note for each change, and a problem for each number whose exact value is not a 64-bit integer.
    """
    places = _integer_places(value, schema)
    if not places:
        return value, (), []
    changed = decode(plain_bytes(value))
    large: list[_Place] = []
    for place in places:
        number = _value_at(value, place)
        if abs(number) < _EXACT:
            _replace_at(changed, place, int(number))
        else:
            large.append(place)
    problems = _put_large(changed, large, source) if large else []
    return changed, tuple(_note(place) for place in places[:_MAX_NOTES]), problems


def exact_integer(number: Decimal | float) -> int | None:
    """Return the integer that equals this number, if there is one and it fits in 64 bits; else None."""
    return int(number) if -(2**63) <= number < 2**64 and number == int(number) else None


def _put_large(changed: dict[str, object], places: list[_Place], source: object) -> list[ValidationProblem]:
    written = _read_exactly(source) if isinstance(source, (str, bytes)) else changed
    problems: list[ValidationProblem] = []
    for place in places:
        number = _value_at(changed, place)
        try:
            whole = exact_integer(_value_at(written, place))
        except (TypeError, LookupError):  # the number was in a text within the text, which is parsed only once
            whole = None
        _replace_at(changed, place, whole)
        if whole is None:
            problems.append(_problem(place, number))
    return problems


def _read_exactly(source: str | bytes) -> object:
    """Parse the text with decimals instead of floats. Return None if it is not valid JSON."""
    from decimal import Decimal

    try:
        return msgspec.json.Decoder(float_hook=Decimal).decode(source)
    except ValueError:
        return None


def _problem(place: _Place, number: float) -> ValidationProblem:
    path, expected, got = list(place), "an integer of 64 bits, in digits", describe_value(number)
    message = f"{clear_path(path)}: expected {expected}, got {got}, a float that stands for several"
    return ValidationProblem(path=pointer(path), message=message, expected=expected, got=got, keyword="type")


def _note(place: _Place) -> Note:
    path = list(place)
    return Note(kind="coerced", path=pointer(path), text=f"{clear_path(path)} came as a float and was taken as integer.")


def _value_at(root: Any, place: _Place) -> Any:
    for step in place:
        root = root[step]
    return root


def _replace_at(root: Any, place: _Place, new: object) -> None:
    _value_at(root, place[:-1])[place[-1]] = new


def _integer_places(value: dict[str, object], schema: CompiledSchema) -> list[_Place]:
    """Return the places of integral floats at which the schema requires integers."""
    probe = decode(plain_bytes(value))
    floats = list(_make_fractional(probe, ()))
    if not floats or schema.is_valid(probe):
        return []
    errors = schema.all_errors(probe) if len(floats) <= _MAX_FLOATS else None
    if errors is None:
        return _by_list(value, schema, floats)
    found = _places_requiring_integer(errors, frozenset(floats)) or ()
    return [place for place in floats if place in found]


def _places_requiring_integer(errors: list[Any], probed: frozenset[_Place]) -> frozenset[_Place] | None:
    """Return the places in `probed` at which these errors require an integer.

    Return None if there are any other errors.

    Of a schema's alternatives, those that the value does not match for other reasons are ignored. A place is returned
    only if all remaining alternatives require an integer there.
    """
    found: set[_Place] = set()
    for error in errors:
        name, place = type(error.kind).__name__, tuple(error.instance_path)
        if name in ("AnyOf", "OneOfNotValid"):
            branches = [wanted for branch in error.kind.context if (wanted := _places_requiring_integer(branch, probed)) is not None]
            if not branches:
                return None
            found |= frozenset.intersection(*branches)
        elif place not in probed:
            return None
        elif name == "Type" and "number" not in error.kind.types:
            if "integer" not in error.kind.types:
                return None
            found.add(place)
    return frozenset(found)


def _by_list(value: dict[str, object], schema: CompiledSchema, floats: list[_Place]) -> list[_Place]:
    """Return the places at which the schema requires integers, if there are too many floats to test each of them.

    All items of a list are tested together. If there are still too many places, return all of them.
    """
    lists: dict[_Place, list[_Place]] = {}
    for place in floats[:_MAX_TOLD_APART]:
        lists.setdefault(tuple("*" if isinstance(step, int) else step for step in place), []).append(place)
    if len(floats) > _MAX_TOLD_APART or len(lists) > _MAX_LISTS:
        return floats
    found: list[_Place] = []
    for group in lists.values():
        probe = decode(plain_bytes(value))
        for place in group:
            _replace_at(probe, place, _fractional(_value_at(value, place)))
        if not schema.is_valid(probe):
            found += group
    return found


def _make_fractional(node: Any, place: _Place) -> Iterator[_Place]:
    for key, item in list(node.items() if isinstance(node, dict) else enumerate(node)):
        if isinstance(item, (dict, list)):
            yield from _make_fractional(item, (*place, key))
        elif isinstance(item, float) and item.is_integer():
            node[key] = _fractional(item)
            yield (*place, key)


def _fractional(number: Any) -> float:
    """Return a number close to `number` that has a fraction."""
    return math.copysign(min(abs(number), 2.0**51) + 0.5, number)
