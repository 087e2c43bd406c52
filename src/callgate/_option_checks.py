"""Options that users set: check their names and the types of their values when they are set.

A low layer, because most packages have options. A class of options declares each option with its type; bounds are part
of the type. Does not know which values suit a task.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial, wraps
from types import UnionType
from typing import Annotated, Any, ParamSpec, TypeVar, Union, cast, get_args, get_origin

import msgspec
from msgspec import Meta, Struct, StructMeta

from callgate.errors import UsageError

__all__ = [
    "MOST",
    "Amount",
    "ByNameMeta",
    "Count",
    "NamedStruct",
    "Options",
    "Pause",
    "Seconds",
    "Whole",
    "by_name",
    "by_name_with",
    "check",
    "refuse_unknown",
    "refused",
    "shown",
    "without_check",
]

P = ParamSpec("P")
R = TypeVar("R")

MOST = sys.float_info.max
"""Upper bound that excludes infinity."""
Whole = Annotated[int, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]
Amount = Annotated[float, Meta(ge=0)]
Seconds = Annotated[float, Meta(gt=0, le=MOST)]
"""A positive duration in seconds."""
Pause = Annotated[float, Meta(ge=0, le=MOST)]
"""A duration in seconds that may be 0."""

_CONVERTED = (bool, int, float, str)
_MEANT: Mapping[str, tuple[str, ...]] = {
    "tool": ("name",),
    "tool_name": ("name",),
    "function": ("name",),
    "args": ("arguments", "parameters"),
    "params": ("arguments", "parameters"),
    "parameters": ("arguments",),
    "input": ("arguments",),
    "call_id": ("id",),
    "tool_call_id": ("id",),
    "key": ("idempotency_key",),
    "idempotent": ("effect",),
    "read_only": ("effect",),
    "readonly": ("effect",),
    "approval": ("requires_approval",),
    "idempotency_key": ("key",),
    "user": ("principal", "by"),
    "user_id": ("principal",),
    "tenant": ("principal",),
    "session": ("conversation",),
    "session_id": ("conversation",),
    "thread": ("conversation",),
    "thread_id": ("conversation",),
    "conversation_id": ("conversation",),
    "run_id": ("run",),
    "message": ("message_id", "reason"),
    "metadata": ("extra",),
    "context": ("extra",),
    "folder": ("workspace",),
    "cwd": ("workspace",),
    "root": ("workspace",),
    "who": ("by",),
    "approver": ("by",),
    "operator": ("by",),
    "why": ("reason",),
    "content": ("text",),
    "timeout": ("timeout_s",),
    "max_iterations": ("iterations", "settings"),
    "max_turns": ("iterations", "settings"),
    "max_steps": ("iterations", "settings"),
}
"""Names of options in other libraries, with callgate's names for them; the first that the owner has is suggested."""


class ByNameMeta(StructMeta):
    """The metaclass of structs whose unknown keywords raise a `UsageError` that lists the known ones."""

    def __call__(self, *args: Any, **given: Any) -> Any:
        try:
            return super().__call__(*args, **given)
        except TypeError:
            _refuse_names(self.__name__, self, args, given)
            raise


class NamedStruct(Struct, frozen=True, metaclass=ByNameMeta):
    """Base class of public values.

    Raises:
        UsageError: A name is unknown or missing. The types of values are not checked.
    """


def without_check(kind: Callable[P, R], example: R) -> Callable[P, R]:
    """Return a function that makes `NamedStruct`s of this kind as fast as if their names were not checked.

    For the values that callgate makes for each call: `ByNameMeta` costs half a microsecond. The function takes names
    only, and fields without a default are those of `example`.
    """
    return cast("Callable[P, R]", partial(msgspec.structs.replace, example))


class Options(Struct, frozen=True, kw_only=True, metaclass=ByNameMeta):
    """Base class of option sets.

    Raises:
        UsageError: A name is unknown, or a value has the wrong type.
    """

    def __post_init__(self) -> None:
        for name, kind in _kinds(type(self)):
            check(type(self).__name__, name, getattr(self, name), kind)


def by_name(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function or class so that an unknown keyword raises a `UsageError` that lists the known ones."""
    return _with_name_check(function, ())


def by_name_with(options: type) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Do the same as `by_name`, for a function whose `**` keywords are the keys of the TypedDict `options`."""
    return lambda function: _with_name_check(function, tuple(options.__annotations__))


def _with_name_check(function: Callable[P, R], more: tuple[str, ...]) -> Callable[P, R]:
    owner = function.__qualname__.removesuffix(".__init__")
    known = frozenset((*inspect.signature(function).parameters, *more))

    @wraps(function)
    def told(*args: P.args, **given: P.kwargs) -> R:
        try:
            if not given.keys() <= known:
                raise TypeError(f"{owner} has no such option")
            return function(*args, **given)
        except TypeError:
            _refuse_names(owner, function, args, given, more)
            raise

    @wraps(function)
    async def told_later(*args: P.args, **given: P.kwargs) -> Any:
        try:
            return await cast("Awaitable[Any]", function(*args, **given))
        except TypeError:
            _refuse_names(owner, function, args, given, more)
            raise

    return cast("Callable[P, R]", told_later) if inspect.iscoroutinefunction(function) else told


_SCOPE_FIELDS = frozenset({"run", "conversation", "turn", "tick", "iteration", "message_id", "principal", "actor", "workspace", "extra"})


def refuse_unknown(owner: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise for unknown names; the message gives the closest match and all known names.

    Raises:
        UsageError: A name is unknown.
    """
    known = list(known)
    for name in given:
        if name not in known:
            import difflib

            near = [one for one in _MEANT.get(name, ()) if one in known]
            near = near or difflib.get_close_matches(name[:100], known, n=1, cutoff=0.6)
            meant = f"; did you mean '{near[0]}'?" if near else "."
            if "scope" in known and name in _SCOPE_FIELDS:
                meant = f". It belongs to the scope: scope=Scope({name}=...)."
            raise UsageError(f"{owner} has no option '{name}'{meant} It takes {', '.join(known)}.")


def check(owner: str, name: str, value: object, kind: Any) -> None:
    """Raise if a value has the wrong type.

    Args:
        owner: What has the option, as the user writes it.
        kind: A type or a union; bounds of a number are annotations.

    Raises:
        UsageError: The value has another type or is out of bounds.
    """
    if not any(_fits(value, one) for one in _choices(kind)):
        raise refused(owner, name, value, " or ".join(_words(msgspec.inspect.type_info(one), name) for one in _choices(kind)))


def refused(owner: str, name: str, value: object, wanted: str) -> UsageError:
    return UsageError(f"{owner}({name}={shown(value)}): it must be {wanted}.")


def shown(value: object) -> str:
    """Return the value's repr, shortened."""
    try:
        return f"{value!r:.80}"
    except Exception:
        return f"a {type(value).__name__}"


def _refuse_names(
    owner: str, of: Callable[..., Any], args: Sequence[object], given: Mapping[str, object], more: tuple[str, ...] = ()
) -> None:
    taken = {name: one for name, one in inspect.signature(of).parameters.items() if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)}
    named = [*(name for name in taken if name != "self"), *more]
    refuse_unknown(owner, given, named)
    unnamed = [name for name, one in taken.items() if one.kind is not one.KEYWORD_ONLY]
    if len(args) > len(unnamed):
        rest = ", ".join(f"{name}=..." for name in named if name not in unnamed)
        extra, last = args[len(unnamed)], args[len(unnamed) - 1]
        step = f" Give several {unnamed[-1]} in one list." if type(extra) is type(last) and not isinstance(extra, (str, list)) else ""
        raise UsageError(f"{owner} was given {shown(extra)} without a name. By name it takes {rest or 'nothing'}.{step}")
    here = {*unnamed[: len(args)], *given}
    missing = [name for name, one in taken.items() if one.default is one.empty and name not in here]
    if missing:
        raise UsageError(f"{owner} lacks {', '.join(missing)}. It takes {', '.join(named)}.")


@lru_cache(maxsize=256)
def _kinds(options: type[Options]) -> tuple[tuple[str, Any], ...]:
    return tuple((field.name, field.type) for field in msgspec.structs.fields(options))


def _choices(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _fits(value: object, kind: Any) -> bool:
    if get_origin(kind) is Callable:
        return callable(value)
    if isinstance(kind, type) and get_origin(kind) is None and kind not in _CONVERTED:
        return isinstance(value, kind)
    try:
        made = msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return isinstance(value, (int, float)) or not isinstance(made, float)  # a Decimal converts to float, but cannot be added to a time


def _words(info: Any, name: str = "") -> str:
    """Return the type in words."""
    known = msgspec.inspect
    match info:
        case known.NoneType():
            return "None"
        case known.BoolType():
            return "True or False"
        case known.StrType():
            return "text"
        case known.IntType():
            return f"a whole number{_bounds(info)}"
        case known.FloatType():
            finite, seconds = info.le == MOST, name.endswith("_s")
            return f"a {'finite ' if finite else ''}number{' of seconds' if seconds else ''}{_bounds(info)}"
        case known.LiteralType():
            return f"one of {', '.join(map(repr, info.values))}"
        case known.DictType():
            return f"a dict of {_plural(info.value_type)}"
        case known.ListType() | known.SetType() | known.FrozenSetType() | known.VarTupleType():
            return f"a list of {_plural(info.item_type)}"
    kind = getattr(info, "cls", object)
    return "a function" if kind is Callable else f"{'an' if kind.__name__[0] in 'AEIOU' else 'a'} {kind.__name__}"


def _plural(info: Any) -> str:
    words = _words(info)
    return {"text": "texts"}.get(words, words.replace("a list", "lists"))


def _bounds(info: Any) -> str:
    return f" from {info.ge:g}" if info.ge is not None else f" above {info.gt:g}" if info.gt is not None else ""
