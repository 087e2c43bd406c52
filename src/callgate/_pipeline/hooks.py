"""Run the user's hooks around one call: observers isolated, transformers and rejecters failing closed.

Stands at two places: before the policies, so that they judge final arguments, and after the check, so that hooks see plain data. What
a hook returns is checked again by the caller of this module.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Iterable, Mapping
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from callgate._json import canonical, decode, plain_bytes
from callgate._pipeline.check import recheck
from callgate._pipeline.host_code import Answer
from callgate._pipeline.validate import modified
from callgate._signals import FAILURES
from callgate.errors import CallDenied, CallFailed, ResultRejected
from callgate.hooks import Hook
from callgate.protocols import Execution
from callgate.route import Checked, ValidatedCall
from callgate.tools import BoundTool

__all__ = ["HookChain", "hook_arguments", "hook_result"]


class HookDesk(Protocol):
    """What hooks need from the engine."""

    hook_timeout_s: float

    async def ask(self, answer: Awaitable[Any], timeout_s: float, name: str) -> Answer: ...
    def hook_failed(self, hook: Hook, why: str) -> None: ...
    def cut(self, text: object, chars: int = ...) -> str:
        """The first characters of a text, redacted before it is cut."""
        ...


class ResultHookDesk(HookDesk, Protocol):
    """The same for hooks after a call."""

    async def read(self, value: object) -> Execution: ...


class HookChain(Struct, frozen=True):
    """The hooks of one tool, in the order they run."""

    before: tuple[Hook, ...]
    after: tuple[Hook, ...]

    @classmethod
    def of(cls, hooks: Iterable[Hook], tool: BoundTool) -> HookChain:
        mine = sorted((hook for hook in hooks if hook.matches(tool)), key=lambda hook: hook.priority)
        return cls(tuple(h for h in mine if h.phase == "before"), tuple(h for h in mine if h.phase == "after"))


async def hook_arguments(call: ValidatedCall, encoded: bytes, hooks: tuple[Hook, ...], desk: HookDesk) -> ValidatedCall | None:
    """Run the hooks before a call until one changes the arguments; return the call with these, or None where nobody did.

    Each hook gets a copy of its own: what it does to the arguments counts only if it returns them.

    Args:
        encoded: The arguments as canonical JSON.

    Raises:
        CallDenied: A rejecter refused, a rejecter or transformer broke, or the tool does not accept what a transformer returned.
    """
    for hook in hooks:
        try:
            answer = await _ask(hook, desk, replace(call, arguments=decode(encoded)))
            if hook.kind == "transform" and answer is not None and not isinstance(answer, Mapping):
                raise _HookBroken(f"it returned {type(answer).__name__} instead of arguments or None")
        except _HookBroken as broken:
            raise CallDenied(
                f"{call.name} was denied: the hook '{desk.cut(hook.title)}' failed ({broken}).", code="hook_failed"
            ) from broken
        if hook.kind == "reject" and answer:
            raise CallDenied(f"{call.name} was denied: {desk.cut(answer)}", code="hook_denied")
        if hook.kind == "transform" and answer is not None:
            changed = modified(call, answer, f"the hook '{desk.cut(hook.title)}' changed the arguments", desk.cut)
            if canonical(changed.arguments) != encoded:
                return changed
    return None


async def hook_result(call: ValidatedCall, checked: Checked, hooks: tuple[Hook, ...], desk: ResultHookDesk) -> Checked:
    """Run the hooks after a call and return what the model may see.

    Each hook gets a copy of its own: what it does to the result counts only if it returns it.

    Raises:
        ResultRejected: A rejecter kept the result back, or a rejecter or transformer broke.
    """
    for hook in hooks:
        try:
            answer = await _ask(hook, desk, call, _own_copy(checked))
            if hook.kind == "transform" and answer is not None:
                checked = _rechecked(call, await desk.read(answer), checked)
        except _HookBroken as broken:
            raise ResultRejected(
                f"{call.name} ran, but its result is withheld: the hook '{desk.cut(hook.title)}' failed ({broken}). Do not repeat the call."
            ) from broken
        if hook.kind == "reject" and answer:
            raise ResultRejected(f"{call.name} ran, but its result is withheld: {desk.cut(answer)}. Do not repeat the call.")
    return checked


def _own_copy(checked: Checked) -> Checked:
    if not isinstance(checked.value, (dict, list)) and checked.details is None:
        return checked
    return replace(
        checked,
        value=decode(plain_bytes(checked.value)),
        image_metadata=decode(plain_bytes(checked.image_metadata)),
        details=None if checked.details is None else dict(checked.details),
    )


class _HookBroken(Exception):
    """A transformer or rejecter failed; says how."""


async def _ask(hook: Hook, desk: HookDesk, *values: Any) -> Any:
    """The hook's answer; None from an observer that broke, which is recorded and changes nothing."""
    try:
        answer = hook.run(*values)
        if not inspect.isawaitable(answer):
            return answer
    except FAILURES as error:
        found = Answer(error=error)
    else:
        found = await desk.ask(answer, hook.timeout_s or desk.hook_timeout_s, hook.title)
    if found.error is None:
        return found.value
    if hook.kind != "observe":
        raise _HookBroken(_why(found.error, desk)) from found.error
    desk.hook_failed(hook, _why(found.error, desk))
    return None


def _rechecked(call: ValidatedCall, answer: Execution, before: Checked) -> Checked:
    if answer.status != "returned":
        raise _HookBroken("what it returned could not be read in time")
    try:
        return recheck(call.tool, answer, before)
    except CallFailed as error:
        raise _HookBroken(f"what it returned is no result: {error}") from error


def _why(error: BaseException, desk: HookDesk) -> str:
    if isinstance(error, TimeoutError):
        return "it took too long"
    try:
        return desk.cut(f"{type(error).__name__}: {error}", 200)
    except FAILURES:
        return type(error).__name__
