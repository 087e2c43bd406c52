"""Await any coroutine so that it can be ended from outside, as tools can.

The coroutine runs in the caller's own task; one that refuses to stop is left behind after the grace. What code of the host's raises ends
nothing but itself, `GeneratorExit` and `SystemExit` included. Here because it is the inline
runner's drive, for callers that run no tool. Must not know what the coroutine does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context, copy_context
from typing import Any, TypeVar, cast

from msgspec import Struct

from callgate._abort_signals import AbortSignal
from callgate._runners.abandoned import AbandonedCode
from callgate._runners.deadlines import Deadlines
from callgate._runners.inline import Drive, _first_step
from callgate._runners.started_tasks import INSIDE
from callgate.protocols import Execution, RunRequest

__all__ = ["HostAnswer", "HostAwaits"]

_FOREVER_S = 1e9
_T = TypeVar("_T")


class HostAnswer(Struct, frozen=True):
    """What code of the host's came to: a value, or what it raised."""

    value: Any = None
    error: BaseException | None = None


class _Named(Struct, frozen=True):
    uid: str


class _HostAwait(Struct, frozen=True, eq=False):
    """What the drive asks of a request."""

    kill: AbortSignal
    grace_s: float
    context: _Named
    timeout_s: float
    not_done: tuple[type[BaseException], ...] = ()


class HostAwaits:
    """Keeps what would not stop. Belongs to one event loop."""

    __slots__ = ("_alarms", "_strays")

    def __init__(self) -> None:
        self._strays = AbandonedCode()
        self._alarms = Deadlines()

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
        """What `coro` returns, or None where `kill` or the time ended it first; what it raises, it must hand out as a value.

        `on_wait` is told when the coroutine waits for the first time; one that never does needs no timer.
        """
        request = cast("RunRequest", _HostAwait(kill, grace_s, _Named(name), timeout_s))
        context = copy_context()
        begun = context.run(_first_step, request, coro)
        if isinstance(begun, Execution):
            return cast("_T", begun.value)
        if on_wait is not None:
            on_wait()
        execution = await Drive(request, *begun, context, self._strays, self._alarms)
        return cast("_T", execution.value) if execution.status == "returned" else None

    async def ask(
        self, answer: Awaitable[Any], *, grace_s: float, name: str, timeout_s: float = _FOREVER_S, kill: AbortSignal | None = None
    ) -> HostAnswer:
        """What code of the host's answers. Where its time is over, the error is a `TimeoutError`, whether it has stopped by then or not.

        The same where `kill` ended it first.

        Context variables that it sets stay set, as where it is awaited.
        """
        request = cast("RunRequest", _HostAwait(kill or AbortSignal(), grace_s, _Named(name), timeout_s))
        context = copy_context()
        begun = context.run(_first_step, request, _caught(answer))
        execution = begun if isinstance(begun, Execution) else await Drive(request, *begun, context, self._strays, self._alarms)
        found = cast("HostAnswer", execution.value) if execution.status == "returned" else HostAnswer(error=TimeoutError())
        _carry_over(context)
        if isinstance(found.error, KeyboardInterrupt):
            raise found.error
        return found

    async def close(self) -> None:
        """Cancel once more what was left behind."""
        self._alarms.close()
        await self._strays.close()


async def _caught(answer: Awaitable[Any]) -> HostAnswer:
    try:
        return HostAnswer(await answer)
    except BaseException as error:
        return HostAnswer(error=error)


def _carry_over(context: Context) -> None:
    """Set the context variables here that were set there."""
    for variable, value in context.items():
        if variable is not INSIDE and variable.get(None) is not value:
            variable.set(value)
