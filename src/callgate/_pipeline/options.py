"""Refuse what an engine could not work with, when it is made: a setting of another kind, a part that lacks a method, a class as a part.

Here, because it would otherwise show in the middle of a call, as a failed policy or a wait that never ends. Decides nothing about calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from callgate._limits import Limits
from callgate._options import Seconds, check
from callgate.errors import UsageError
from callgate.hooks import Hook
from callgate.protocols import CallJudge, Policy, RequiresJudge, Runner, WithTools
from callgate.tools import BoundTool, Tool

__all__ = ["check_parts", "check_policies", "check_settings", "hooks_of", "policies_of", "runners_of", "tools_of"]

T = TypeVar("T")

_KINDS: Mapping[str, Any] = {"limits": Limits, "timeout_s": Seconds | None, "run": str, "coerce": bool, "repair": bool}
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


def check_settings(process_limits: object, **settings: object) -> None:
    """Refuse settings that mean nothing, and words in the place of yes and no, because each of them would count as yes.

    Raises:
        UsageError: One of them is not of its kind.
    """
    if process_limits is not None:
        from callgate._runners.process import ProcessLimits

        check("Engine", "process_limits", process_limits, ProcessLimits)
    for name, value in settings.items():
        check("Engine", name, value, _KINDS[name])


def check_parts(**parts: object) -> None:
    """Refuse parts that cannot do what is asked of them. None is left out.

    Raises:
        UsageError: One lacks a method, or is a class.
    """
    for name, part in parts.items():
        if part is not None:
            _check_part(name, part, _PARTS[name])


def tools_of(tools: Iterable[Tool | type[Tool]]) -> tuple[Tool | type[Tool], ...]:
    """The tools, in order.

    Raises:
        UsageError: They are no list.
    """
    return _listed("tools", tools)


def policies_of(policies: Iterable[Policy | CallJudge]) -> tuple[Policy | CallJudge, ...]:
    """The policies, in order.

    Raises:
        UsageError: They are no list, one of them is no policy, or one wants calls judged and none is a judge.
    """
    found = _listed("policies", policies)
    for policy in found:
        _check_part("policies", policy, ("judge", "wants") if hasattr(policy, "wants") else ("decide",))
    judged = any(isinstance(policy, CallJudge) for policy in found)
    for policy in found:
        if not judged and isinstance(policy, RequiresJudge) and policy.judge_required_by:
            raise UsageError(
                f"{policy.judge_required_by} wants calls judged, and there is no judge. Add one: policies=[..., Judge(model)]."
            )
    return found


def check_policies(policies: Sequence[Policy | CallJudge], tools: Sequence[BoundTool]) -> None:
    """Refuse policies that name what these tools do not have.

    Raises:
        UsageError: One of them could never mean what it says.
    """
    for policy in policies:
        if isinstance(policy, WithTools):
            policy.check_tools(tools)


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


def _kind(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
