"""Hooks: the user's own code around a call, in a fixed place and with bounded power.

A hook observes, transforms or rejects, before or after the call. Observers are isolated: one that breaks is recorded and changes
nothing. Transformers and rejecters fail closed: one that breaks refuses the call, or keeps its result from the model. They run in
order of priority, the smallest first, then in the order they were given. Knows nothing of policies or runners.
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any, Literal

from msgspec import Struct

from callgate.calls import Category, Effect
from callgate.tools import BoundTool

__all__ = ["Hook", "after_call", "before_call"]

Kind = Literal["observe", "transform", "reject"]


class Hook(Struct, frozen=True, kw_only=True):
    """One hook. `run` may be a plain or an async function.

    Before a call, `run(call)` gets the `ValidatedCall`; a transformer returns new arguments or None, a rejecter the reason or None.
    After it, `run(call, result)` gets the `Checked` result as well; a transformer returns the new value or None for no change, a
    rejecter the reason why the model must not see it, or None.
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
    """None: the engine's limit. A plain function cannot be interrupted; keep it short."""
    name: str = ""

    @property
    def title(self) -> str:
        return self.name or getattr(self.run, "__qualname__", "hook")

    def matches(self, tool: BoundTool) -> bool:
        return (
            tool.effect in self.effects
            and tool.category in self.categories
            and any(fnmatchcase(tool.name, pattern) for pattern in self.tools)
        )


Decorator = Callable[[Callable[..., Any]], Hook]


def before_call(*tools: str, kind: Kind = "observe", priority: int = 100, timeout_s: float | None = None) -> Decorator:
    """Make the decorated function a hook before the calls of these tools (patterns; none given: all)."""
    return lambda run: Hook(run=run, phase="before", kind=kind, tools=tools or ("*",), priority=priority, timeout_s=timeout_s)


def after_call(*tools: str, kind: Kind = "observe", priority: int = 100, timeout_s: float | None = None) -> Decorator:
    """Make the decorated function a hook after the calls of these tools (patterns; none given: all)."""
    return lambda run: Hook(run=run, phase="after", kind=kind, tools=tools or ("*",), priority=priority, timeout_s=timeout_s)
