"""Run the user's hooks around one call: observers isolated, transformers and rejecters failing closed.

Stands at three places. Transformers and rejecters run before the policies, so that these judge final arguments. Observers run once the
gate has let the call through, right before it starts. The hooks after a call run after the check, so that they see plain data. What a
hook returns is checked again.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Awaitable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from callgate._abort_signals import FAILURES
from callgate._json import canonical, decode, plain_bytes
from callgate._pipeline.check import recheck
from callgate._pipeline.host_code import HostAnswer
from callgate._pipeline.validate import Modified, modified
from callgate._redact import Redactor
from callgate.errors import CallDenied, CallFailed, ResultRejected
from callgate.hooks import Hook
from callgate.protocols import Execution
from callgate.route import Checked, ValidatedCall
from callgate.tools import BoundTool

__all__ = ["HookChain", "hook_arguments", "hook_result", "observe_start"]


class HookDesk(Protocol):
    """What hooks need from the engine."""

    hook_timeout_s: float

    @property
    def redactor(self) -> Redactor | None: ...

    async def ask(self, answer: Awaitable[Any], timeout_s: float, name: str) -> HostAnswer: ...
    def hook_failed(self, hook: Hook, call: ValidatedCall, why: str) -> None: ...
    def cut(self, text: object, chars: int = ...) -> str:
        """The first characters of a text, redacted before it is cut."""
        ...


class ResultHookDesk(HookDesk, Protocol):
    """The same for hooks after a call."""

    async def read(self, value: object) -> Execution: ...


class HookChain(Struct, frozen=True):
    """The hooks of one tool, in the order they run."""

    before: tuple[Hook, ...]
    """May change or refuse the arguments: before the policies."""
    observers: tuple[Hook, ...]
    """See a call that is about to start."""
    after: tuple[Hook, ...]
    withholds: bool
    """Whether one of those after a call may change its result or keep it back."""
    changes_by: str
    """The names of those that may change its result; what they made of it is kept under these alone."""

    @classmethod
    def of(cls, hooks: Iterable[Hook], tool: BoundTool) -> HookChain:
        mine = sorted((hook for hook in hooks if hook.matches(tool)), key=lambda hook: hook.priority)
        before, after = (tuple(hook for hook in mine if hook.phase == phase) for phase in ("before", "after"))
        return cls(
            before=tuple(hook for hook in before if hook.kind != "observe"),
            observers=tuple(hook for hook in before if hook.kind == "observe"),
            after=after,
            withholds=any(hook.kind != "observe" for hook in after),
            changes_by="\x00".join(hook.title for hook in after if hook.kind == "transform"),
        )


async def hook_arguments(call: ValidatedCall, encoded: bytes, hooks: tuple[Hook, ...], desk: HookDesk) -> Modified | None:
    """Run the hooks before the policies until one changes the arguments; return the call with these, or None where nobody did.

    Each hook gets a copy of its own: what it does to the arguments counts only if it returns them.

    Args:
        encoded: The arguments as canonical JSON.

    Raises:
        CallDenied: A rejecter refused, a rejecter or transformer broke, or the tool does not accept what a transformer returned.
    """
    for hook in hooks:
        name = desk.cut(hook.title)
        try:
            answer = await _ask(hook, desk, replace(call, arguments=decode(encoded)))
            if hook.kind == "transform" and answer is not None and not isinstance(answer, Mapping):
                raise _HookBroken(f"it returned {type(answer).__name__} instead of arguments or None")
        except _HookBroken as broken:
            raise CallDenied(
                f"{call.name} was denied: the hook '{name}' failed ({broken}).", code="hook_failed", details={"hook": name}
            ) from broken
        if hook.kind == "reject" and answer:
            raise CallDenied(f"{call.name} was denied: {desk.cut(answer)}", code="hook_denied", details={"hook": name})
        if hook.kind == "transform" and answer is not None:
            reason = f"the hook '{name}' changed the arguments"
            changed = modified(call, answer, reason, desk, {"hook": name})
            if canonical(changed.arguments) != encoded:
                return Modified(call=changed, reason=reason, hook=name)
    return None


async def observe_start(call: ValidatedCall, encoded: bytes, hooks: tuple[Hook, ...], desk: HookDesk) -> None:
    """Show a call that is about to start to the hooks that only observe; each gets a copy of its own.

    Args:
        encoded: The final arguments as canonical JSON.
    """
    for hook in hooks:
        await _ask(hook, desk, replace(call, arguments=decode(encoded)))


async def hook_result(call: ValidatedCall, checked: Checked, hooks: tuple[Hook, ...], desk: ResultHookDesk) -> Checked:
    """Run the hooks after a call and return what the model may see.

    Each hook gets a copy of its own: what it does to the result counts only if it returns it.

    Raises:
        ResultRejected: A rejecter kept the result back, or a rejecter or transformer broke.
    """
    quietly = any(hook.kind != "observe" for hook in hooks)
    for hook in hooks:
        name = desk.cut(hook.title)
        try:
            answer = await _ask(hook, desk, call, _own_copy(checked), quietly=quietly)
            if hook.kind == "transform" and answer is not None:
                checked = await _replaced(call, answer, checked, desk)
        except _HookBroken as broken:
            raise ResultRejected(
                f"{call.name} ran, but its result is withheld: the hook '{name}' failed ({broken}). Do not repeat the call."
            ) from broken
        if hook.kind == "reject" and answer:
            raise ResultRejected(
                f"{call.name} ran, but the hook '{name}' withholds its result: {desk.cut(answer)}. Do not repeat the call."
            )
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


async def _ask(hook: Hook, desk: HookDesk, call: ValidatedCall, *result: Checked, quietly: bool = False) -> Any:
    """The hook's answer; None from an observer that broke, which is recorded and changes nothing.

    Args:
        quietly: Tell nothing that an exception says: it may quote a result that is to be changed or withheld.
    """
    try:
        answer = hook.run(call, *result)
        if not inspect.isawaitable(answer):
            return answer
    except FAILURES as error:
        found = HostAnswer(error=error)
    else:
        found = await desk.ask(answer, hook.timeout_s or desk.hook_timeout_s, hook.title)
    if found.error is None:
        return found.value
    if hook.kind != "observe":
        raise _HookBroken(_why(found.error, desk, quietly)) from found.error
    desk.hook_failed(hook, call, _why(found.error, desk, quietly))
    return None


async def _replaced(call: ValidatedCall, answer: object, before: Checked, desk: ResultHookDesk) -> Checked:
    """What a transformer put in a result's place: a value; or the result itself, with another value, or for a failure another text."""
    if not isinstance(answer, Checked):
        return _rechecked(call, await desk.read(answer), before, desk.redactor)
    if before.status == "ok":
        return _rechecked(call, await desk.read(answer.value), before, desk.redactor)
    after = before if answer.value == before.value else _rechecked(call, await desk.read(answer.value), before, desk.redactor)
    told = await desk.read({"error": answer.error, "details": answer.details})
    match told.value:
        case {"error": str() as error, "details": None}:
            return replace(after, error=error, details=None)
        case {"error": str() as error, "details": dict() as details}:
            return replace(after, error=error, details=details)
    raise _HookBroken("it returned a failure whose error is no text, or whose details are no JSON object")


def _rechecked(call: ValidatedCall, answer: Execution, before: Checked, redactor: Redactor | None) -> Checked:
    if answer.status != "returned":
        raise _HookBroken("what it returned could not be read in time")
    try:
        return recheck(call.tool, answer, before, redactor)
    except CallFailed as error:
        raise _HookBroken(f"what it returned is no result: {error}") from error


def _why(error: BaseException, desk: HookDesk, quietly: bool) -> str:
    if isinstance(error, TimeoutError):
        return "it took too long"
    if quietly:
        raised = traceback.extract_tb(error.__traceback__)[-1:]
        return desk.cut(f"{type(error).__name__}{''.join(f' in {Path(one.filename).name}:{one.lineno}' for one in raised)}", 200)
    try:
        return desk.cut(f"{type(error).__name__}: {error}", 200)
    except FAILURES:
        return type(error).__name__
