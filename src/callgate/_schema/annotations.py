"""Convert type annotations to JSON Schema, and validated JSON values to the annotated types.

msgspec converts standard types. pydantic converts annotations that use pydantic, and is imported only for these. Values
of JSON types are not converted. Knows annotations, not functions.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import pathlib
import sys
import types
import typing
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec

from callgate._schema.subschemas import Schema
from callgate._schema.time_formats import add_time_formats
from callgate._schema.times_without_seconds import with_seconds_in
from callgate.errors import UsageError

__all__ = ["Convert", "converter", "from_text", "is_plain", "namespace_of", "schema_hook", "schemas_of", "uses_pydantic"]

Convert = Callable[[object], object]

_PLAIN = frozenset({str, int, float, bool, type(None), Any, list, dict, inspect.Parameter.empty})
_UNIONS = (typing.Union, types.UnionType)


def is_plain(kind: Any) -> bool:
    """Return whether a value that matches the type's schema is already an instance of the type."""
    origin = get_origin(kind)
    if origin is None:
        return kind in _PLAIN if not typing.is_typeddict(kind) else False
    if origin is Literal:
        return not any(isinstance(option, (enum.Enum, bytes)) for option in get_args(kind))
    if origin is Annotated:
        return is_plain(get_args(kind)[0])
    if origin is dict and get_args(kind)[0] not in (str, Any):
        return False
    return (origin in _UNIONS or origin in (list, dict)) and all(map(is_plain, get_args(kind)))


def uses_pydantic(kind: Any) -> bool:
    """Return whether the annotation needs pydantic, or a field of a dataclass or TypedDict in it does."""
    stack, seen = [kind], set()
    while stack:
        one = stack.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if get_origin(one) is Annotated:
            inner, *metadata = get_args(one)
            if any(type(item).__module__.split(".")[0] in ("pydantic", "annotated_types") for item in metadata):
                return True
            stack.append(inner)
        elif get_origin(one) is not Literal:
            stack += get_args(one)
        if hasattr(one, "__get_pydantic_core_schema__") or hasattr(one, "__pydantic_core_schema__"):
            return True
        stack += _fields_of(one)
    return False


def _fields_of(kind: Any) -> list[Any]:
    """Return the field types of a dataclass or TypedDict; empty if they cannot be resolved."""
    if not (dataclasses.is_dataclass(kind) or hasattr(kind, "__total__")):  # a TypedDict, be it of typing or of its extensions
        return []
    try:
        return list(typing.get_type_hints(kind, include_extras=True).values())
    except (NameError, TypeError):  # reported when the schema is made
        return []


def schemas_of(kinds: Mapping[str, Any], where: str, *, output: bool = False) -> tuple[dict[str, Schema], Schema]:
    """Return a schema for each type, and the `$defs` that they share.

    Raises:
        UsageError: A type has no schema; the message names the parameter.
    """
    with_pydantic = {name: kind for name, kind in kinds.items() if uses_pydantic(kind)}
    made, defs = _by_msgspec({name: kind for name, kind in kinds.items() if name not in with_pydantic}, where)
    if with_pydantic:
        more, more_defs = _by_pydantic(with_pydantic, where, output=output)
        twice = defs.keys() & more_defs.keys()
        if twice:
            raise UsageError(f"{where} uses two different types named {min(twice)!r}. Rename one of them.", code="schema_refused")
        made, defs = {**made, **more}, {**defs, **more_defs}
    return {name: made[name] for name in kinds}, defs


def _by_msgspec(kinds: Mapping[str, Any], where: str) -> tuple[dict[str, Schema], Schema]:
    made: dict[str, Schema] = {name: {} for name, kind in kinds.items() if kind is inspect.Parameter.empty or kind is object}
    rest = {name: kind for name, kind in kinds.items() if name not in made}
    for name, kind in rest.items():
        try:
            msgspec.json.schema(kind, schema_hook=schema_hook)
        except Exception as error:
            cause = str(error).splitlines()[0][:200]
            raise UsageError(
                f"{where}: '{name}' is annotated {_name_of_type(kind)}, which has no JSON Schema ({cause})."
                " Take a standard type, a dataclass, a TypedDict or a pydantic model, or give the tool its parameters.",
                code="schema_refused",
            ) from error
    found, defs = msgspec.json.schema_components(rest.values(), schema_hook=schema_hook, ref_template="#/$defs/{name}")
    named = dict(zip(rest, found, strict=True))
    for name, kind in rest.items():
        add_time_formats(kind, named[name], defs)
    return {**made, **named}, dict(defs)


def _by_pydantic(kinds: Mapping[str, Any], where: str, *, output: bool) -> tuple[dict[str, Schema], Schema]:
    adapter = _pydantic(where).TypeAdapter
    try:
        mode = "serialization" if output else "validation"
        found, shared = adapter.json_schemas([(name, mode, adapter(kind)) for name, kind in kinds.items()])
    except Exception as error:
        raise UsageError(
            f"{where}: pydantic makes no JSON Schema of its annotations ({str(error).splitlines()[0][:200]}). Change the annotation.",
            code="schema_refused",
        ) from error
    return {name: schema for (name, _), schema in found.items()}, dict(shared.get("$defs", {}))


def _pydantic(where: str) -> Any:
    try:
        import pydantic
    except ImportError as error:
        raise UsageError(f"{where} uses pydantic in its annotations, which is not installed: pip install 'callgate[pydantic]'.") from error
    return pydantic


def converter(kind: Any, where: str) -> Convert | None:
    """Return a function that converts a valid JSON value to the type, or None if no conversion is needed."""
    if is_plain(kind) or kind is object:
        return None
    if uses_pydantic(kind):
        adapter = _pydantic(where).TypeAdapter(kind)
        return lambda value: adapter.validate_json(msgspec.json.encode(value), strict=True)
    return partial(_convert_by_msgspec, kind, msgspec.inspect.type_info(kind))


def _convert_by_msgspec(kind: Any, info: Any, value: object) -> object:
    try:
        return msgspec.convert(value, kind, strict=True, str_keys=True, dec_hook=from_text)
    except msgspec.ValidationError:
        completed = with_seconds_in(info, value)
        if completed == value:
            raise
        return msgspec.convert(completed, kind, strict=True, str_keys=True, dec_hook=from_text)


def schema_hook(kind: type) -> Schema:
    """Return the schema of a type that msgspec does not support."""
    if isinstance(kind, type) and issubclass(kind, pathlib.PurePath):
        return {"type": "string", "format": "path"}
    raise NotImplementedError


def from_text(kind: type, value: object) -> object:
    """Make a value of a type that msgspec does not support."""
    if isinstance(kind, type) and issubclass(kind, pathlib.PurePath) and isinstance(value, str):
        return kind(value)
    raise NotImplementedError(f"{kind} cannot be made of {type(value).__name__}")


def _name_of_type(kind: Any) -> str:
    return getattr(kind, "__qualname__", None) or str(kind)[:100]


def namespace_of(function: Any) -> dict[str, Any]:
    """Return the variables that a function's annotations may use in addition to those of its module.

    These are the variables of its closure and of the functions that enclose it.
    """
    if not inspect.isfunction(function):
        return {}
    parts = function.__qualname__.split(".<locals>.")
    around = {".<locals>.".join(parts[:count]) for count in range(1, len(parts))}
    names: dict[str, Any] = {}
    frame = sys._getframe(1) if around else None
    while frame is not None:
        if frame.f_code.co_qualname in around and frame.f_globals is function.__globals__:
            names = {**frame.f_locals, **names}
        frame = frame.f_back
    return {**names, **_closure_variables(function)}


def _closure_variables(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the function's closure variables by name. Variables that are not assigned yet are left out."""
    held: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):
            held[name] = cell.cell_contents
    return held
