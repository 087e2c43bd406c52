"""The lifecycle of one engine: which event loop it belongs to, what is under way in it, and how all of that ends in bounded time.

Here, and not in the engine, because it is a state machine of its own. Knows calls only as something that is under way and can be killed.
`SyncRunner` is an event loop in a thread, for callers that have none; `Activity` counts the calls that have succeeded since the host last
said that it woke, so that a host that lets an agent sleep can ask whether anything has happened.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from asyncio import get_running_loop
from collections.abc import Callable, Coroutine
from concurrent.futures import wait
from contextlib import suppress
from contextvars import Context
from typing import Any, Protocol, TypeVar
from weakref import WeakSet

from callgate._in_thread import LoopEnded, wait_for_loop
from callgate._limits import ACTIVE_CONVERSATIONS
from callgate._pipeline.call_state import CallState
from callgate.errors import UsageError
from callgate.protocols import Journal, RunWatcher

__all__ = ["Activity", "Lifecycle", "LoopThread", "SyncRunner", "refuse_inside_loop"]

_WHY = "the engine was closed"
log = logging.getLogger("callgate")
T = TypeVar("T")
_PATIENCE_S = 1.0
_END_S = 5.0


class OpenMessage(Protocol):
    """A message whose calls have not all ended."""

    def end(self, reason: str) -> None: ...


class Closes(Protocol):
    """What an engine closes last: all that it holds."""

    async def close(self) -> None: ...


class EndsCalls(Protocol):
    """Records the end of a call that nobody waits for."""

    def cancelled(self, state: CallState, why: str) -> None: ...


class Lifecycle:
    """Open, then closing, then closed, and never back.

    Args:
        journal: Watched for the engine from when its event loop is known.
        watcher: Hears what other processes want of the engine's runs.
        running: The calls that are under way, by uid.
        outcomes: Records the end of a call that nobody waits for.
        resources: Closed when nothing is under way any more.
        grace_s: How long a call that is killed may take to end, beside a second.
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
        """Whether nothing new may come."""
        self.ending = False
        """Whether what is under way is being ended, so that nothing of it may begin."""
        self.loop: asyncio.AbstractEventLoop | None = None
        self._journal = journal
        self._watcher = watcher
        self._outcomes = outcomes
        self._resources = resources
        self._grace_s = grace_s
        self._closing: asyncio.Future[None] | None = None
        self._idle = asyncio.Event()
        """Set when the engine is closed and its last call has ended."""

    def check_open(self) -> None:
        """Bind to the running event loop on first use.

        Raises:
            UsageError: The engine belongs to another one, or is closed.
        """
        loop = get_running_loop()
        if self.loop is not loop:
            if self.loop is not None:
                raise UsageError("This engine belongs to another event loop. Make one engine per loop, or use call_sync from plain code.")
            self.loop = loop
            self._journal.watch(self._watcher)
        self.check_unclosed()

    def shut(self) -> None:
        """Refuse everything new."""
        self.closed = True

    def check_unclosed(self) -> None:
        if self.closed:
            raise UsageError("This engine is closed. Make a new one.")

    def conversing(self, conversation: str) -> bool:
        """Whether a call of the conversation is under way."""
        return any(state.scope.conversation == conversation for state in self.running.values())

    def ended(self, state: CallState) -> None:
        """A call is no longer under way."""
        del self.running[state.uid]
        state.run_state.under_way -= 1
        if self.closed and not self.running:
            self._idle.set()

    async def close(self) -> None:
        """End what runs and close all resources. Idempotent; continues if whoever waits for it is cancelled.

        Raises:
            UsageError: The engine's event loop is another one, and still runs.
        """
        loop = get_running_loop()
        if self.loop is not None and self.loop is not loop and self.loop.is_running():
            raise UsageError("This engine belongs to another event loop, which still runs. Close it there.")
        self.closed = True
        if self._closing is None or self._was_cut_off(self._closing):
            self.ending = True
            self._closing = loop.create_task(self._close(alone=self.loop not in (None, loop)), context=Context())  # no tool's task
        if not self._closing.done():
            await asyncio.shield(self._closing)

    @staticmethod
    def _was_cut_off(closing: asyncio.Future[None]) -> bool:
        """Whether a close ended with its event loop, before its own end."""
        return closing.cancelled() or not (closing.done() or closing.get_loop().is_running())

    async def _close(self, *, alone: bool) -> None:
        """End what is under way, and close all resources.

        Args:
            alone: The engine's event loop is gone: what was under way there can never end by itself.
        """
        for message in list(self.messages):
            message.end(_WHY)
        for state in list(self.running.values()):
            state.kill.fire(_WHY)
        if self.running and not alone:
            with suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE_S + self._grace_s):
                    await self._idle.wait()
        for state in self.running.values():  # still in somebody's slow policy or hook: nothing of it has run, and nothing will
            self._outcomes.cancelled(state, _WHY)
        await self._resources.close()


def refuse_inside_loop() -> None:
    """Raises `UsageError` where the calling thread has a running event loop, which waiting would hold up."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError(
        "A method that ends in _sync waits, and would hold up the event loop that runs here. Await the method without that ending instead:"
        " 'await agent.run(...)', 'await engine.call(...)', 'await engine.close()'."
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
            UsageError: The loop is closed, or its thread is in another process: a fork copies no threads.
        """
        if self._process != os.getpid():
            work.close()
            raise UsageError("This engine was made before this process was forked, and cannot work in it. Make a new one here.")
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
        """Whether the thread has ended in this very process."""
        return self._process == os.getpid() and not self._thread.is_alive()

    def _run_loop(self) -> None:
        while not (self._closed or self._loop.is_closed()):
            try:
                self._loop.run_forever()
            except BaseException as error:  # a tool's or a host's sys.exit, which its caller is told: no end for all the others
                log.error("The event loop of call_sync was left by %s: %s; it goes on", type(error).__name__, error)

    def close(self) -> None:
        """Wait for what was begun, then stop the loop."""
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


class SyncRunner:
    """Runs coroutines for plain code, on an event loop in a thread that is made when it is first used."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._thread: LoopThread | None = None

    def run(self, check: Callable[[], None], work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run `work` and wait for it, unless `check` raises."""
        refuse_inside_loop()
        with self._guard:
            check()
            thread = self._thread = self._thread or LoopThread()
        return thread.run(work())

    def close(self, shut: Callable[[], None], work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `work` last, and end the thread. `shut` is called before, if anything was ever run: nothing new comes in."""
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
    """The counts of one engine."""

    def __init__(self) -> None:
        self.total = 0
        """Of all calls, those outside a conversation included."""
        self._of: dict[str, int] = {}
        """By conversation, the one that was active last at the end."""

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
        """Count anew: for this conversation, or for all and the engine."""
        if conversation is None:
            self.total = 0
            self._of.clear()
        else:
            self._of.pop(conversation, None)
