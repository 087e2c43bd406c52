"""Run the user's hooks around one call.

If an observer fails, this is only recorded. If a transformer or rejecter fails, the call is denied or its
result withheld.

Hooks run at three points. Transformers and rejecters run before the policies, so that the policies judge
the final arguments. Observers run after the gate has allowed the call, right before the call starts. The
hooks after a call run after the result check, so that they see plain data. The value that a hook returns is
checked again.

`HostCode` awaits all code of the host, including policies and the restart handler. Exceptions of this code,
including `GeneratorExit` and `SystemExit`, end nothing else: `HostCode.ask` returns them as values. Code
that does not stop when its time is over is abandoned, so that it delays no other code.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from callgate._abort_signals import FAILURES, AbortSignal
from callgate._engine_limits import Limits
from callgate._json import canonical, decode, plain_bytes, small_jsonable
from callgate._pipeline.result_check import recheck
from callgate._pipeline.validate import ModifiedCall, modify_call
from callgate._run_state.event_bodies import Reason
from callgate._run_state.recorder import Recorder
from callgate._runners.await_host_code import HostAnswer, HostAwaits, answer_in_thread
from callgate._runners.offload_to_threads import Offload
from callgate._runners.return_values import ReadingTimeout, ResultReader
from callgate._secret_redaction import Redactor
from callgate.errors import CallDenied, CallFailed, CallNotStarted, ResultRejected
from callgate.events import Draft
from callgate.hooks import Hook
from callgate.protocols import Execution
from callgate.stage_types import ApprovedCall, Checked, ValidatedCall
from callgate.tools import BoundTool

__all__ = [
    "HookChain",
    "HookHost",
    "HostAnswer",
    "HostAwaits",
    "HostCode",
    "describe_failure",
    "failure_text",
    "hook_arguments",
    "hook_result",
    "observe_start",
]


class HookHost(Protocol):
    """Runs the host's code."""

    @property
    def hook_timeout_s(self) -> float: ...
    @property
    def redactor(self) -> Redactor | None: ...

    async def ask(self, answer: Awaitable[Any], timeout_s: float, name: str) -> HostAnswer: ...
    async def in_thread(self, work: Callable[[], Any], timeout_s: float) -> HostAnswer:
        """Return the answer of a plain function, which must not block the event loop; a `TimeoutError` if it takes too long."""
        ...

    def hook_failed(self, hook: Hook, call: ValidatedCall, why: str) -> None: ...
    def approval_check_failed(self, call: ValidatedCall, why: str, error: BaseException) -> None:
        """Log that a tool's `requires_approval` failed."""
        ...

    def policy_failed(self, call: ValidatedCall, why: str, error: BaseException) -> None:
        """Log why a policy gave no verdict."""
        ...

    def cut(self, text: object, chars: int = ...) -> str:
        """Return the first characters of a text. It is redacted before it is cut."""
        ...


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


async def hook_arguments(call: ValidatedCall, encoded: bytes, hooks: tuple[Hook, ...], host: HookHost) -> ModifiedCall | None:
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


async def observe_start(approved: ApprovedCall, hooks: tuple[Hook, ...], host: HookHost) -> None:
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


async def _ask(hook: Hook, host: HookHost, call: ValidatedCall, *result: Checked, quietly: bool = False) -> Any:
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
        found = HostAnswer(error=error)
    else:
        found = await host.ask(answer, hook.timeout_s or host.hook_timeout_s, hook.title)
    if found.error is None:
        return found.value
    if hook.kind != "observe":
        raise _HookBroken(failure_text(found.error, host, quietly)) from found.error
    host.hook_failed(hook, call, failure_text(found.error, host, quietly))
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
    told = await host.read({"error": answer.error, "details": answer.details})
    match told.value:
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


def describe_failure(error: BaseException, host: HookHost) -> str:
    """Return how the host's code failed, as the end of a sentence about it."""
    return "took too long" if isinstance(error, TimeoutError) else f"failed with {failure_text(error, host, quietly=False)}"


def failure_text(error: BaseException, host: HookHost, quietly: bool) -> str:
    """Return the type and the text of an exception; see `_ask`."""
    if isinstance(error, TimeoutError):
        return "it took too long"
    if quietly:
        raised = traceback.extract_tb(error.__traceback__)[-1:]
        return host.cut(f"{type(error).__name__}{''.join(f' in {Path(one.filename).name}:{one.lineno}' for one in raised)}", 200)
    try:
        return host.cut(f"{type(error).__name__}: {error}", 200)
    except FAILURES:
        return type(error).__name__


_T = TypeVar("_T")


class HostCode:
    """Runs the host's code for one engine, and reads what it returns. Belongs to one event loop.

    Args:
        recorder: Records failures.
        reader: Reads values that are large or have code of their own.
        offload: Runs plain functions in threads.
        limits: `hook_timeout_s` limits hooks without a timeout of their own; `grace_s` is the time between telling code
            to stop and abandoning it.
    """

    def __init__(self, recorder: Recorder, reader: ResultReader, offload: Offload, limits: Limits) -> None:
        self._guards = HostAwaits()
        self._offload = offload
        self._recorder = recorder
        self._reader = reader
        self._grace_s = limits.grace_s
        self.hook_timeout_s = limits.hook_timeout_s
        self.redactor = recorder.redactor
        self.cut = recorder.cut

    def hook_failed(self, hook: Hook, call: ValidatedCall, why: str) -> None:
        """Record that an observer failed."""
        self._recorder.log.warning("The hook %r failed on %s: %s", hook.title, call.uid, why)
        body = Reason(reason=why, details={"hook": self.cut(hook.title)})
        self._recorder.write(Draft(kind="hook.failed", run="hooks", body=body, call=call.uid))

    def approval_check_failed(self, call: ValidatedCall, why: str, error: BaseException) -> None:
        """Log that a tool's `requires_approval` failed, for the tool's author: a human is asked about every such call."""
        self._recorder.log.warning("The requires_approval of %s %s, so a human is asked about %s", call.tool.name, why, call.uid)
        self._recorder.log.debug("The requires_approval of %s failed", call.tool.name, error=error)

    def policy_failed(self, call: ValidatedCall, why: str, error: BaseException) -> None:
        """Log why a policy gave no verdict, for its author: the model and the record only have the kind of the failure."""
        self._recorder.log.warning("A policy %s, so %s (%s) was denied", why, call.uid, call.name)
        self._recorder.log.debug("A policy failed on %s", call.uid, error=error)

    async def read(self, value: object) -> Execution:
        """Read a value that a hook or `verify` returned, as a tool's result is read, within the timeout of a hook."""
        small = small_jsonable(value, self._reader.max_bytes)
        if small is not None:
            return Execution(status="returned", value=small[0], read=True, changes=small[1])
        read = await self._reader.read(Execution(status="returned", value=value), ReadingTimeout(self.hook_timeout_s, AbortSignal()))
        return self._recorder.limit_texts(read) if read.error else read

    async def ask(self, answer: Awaitable[Any], timeout_s: float, name: str) -> HostAnswer:
        """Return the answer of the host's code; see `HostAwaits.ask`."""
        return await self._guards.ask(answer, timeout_s=timeout_s, grace_s=self._grace_s, name=name)

    async def in_thread(self, work: Callable[[], Any], timeout_s: float) -> HostAnswer:
        """Return the answer of a plain function of the host, which runs in a thread; see `HookHost`."""
        return await answer_in_thread(self._offload, work, timeout_s)

    async def unless_killed(self, answer: Awaitable[_T], kill: AbortSignal, name: str) -> _T:
        """Return the result of `answer`, or raise its exception, unless `kill` fires first.

        Raises:
            CallNotStarted: `kill` has fired.
        """
        found = await self._guards.ask(answer, grace_s=self._grace_s, name=name, kill=kill)
        if found.error is None:
            return found.value  # type: ignore[no-any-return]
        if kill.reason is not None and isinstance(found.error, TimeoutError):
            raise CallNotStarted.because(kill.reason) from found.error
        raise found.error

    async def close(self) -> None:
        """Cancel abandoned code once more."""
        await self._guards.close()
