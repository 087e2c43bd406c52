"""Hooks: the user's own code before and after calls.

A hook observes, transforms or rejects, before or after the call. An observer that fails is recorded and changes nothing. A transformer or
rejecter that fails refuses the call or withholds its result. Hooks run in order of priority, the smallest first, then in the given order.
Knows nothing of policies or runners.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Literal, get_args

from callgate._globs import glob_regex
from callgate._option_checks import NamedStruct, by_name
from callgate.calls import Category, Effect
from callgate.errors import UsageError
from callgate.tools import BoundTool

__all__ = ["Hook", "after_call", "before_call"]

Kind = Literal["observe", "transform", "reject"]


class Hook(NamedStruct, frozen=True, kw_only=True):
    """One hook. `run` may be a plain or an async function.

    Before a call, `run(call)` gets the `ValidatedCall`. A transformer returns new arguments or None, a rejecter the reason or None. After a
    call, `run(call, result)` gets the `Checked` result as well. A transformer returns the new value, None for no change, the result with
    another `value`, or, for a failure, the result with another `error` and `details` (`msgspec.structs.replace`). A rejecter returns the
    reason why the model must not see the result, or None.
    """

    run: Callable[..., Any]
    phase: Literal["before", "after"]
    kind: Kind = "observe"
    tools: tuple[str, ...] = ("*",)
    """Shell patterns of tool names."""
    effects: tuple[Effect, ...] = ("none", "idempotent", "once")
    categories: tuple[Category, ...] = ("safe_chain", "terminal", "dangerous", "async_required")
    priority: int = 100
    timeout_s: float | None = None
    """Seconds; None for the engine's limit. A plain function cannot be interrupted, so it should be short."""
    name: str = ""

    def __post_init__(self) -> None:
        if not callable(self.run):
            raise UsageError(
                f"A hook was given {self.run!r:.80}, which is not a function. Decorate one with @before_call() or @after_call()."
            )
        for name, value, allowed in (("phase", self.phase, ("before", "after")), ("kind", self.kind, ("observe", "transform", "reject"))):
            if value not in allowed:
                raise self._invalid_value(name, value, f"one of {', '.join(map(repr, allowed))}")
        if not isinstance(self.priority, int):
            raise self._invalid_value("priority", self.priority, "a whole number")
        self._check_matches()
        seconds = self.timeout_s
        if seconds is not None and not (isinstance(seconds, (int, float)) and 0 < seconds < math.inf):
            raise self._invalid_value("timeout_s", seconds, "a finite number of seconds above 0, or None")

    def _check_matches(self) -> None:
        """Refuse patterns that match nothing, because such a guard would silently let every call pass."""
        if not _is_several(self.tools) or not all(isinstance(pattern, str) for pattern in self.tools):
            raise self._invalid_value("tools", self.tools, "a tuple of shell patterns, like ('pay',) or ('read_*', 'grep')")
        for name, value, allowed in (("effects", self.effects, get_args(Effect)), ("categories", self.categories, get_args(Category))):
            if not _is_several(value) or any(one not in allowed for one in value):
                raise self._invalid_value(name, value, f"a tuple of {', '.join(map(repr, allowed))}")

    def _invalid_value(self, name: str, value: object, wanted: str) -> UsageError:
        return UsageError(f"The hook '{self.title}' has {name}={value!r:.80}; it must be {wanted}.")

    @property
    def title(self) -> str:
        return self.name or getattr(self.run, "__qualname__", "hook")

    def matches(self, tool: BoundTool) -> bool:
        return (
            tool.effect in self.effects
            and tool.category in self.categories
            and any(re.match(glob_regex(pattern), tool.name) for pattern in self.tools)
        )


def _is_several(value: object) -> bool:
    return isinstance(value, (tuple, list, set, frozenset)) and bool(value)


Decorator = Callable[[Callable[..., Any]], Hook]


@by_name
def before_call(*tools: str, kind: Kind = "observe", priority: int = 100, timeout_s: float | None = None) -> Decorator:
    """Make the decorated function a hook before the calls of these tools (patterns; all tools if none is given).

    Raises:
        UsageError: A pattern is not text, for example because the parentheses after the decorator are missing.
    """
    _check_patterns("before_call", tools)
    return lambda run: Hook(run=run, phase="before", kind=kind, tools=tools or ("*",), priority=priority, timeout_s=timeout_s)


@by_name
def after_call(*tools: str, kind: Kind = "observe", priority: int = 100, timeout_s: float | None = None) -> Decorator:
    """Make the decorated function a hook after the calls of these tools (patterns; all tools if none is given).

    Raises:
        UsageError: See `before_call`.
    """
    _check_patterns("after_call", tools)
    return lambda run: Hook(run=run, phase="after", kind=kind, tools=tools or ("*",), priority=priority, timeout_s=timeout_s)


def _check_patterns(decorator: str, tools: tuple[object, ...]) -> None:
    for one in tools:
        if not isinstance(one, str):
            raise UsageError(f"@{decorator} was given {one!r:.80} as a tool's name. Write @{decorator}() for all tools, or their names.")
