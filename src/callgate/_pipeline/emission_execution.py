"""Run the calls of one message on the route: start each when those before it allow that, and end those that do not run.

`Emission` takes and prepares the calls. A call that may start early is started by it, and all others when the message is sealed. Each call
waits for those that it conflicts with, which `emission_order` decides, and `duplicate_calls` finds repeated ones. Knows nothing of
positions, and of calls that do not take the route.
"""

from __future__ import annotations

import asyncio
import warnings
from functools import partial
from typing import Final

from msgspec import Struct

from callgate._abort_signals import AbortSignal
from callgate._pipeline.call_route import CallRoute
from callgate._pipeline.duplicate_calls import DuplicateCalls
from callgate._pipeline.emission_calls import EmissionCall
from callgate._pipeline.emission_order import EmissionOrder
from callgate._pipeline.task_queue import TaskQueue
from callgate.calls import Aborted

__all__ = ["AT_ONCE", "AT_ONCE_BYTES", "EmissionExecution"]

AT_ONCE: Final = 64
"""The number of calls to prepare or run before other tasks of the event loop may run: some milliseconds."""
AT_ONCE_BYTES: Final = 262_144
"""The bytes of arguments to prepare or run before other tasks of the event loop may run."""
_BEGUN_AT_ONCE: Final = 1_024
"""The number of calls to begin before other tasks of the event loop may run."""
_FORGOTTEN: Final = "its unstarted calls were ended, and its results are lost. Seal it, or discard it where its stream fails."


class EmissionExecution(Struct, eq=False):
    """The calls of one message that take the route. Its tasks keep it alive until they have ended."""

    route: CallRoute
    kill: AbortSignal
    """Ends every call when it fires."""
    queue: TaskQueue
    entries: list[EmissionCall]
    """The calls, in order. It grows while the message is streaming."""
    order: EmissionOrder
    duplicates: DuplicateCalls
    is_over: bool = False
    """Whether the message was sealed or discarded."""
    _stopped: bool = False
    """Whether a call ended the message, so that calls which have not started will not start."""

    def start(self, entry: EmissionCall) -> None:
        """Run a call as soon as those that it waits for have ended."""
        entry.state.before_start = partial(self.order.clear_to_start, entry)
        entry.queued = True
        self.queue.add(partial(self._run, entry), 1 + entry.size_bytes * AT_ONCE // AT_ONCE_BYTES)

    async def run_to_end(self) -> None:
        """Run every call to its outcome. If one has ended the message before it was sealed, end the others."""
        for entry in self.entries:
            if type(entry.outcome) is Aborted:
                await self._end_others(f"its message was ended by another call ({entry.outcome.reason})")
                return
        for number, entry in enumerate(self.entries, 1):
            if not entry.queued and entry.outcome is None:
                self.start(entry)
            if number % _BEGUN_AT_ONCE == 0:
                await asyncio.sleep(0)
        await self.queue.wait_until_done()
        for entry in self.entries:
            if entry.outcome is None:
                raise asyncio.CancelledError  # the tasks of the message were cancelled from outside

    def end(self, reason: str) -> None:
        """End every call now: calls that have not begun will not begin, and running calls are killed."""
        self.kill.fire(reason)
        self._end_rest(reason, [entry for entry in self.entries if not entry.entered])

    async def end_all(self, reason: str) -> None:
        """End every call, and wait for the running ones. If the waiting task is cancelled, they end by themselves."""
        self.end(reason)
        await asyncio.shield(self.queue.wait_until_done())
        self._end_rest(reason, self.entries)

    def __del__(self) -> None:
        if self.is_over or not self.entries:
            return
        self.route.unstarted.end_forgotten([entry.state for entry in self.entries], "its message was dropped by the host")
        what = f"A message of {len(self.entries)} calls was neither sealed nor discarded; {_FORGOTTEN}"
        warnings.warn(what, ResourceWarning, stacklevel=2, source=self)

    async def _run(self, entry: EmissionCall) -> None:
        try:
            for index in entry.waits:
                await self.entries[index].wait_end(self.kill)
            if entry.same_effect is not None:
                await self.duplicates.join_refused(entry, entry.same_effect)
            if entry.state.recorder.crowded:
                await entry.state.recorder.wait_for_capacity()
            if entry.outcome is None and not self._stopped and entry.call is not None:
                entry.entered = True
                if len(self.entries) > 1:
                    await self.duplicates.join_same_id(entry, entry.call)
                entry.outcome = await self.route.complete(entry.state, entry.call)
            elif entry.outcome is None:
                await self._end_unstarted(entry, "the message was stopped before this call")
            self._stopped = self._stopped or isinstance(entry.outcome, Aborted)
        finally:
            entry.state.before_start = None  # breaks the reference cycle between entry and state
            if entry.ended is not None:
                entry.notify_end()

    async def _end_others(self, why: str) -> None:
        for entry in self.entries:
            if entry.outcome is None and not entry.entered:
                await self._end_unstarted(entry, why)
        await self.end_all(why)

    async def _end_unstarted(self, entry: EmissionCall, why: str) -> None:
        """End a call that has not started because its message was stopped. If it was handed in before, it gets its result."""
        if entry.call is None:
            entry.outcome = self.route.unstarted.end(entry.state, why)
        else:
            entry.outcome = await self.route.end_unstarted(entry.state, entry.call, why)

    def _end_rest(self, why: str, entries: list[EmissionCall]) -> None:
        """End those of these calls that have no outcome, as not started."""
        for entry in entries:
            if entry.outcome is None and not entry.state.ended:
                entry.outcome = self.route.unstarted.end(entry.state, why, entry.call)
