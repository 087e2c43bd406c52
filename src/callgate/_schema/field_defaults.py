"""Read parameters that are declared as in pydantic: `limit: int = Field(10, ge=1)` and `Annotated[str, "text"]`.

A `Field` as a default is moved to the annotation, and its own default becomes the parameter's default. A text in
`Annotated` is the parameter's description. Pydantic is not imported here: if nobody has imported it, no default is a
`Field`.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Annotated, Any, get_args, get_origin

__all__ = ["described", "with_field"]

_EMPTY = inspect.Parameter.empty
_FACTORY = object()
"""Replaces a default that is created for each call. A schema cannot show such a default."""

Make = Callable[[], object]


def with_field(parameter: inspect.Parameter, kind: Any) -> tuple[inspect.Parameter, Any, Make | None]:
    """Return the parameter with its `Field`'s default, the annotation with the field's constraints, and a function.

    The function creates the default. It is None if Python itself passes the default to the function.
    """
    field = parameter.default
    if _is_field(field):
        kind = Annotated[Any if kind is _EMPTY else kind, field]
    else:
        held = [one for one in get_args(kind)[1:] if _is_field(one)] if get_origin(kind) is Annotated else []
        if parameter.default is not _EMPTY or not held:
            return parameter, kind, None
        field = held[-1]
    if field.is_required():
        return parameter.replace(default=_EMPTY), kind, None
    shown = _FACTORY if field.default_factory is not None else field.default
    return parameter.replace(default=shown), kind, lambda: field.get_default(call_default_factory=True)


def _is_field(value: object) -> bool:
    module = sys.modules.get("pydantic.fields")
    return module is not None and isinstance(value, module.FieldInfo)


def described(kind: Any) -> str | None:
    """Return the text of `Annotated[str, "text"]` or `Annotated[str, Doc("text")]`; None for other annotations."""
    if get_origin(kind) is not Annotated:
        return None
    for item in get_args(kind)[1:]:
        text = getattr(item, "documentation", item)
        if isinstance(text, str):
            return " ".join(text.split())
    return None
