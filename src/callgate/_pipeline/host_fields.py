"""The host's declaration of `Scope.extra`, and the check of each scope against it."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from inspect import isclass
from typing import Any, ClassVar, Final, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from callgate.errors import UsageError

__all__ = ["HostFields"]

_MISSING: Final = object()


class HostFields:
    """The fields that every `Scope.extra` of one engine has.

    Args:
        declared: A class with annotated fields (such as a dataclass or `msgspec.Struct`), a `TypedDict`, or a union of one of them with
            None.

    Raises:
        UsageError: `declared` is none of these.
    """

    def __init__(self, declared: object) -> None:
        choices = get_args(declared) if get_origin(declared) in (Union, types.UnionType) else (declared,)
        self._may_lack = type(None) in choices
        kinds = [kind for kind in choices if kind is not type(None)]
        if len(kinds) != 1 or not isclass(kinds[0]):
            raise UsageError(
                f"Engine(extra={declared!r:.80}): it must be the class of what scopes have as `extra`, with annotated fields, or that class"
                " or None: Engine(extra=Host), Engine(extra=Host | None)."
            )
        self._kind: type[Any] = kinds[0]
        self._fields = _fields_of(self._kind)
        self._required = getattr(self._kind, "__required_keys__", frozenset(self._fields))

    def check(self, extra: object) -> None:
        """Check that `extra` is as declared.

        Raises:
            UsageError: It is of another class, lacks a field, or a field has another type.
        """
        if extra is None and self._may_lack:
            return
        why = self._problem(extra)
        if why:
            raise UsageError(
                f"Scope.extra {why}. Engine(extra={self._kind.__name__}) declares it for every call; give it, or declare less."
            )

    def _problem(self, extra: object) -> str:
        """Return why `extra` is not as declared; empty if it is."""
        read: Callable[[str], object]
        if is_typeddict(self._kind):
            if not isinstance(extra, Mapping):
                return f"is {type(extra).__name__}, and must be a mapping with the keys of {self._kind.__name__}"
            read = lambda name: extra.get(name, _MISSING)  # noqa: E731
        else:
            if not _is(extra, self._kind):
                return f"is {type(extra).__name__}, and must be {self._kind.__name__}"
            read = lambda name: getattr(extra, name, _MISSING)  # noqa: E731
        for name, kind in self._fields.items():
            value = read(name)
            if value is _MISSING:
                if name in self._required:
                    return f"has no field '{name}'"
            elif not _is(value, kind):
                return f"has {type(value).__name__} in its field '{name}', and must have {_name_of(kind)}"
        return ""


def _fields_of(kind: type[Any]) -> dict[str, object]:
    """Return the annotated fields of a class by name. Fields whose annotations cannot be evaluated accept any value."""
    try:
        hints: dict[str, object] = get_type_hints(kind)
    except (NameError, TypeError, AttributeError):  # annotations with names that do not exist at runtime
        hints = {name: object for one in reversed(kind.__mro__) for name in getattr(one, "__annotations__", {})}
    return {name: hint for name, hint in hints.items() if get_origin(hint) is not ClassVar and not name.startswith("_")}


def _is(value: object, kind: object) -> bool:
    """Return whether a value is of an annotated type. Only the value itself is checked, not the items that it contains."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return any(_is(value, one) for one in get_args(kind))
    if origin is Literal:
        return value in get_args(kind)
    if kind is None:
        return value is None
    wanted = origin or kind
    if wanted is float:
        wanted = (float, int)
    try:
        return isinstance(value, wanted)  # type: ignore[arg-type]
    except TypeError:  # Any, a type variable, a protocol: no class to check against
        return True


def _name_of(kind: object) -> str:
    return kind.__name__ if isclass(kind) and get_origin(kind) is None else str(kind).replace("typing.", "")
