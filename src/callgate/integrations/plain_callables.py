"""Plain callables as functions that `@tool` can read: functions, methods, `functools.partial`, and objects with `__call__`.

What a partial has bound is not an argument of the tool. An object's tool is named after its class. Must not know of frameworks.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import partial, update_wrapper
from types import MethodType
from typing import Any, get_type_hints

from callgate.errors import UsageError

__all__ = ["as_function"]

_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def as_function(item: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function or method with the callable's signature, name and docstring.

    Raises:
        UsageError: It is a method without its object.
    """
    if isinstance(item, partial):
        return _unwrap_partial(item)
    if inspect.isroutine(item):
        _refuse_method_alone(item)
        return item
    call = type(item).__call__
    if not inspect.isroutine(call):  # a property that returns a function
        return as_function(getattr(item, "__call__"))  # noqa: B004, B009
    function = _wrap_call(call, call)
    function.__name__ = function.__qualname__ = _WORD.sub("_", type(item).__name__).lower()
    function.__doc__ = call.__doc__ or type(item).__doc__
    return MethodType(function, item)


def _refuse_method_alone(item: Callable[..., Any]) -> None:
    owner, _, name = getattr(item, "__qualname__", "").rpartition(".")
    if not inspect.isfunction(item) or not owner or owner.endswith("<locals>"):
        return
    if next(iter(inspect.signature(item).parameters), "") == "self":
        owner = owner.rpartition(".")[2]
        raise UsageError(f"import_tools was given the method {owner}.{name} without its object. Give {owner}(...).{name}.")


def _unwrap_partial(item: partial[Any]) -> Callable[..., Any]:
    """Return a function whose parameters are those that the partial has not bound."""
    inner = as_function(item.func)
    given = inspect.signature(item).parameters.values()
    hints = get_type_hints(inner, include_extras=True)
    typed = [one.replace(annotation=hints.get(one.name, one.annotation)) for one in given if one.name not in item.keywords]
    returns = hints.get("return", inspect.Signature.empty)
    function = _wrap_call(item, inner)
    function.__signature__ = inspect.Signature(typed, return_annotation=returns)
    function.__annotations__ = {one.name: one.annotation for one in typed if one.annotation is not one.empty}
    if returns is not inspect.Signature.empty:
        function.__annotations__["return"] = returns
    made: Callable[..., Any] = function
    return made


def _wrap_call(call: Callable[..., Any], like: Callable[..., Any]) -> Any:
    """Return a function that makes this call, async if it is, with the name, docstring and place of another function."""
    if inspect.iscoroutinefunction(call):

        async def made_async(*args: Any, **kwargs: Any) -> Any:
            return await call(*args, **kwargs)

        return update_wrapper(made_async, like)

    def made_sync(*args: Any, **kwargs: Any) -> Any:
        return call(*args, **kwargs)

    return update_wrapper(made_sync, like)
