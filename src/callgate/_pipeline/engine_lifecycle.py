"""The lifecycle of one engine: the event loop it belongs to, and how its running calls are ended in bounded time.

Separate from the engine because it is a state machine of its own. Knows only that calls run and can be killed.
`sync_runner` runs coroutines for callers without an event loop.
"""

from __future__ import annotations

import asyncio
import os
import threading
from asyncio import get_running_loop
from contextvars import Context
from typing import Final, Protocol
from weakref import WeakSet

from callgate._pipeline.call_state import CallState
from callgate._pipeline.running_calls import RunningCalls
from callgate._worker_import import refuse_while_importing
from callgate.errors import UsageError
from callgate.protocols import Journal, RunWatcher

__all__ = ["FORKED", "Lifecycle"]

_WHY = "the engine was closed"
_PATIENCE_S = 1.0
FORKED: Final = "This engine was made before this process was forked, and cannot work in it. Make a new one here, and its journal."


class OpenMessage(Protocol):
    """A message whose calls have not all ended."""

    def end(self, reason: str) -> None: ...


class Closes(Protocol):
    """The resources that an engine closes last."""

    async def close(self) -> None: ...


class EndsCalls(Protocol):
    """Records the end of a call that no caller waits for."""

    def end_cancelled(self, state: CallState, why: str) -> None: ...


class Lifecycle:
    """The states of an engine: open, then closing, then closed. They never go back.

    Args:
        journal: Watched for messages from other processes once the engine's event loop is known.
        watcher: Called with messages of other processes about the engine's runs.
        running: The running calls, which are ended when the engine closes.
        outcomes: Records the end of a call that no caller waits for.
        resources: Closed when no call runs any longer.
        grace_s: How long a killed call may take to end, in addition to a fixed time of one second.
    """

    def __init__(
        self,
        journal: Journal,
        watcher: RunWatcher,
        running: RunningCalls,
        outcomes: EndsCalls,
        resources: Closes,
        grace_s: float,
    ) -> None:
        self.messages: WeakSet[OpenMessage] = WeakSet()
        self.closed = False
        """Whether new calls and runs are refused."""
        self.ending = False
        """Whether running calls are being ended, so that nothing further of them may begin."""
        self.loop: asyncio.AbstractEventLoop | None = None
        self._binding = threading.Lock()
        self._process = os.getpid()
        self._running = running
        self._journal = journal
        self._watcher = watcher
        self._outcomes = outcomes
        self._resources = resources
        self._grace_s = grace_s
        self._closing: asyncio.Future[None] | None = None

    def check_open(self) -> None:
        """Bind to the running event loop on first use.

        Raises:
            UsageError: The engine belongs to another event loop, is closed, or is used at the top level of a module that a worker process
                imports; it has a shared journal, and this process was forked since; or its journal is used by another engine.
        """
        loop = get_running_loop()
        if self.loop is not loop:
            refuse_while_importing()
            self._bind(loop)
        self.check_unclosed()

    def _bind(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._journal.shared and self._process != os.getpid():
            raise UsageError(FORKED)
        if type(loop).call_soon_threadsafe is asyncio.AbstractEventLoop.call_soon_threadsafe:
            raise UsageError(
                f"An engine cannot run in this event loop ({type(loop).__module__}), which has no threads, such as that of a Temporal"
                " workflow. Call the engine in an activity."
            )
        with self._binding:  # two threads may use a new engine at once, each with a loop of its own
            if self.loop is not None:
                raise UsageError(
                    "This engine belongs to another event loop. Make an engine for each loop, inside the function"
                    " that asyncio.run gets. Code without a loop, such as call_sync or the invoke of a graph, needs one of its own, too."
                )
            self._journal.watch(self._watcher)
            self.loop = loop

    def shut(self) -> None:
        """Refuse all new calls and runs."""
        self.closed = True

    def check_unclosed(self) -> None:
        """Raise `UsageError` if the engine is closed, or if a worker process is importing the program that uses it."""
        if self.closed:
            raise UsageError("This engine is closed. Make a new one.")
        refuse_while_importing()

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
        calls = self._running.by_uid
        for state in list(calls.values()):
            state.kill.fire(_WHY)
        if not alone:
            await self._running.wait_for(calls, _PATIENCE_S + self._grace_s)
        for state in calls.values():  # still in a slow policy or hook of the host: its tool has not run and will not run
            self._outcomes.end_cancelled(state, _WHY)
        await self._resources.close()
