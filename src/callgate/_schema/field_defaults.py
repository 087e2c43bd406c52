"""Read parameters that are declared as in pydantic: `limit: int = Field(10, ge=1)` and `Annotated[str, "text"]`.

A `Field` as a default is moved to the annotation, and its own default becomes the parameter's default. Its alias is the
name of the argument for the model. A text in `Annotated` is the parameter's description. Pydantic is not imported here:
if nobody has imported it, no default is a `Field`.
"""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Callable
from typing import Annotated, Any, get_args, get_origin

from msgspec import Struct

from callgate.errors import UsageError

__all__ = ["DeclaredParameter", "Make", "annotated_text", "declared_parameter"]

_EMPTY = inspect.Parameter.empty
_FACTORY = object()
"""Replaces a default that is created for each call. A schema cannot show such a default."""

Make = Callable[[], object]


class DeclaredParameter(Struct, frozen=True, kw_only=True):
    """A parameter without its `Field`."""

    parameter: inspect.Parameter
    """The parameter with the default of its `Field`."""
    kind: Any
    """The annotation, with the constraints of the `Field`."""
    argument: str
    """The name of the argument for the model: the alias of the `Field`, or the name of the parameter."""
    make: Make | None = None
    """Creates the default; None if Python itself passes the default to the function."""


def declared_parameter(parameter: inspect.Parameter, kind: Any, where: str, *, derived: bool) -> DeclaredParameter:
    """Return what the parameter and its annotation declare.

    Args:
        where: Where the function is defined, for messages.
        derived: Whether the tool's schema is derived from the annotation.

    Raises:
        UsageError: The parameter has a `Field` and no annotation, or an alias that is not a name.
    """
    fields = _fields_of(kind)
    if _is_field(parameter.default):
        if kind is _EMPTY and derived:
            raise UsageError(
                f"{where}: '{parameter.name}' has a Field and no annotation, so its type is not known. Write its type, as"
                f" {parameter.name}: int = Field(...).",
                code="schema_refused",
            )
        fields = [*fields, parameter.default]
        kind = Annotated[Any if kind is _EMPTY else kind, parameter.default]
    elif parameter.default is not _EMPTY or not fields:
        return DeclaredParameter(parameter=parameter, kind=_without_alias(kind), argument=_argument(parameter, fields, where))
    argument, kind, field = _argument(parameter, fields, where), _without_alias(kind), fields[-1]
    if field.is_required():
        return DeclaredParameter(parameter=parameter.replace(default=_EMPTY), kind=kind, argument=argument)
    shown = _FACTORY if field.default_factory is not None else field.default
    make = lambda: field.get_default(call_default_factory=True)  # noqa: E731
    return DeclaredParameter(parameter=parameter.replace(default=shown), kind=kind, argument=argument, make=make)


def _fields_of(kind: Any) -> list[Any]:
    return [one for one in get_args(kind)[1:] if _is_field(one)] if get_origin(kind) is Annotated else []


def _alias(field: Any) -> Any:
    """Return the alias with which the field is read; None if it has none. Of several, the first."""
    alias = field.alias if field.validation_alias is None else field.validation_alias
    return alias.choices[0] if getattr(alias, "choices", None) else alias


def _argument(parameter: inspect.Parameter, fields: list[Any], where: str) -> str:
    aliases = [alias for field in fields if (alias := _alias(field)) is not None]
    if not aliases:
        return parameter.name
    if not isinstance(aliases[-1], str) or not aliases[-1]:
        raise UsageError(
            f"{where}: '{parameter.name}' has the alias {aliases[-1]!r:.80}; the model needs one name. Give the alias as text.",
            code="schema_refused",
        )
    return aliases[-1]


def _without_alias(kind: Any) -> Any:
    """Return the annotation with fields that have no alias, because pydantic knows aliases of a model's fields only."""
    if not any(_alias(field) is not None for field in _fields_of(kind)):
        return kind
    inner, *metadata = get_args(kind)
    return Annotated[(inner, *map(_drop_alias, metadata))]


def _drop_alias(item: Any) -> Any:
    if not _is_field(item):
        return item
    field = copy.copy(item)
    field.alias = field.validation_alias = field.serialization_alias = None
    return field


def _is_field(value: object) -> bool:
    module = sys.modules.get("pydantic.fields")
    return module is not None and isinstance(value, module.FieldInfo)


def annotated_text(kind: Any) -> str | None:
    """Return the text of `Annotated[str, "text"]` or `Annotated[str, Doc("text")]`; None for other annotations."""
    if get_origin(kind) is not Annotated:
        return None
    for item in get_args(kind)[1:]:
        text = getattr(item, "documentation", item)
        if isinstance(text, str):
            return " ".join(text.split())
    return None
