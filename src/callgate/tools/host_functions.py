"""Check the functions that a tool's author declares beside the tool, such as `key=` and `requires_approval=`, when the tool is registered.

They get all arguments of a call as one mapping. A function with a parameter for each argument would be called with the mapping and the
scope instead, and fail at every call. Pure.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection

from callgate.errors import UsageError

__all__ = ["refuse_argument_names"]

_MAPPINGS = frozenset({"arguments", "args", "params", "parameters", "call", "scope", "values", "kwargs"})
"""Usual names for the mapping and the scope, which a tool's own argument may have, too."""


def refuse_argument_names(declared: Callable[..., object], arguments: Collection[str], role: str, where: str, example: str) -> None:
    """Raise `UsageError` if a function takes single arguments of its tool.

    Args:
        arguments: The names of the tool's arguments.
        role: The option, as `key`.
        example: How to write the function.
    """
    try:
        signature = inspect.signature(declared)
    except (TypeError, ValueError):
        return
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    taken = [one.name for one in signature.parameters.values() if one.kind in kinds and one.default is one.empty]
    mistaken = [name for name in taken if name in arguments and name not in _MAPPINGS]
    if mistaken:
        raise UsageError(
            f"{where} has {role}={declared!r:.80}, which takes {', '.join(mistaken)[:120]}; it is called with all arguments as one dict."
            f" Write it as {example}."
        )
