"""Run async tools in the caller's own task.

A tool that returns without suspending costs neither a task nor a timer. When it suspends, `coroutine_driver` steps its coroutine. Must not
know of threads or processes.
"""

from __future__ import annotations

import inspect
from contextvars import copy_context
from time import monotonic
from types import CoroutineType

from msgspec.structs import replace

from callgate._deadlines import Deadlines
from callgate._json import decode
from callgate._runners.abandoned_code import AbandonedCalls, AbandonedCode, OnLate
from callgate._runners.blocking_steps import HELD_UP_S, BlockingSteps
from callgate._runners.coroutine_driver import Coro, CoroutineDriver, await_value
from callgate._runners.exception_results import execution_not_started, execution_of_exception_on_loop
from callgate._runners.started_tasks import RUNNING_TOOLS
from callgate.protocols import Execution, RunRequest

__all__ = ["InlineRunner"]


class InlineRunner:
    """Runs a tool in the calling task. A sync tool blocks the event loop while it runs."""

    def __init__(self, on_late: OnLate | None = None, abandoned_calls: AbandonedCalls | None = None) -> None:
        self._abandoned_code = AbandonedCode(on_late, abandoned_calls)
        self._deadlines = Deadlines()
        self._blocking = BlockingSteps()
        self._closed = False
        self._watches = False

    @property
    def abandoned(self) -> int:
        """The number of abandoned coroutines and tasks that still run."""
        return len(self._abandoned_code)

    @property
    def late(self) -> int:
        """The number of results that arrived after their call had ended."""
        return self._abandoned_code.late

    async def run(self, request: RunRequest) -> Execution:
        begun = self.begin(request)
        return begun if isinstance(begun, Execution) else await begun

    def begin(self, request: RunRequest) -> Execution | CoroutineDriver:
        """Run the tool to its end or to its first suspension."""
        if request.kill.reason is not None or self._closed:
            return execution_not_started(request.kill.reason or "the engine is closed")
        if not self._watches:
            self._abandoned_code.watch()
            self._watches = True
        context, began = copy_context(), monotonic()
        try:
            begun = context.run(_enter, request)
        except BaseException as error:
            begun = execution_of_exception_on_loop(error, request.not_done)
        spent_s = monotonic() - began
        if spent_s > request.timeout_s + HELD_UP_S:
            self._blocking.warn_if_late(request, spent_s)
        if isinstance(begun, Execution):
            return replace(begun, tasks_left=self._abandoned_code.tasks_left(request)) if self._abandoned_code.started else begun
        coro, waiting = begun
        return CoroutineDriver(request, coro, waiting, context, self._abandoned_code, self._deadlines, self._blocking, spent_s)

    async def close(self) -> None:
        self._closed = True
        self._deadlines.close()
        await self._abandoned_code.close()


def _enter(request: RunRequest) -> Execution | tuple[Coro, object]:
    """Start the tool and run its first step in a copy of the context."""
    RUNNING_TOOLS.set((*RUNNING_TOOLS.get(), request))
    approved = request.approved
    # Decoded again: changes that the tool makes to its arguments must not reach the record.
    value = approved.call.tool.tool.invoke(request.context, decode(approved.arguments_json))
    if type(value) is not CoroutineType:
        if not inspect.isawaitable(value):
            return value if type(value) is Execution else Execution(status="returned", value=value)
        value = await_value(value)
    try:
        return value, value.send(None)
    except StopIteration as end:  # without a call, as in `first_step`: most async tools end so
        return end.value if type(end.value) is Execution else Execution(status="returned", value=end.value)
