"""The lifecycle of one engine: the event loop it belongs to, its running calls, and how they are ended in bounded time.

Separate from the engine because it is a state machine of its own. Knows only that calls run and can be killed.
`SyncRunner` runs an event loop in a thread, for callers without one, or uses that of the engine from another thread.
`Activity` counts successful calls since the host last reported a wake-up, so that a host that lets an agent sleep can
ask whether any call has succeeded since.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import warnings
from asyncio import get_running_loop
from collections.abc import Callable, Collection, Coroutine
from concurrent.futures import wait
from contextlib import suppress
from contextvars import Context
from typing import Any, Protocol, TypeVar, cast
from weakref import WeakSet

from callgate._engine_limits import ACTIVE_CONVERSATIONS
from callgate._pipeline.call_state import CallState
from callgate._run_in_thread import LoopEnded, wait_for_loop
from callgate._runners.thread_runner import while_thread_waits
from callgate._worker_import import refuse_while_importing
from callgate.errors import UsageError
from callgate.protocols import Journal, RunWatcher
from callgate.tools import BoundTool

__all__ = ["Activity", "Lifecycle", "LoopThread", "SyncRunner", "refuse_inside_loop"]

_WHY = "the engine was closed"
log = logging.getLogger("callgate")
T = TypeVar("T")
_PATIENCE_S = 1.0
_BLOCKED_S = 30.0
"""Seconds that synchronous code waits until the engine's event loop takes its work on."""
_LOOK_S = 1.0
_FORKED = "This engine was made before this process was forked, and cannot work in it. Make a new one here, and its journal."
_END_S = 5.0


class OpenMessage(Protocol):
    """A message whose calls have not all ended."""

    def end(self, reason: str) -> None: ...


class Closes(Protocol):
    """The resources that an engine closes last."""

    async def close(self) -> None: ...


class EndsCalls(Protocol):
    """Records the end of a call that no caller waits for."""

    def cancelled(self, state: CallState, why: str) -> None: ...


class AwaitedCalls:
    """Running calls whose end somebody waits for."""

    def __init__(self, uids: set[str]) -> None:
        self.uids = uids
        self.all_ended = asyncio.Event()

    def ended(self, uid: str) -> None:
        self.uids.discard(uid)
        if not self.uids:
            self.all_ended.set()


class Lifecycle:
    """The states of an engine: open, then closing, then closed. They never go back.

    Args:
        journal: Watched for messages from other processes once the engine's event loop is known.
        watcher: Called with messages of other processes about the engine's runs.
        running: The running calls, by uid.
        outcomes: Records the end of a call that no caller waits for.
        resources: Closed when no call runs any longer.
        grace_s: How long a killed call may take to end, in addition to a fixed time of one second.
    """

    def __init__(
        self,
        journal: Journal,
        watcher: RunWatcher,
        running: dict[str, CallState],
        outcomes: EndsCalls,
        resources: Closes,
        grace_s: float,
    ) -> None:
        self.running = running
        self.messages: WeakSet[OpenMessage] = WeakSet()
        self.closed = False
        """Whether new calls and runs are refused."""
        self.ending = False
        """Whether running calls are being ended, so that nothing further of them may begin."""
        self.loop: asyncio.AbstractEventLoop | None = None
        self._binding = threading.Lock()
        self._process = os.getpid()
        self._journal = journal
        self._watcher = watcher
        self._outcomes = outcomes
        self._resources = resources
        self._grace_s = grace_s
        self._closing: asyncio.Future[None] | None = None
        self._idle = asyncio.Event()
        """Set when the engine is closed and its last call has ended."""
        self._awaited: list[AwaitedCalls] = []

    def check_open(self) -> None:
        """Bind to the running event loop on first use.

        Raises:
            UsageError: The engine belongs to another event loop, is closed, or is used at the top level of a module that a worker process
                imports; or it has a shared journal, and this process was forked since.
        """
        loop = get_running_loop()
        if self.loop is not loop:
            refuse_while_importing()
            self._bind(loop)
        self.check_unclosed()

    def _bind(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._journal.shared and self._process != os.getpid():
            raise UsageError(_FORKED)
        with self._binding:  # two threads may use a new engine at once, each with a loop of its own
            if self.loop is not None:
                raise UsageError(
                    "This engine belongs to another event loop. Make an engine for each loop, inside the function"
                    " that asyncio.run gets. Code without a loop, such as call_sync or the invoke of a graph, needs one of its own, too."
                )
            self.loop = loop
        self._journal.watch(self._watcher)

    def shut(self) -> None:
        """Refuse all new calls and runs."""
        self.closed = True

    def check_unclosed(self) -> None:
        """Raise `UsageError` if the engine is closed, or if a worker process is importing the program that uses it."""
        if self.closed:
            raise UsageError("This engine is closed. Make a new one.")
        refuse_while_importing()

    def conversing(self, conversation: str) -> bool:
        """Return whether a call of the conversation is running."""
        return any(state.scope.conversation == conversation for state in self.running.values())

    def ended(self, state: CallState) -> None:
        """Remove a call that has ended."""
        del self.running[state.uid]
        state.run_state.under_way -= 1
        for calls in self._awaited:
            calls.ended(state.uid)
        if self.closed and not self.running:
            self._idle.set()

    async def wait_for_calls(self, tools: Collection[BoundTool], timeout_s: float) -> None:
        """Wait until the running calls of these tools have ended, at most `timeout_s` seconds."""
        uids = {uid for uid, state in self.running.items() if state.judged is not None and any(state.judged.tool is one for one in tools)}
        if not uids:
            return
        awaited = AwaitedCalls(uids)
        self._awaited.append(awaited)
        try:
            async with asyncio.timeout(timeout_s):
                await awaited.all_ended.wait()
        except TimeoutError:
            log.warning("%d calls of removed tools did not end within %g s", len(awaited.uids), timeout_s)
        finally:
            self._awaited.remove(awaited)

    async def close(self) -> None:
        """End all calls and close all resources. Idempotent; continues if the caller that waits for it is cancelled.

        Raises:
            UsageError: The engine belongs to another event loop that still runs.
        """
        loop = get_running_loop()
        if self.loop is not None and self.loop is not loop and self.loop.is_running():
            raise UsageError("This engine belongs to another event loop, which still runs. Close it there.")
        self.closed = True
        if self._closing is None or self._was_cut_off(self._closing):
            self.ending = True
            self._closing = loop.create_task(self._close(alone=self.loop not in (None, loop)), context=Context())  # in no tool's context
        if not self._closing.done():
            await asyncio.shield(self._closing)

    @staticmethod
    def _was_cut_off(closing: asyncio.Future[None]) -> bool:
        """Return whether a close was interrupted because its event loop ended."""
        return closing.cancelled() or not (closing.done() or closing.get_loop().is_running())

    async def _close(self, *, alone: bool) -> None:
        """End all calls, and close all resources.

        Args:
            alone: Whether the engine's event loop no longer exists. Calls in it can never end by themselves.
        """
        for message in list(self.messages):
            message.end(_WHY)
        for state in list(self.running.values()):
            state.kill.fire(_WHY)
        if self.running and not alone:
            with suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE_S + self._grace_s):
                    await self._idle.wait()
        for state in self.running.values():  # still in a slow policy or hook of the host: its tool has not run and will not run
            self._outcomes.cancelled(state, _WHY)
        await self._resources.close()


def refuse_inside_loop() -> None:
    """Raise `UsageError` if the calling thread has a running event loop, which waiting would block."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError(
        "A method that ends in _sync waits, and would hold up the event loop that runs here. Await the method without that ending instead:"
        " 'await engine.respond(...)', 'await engine.call(...)', 'await agent.run(...)'."
    )


class LoopThread:
    """One daemon thread that runs an event loop until it is closed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, name="callgate-loop", daemon=True)
        try:
            self._thread.start()
        except (RuntimeError, MemoryError) as error:
            self._loop.close()
            raise UsageError(
                f"No thread can be started for the engine's event loop ({error}). End other threads, or raise the limit of them."
            ) from error

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the loop and wait for it.

        Raises:
            UsageError: The loop is closed, or its thread is in another process, because a fork does not copy threads.
        """
        if self._process != os.getpid():
            work.close()
            raise UsageError(_FORKED)
        with self._lock:
            if self._closed:
                work.close()
                raise UsageError("This engine is closed. Make a new one.")
            running = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return wait_for_loop(running, lambda: self.has_ended)
        except LoopEnded:
            raise UsageError("The thread that ran this engine's event loop has ended. Close the engine, and make a new one.") from None

    @property
    def has_ended(self) -> bool:
        """Whether the thread has ended in this process. False in a forked child."""
        return self._process == os.getpid() and not self._thread.is_alive()

    def _run_loop(self) -> None:
        while not (self._closed or self._loop.is_closed()):
            try:
                self._loop.run_forever()
            except BaseException as error:  # a sys.exit of a tool or host, which its caller gets; the loop must continue for the others
                log.error("The event loop of call_sync was left by %s: %s; it goes on", type(error).__name__, error)

    def close(self) -> None:
        """Wait for work that has begun, then stop the loop."""
        if self._process != os.getpid():
            return
        with self._lock:
            self._closed = True
        if self._thread.is_alive():
            wait((asyncio.run_coroutine_threadsafe(_others_ended(), self._loop),), _END_S)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_END_S)
        if not self._thread.is_alive():
            self._loop.close()


class _HandedOver:
    """Work that a thread hands to an event loop in another thread. It begins in time, or never."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._work = work
        self._decided = threading.Lock()
        self._begun = threading.Event()

    async def run(self) -> Any:
        if self._decided.acquire(blocking=False):
            self._begun.set()
            return await while_thread_waits(self._work)
        return None  # nobody waits for it any more

    def has_begun(self, within_s: float) -> bool:
        return self._begun.wait(within_s)

    def give_up(self) -> bool:
        """Prevent the work from beginning; return False if it has begun."""
        return self._decided.acquire(blocking=False)


def _is_idle_here(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether a loop is this thread's own between two uses, as the `run_sync` of some frameworks leaves it."""
    if loop.is_running() or loop.is_closed():
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            return asyncio.get_event_loop() is loop
        except RuntimeError:
            return False


def _run_on(loop: asyncio.AbstractEventLoop, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run `work` on an event loop that runs in another thread, or that is this thread's own and idle, and wait for it.

    Raises:
        UsageError: The loop does not run, or waits for this thread.
    """
    if _is_idle_here(loop):
        return loop.run_until_complete(work())
    if not loop.is_running():
        raise UsageError(
            "This engine belongs to an event loop that no longer runs. Make a new engine: one for each loop, and one for code without a"
            " loop, such as call_sync or the invoke of a graph."
        )
    handed = _HandedOver(work)
    running = asyncio.run_coroutine_threadsafe(handed.run(), loop)
    left_s = _BLOCKED_S
    while not handed.has_begun(_LOOK_S):
        left_s -= _LOOK_S
        if (left_s <= 0 or not loop.is_running()) and handed.give_up():
            raise UsageError(
                f"The engine's event loop has taken nothing on for {_BLOCKED_S - left_s:.3g} s: it is blocked, perhaps because it waits for"
                " this thread. Nothing was run. Await 'engine.call(...)' there, or 'ctx.call(...)' in a tool."
            )
    try:
        return wait_for_loop(running, lambda: not loop.is_running())  # type: ignore[no-any-return]
    except LoopEnded:
        raise UsageError("The engine's event loop has ended before the work did. Make a new engine.") from None


class SyncRunner:
    """Runs coroutines for synchronous code: on the engine's event loop if that runs in another thread, and otherwise on an event loop in a
    thread that is started on first use.

    Args:
        loop: Returns the event loop that the engine belongs to; None if it belongs to none yet.
    """

    def __init__(self, loop: Callable[[], asyncio.AbstractEventLoop | None]) -> None:
        self._loop = loop
        self._guard = threading.Lock()
        self._thread: LoopThread | None = None

    def run(self, check: Callable[[], None], work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run `work` and wait for it, unless `check` raises."""
        refuse_inside_loop()
        with self._guard:
            check()
            loop = self._loop() if self._thread is None else None
            thread = self._thread = None if loop is not None else self._thread or LoopThread()
        return thread.run(while_thread_waits(work)) if thread is not None else _run_on(cast("asyncio.AbstractEventLoop", loop), work)

    def close(self, shut: Callable[[], None], work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `work` as the last coroutine, and end the thread. If any was run before, `shut` is called first, to refuse new work."""
        refuse_inside_loop()
        with self._guard:
            if self._thread is not None:
                shut()
            thread, self._thread = self._thread, None
        if thread is None or thread.has_ended:
            thread = _thread_or_none()
        if thread is None:
            asyncio.run(work())
            return
        try:
            thread.run(work())
        finally:
            thread.close()


def _thread_or_none() -> LoopThread | None:
    try:
        return LoopThread()
    except UsageError:
        return None


async def _others_ended() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others, timeout=_PATIENCE_S)
        for task in others:
            task.cancel()
        await asyncio.wait(others, timeout=_PATIENCE_S)


class Activity:
    """The numbers of successful calls of one engine."""

    def __init__(self) -> None:
        self.total = 0
        """The number for all calls, including those outside of a conversation."""
        self._of: dict[str, int] = {}
        """The number by conversation, in the order of their latest success."""

    def count(self, conversation: str) -> None:
        """Count a success."""
        self.total += 1
        if conversation:
            self._of[conversation] = self._of.pop(conversation, 0) + 1
            if len(self._of) > ACTIVE_CONVERSATIONS:
                del self._of[next(iter(self._of))]

    def of(self, conversation: str) -> int:
        return self._of.get(conversation, 0)

    def wake(self, conversation: str | None = None) -> None:
        """Reset the count of this conversation, or of all conversations and the engine."""
        if conversation is None:
            self.total = 0
            self._of.clear()
        else:
            self._of.pop(conversation, None)
