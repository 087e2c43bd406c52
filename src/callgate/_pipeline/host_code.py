"""Run code of the host that is no tool: hooks, policies, judges, `verify`, and the restart handler.

Exceptions of this code, including `GeneratorExit` and `SystemExit`, end nothing else: `HostCode.ask` returns them as values. Code that does
not stop when its time is over is abandoned, so that it delays no other code. Its failures are logged for its author; the model and the
record only have their kind. Decides nothing.
"""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from callgate._abort_signals import FAILURES, AbortSignal
from callgate._engine_limits import Limits
from callgate._json import small_jsonable
from callgate._run_state.event_bodies import Reason
from callgate._run_state.recorder import Recorder
from callgate._runners.await_host_code import HostAnswer, HostAwaits, answer_in_thread
from callgate._runners.offload_to_threads import Offload
from callgate._runners.return_values import ReadingTimeout, ResultReader
from callgate._secret_redaction import Redactor
from callgate.errors import CallNotStarted
from callgate.events import Draft
from callgate.hooks import Hook
from callgate.protocols import Execution
from callgate.stage_types import ValidatedCall

__all__ = ["HostAnswer", "HostAwaits", "HostCode", "RunsHostCode", "describe_failure", "failure_text"]


class RunsHostCode(Protocol):
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


def describe_failure(error: BaseException, host: RunsHostCode) -> str:
    """Return how the host's code failed, as the end of a sentence about it."""
    return "took too long" if isinstance(error, TimeoutError) else f"failed with {failure_text(error, host, quietly=False)}"


def failure_text(error: BaseException, host: RunsHostCode, quietly: bool) -> str:
    """Return the type and the text of an exception.

    Args:
        quietly: Whether to leave out the text, which may quote a result that is to be changed or withheld.
    """
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
        """Return the answer of a plain function of the host, which runs in a thread; see `RunsHostCode`."""
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
