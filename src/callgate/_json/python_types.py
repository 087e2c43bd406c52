"""Convert Python types without a JSON equivalent: dates, decimals, paths, sets, dataclasses, Structs, pydantic models, NumPy's values.

This module is imported when the first such value occurs. All other types are refused, because their JSON form might
differ from run to run.
"""

from __future__ import annotations

import base64
import collections
import dataclasses
import datetime
import decimal
import enum
import inspect
import pathlib
import sys
import uuid
from collections.abc import Callable, ItemsView, Iterable, KeysView, ValuesView
from typing import Any, Protocol

import msgspec

from callgate._json.unsupported_values import NotJson, type_name
from callgate._media_types import SURE_IMAGES, media_type

__all__ = ["has_own_code", "unfold"]

_WITHOUT_CODE = frozenset(
    {
        tuple,
        set,
        frozenset,
        uuid.UUID,
        decimal.Decimal,
        datetime.date,
        datetime.timedelta,
        pathlib.PurePosixPath,
    }
)

_FIRST_BYTES = 64
_LISTS = (tuple, list, range, collections.deque, KeysView, ValuesView, ItemsView)


class ToPlainData(Protocol):
    """Converts nested values to plain data. The limits apply to the outermost value as a whole."""

    def plain(self, value: object, depth: int) -> object: ...

    def mapped(self, items: Iterable[tuple[object, object]], depth: int) -> dict[str, object]: ...

    def listed(self, values: Iterable[object], depth: int) -> list[object]: ...

    def check_size(self, size: int) -> None: ...


def has_own_code(value: object) -> bool:
    """Return whether reading a value may run code other than Python's own: code of its class or of nested values."""
    if type(value) is datetime.datetime:
        return value.tzinfo is not None and type(value.tzinfo) is not datetime.timezone
    return type(value) not in _WITHOUT_CODE


def unfold(value: object, maker: ToPlainData, depth: int) -> object:
    """Return plain JSON data for a value whose type is not a JSON type.

    Raises:
        NotJson: The value has no JSON form.
    """
    if isinstance(value, enum.Enum):
        return maker.plain(value.value, depth)
    if isinstance(value, (bytes, bytearray, memoryview)):
        maker.check_size(value.nbytes if isinstance(value, memoryview) else len(value))
        return maker.plain(_image_head(value) + base64.b64encode(value).decode(), depth)
    for kind, write in _SCALARS:
        if isinstance(value, kind):
            return maker.plain(write(value), depth)
    if isinstance(value, _LISTS):
        return maker.listed(value, depth)
    if isinstance(value, (set, frozenset)):
        return sorted(maker.listed(value, depth), key=msgspec.json.encode)
    if isinstance(value, dict):
        return maker.mapped(value.items(), depth)
    return _convert_fields(value, maker, depth)


def _convert_fields(value: Any, maker: ToPlainData, depth: int) -> object:
    if isinstance(value, msgspec.Struct):
        return maker.mapped(_list_struct_fields(value), depth)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return maker.mapped([(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)], depth)
    if hasattr(type(value), "__pydantic_serializer__") and hasattr(value, "model_dump"):
        return maker.plain(_dump_model(value), depth)
    if (size := _numpy_size(value)) is not None:
        maker.check_size(size)
        return maker.plain(value.tolist(), depth)
    if inspect.iscoroutine(value):
        value.close()
        raise NotJson("is a coroutine that was never awaited")
    raise NotJson(f"is of type {type_name(value)}")


def _image_head(data: bytes | bytearray | memoryview) -> str:
    """Return what makes the Base64 of an image its data URL; empty for other bytes."""
    kind = media_type(bytes(data[:_FIRST_BYTES]))
    return f"data:{kind};base64," if kind in SURE_IMAGES else ""


def _dump_model(model: Any) -> object:
    """Return a pydantic model as data; one with bytes that are no text, or with values of a type of which pydantic knows no JSON, field by
    field."""
    try:
        return model.model_dump(mode="json")
    except ValueError:
        return model.model_dump()


def _numpy_size(value: Any) -> int | None:
    """Return the number of values of an array or a number of NumPy; None for anything else, and for times, which it may give as integers.

    NumPy is not imported: who has such a value, has imported it.
    """
    numpy = sys.modules.get("numpy")
    kinds = tuple([kind for name in ("ndarray", "generic") if isinstance(kind := getattr(numpy, name, None), type)])
    return int(value.size) if isinstance(value, kinds) and value.dtype.kind not in "mM" else None  # type: ignore[attr-defined]


def _list_struct_fields(value: msgspec.Struct) -> Iterable[tuple[object, object]]:
    config = value.__struct_config__
    if config.tag is not None:
        yield config.tag_field, config.tag
    for field in msgspec.structs.fields(value):
        yield field.encode_name, getattr(value, field.name)


def _format_decimal(value: decimal.Decimal) -> str:
    if not value.is_finite():
        raise NotJson(f"is the decimal {value}, which JSON does not have")
    return str(value)


_SCALARS: tuple[tuple[type | tuple[type, ...], Callable[[Any], object]], ...] = (
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
    ((datetime.date, datetime.time), lambda value: value.isoformat()),
    (datetime.timedelta, msgspec.to_builtins),
    ((uuid.UUID, pathlib.PurePath), str),
    (decimal.Decimal, _format_decimal),
)
