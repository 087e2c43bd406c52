"""Refuse what an engine could not work with, when it is made: a limit of nothing, a part that lacks a method, a class for an instance.

Here, because it would otherwise show in the middle of a call, as a failed policy or a wait that never ends. Decides nothing about calls.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

from callgate._limits import Limits
from callgate.errors import UsageError
from callgate.hooks import Hook
from callgate.protocols import Policy, Runner
from callgate.tools import Tool

__all__ = ["check_limits", "check_parts", "check_seconds", "check_settings", "hooks_of", "policies_of", "runners_of", "tools_of"]

T = TypeVar("T")

_LEAST = {
    "repair_bytes": 0,
    "result_inline_bytes": 0,
    "content_bytes": 512,
    "error_bytes": 1_024,
    "grace_s": 0,
    "dangerous_per_tick": 0,
    "soft_warn_iteration": 0,
    "remembered_calls": 0,
}
"""Where it is not 1; of times, where 0 will do."""
_PARTS: Mapping[str, tuple[str, ...]] = {
    "journal": ("append", "durable", "read", "close"),
    "blobs": ("put", "get"),
    "persistent_cache": ("get", "put", "drop_written", "close"),
    "redactor": ("redact",),
    "undo": ("begin", "finish", "leave_out"),
    "memory": ("follow", "close"),
    "restart": ("__call__",),
    "clock": ("monotonic", "wall_ns", "sleep", "jitter", "new_id"),
}
"""By the name of the option, what a part must be able to do."""


def check_limits(limits: object) -> None:
    """Refuse limits that are none.

    Raises:
        UsageError: It is no `Limits`, or one of its numbers is no number of its kind, or too small to work with.
    """
    if not isinstance(limits, Limits):
        raise UsageError(f"limits is of type {type(limits).__name__}. Give callgate.Limits(...), or leave it out for the defaults.")
    for field in msgspec.structs.fields(Limits):
        value, least = getattr(limits, field.name), _LEAST.get(field.name)
        if field.name.endswith("_s"):
            check_seconds(f"Limits.{field.name}", value, zero=least == 0)
        elif not (field.default is None and value is None) and not _is_whole(value, 1 if least is None else least):
            unless = ", or None for no limit" if field.default is None else ""
            raise UsageError(f"Limits.{field.name} is {value!r}; it must be a whole number from {1 if least is None else least}{unless}.")


def check_seconds(name: str, value: object, *, zero: bool = False) -> None:
    """Refuse what is no time to wait.

    Raises:
        UsageError: It is no finite number above 0, or from 0 where `zero` will do.
    """
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not 0 <= value < math.inf or (value == 0 and not zero):  # type: ignore[operator]
        raise UsageError(f"{name} is {value!r}; it must be a finite number of seconds {'from' if zero else 'above'} 0.")


def check_settings(*, limits: object, timeout_s: object, run: object, **flags: object) -> None:
    """Refuse settings that mean nothing. None is left out.

    Args:
        flags: Words in the place of yes and no are refused, because each of them would count as yes.

    Raises:
        UsageError: One of them is not of its kind.
    """
    check_limits(limits)
    if timeout_s is not None:
        check_seconds("Engine(timeout_s=...)", timeout_s)
    if not isinstance(run, str):
        raise UsageError(f"Engine(run={run!r:.80}): it must be text, or left out for a run of the engine's own.")
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise UsageError(f"Engine({name}={value!r}): it must be True or False.")


def check_parts(**parts: object) -> None:
    """Refuse parts that cannot do what is asked of them. None is left out.

    Raises:
        UsageError: One lacks a method, or is a class.
    """
    for name, part in parts.items():
        if part is not None:
            _check_part(name, part, _PARTS[name])


def tools_of(tools: Iterable[Tool]) -> tuple[Tool, ...]:
    """The tools, in order.

    Raises:
        UsageError: They are no list.
    """
    return _listed("tools", tools)


def policies_of(policies: Iterable[Policy]) -> tuple[Policy, ...]:
    """The policies, in order.

    Raises:
        UsageError: They are no list, or one of them is no policy.
    """
    found = _listed("policies", policies)
    for policy in found:
        _check_part("policies", policy, ("decide",))
    return found


def hooks_of(hooks: Iterable[Hook]) -> tuple[Hook, ...]:
    """The hooks, in order.

    Raises:
        UsageError: They are no list, or one of them is no hook.
    """
    found = _listed("hooks", hooks)
    for hook in found:
        if not isinstance(hook, Hook):
            raise UsageError(f"Engine(hooks=...) was given a {_kind(hook)}. Decorate the function with @before_call or @after_call.")
    return found


def runners_of(runners: Mapping[str, Runner] | None) -> dict[str, Runner]:
    """The host's own runners, by name.

    Raises:
        UsageError: They are no mapping, or one of them is no runner.
    """
    if runners is not None and not isinstance(runners, Mapping):
        raise UsageError(f"Engine(runners=...) was given a {_kind(runners)}; it must be a dict of them by the names that tools give.")
    found = dict(runners or {})
    for name, runner in found.items():
        if not isinstance(name, str):
            raise UsageError(f"Engine(runners=...) has the name {name!r:.80}; it must be text.")
        _check_part("runners", runner, ("run", "close"))
    return found


def _listed(name: str, given: Iterable[T]) -> tuple[T, ...]:
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
        raise UsageError(f"Engine({name}=...) was given a {_kind(given)}; it must be a list of them.")
    return tuple(given)


def _check_part(name: str, part: object, methods: tuple[str, ...]) -> None:
    if isinstance(part, type):
        raise UsageError(f"Engine({name}=...) was given the class {part.__name__}; it must be an instance. Write {part.__name__}(...).")
    missing = [method for method in methods if not callable(getattr(part, method, None))]
    if missing:
        raise UsageError(f"Engine({name}=...) was given a {_kind(part)}, which has no method {', '.join(missing)}.")


def _is_whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _kind(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
