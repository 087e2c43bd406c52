"""Await the host's coroutines with a deadline and a kill signal, as tools are awaited.

The coroutine runs in the caller's task; if it does not stop within the grace period, it is abandoned. Exceptions of the host's code,
including `GeneratorExit` and `SystemExit`, end nothing else. Uses `CoroutineDriver`. Must not know what the coroutine does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context, copy_context
from typing import Any, TypeVar, cast

from msgspec import Struct

from callgate._abort_signals import FAILURES, AbortSignal
from callgate._deadlines import Deadlines
from callgate._runners.abandoned_code import AbandonedCode
from callgate._runners.coroutine_driver import CoroutineDriver, first_step
from callgate._runners.offload_to_threads import Offload, WorkAbandoned
from callgate._runners.return_values import ReadingTimeout
from callgate._runners.started_tasks import RUNNING_TOOLS
from callgate.protocols import Execution, RunRequest

__all__ = ["HostAnswer", "HostAwaits", "answer_in_thread"]

_FOREVER_S = 1e9
_T = TypeVar("_T")


class HostAnswer(Struct, frozen=True):
    """The value that the host's code returned, or the exception that it raised."""

    value: Any = None
    error: BaseException | None = None


class _HostContext(Struct, frozen=True):
    """The fields of a `ToolContext` that `CoroutineDriver` uses."""

    uid: str
    human_time: None = None


class _HostAwait(Struct, frozen=True, eq=False):
    """The fields of a `RunRequest` that `CoroutineDriver` uses."""

    kill: AbortSignal
    grace_s: float
    context: _HostContext
    timeout_s: float
    not_done: tuple[type[BaseException], ...] = ()


class HostAwaits:
    """Awaits host code on one event loop, and keeps what did not stop."""

    __slots__ = ("_abandoned_code", "_deadlines")

    def __init__(self) -> None:
        self._abandoned_code = AbandonedCode()
        self._deadlines = Deadlines()

    async def run(
        self,
        coro: Coroutine[Any, Any, _T],
        kill: AbortSignal,
        *,
        grace_s: float,
        name: str,
        timeout_s: float = _FOREVER_S,
        on_wait: Callable[[], None] | None = None,
    ) -> _T | None:
        """Return the result of `coro`, or None if `kill` or the timeout ended it. `coro` must return its errors as values.

        `on_wait` is called when the coroutine suspends for the first time; one that never does needs no timer.
        """
        request: Any = _HostAwait(kill, grace_s, _HostContext(name), timeout_s)  # has what the driver uses of a `RunRequest`
        context = copy_context()
        begun = context.run(first_step, request, coro)
        if isinstance(begun, Execution):
            return begun.value  # type: ignore[return-value]
        if on_wait is not None:
            on_wait()
        execution = await CoroutineDriver(request, *begun, context, self._abandoned_code, self._deadlines)
        return cast("_T", execution.value) if execution.status == "returned" else None

    async def ask(
        self, answer: Awaitable[Any], *, grace_s: float, name: str, timeout_s: float = _FOREVER_S, kill: AbortSignal | None = None
    ) -> HostAnswer:
        """Return the result of the host's code; after the timeout or `kill`, the error is a `TimeoutError`.

        Context variables that it sets stay set, as with `await`.
        """
        request = cast("RunRequest", _HostAwait(kill or AbortSignal(), grace_s, _HostContext(name), timeout_s))
        context = copy_context()
        begun = context.run(first_step, request, _catch(answer))
        execution = (
            begun
            if isinstance(begun, Execution)
            else await CoroutineDriver(request, *begun, context, self._abandoned_code, self._deadlines)
        )
        found = cast("HostAnswer", execution.value) if execution.status == "returned" else HostAnswer(error=TimeoutError())
        _carry_over(context)
        if isinstance(found.error, KeyboardInterrupt):
            raise found.error
        return found

    async def close(self) -> None:
        """Cancel abandoned coroutines once more."""
        self._deadlines.close()
        await self._abandoned_code.close()


async def _catch(answer: Awaitable[Any]) -> HostAnswer:
    try:
        return HostAnswer(await answer)
    except BaseException as error:
        return HostAnswer(error=error)


def _carry_over(context: Context) -> None:
    """Copy changed context variables to the current context."""
    for variable, value in context.items():
        if variable is not RUNNING_TOOLS and variable.get(None) is not value:
            variable.set(value)


async def answer_in_thread(offload: Offload, work: Callable[[], Any], timeout_s: float) -> HostAnswer:
    """Return the answer of a plain function of the host, which runs in a thread; a `TimeoutError` if it takes too long."""
    if offload.refusal:
        return HostAnswer(error=RuntimeError(offload.refusal))
    try:
        return HostAnswer(value=await offload.run(work, ReadingTimeout(timeout_s, AbortSignal())))
    except WorkAbandoned:
        return HostAnswer(error=TimeoutError(f"it took longer than {timeout_s:.3g} s"))
    except FAILURES as error:
        return HostAnswer(error=error)
