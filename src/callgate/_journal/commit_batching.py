"""Queue events and commit them in groups on one writing thread. Used by every journal that has a store.

`append` never waits. `durable` requests a commit of the pending events after one turn of the event loop in
which no other task has called `durable`, so that concurrent calls share a commit. Events that no task waits
for are written within milliseconds. Each commit also checks the leases: events of a run that another engine
has taken are left out, and the tasks that wait for these events get `LeaseLost`. After the first failure of
the store the queue accepts no more events, because an event that may be lost must not be followed by one
that is stored. This module knows neither databases nor the meaning of events.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from callgate._clock import Clock
from callgate._journal.commit_waiters import Waiter, Waiters, wake
from callgate._journal.commit_writer import CommitWork, CommitWriter
from callgate._journal.event_positions import ProvisionalPosition
from callgate._journal.journal_reader import merge_pending
from callgate._journal.lease_changes import LeaseChanges
from callgate._journal.pending_events import PendingEvents
from callgate._run_in_thread import in_thread
from callgate.errors import JournalFailed, LeaseLost, RunHeld, UsageError
from callgate.event_queries import EventQuery
from callgate.events import Draft, Event, is_leased
from callgate.protocols import InboxMessage, JournalStatus

__all__ = ["CommitQueue"]

_log = logging.getLogger("callgate.journal")
_MOST_PENDING = 100_000
_MANY_PENDING = 20_000
"""The number of pending events above which new calls wait. Calls that have started may still append events, up to
`_MOST_PENDING`.
"""
_MOST_TOGETHER = 4_096
"""The largest number of events in one commit. It bounds how long a waiting task waits for its commit."""
_SOON_S = 0.005
"""Seconds after which events are written if no task waits for them."""
_TOGETHER_S = 0.02
"""Seconds after which a commit starts, even if every turn of the event loop has brought another waiter."""
_END_S = 5.0
_opened: weakref.WeakSet[CommitQueue] = weakref.WeakSet()
"""The queues of this process, which a forked process must not use."""


class CommitQueue:
    """The queue in front of a store, and the thread that empties it.

    Args:
        last_seq: Returns the number of a run's last stored event, 0 for none. It must not wait for long, and may return
            an older number.
        where: The name of the journal in errors.
        on_lost: Called in the writing thread with each run that another engine has taken, and the reason.
        on_message: Called in the writing thread with each new message, before `acquire_lease` returns for its run.
    """

    def __init__(
        self,
        writer: CommitWriter,
        clock: Clock,
        last_seq: Callable[[str], int],
        *,
        where: str,
        on_lost: Callable[[str, str], None],
        on_message: Callable[[InboxMessage], None],
    ) -> None:
        self.failure: Exception | None = None
        self.lost: dict[str, LeaseLost] = {}
        """Runs that another engine has taken."""
        self._writer = writer
        self._where = where
        self._on_lost = on_lost
        self._on_message = on_message
        self.written = writer.positions.tail.position
        """The final position up to which every event is committed."""
        self._pending = PendingEvents(clock, self.written, last_seq)
        self._waiters = Waiters()
        self._lease_changes = LeaseChanges(writer.leases)
        self._guard = threading.RLock()
        self._work = threading.Condition(self._guard)
        """Notified when there is work, and when some is done."""
        self._closing = False
        self._urgent = False
        """Whether a task waits for the pending events."""
        self._asleep = False
        """Whether the thread must be woken for a first event."""
        self._thread = threading.Thread(target=self._write_forever, name="callgate-journal", daemon=True)
        self._start()
        _opened.add(self)

    def _start(self) -> None:
        """Start the writing thread.

        Raises:
            UsageError: The system cannot start another thread.
        """
        try:
            self._thread.start()
        except (RuntimeError, MemoryError) as error:
            self._writer.close()
            raise UsageError(
                f"The journal {self._where} cannot be opened: no thread can be started to write it ({error})."
                " End other threads, or raise the limit of threads or memory."
            ) from error
        atexit.register(self._end_at_exit)

    def append(self, draft: Draft) -> int:
        with self._guard:
            self._refuse_if_broken()
            if self.lost and draft.run in self.lost and is_leased(draft.kind):
                raise self.lost[draft.run]
            position = self._pending.add(draft)
            if self._asleep or len(self._pending.events) == _MOST_TOGETHER:
                self._work.notify_all()
        return ProvisionalPosition(position)

    async def durable(self, position: int) -> None:
        pending = self._pending
        if type(position) is not ProvisionalPosition and not self.written < position <= pending.assigned:
            return
        if position <= pending.settled and not pending.left_out:
            return
        with self._guard:
            if self.failure is not None:
                raise self.failure
            if position in pending.left_out:
                raise pending.left_out[position]
            if position <= pending.settled:
                return
            waiter = self._waiters.add(position)
        waiter.loop.call_soon(self._request_commit, waiter)
        await waiter.future

    @property
    def crowded(self) -> bool:
        """Whether so many events are pending that no new call should start."""
        return len(self._pending.events) >= _MANY_PENDING

    async def wait_for_capacity(self) -> None:
        """Wait until the queue is not crowded, or nothing more can be written."""
        while self.crowded and self.failure is None:
            with self._guard:
                events = self._pending.events
                middle = events[len(events) // 2].position if events else self._pending.settled
            with suppress(LeaseLost):  # the loss of that event's run does not matter here
                await self.durable(ProvisionalPosition(middle))
            await asyncio.sleep(0)

    def _request_commit(self, waiter: Waiter) -> None:
        """Ask for a commit now, unless a later waiter has been added. The last of several concurrent waiters asks for all of them."""
        with self._guard:
            if waiter is self._waiters.latest and self._waiters and not self._urgent:
                self._urgent = True
                self._work.notify_all()

    async def acquire_lease(self, run: str) -> bool:
        """Acquire the lease of a run, and return whether this journal did not hold it before.

        Raises:
            RunHeld: Another engine holds the run.
        """
        with self._guard:
            self._refuse_if_broken()
            waiter = self._lease_changes.request(run)
            if waiter is None:
                return False
            self._work.notify_all()
        await waiter.future
        return waiter.newly_acquired

    def holds(self, run: str) -> bool:
        return run in self._writer.leases.epochs

    def release_lease(self, run: str) -> None:
        """Release the lease of a run once its pending events are written."""
        with self._guard:
            if run in self._writer.leases.epochs or any(event.run == run for event in self._pending.events):
                self._lease_changes.release(run)
                if self._asleep:
                    self._work.notify_all()

    def offer_lease(self, run: str) -> None:
        """Offer the lease of a run to other engines once its pending events are written."""
        with self._guard:
            if self._lease_changes.offer(run) and self._asleep:
                self._work.notify_all()

    def watch_inbox(self) -> None:
        """Read the inbox from now on."""
        with self._guard:
            self._writer.watches_inbox = True
            self._work.notify_all()

    def final_position(self, position: int) -> int:
        return self._writer.positions.final(position)

    def find(self, query: EventQuery, stored: Callable[[EventQuery], list[Event]]) -> list[Event]:
        """Return the events that match the query, stored or pending.

        Args:
            stored: Run the query on the store.
        """
        if query.derived:  # only the store can resolve the derived tables, so all events must be written first
            self._wait_until_settled()
            return stored(query)
        with self._guard:
            shown = map(self._writer.positions.with_current_positions, self._pending.events)
            fresh = [event for event in shown if query.holds(event)]
        return merge_pending(query, fresh, stored)

    def _wait_until_settled(self) -> None:
        """Wait until the events that are pending now are written, or until writing has failed."""
        with self._guard:
            position, self._urgent = self._pending.assigned, True
            self._work.notify_all()
            self._work.wait_for(lambda: self._pending.settled >= position or self.failure is not None, _END_S)

    def status(self, store: str, strength: str, promise: str) -> JournalStatus:
        failure: Exception | str | None = self.failure
        if failure is None and self._closing:
            failure = f"The journal {self._where} is closed."
        return JournalStatus(
            store=store,
            where=self._where,
            strength=strength,
            promise=promise,
            written=self.written,
            waiting=len(self._pending.events),
            failure="" if failure is None else str(failure),
        )

    async def close(self) -> None:
        """Write what is pending, release all leases and end the thread. Idempotent."""
        self._ask_to_end()
        await in_thread(partial(self._thread.join, _END_S))

    def _ask_to_end(self) -> None:
        with self._guard:
            self._closing = True
            self._work.notify_all()

    def _end_at_exit(self) -> None:
        """Write the pending events if the program ends without a close."""
        self._ask_to_end()
        self._thread.join(_END_S)

    def fail_in_forked_process(self) -> None:
        """Refuse all work: a fork does not copy the writing thread, and the store's connection must not be used by two processes."""
        self._guard = threading.RLock()  # the thread may have held the old one
        self._work = threading.Condition(self._guard)
        self.failure = UsageError(
            f"The journal {self._where} was opened before this process was forked, and cannot be used in it. Make the journal and its"
            " engine in each process, after the fork."
        )

    def _refuse_if_broken(self) -> None:
        if self.failure is not None:
            raise self.failure
        if self._closing:
            raise UsageError(f"The journal {self._where} is closed.")
        if len(self._pending.events) >= _MOST_PENDING:
            raise JournalFailed(f"The journal {self._where} cannot keep up: {_MOST_PENDING} events wait to be written. Check the disk.")

    # The writing thread

    def _write_forever(self) -> None:
        try:
            while (work := self._next_work()) is not None:
                refused = self._writer.write(work)
                for message in self._writer.new_messages():
                    self._on_message(message)
                self._finish(work, refused)
            self._fail(UsageError(f"The journal {self._where} is closed."))
        except Exception as error:
            self._fail(error)
        finally:
            self._close_store()
            atexit.unregister(self._end_at_exit)

    def _close_store(self) -> None:
        """Close the store, and record a failure: events that were reported as durable may be lost."""
        try:
            self._writer.close()
        except Exception as error:
            if self.failure is None:
                self.failure = error
                _log.error("%s", error)

    def _next_work(self) -> CommitWork | None:
        """Return the work of the next commit, or None at the end. The work is empty if only leases and messages are to be checked."""
        with self._guard:
            if not self._is_due():
                self._wait_for_work()
            if self._closing and not self._pending.events:
                return None
            events, changes = self._pending.events, self._lease_changes
            self._urgent = len(events) > _MOST_TOGETHER
            batch = events[:_MOST_TOGETHER]
            changes.begin_commit(frees_runs=len(batch) == len(events))
            lost = {run: error for run, error in self.lost.items() if run not in changes.requests}
            return CommitWork(
                batch=batch,
                to_acquire=tuple(changes.requests),
                to_release=changes.releasing,
                to_offer=changes.offering,
                recorded_messages=dict(self._pending.recorded_messages),
                lost=lost,
            )

    def _wait_for_work(self) -> None:
        """Wait until there is something to write, and then for further tasks that should share the commit."""
        ready = self._work.wait_for(self._is_due, _SOON_S)
        if not ready and not self._pending.events:
            self._asleep = True
            self._work.wait_for(lambda: self._pending.events or self._is_due(), self._writer.idle_s)
            self._asleep = False
            ready = self._work.wait_for(self._is_due, _SOON_S if self._pending.events else 0)
        if not ready and self._waiters:
            self._work.wait_for(self._is_due, _TOGETHER_S)

    def _is_due(self) -> bool:
        changes = self._lease_changes
        asked = self._closing or bool(changes.requests) or (changes.frees_runs and not self._pending.events)
        return asked or (self._urgent and bool(self._pending.events)) or len(self._pending.events) >= _MOST_TOGETHER

    def _finish(self, work: CommitWork, refused: dict[str, RunHeld | LeaseLost]) -> None:
        """Wake all tasks that waited for this commit.

        Args:
            refused: Runs whose leases cannot be acquired or are lost, and why.
        """
        with self._guard:
            self.written = self._writer.positions.tail.position  # after the commit: `tail` moves before it
            newly = self._note_refusals(work, refused) if refused or work.to_acquire or work.recorded_messages else {}
            self._lease_changes.end_commit()
            ready = self._lease_changes.requests.take(work.to_acquire, refused, self._writer.newly_held)
            if work.batch:
                self._pending.settle(work.batch, self.written)
                ready += self._waiters.take(work.batch[-1].position, self._pending.left_out)
            self._work.notify_all()
        wake(ready)
        for run, error in newly.items():
            self._on_lost(run, str(error))

    def _note_refusals(self, work: CommitWork, refused: dict[str, RunHeld | LeaseLost]) -> dict[str, LeaseLost]:
        """Record which runs are held or lost and which events were left out; return the runs that are newly lost."""
        why = {run: error if isinstance(error, LeaseLost) else LeaseLost(str(error)) for run, error in refused.items()}
        self._pending.leave_out(work.batch, why)
        acquired = set(work.to_acquire) - why.keys()
        self._pending.forget_seqs(acquired)
        for run in acquired:
            self.lost.pop(run, None)
        newly = {run: error for run, error in why.items() if run not in work.to_acquire and run not in self.lost}
        self.lost.update(newly)
        return {run: error for run, error in newly.items() if run not in self._writer.yielded}

    def _fail(self, error: Exception) -> None:
        """Refuse every further event, and wake all waiters with this error."""
        with self._guard:
            self.failure = None if self._closing and not self._pending.events else error
            waiters = self._waiters.take_all(error) + self._lease_changes.requests.take_all(error)
            self._work.notify_all()
        wake(waiters)


def _fail_in_forked_process() -> None:
    for queue in list(_opened):
        queue.fail_in_forked_process()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_fail_in_forked_process)
