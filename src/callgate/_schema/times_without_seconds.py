"""Complete times that are written without seconds, such as `10:00` and `2024-01-31T10:00`, where a type has a time.

People and models write times like this, and pydantic reads them; msgspec, which converts standard types, refuses them.
Text in other places is not changed. Pure.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

__all__ = ["with_seconds", "with_seconds_in"]

_SHORT = re.compile(r"(\d{4}-\d\d-\d\d[Tt ])?\d\d:\d\d(?=$|[Zz]$|[+-]\d\d:\d\d$)")
_LISTS = (
    msgspec.inspect.ListType,
    msgspec.inspect.SetType,
    msgspec.inspect.FrozenSetType,
    msgspec.inspect.VarTupleType,
    msgspec.inspect.CollectionType,
)


def with_seconds(text: str) -> str:
    """Return the text with seconds, if it is a time or a date and a time without them."""
    found = _SHORT.match(text)
    return text if found is None else f"{found[0]}:00{text[found.end() :]}"


def with_seconds_in(info: Any, value: object) -> object:
    """Return a JSON value with seconds in each text that becomes a time.

    Args:
        info: The type of the value, from `msgspec.inspect.type_info`.
    """
    known = msgspec.inspect
    if isinstance(info, known.Metadata):
        return with_seconds_in(info.type, value)
    if isinstance(value, str):
        kinds = info.types if isinstance(info, known.UnionType) else (info,)
        return with_seconds(value) if any(isinstance(one, (known.TimeType, known.DateTimeType)) for one in kinds) else value
    if isinstance(info, known.UnionType):
        return _in_union(info, value)
    if isinstance(value, list):
        return _in_list(info, value)
    return _in_object(info, value) if isinstance(value, dict) else value


def _in_union(info: msgspec.inspect.UnionType, value: object) -> object:
    """Return the value for the one alternative that changes it. At most one of a union's types is a list, and one an object."""
    for one in info.types:
        changed = with_seconds_in(one, value)
        if changed != value:
            return changed
    return value


def _in_list(info: Any, value: list[object]) -> list[object]:
    if isinstance(info, _LISTS):
        return [with_seconds_in(info.item_type, item) for item in value]
    if isinstance(info, msgspec.inspect.TupleType):
        return [*map(with_seconds_in, info.item_types, value), *value[len(info.item_types) :]]
    return value


def _in_object(info: Any, value: dict[str, object]) -> dict[str, object]:
    if isinstance(info, msgspec.inspect.DictType):
        return {key: with_seconds_in(info.value_type, item) for key, item in value.items()}
    kinds = {field.encode_name: field.type for field in getattr(info, "fields", ())}
    return {key: with_seconds_in(kinds[key], item) if key in kinds else item for key, item in value.items()}
