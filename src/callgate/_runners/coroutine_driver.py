"""Step a coroutine in the caller's task under a deadline and a kill.

Both interrupt the coroutine without cancelling the caller's task. If it does not stop within the grace period, it is abandoned, and a new
task continues it. Used for async tools, for awaitables of plain tools, and for the host's code. Must not know whose code it runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import Context
from time import monotonic
from typing import Any, Literal

from msgspec.structs import replace

from callgate._deadlines import Deadlines
from callgate._runners.abandoned_code import AbandonedCode
from callgate._runners.blocking_steps import HELD_UP_S, BlockingSteps
from callgate._runners.exception_results import awaitable_note, execution_of_exception_on_loop, execution_overdue
from callgate._runners.started_tasks import RUNNING_TOOLS
from callgate.protocols import Execution, RunRequest
from callgate.protocols.runners import CancelledUnstarted

__all__ = ["Coro", "CoroutineDriver", "await_value", "drive", "first_step"]

Coro = Coroutine[Any, Any, object]


def _as_execution(value: object) -> Execution:
    """Return the execution of a tool that returned. A tool that only carries its calls elsewhere returns their execution itself."""
    return value if type(value) is Execution else Execution(status="returned", value=value)


def first_step(request: RunRequest, coro: Coro) -> Execution | tuple[Coro, object]:
    """Run a coroutine to its end, or to its first suspension: then return it with what it awaits."""
    RUNNING_TOOLS.set((*RUNNING_TOOLS.get(), request))
    try:
        return coro, coro.send(None)
    except StopIteration as end:
        return end.value if type(end.value) is Execution else Execution(status="returned", value=end.value)


async def await_value(value: Awaitable[object]) -> object:
    """Await any awaitable, as a coroutine."""
    return await value


async def drive(
    value: Awaitable[object], request: RunRequest, context: Context, abandoned: AbandonedCode, deadlines: Deadlines
) -> Execution:
    """Await `value` under the deadline and the kill of `request`."""
    try:
        begun = context.run(first_step, request, await_value(value))
    except BaseException as error:
        begun = execution_of_exception_on_loop(error, request.not_done)
    if isinstance(begun, Execution):
        execution = replace(begun, tasks_left=abandoned.tasks_left(request)) if abandoned.started else begun
    else:
        execution = await CoroutineDriver(request, *begun, context, abandoned, deadlines)
    return replace(execution, changes=awaitable_note(request.approved.call.tool.tool)) if execution.status == "returned" else execution


class CoroutineDriver:
    """Steps a suspended coroutine; awaiting it returns the `Execution`.

    It acts as a future between the task and the future that the coroutine awaits. So every interruption is a method call: `cancel`
    distinguishes a cancellation by the host from a timeout inside the tool by the context that it is called in.

        waiting --deadline, kill, host's cancel--> stopping (the awaited future is cancelled, the grace period runs)
        stopping --the coroutine ends--> timed_out, killed, or the host's cancel is passed on
        stopping --the grace period is over--> the same, `abandoned`: a new task continues the coroutine
    """

    __slots__ = (
        "_abandoned_code",
        "_alarm",
        "_asyncio_future_blocking",
        "_baseline",
        "_blocking",
        "_cancel_message",
        "_cancels",
        "_context",
        "_coro",
        "_deadlines",
        "_ends",
        "_given_up",
        "_handle",
        "_loop",
        "_request",
        "_spent_s",
        "_task",
        "_task_context",
        "_throw",
        "_waiting",
        "_wake",
        "_why",
    )

    def __init__(
        self,
        request: RunRequest,
        coro: Coro,
        waiting: object,
        context: Context,
        abandoned: AbandonedCode,
        deadlines: Deadlines,
        blocking: BlockingSteps | None = None,
        spent_s: float = 0.0,
    ) -> None:
        self._asyncio_future_blocking = False
        self._request = request
        self._coro = coro
        self._waiting: Any = waiting
        self._context = context
        self._abandoned_code = abandoned
        self._deadlines = deadlines
        self._blocking = blocking
        self._spent_s = spent_s
        """How much of the timeout the coroutine's first step took."""
        self._loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._baseline = task.cancelling()
        self._cancels = 0
        self._why: Literal["timed_out", "killed", "cancelled"] | None = None
        self._throw = False
        self._cancel_message: tuple[object, ...] = ()
        """The message of the cancellation, by which cancel scopes of other libraries recognise their own cancellations."""
        self._given_up = False
        self._handle: asyncio.Handle | None = None
        self._wake: Callable[[Any], object] | None = None
        self._task_context: Context | None = None

    def __await__(self) -> Generator[Any, None, Execution]:
        left_s = self._request.timeout_s - self._spent_s if self._spent_s < self._request.timeout_s else 0.0
        self._alarm = self._deadlines.set(left_s, self._stop_overdue)
        self._ends = self._loop.time() + left_s
        human_time = self._request.context.human_time
        if human_time is not None:
            human_time.watch(self._human_time_changed)
        remove_listener = self._request.kill.on_abort(self._stop_killed)
        try:
            execution = yield from self._steps()
        except BaseException:  # the event loop was closed, or this coroutine was
            if not self._given_up:
                self._coro.close()
            raise
        finally:
            remove_listener()
            if human_time is not None:
                human_time.watch(None)
            self._deadlines.cancel(self._alarm)
            self._settle()
        return self._finish(execution)

    def _steps(self) -> Generator[Any, None, Execution | None]:
        """Step until the coroutine ends or is abandoned."""
        while True:
            problem = self._check_waiting()
            if problem is None:
                self._asyncio_future_blocking = True
                yield self
            if self._given_up:
                return None
            began = monotonic()
            try:
                if problem is None and not self._throw:
                    self._waiting = self._context.run(self._coro.send, None)
                else:
                    self._throw = False
                    self._waiting = self._context.run(self._coro.throw, problem or asyncio.CancelledError(*self._cancel_message))
            except StopIteration as end:
                return _as_execution(end.value)
            except BaseException as error:
                return execution_of_exception_on_loop(error, self._request.not_done)
            finally:
                if self._blocking is not None and (ended := monotonic()) > self._ends + HELD_UP_S:
                    self._blocking.warn_if_late(self._request, ended - began)

    def _check_waiting(self) -> BaseException | None:
        """Take over the future that the tool awaits, as an asyncio task does.

        Return an error for the tool if the awaited object is not a future of this event loop; otherwise None.
        """
        waiting = self._waiting
        if waiting is None:
            return None
        if not getattr(waiting, "_asyncio_future_blocking", False) or waiting.get_loop() is not self._loop:
            return RuntimeError(f"the tool waits for {type(waiting).__name__}, which belongs to another event loop or library")
        waiting._asyncio_future_blocking = False
        return None

    # The future interface that the task uses.

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def add_done_callback(self, wake: Callable[[Any], object], *, context: Context | None = None) -> None:
        self._wake, self._task_context = wake, context
        task = asyncio.current_task(self._loop)
        if task is not None and task is not self._task:  # another task has taken over the wait
            self._task, self._baseline, self._cancels = task, task.cancelling(), 0
        if self._waiting is None or self._given_up:
            self._handle = self._loop.call_soon(self._resume, self._waiting, context=context)
            return
        self._waiting.add_done_callback(self._resume, context=context)
        if self._throw:  # stopped during the current step
            self._interrupt()

    def remove_done_callback(self, wake: Callable[[Any], object]) -> int:
        """Stop waking the waiting task, because another task will take over the wait."""
        self._wake = None
        if self._handle is not None:
            self._handle.cancel()
        if self._waiting is not None:
            self._waiting.remove_done_callback(self._resume)
        return 1

    def result(self) -> None:
        return None

    def cancel(self, msg: object = None) -> bool:
        self._cancel_message = () if msg is None else (msg,)
        if asyncio.current_task(self._loop) is self._task:
            # The tool cancelled its own task: its failure, not a request of the host. The innermost drive undoes it once.
            if not isinstance(self._waiting, CoroutineDriver):
                self._task.uncancel()
            self._interrupt()
        elif any(request is self._request for request in RUNNING_TOOLS.get()):
            self._interrupt()
        else:
            self._cancels += 1
            self._stop("cancelled")
        return True

    # The ends of the wait.

    def _resume(self, waited: object) -> None:
        if waited is not self._waiting:  # it ended at the moment when another task took over the wait
            return
        wake, self._wake = self._wake, None
        if wake is not None:
            wake(self)

    def _stop_overdue(self) -> None:
        self._stop("timed_out")

    def _human_time_changed(self) -> None:
        """Stop the deadline while a human is asked, and continue it after that with the time that was left."""
        human_time = self._request.context.human_time
        if self._why is not None or human_time is None:
            return
        self._deadlines.cancel(self._alarm)
        now = self._loop.time()
        if human_time.is_asking:
            self._ends -= now  # the seconds that are left
            self._alarm = self._deadlines.set(human_time.left_s, self._stop_overdue)
        else:
            self._alarm = self._deadlines.set(max(0.0, self._ends), self._stop_overdue)
            self._ends += now

    def _stop_killed(self) -> None:
        self._stop("killed")

    def _stop(self, why: Literal["timed_out", "killed", "cancelled"]) -> None:
        if self._why is not None:
            return
        self._why = why
        if why != "cancelled":
            self._cancel_message = ()
        self._deadlines.cancel(self._alarm)
        self._alarm = self._deadlines.set(self._request.grace_s, self._give_up)
        self._interrupt()

    def _interrupt(self) -> None:
        self._throw = self._waiting is None or not self._waiting.cancel(*self._cancel_message)

    def _give_up(self) -> None:
        """Continue the coroutine in a new task, because the grace period is over."""
        self._given_up = True
        if self._waiting is None:
            assert self._handle is not None
            self._handle.cancel()
        else:
            self._waiting.remove_done_callback(self._resume)
        self._abandoned_code.adopt(self._request.context.uid, self._coro, self._waiting, self._context)
        self._handle = self._loop.call_soon(self._resume, self._waiting, context=self._task_context)

    def _settle(self) -> None:
        """Undo the cancel requests that the tool itself made on the task; those of the host stay."""
        while self._task.cancelling() > self._baseline + self._cancels:
            self._task.uncancel()

    def _finish(self, execution: Execution | None) -> Execution:
        """Return the execution; `execution` is None if the coroutine was abandoned."""
        left = self._abandoned_code.tasks_left(self._request) if self._abandoned_code.started else 0
        ended = self._outcome(execution)
        return replace(ended, tasks_left=left) if left else ended

    def _outcome(self, execution: Execution | None) -> Execution:
        if execution is not None:
            if self._why is None:
                return execution
            if execution.status == "returned":
                self._abandoned_code.report_late(self._request.context.uid, execution)
        unstarted = execution is not None and execution.status == "not_started"
        if self._why == "cancelled":
            raise (CancelledUnstarted if unstarted else asyncio.CancelledError)(*self._cancel_message)
        return execution_overdue(self._request, self._why == "killed", abandoned=execution is None, not_started=unstarted)
