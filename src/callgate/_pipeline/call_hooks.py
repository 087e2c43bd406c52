"""Run the user's hooks around one call.

If an observer fails, this is only recorded. If a transformer or rejecter fails, the call is denied or its
result withheld.

Hooks run at three points. Transformers and rejecters run before the policies, so that the policies judge
the final arguments. Observers run after the gate has allowed the call, right before the call starts. The
hooks after a call run after the result check, so that they see plain data. The value that a hook returns is
checked again. `host_code` awaits them.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from callgate._abort_signals import FAILURES
from callgate._json import canonical, decode, plain_bytes
from callgate._pipeline.host_code import HostAnswer, HostCode, RunsHostCode, failure_text
from callgate._pipeline.result_check import recheck
from callgate._pipeline.validate import ModifiedCall, modify_call
from callgate._secret_redaction import Redactor
from callgate.errors import CallDenied, CallFailed, ResultRejected
from callgate.hooks import Hook
from callgate.protocols import Execution
from callgate.stage_types import ApprovedCall, Checked, ValidatedCall
from callgate.tools import BoundTool

__all__ = ["HookChain", "hook_arguments", "hook_result", "observe_start"]


class HookChain(Struct, frozen=True):
    """The hooks of one tool, in the order in which they run."""

    before: tuple[Hook, ...]
    """The hooks that may change or refuse the arguments; they run before the policies."""
    observers: tuple[Hook, ...]
    """The hooks that only observe a call that is about to start."""
    after: tuple[Hook, ...]
    withholds: bool
    """Whether a hook after the call may change or withhold its result."""
    changes_by: str
    """The names of the hooks that may change the result. They are part of the cache key, because the result is stored
    as they leave it.
    """

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


async def hook_arguments(call: ValidatedCall, encoded: bytes, hooks: tuple[Hook, ...], host: RunsHostCode) -> ModifiedCall | None:
    """Run the hooks before the policies until one changes the arguments.

    Return the changed call; None if no hook changed it. Each hook gets a copy of the arguments. A change counts only if
    the hook returns it.

    Args:
        encoded: The arguments as canonical JSON.

    Raises:
        CallDenied: A rejecter refused the call, a rejecter or transformer failed, or the tool does not accept what a
            transformer returned.
    """
    ordered = plain_bytes(call.arguments)
    for hook in hooks:
        name = host.cut(hook.title)
        try:
            answer = await _ask(hook, host, replace(call, arguments=decode(ordered)))
            if hook.kind == "transform" and answer is not None and not isinstance(answer, Mapping):
                raise _HookBroken(f"it returned {type(answer).__name__} instead of arguments or None")
        except _HookBroken as broken:
            raise CallDenied(
                f"{call.name} was denied: the hook '{name}' failed ({broken}).", code="hook_failed", details={"hook": name}
            ) from broken
        if hook.kind == "reject" and answer:
            raise CallDenied(f"{call.name} was denied: {host.cut(answer)}", code="hook_denied", details={"hook": name})
        if hook.kind == "transform" and answer is not None:
            reason = f"the hook '{name}' changed the arguments"
            changed = modify_call(call, answer, reason, host, {"hook": name})
            if canonical(changed.arguments) != encoded:
                return ModifiedCall(call=changed, reason=reason, hook=name)
    return None


async def observe_start(approved: ApprovedCall, hooks: tuple[Hook, ...], host: RunsHostCode) -> None:
    """Call the observers with a call that is about to start. Each gets a copy."""
    for hook in hooks:
        await _ask(hook, host, replace(approved.call, arguments=decode(approved.arguments_json)))


async def hook_result(call: ValidatedCall, checked: Checked, hooks: tuple[Hook, ...], host: HostCode) -> Checked:
    """Run the hooks after a call, and return the result that the model may see.

    Each hook gets a copy of the result. A change counts only if the hook returns it.

    Raises:
        ResultRejected: A rejecter withheld the result, or a rejecter or transformer failed.
    """
    quietly = any(hook.kind != "observe" for hook in hooks)
    for hook in hooks:
        name = host.cut(hook.title)
        try:
            answer = await _ask(hook, host, call, _own_copy(checked), quietly=quietly)
            if hook.kind == "transform" and answer is not None:
                checked = await _transform_result(call, answer, checked, host)
        except _HookBroken as broken:
            raise ResultRejected(
                f"{call.name} ran, but its result is withheld: the hook '{name}' failed ({broken}). Do not repeat the call."
            ) from broken
        if hook.kind == "reject" and answer:
            raise ResultRejected(
                f"{call.name} ran, but the hook '{name}' withholds its result: {host.cut(answer)}. Do not repeat the call."
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
    """A transformer or rejecter failed. The message says how."""


async def _ask(hook: Hook, host: RunsHostCode, call: ValidatedCall, *result: Checked, quietly: bool = False) -> Any:
    """Return the hook's answer. If an observer fails, this is recorded, and None is returned.

    Args:
        quietly: Whether to leave out the texts of exceptions, which may quote a result that is to be changed or
            withheld.
    """
    try:
        answer = hook.run(call, *result)
        if not inspect.isawaitable(answer):
            return answer
    except FAILURES as error:
        outcome = HostAnswer(error=error)
    else:
        outcome = await host.ask(answer, hook.timeout_s or host.hook_timeout_s, hook.title)
    if outcome.error is None:
        return outcome.value
    if hook.kind != "observe":
        raise _HookBroken(failure_text(outcome.error, host, quietly)) from outcome.error
    host.hook_failed(hook, call, failure_text(outcome.error, host, quietly))
    return None


async def _transform_result(call: ValidatedCall, answer: object, before: Checked, host: HostCode) -> Checked:
    """Return the result as a transformer has changed it.

    The transformer returned a new value, the result with another value, or, for a failure, the result with another
    error text.
    """
    if not isinstance(answer, Checked):
        return _recheck_answer(call, await host.read(answer), before, host.redactor)
    if before.status == "ok":
        fresh = _recheck_answer(call, await host.read(answer.value), before, host.redactor)
        return replace(fresh, content=before.content, server_fields=before.server_fields) if answer.value == before.value else fresh
    after = before if answer.value == before.value else _recheck_answer(call, await host.read(answer.value), before, host.redactor)
    if answer.error != before.error:  # the fields may have what the hook removes from the text
        after = replace(after, server_fields=None)
    failure = await host.read({"error": answer.error, "details": answer.details})
    match failure.value:
        case {"error": str() as error, "details": None}:
            return replace(after, error=error, details=None)
        case {"error": str() as error, "details": dict() as details}:
            return replace(after, error=error, details=details)
    raise _HookBroken("it returned a failure whose error is not text, or whose details are not a JSON object")


def _recheck_answer(call: ValidatedCall, answer: Execution, before: Checked, redactor: Redactor | None) -> Checked:
    if answer.status != "returned":
        raise _HookBroken("what it returned could not be read in time")
    try:
        return recheck(call.tool, answer, before, redactor)
    except CallFailed as error:
        raise _HookBroken(f"it did not return a result: {error}") from error
