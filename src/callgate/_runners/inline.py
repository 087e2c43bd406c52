"""Run async tools in the caller's own task.

A tool that answers without waiting costs neither a task nor a timer. The first time it waits, its coroutine is driven by hand (`Drive`),
so that the deadline and the kill can interrupt it without touching the caller's task, and so that a coroutine that refuses to stop can
be left behind. Must not know of threads or processes.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import Context, copy_context
from types import CoroutineType
from typing import Any, Literal

from msgspec.structs import replace

from callgate._json import decode
from callgate._runners.abandoned import AbandonedCalls, AbandonedCode, OnLate
from callgate._runners.deadlines import Deadlines
from callgate._runners.failures import awaited, not_started, overdue, raised
from callgate._runners.started_tasks import INSIDE
from callgate.protocols import Execution, RunRequest

__all__ = ["Drive", "InlineRunner", "drive"]

Coro = Coroutine[Any, Any, object]


class InlineRunner:
    """Runs a tool in the task that asks for it. A sync tool is run too, and holds up the event loop for as long as it takes."""

    def __init__(self, on_late: OnLate | None = None, behind: AbandonedCalls | None = None) -> None:
        self._strays = AbandonedCode(on_late, behind)
        self._alarms = Deadlines()
        self._closed = False
        self._watches = False

    @property
    def abandoned(self) -> int:
        """Coroutines that would not stop, and tasks that tools left, as far as they still run."""
        return len(self._strays)

    @property
    def late(self) -> int:
        """Answers that came after their call had ended."""
        return self._strays.late

    async def run(self, request: RunRequest) -> Execution:
        begun = self.begin(request)
        return begun if isinstance(begun, Execution) else await begun

    def begin(self, request: RunRequest) -> Execution | Drive:
        """Run the tool to its end, or to where it first waits."""
        if request.kill.reason is not None or self._closed:
            return not_started(request.kill.reason or "the engine is closed")
        if not self._watches:
            self._strays.watch()
            self._watches = True
        context = copy_context()
        try:
            begun = context.run(_enter, request)
        except BaseException as error:
            begun = raised(error, request.not_done)
        if isinstance(begun, Execution):
            return replace(begun, tasks_left=self._strays.tasks_left(request)) if self._strays.started else begun
        coro, waiting = begun
        return Drive(request, coro, waiting, context, self._strays, self._alarms)

    async def close(self) -> None:
        self._closed = True
        self._alarms.close()
        await self._strays.close()


def _enter(request: RunRequest) -> Execution | tuple[Coro, object]:
    """Start the tool and take its first step, in the tool's own context."""
    INSIDE.set((*INSIDE.get(), request))
    approved = request.approved
    # Decoded afresh: what the tool does to its arguments does not reach what was recorded.
    value = approved.call.tool.tool.invoke(request.context, decode(approved.encoded))
    if type(value) is not CoroutineType:
        if not inspect.isawaitable(value):
            return Execution(status="returned", value=value)
        value = _awaiting(value)
    try:
        return value, value.send(None)
    except StopIteration as end:
        return Execution(status="returned", value=end.value)


def _first_step(request: RunRequest, coro: Coro) -> Execution | tuple[Coro, object]:
    INSIDE.set((*INSIDE.get(), request))
    try:
        return coro, coro.send(None)
    except StopIteration as end:
        return Execution(status="returned", value=end.value)


async def _awaiting(value: Awaitable[object]) -> object:
    return await value


async def drive(value: Awaitable[object], request: RunRequest, context: Context, strays: AbandonedCode, alarms: Deadlines) -> Execution:
    """Await `value` under the deadline and the kill of `request`."""
    try:
        begun = context.run(_first_step, request, _awaiting(value))
    except BaseException as error:
        begun = raised(error, request.not_done)
    if isinstance(begun, Execution):
        execution = replace(begun, tasks_left=strays.tasks_left(request)) if strays.started else begun
    else:
        execution = await Drive(request, *begun, context, strays, alarms)
    return replace(execution, changes=awaited(request.approved.call.tool.tool)) if execution.status == "returned" else execution


class Drive:
    """A coroutine that waits, driven by hand; awaiting it gives its `Execution`.

    It stands between the task and the future that the coroutine waits for, as a future of its own. So every interruption arrives as a
    method call: `cancel` from whoever cancels the task, in *their* context, which tells the host's cancel from the tool's own time limit.

        waiting --deadline, kill, host's cancel--> stopping (the awaited future is cancelled, the grace runs)
        stopping --the coroutine ends--> timed_out, killed, or the host's cancel is passed on
        stopping --the grace is over--> the same, `abandoned`: a task takes over the rest of the coroutine
    """

    __slots__ = (
        "_alarm",
        "_alarms",
        "_asyncio_future_blocking",
        "_baseline",
        "_cancels",
        "_context",
        "_coro",
        "_given_up",
        "_handle",
        "_loop",
        "_request",
        "_said",
        "_strays",
        "_task",
        "_task_context",
        "_throw",
        "_waiting",
        "_wake",
        "_why",
    )

    def __init__(
        self, request: RunRequest, coro: Coro, waiting: object, context: Context, strays: AbandonedCode, alarms: Deadlines
    ) -> None:
        self._asyncio_future_blocking = False
        self._request = request
        self._coro = coro
        self._waiting: Any = waiting
        self._context = context
        self._strays = strays
        self._alarms = alarms
        self._loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._baseline = task.cancelling()
        self._cancels = 0
        self._why: Literal["timed_out", "killed", "cancelled"] | None = None
        self._throw = False
        self._said: tuple[object, ...] = ()
        """What whoever cancels says with it: cancel scopes of other libraries know their own cancels by it."""
        self._given_up = False
        self._handle: asyncio.Handle | None = None
        self._wake: Callable[[Any], object] | None = None
        self._task_context: Context | None = None

    def __await__(self) -> Generator[Any, None, Execution]:
        self._alarm = self._alarms.set(self._request.timeout_s, self._overdue)
        silence = self._request.kill.on_abort(self._killed)
        try:
            execution = yield from self._steps()
        except BaseException:  # the event loop was torn down, or this very coroutine closed
            if not self._given_up:
                self._coro.close()
            raise
        finally:
            silence()
            self._alarms.take_off(self._alarm)
            self._settle()
        return self._ended(execution)

    def _steps(self) -> Generator[Any, None, Execution | None]:
        """Step until the coroutine ends or is given up."""
        while True:
            problem = self._check_waiting()
            if problem is None:
                self._asyncio_future_blocking = True
                yield self
            if self._given_up:
                return None
            try:
                if problem is None and not self._throw:
                    self._waiting = self._context.run(self._coro.send, None)
                else:
                    self._throw = False
                    self._waiting = self._context.run(self._coro.throw, problem or asyncio.CancelledError(*self._said))
            except StopIteration as end:
                return Execution(status="returned", value=end.value)
            except BaseException as error:
                return raised(error, self._request.not_done)

    def _check_waiting(self) -> BaseException | None:
        """Take the wait over from the coroutine, as a task does; an object that no asyncio loop can wait for is the tool's error."""
        waiting = self._waiting
        if waiting is None:
            return None
        if not getattr(waiting, "_asyncio_future_blocking", False) or waiting.get_loop() is not self._loop:
            return RuntimeError(f"the tool waits for {type(waiting).__name__}, which belongs to another event loop or library")
        waiting._asyncio_future_blocking = False
        return None

    # What the task calls on the future that it is given.

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def add_done_callback(self, wake: Callable[[Any], object], *, context: Context | None = None) -> None:
        self._wake, self._task_context = wake, context
        task = asyncio.current_task(self._loop)
        if task is not None and task is not self._task:  # it has taken the wait over
            self._task, self._baseline, self._cancels = task, task.cancelling(), 0
        if self._waiting is None or self._given_up:
            self._handle = self._loop.call_soon(self._ready, self._waiting, context=context)
            return
        self._waiting.add_done_callback(self._ready, context=context)
        if self._throw:  # stopped by the very step that led here
            self._interrupt()

    def remove_done_callback(self, wake: Callable[[Any], object]) -> int:
        """Whoever waits for this gives up: another task will wait for it, and for what it waits for."""
        self._wake = None
        if self._handle is not None:
            self._handle.cancel()
        if self._waiting is not None:
            self._waiting.remove_done_callback(self._ready)
        return 1

    def result(self) -> None:
        return None

    def cancel(self, msg: object = None) -> bool:
        self._said = () if msg is None else (msg,)
        if asyncio.current_task(self._loop) is self._task:
            # The tool cancelled the task it runs in: its own failure, not the host's wish. The innermost drive takes it back, once.
            if not isinstance(self._waiting, Drive):
                self._task.uncancel()
            self._interrupt()
        elif any(request is self._request for request in INSIDE.get()):
            self._interrupt()
        else:
            self._cancels += 1
            self._stop("cancelled")
        return True

    # What ends the wait.

    def _ready(self, waited: object) -> None:
        if waited is not self._waiting:  # it ended in the moment in which another task took the wait over
            return
        wake, self._wake = self._wake, None
        if wake is not None:
            wake(self)

    def _overdue(self) -> None:
        self._stop("timed_out")

    def _killed(self) -> None:
        self._stop("killed")

    def _stop(self, why: Literal["timed_out", "killed", "cancelled"]) -> None:
        if self._why is not None:
            return
        self._why = why
        if why != "cancelled":
            self._said = ()
        self._alarms.take_off(self._alarm)
        self._alarm = self._alarms.set(self._request.grace_s, self._give_up)
        self._interrupt()

    def _interrupt(self) -> None:
        self._throw = self._waiting is None or not self._waiting.cancel(*self._said)

    def _give_up(self) -> None:
        """The grace is over: let a task of its own go on with the coroutine."""
        self._given_up = True
        if self._waiting is None:
            assert self._handle is not None
            self._handle.cancel()
        else:
            self._waiting.remove_done_callback(self._ready)
        self._strays.adopt(self._request.context.uid, self._coro, self._waiting, self._context)
        self._handle = self._loop.call_soon(self._ready, self._waiting, context=self._task_context)

    def _settle(self) -> None:
        """Take back what the tool itself left on the task's count of cancel requests; the host's stay."""
        while self._task.cancelling() > self._baseline + self._cancels:
            self._task.uncancel()

    def _ended(self, execution: Execution | None) -> Execution:
        """The execution; None where the coroutine was given up."""
        left = self._strays.tasks_left(self._request) if self._strays.started else 0
        ended = self._outcome(execution)
        return replace(ended, tasks_left=left) if left else ended

    def _outcome(self, execution: Execution | None) -> Execution:
        if execution is not None:
            if self._why is None:
                return execution
            if execution.status == "returned":
                self._strays.came_late(self._request.context.uid, execution)
        if self._why == "cancelled":
            raise asyncio.CancelledError(*self._said)
        return overdue(self._request, self._why == "killed", abandoned=execution is None)
