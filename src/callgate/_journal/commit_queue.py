"""Queue events and commit them in groups, on one writing thread. Shared by every journal with a store.

`append` never waits. `durable` asks the thread to commit what has gathered, after one turn of the event loop has brought nobody else who
waits, so that calls side by side share a commit. Events that nobody waits for are written within milliseconds. Leases are checked in the
same commit: events of a run that another engine has taken are left out, and whoever waits for them is told. After the first failure of the
store no event is accepted any more, because an event that may be lost must not be followed by one that is kept. Knows neither databases nor
what events mean.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from callgate._clock import Clock
from callgate._in_thread import in_thread
from callgate._journal.commit_waiters import LeaseRequests, Waiter, Waiters, tell
from callgate._journal.commit_writer import CommitWork, CommitWriter
from callgate._journal.event_positions import ProvisionalPosition
from callgate._journal.reader import with_pending
from callgate.errors import JournalFailed, LeaseLost, RunHeld, UsageError
from callgate.events import Draft, Event, is_leased
from callgate.protocols import InboxMessage, JournalStatus
from callgate.queries import EventQuery

__all__ = ["CommitQueue"]

_log = logging.getLogger("callgate.journal")
_MOST_PENDING = 100_000
_MANY_PENDING = 20_000
"""Pending events from which new calls wait; calls that have started may still append up to the full queue."""
_MOST_TOGETHER = 4_096
"""Events in one commit: what one that waits may have to wait for."""
_SOON_S = 0.005
"""Until what nobody waits for is written."""
_TOGETHER_S = 0.02
"""Until those who wait are no longer kept for others, though each turn of the event loop brings another one."""
_END_S = 5.0


class CommitQueue:
    """The queue in front of a store, and the thread that empties it.

    Args:
        last_seq: Returns the number of a run's last stored event; 0 for none. Must not wait for long, and may be behind.
        where: Name of the journal in errors.
        on_lost: Called in the writing thread with each run that another engine has taken, and why.
        on_message: Called in the same thread with each new message, before anybody learns that its run is held.
    """

    def __init__(
        self,
        writing: CommitWriter,
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
        self._writing = writing
        self._clock = clock
        self._last_seq = last_seq
        self._where = where
        self._on_lost = on_lost
        self._on_message = on_message
        self._position = writing.places.tail.position
        """The last provisional position that was given."""
        self._written = self._position
        """The last provisional position that was written or left out."""
        self.written = self._position
        """Everything up to here, as the store counts, is committed."""
        self._seq: dict[str, int] = {}
        self._pending: list[Event] = []
        self._recorded: dict[int, int] = {}
        """Ids of the messages that events record, by provisional position."""
        self._waiters = Waiters()
        self._left_out: dict[int, LeaseLost] = {}
        self._wanted = LeaseRequests()
        self._given_up: set[str] = set()
        """Runs whose leases are to be released."""
        self._letting_go: frozenset[str] = frozenset()
        """Those that the present commit releases."""
        self._guard = threading.Condition()
        self._closing = False
        self._urgent = False
        """Whether somebody waits for what is pending."""
        self._asleep = False
        """Whether the thread has to be woken for a first event."""
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._write_forever, name="callgate-journal", daemon=True)
        self._start()

    def _start(self) -> None:
        """Start the writing thread.

        Raises:
            UsageError: The system has no thread to give.
        """
        try:
            self._thread.start()
        except (RuntimeError, MemoryError) as error:
            self._writing.close()
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
            position, seq = self._position + 1, self._next_seq(draft.run)
            event = draft.sealed(position=position, seq=seq, at_ns=self._clock.wall_ns(), mono=self._clock.monotonic())
            self._position, self._seq[draft.run] = position, seq  # only now: an event that cannot be encoded must not leave a gap
            self._pending.append(event)
            if draft.inbox:
                self._recorded[position] = draft.inbox
            if self._asleep or len(self._pending) == _MOST_TOGETHER:
                self._guard.notify_all()
        return ProvisionalPosition(position)

    async def durable(self, position: int) -> None:
        if type(position) is not ProvisionalPosition and not self.written < position <= self._position:
            return
        if position <= self._written and not self._left_out:
            return
        with self._guard:
            if self.failure is not None:
                raise self.failure
            if position in self._left_out:
                raise self._left_out[position]
            if position <= self._written:
                return
            waiter = self._waiters.add(position)
        waiter.loop.call_soon(self._hurry, waiter)
        await waiter.future

    @property
    def crowded(self) -> bool:
        """Whether so many events wait that nobody should begin something that adds more."""
        return len(self._pending) >= _MANY_PENDING

    async def wait_for_capacity(self) -> None:
        """Wait until the queue is not crowded, or nothing more can be written."""
        while self.crowded and self.failure is None:
            with self._guard:
                middle = self._pending[len(self._pending) // 2].position if self._pending else self._written
            with suppress(LeaseLost):  # this event's own business
                await self.durable(ProvisionalPosition(middle))
            await asyncio.sleep(0)

    def _hurry(self, waiter: Waiter) -> None:
        """Ask for a commit now, unless a later waiter has come: the last of those who start side by side asks for all."""
        with self._guard:
            if waiter is self._waiters.latest and self._waiters and not self._urgent:
                self._urgent = True
                self._guard.notify_all()

    async def hold(self, run: str) -> bool:
        """Acquire the lease of a run, and return whether it was not held before.

        Raises:
            RunHeld: Somebody else has it.
        """
        with self._guard:
            self._refuse_if_broken()
            held = run in self._writing.leases.epochs
            if held and run not in self._given_up and run not in self._letting_go:
                return False
            self._given_up.discard(run)
            waiter = self._wanted.add(run)
            self._guard.notify_all()
        await waiter.future
        return not held

    def holds(self, run: str) -> bool:
        return run in self._writing.leases.epochs

    def let_go(self, run: str) -> None:
        """Release the lease of a run once its pending events are written."""
        with self._guard:
            if run in self._writing.leases.epochs or any(event.run == run for event in self._pending):
                self._given_up.add(run)
                if self._asleep:
                    self._guard.notify_all()

    def watched(self) -> None:
        """Look for messages from now on."""
        with self._guard:
            self._writing.watched = True
            self._guard.notify_all()

    def place(self, position: int) -> int:
        return self._writing.places.of(position)

    def answered(self, query: EventQuery, stored: Callable[[EventQuery], list[Event]]) -> list[Event]:
        """Return the events that the query asks for, stored or pending.

        Args:
            stored: Puts the query to the store.
        """
        if query.derived:  # only the store knows what belongs together: let it have everything first
            self._settle()
            return stored(query)
        with self._guard:
            shown = map(self._writing.places.shown, self._pending)
            fresh = [event for event in shown if query.holds(event)]
        return with_pending(query, fresh, stored)

    def _settle(self) -> None:
        """Wait until the events that are pending now are written, or cannot be."""
        with self._guard:
            position, self._urgent = self._position, True
            self._guard.notify_all()
            self._guard.wait_for(lambda: self._written >= position or self.failure is not None, _END_S)

    def status(self, store: str, strength: str, promise: str) -> JournalStatus:
        failure = self.failure
        return JournalStatus(
            store=store,
            where=self._where,
            strength=strength,
            promise=promise,
            written=self.written,
            waiting=len(self._pending),
            failure="" if failure is None else str(failure),
        )

    async def close(self) -> None:
        """Write what is pending, release all leases and end the thread. Idempotent."""
        self._ask_to_end()
        await in_thread(partial(self._thread.join, _END_S))

    def _ask_to_end(self) -> None:
        with self._guard:
            self._closing = True
            self._guard.notify_all()

    def _end_at_exit(self) -> None:
        """Write what is pending where the program ends without a close. Not in a forked process, which has no copy of the thread."""
        if self._process == os.getpid():
            self._ask_to_end()
            self._thread.join(_END_S)

    def _refuse_if_broken(self) -> None:
        if self.failure is not None:
            raise self.failure
        if self._closing:
            raise UsageError(f"The journal {self._where} is closed.")
        if len(self._pending) >= _MOST_PENDING:
            raise JournalFailed(f"The journal {self._where} cannot keep up: {_MOST_PENDING} events wait to be written. Check the disk.")

    def _next_seq(self, run: str) -> int:
        last = self._seq.get(run)
        return (self._last_seq(run) if last is None else last) + 1

    # The writing thread

    def _write_forever(self) -> None:
        try:
            while (work := self._next_work()) is not None:
                refused = self._writing.write(work)
                for message in self._writing.messages():
                    self._on_message(message)
                self._done(work, refused)
            self._fail(UsageError(f"The journal {self._where} is closed."))
        except Exception as error:
            self._fail(error)
        finally:
            self._close_store()
            atexit.unregister(self._end_at_exit)

    def _close_store(self) -> None:
        """Close the store, and note a failure: events that were reported as kept may turn out to be lost."""
        try:
            self._writing.close()
        except Exception as error:
            if self.failure is None:
                self.failure = error
                _log.error("%s", error)

    def _next_work(self) -> CommitWork | None:
        """Return what is to be written; empty where only leases and messages need a look; None at the end."""
        with self._guard:
            if not self._ready():
                self._rest()
            if self._closing and not self._pending:
                return None
            self._urgent = len(self._pending) > _MOST_TOGETHER
            batch = self._pending[:_MOST_TOGETHER]
            runs = frozenset() if len(batch) < len(self._pending) else frozenset(self._given_up)
            self._given_up -= runs
            self._letting_go = runs
            barred = {run: lost for run, lost in self.lost.items() if run not in self._wanted}
            return CommitWork(batch=batch, wanted=tuple(self._wanted), given_up=runs, recorded=dict(self._recorded), barred=barred)

    def _rest(self) -> None:
        """Wait until there is something to write, and for those who should share its commit."""
        ready = self._guard.wait_for(self._ready, _SOON_S)
        if not ready and not self._pending:
            self._asleep = True
            self._guard.wait_for(lambda: self._pending or self._ready(), self._writing.idle_s)
            self._asleep = False
            ready = self._guard.wait_for(self._ready, _SOON_S if self._pending else 0)
        if not ready and self._waiters:
            self._guard.wait_for(self._ready, _TOGETHER_S)

    def _ready(self) -> bool:
        asked = self._closing or bool(self._wanted) or bool(self._given_up and not self._pending)
        return asked or (self._urgent and bool(self._pending)) or len(self._pending) >= _MOST_TOGETHER

    def _done(self, work: CommitWork, refused: dict[str, RunHeld | LeaseLost]) -> None:
        """Wake everybody who waited.

        Args:
            refused: Runs whose leases cannot be acquired, or are lost.
        """
        with self._guard:
            self.written = self._writing.places.tail.position  # only now: it moves before the commit
            newly = self._judged(work, refused) if refused or work.wanted or work.recorded else {}
            self._letting_go = frozenset()
            ready = self._wanted.take(work.wanted, refused)
            del self._pending[: len(work.batch)]
            if work.batch:
                ready += self._up_to(work.batch[-1].position)
            self._guard.notify_all()
        tell(ready)
        for run, error in newly.items():
            self._on_lost(run, str(error))

    def _judged(self, work: CommitWork, refused: dict[str, RunHeld | LeaseLost]) -> dict[str, LeaseLost]:
        """Note which runs are held or lost and which events were left out; return the runs that are newly lost."""
        why = {run: error if isinstance(error, LeaseLost) else LeaseLost(str(error)) for run, error in refused.items()}
        for event in work.batch:
            self._recorded.pop(event.position, None)
            if event.run in why and event.leased:
                self._left_out[event.position] = why[event.run]
        for run in set(work.wanted) - why.keys():
            self.lost.pop(run, None)
            self._seq.pop(run, None)
        newly = {run: error for run, error in why.items() if run not in work.wanted and run not in self.lost}
        self.lost.update(newly)
        return newly

    def _up_to(self, provisional: int) -> list[Waiter]:
        """Return those who waited for events up to this provisional position."""
        self._written = provisional
        if not self._pending:  # nobody's place can move now: count on from the true end
            self._position = self._written = max(provisional, self.written)
        ready = self._waiters.take(provisional, self._left_out)
        while len(self._left_out) > _MOST_PENDING:
            del self._left_out[next(iter(self._left_out))]
        return ready

    def _fail(self, error: Exception) -> None:
        """Refuse every further event, and tell whoever waits."""
        with self._guard:
            self.failure = None if self._closing and not self._pending else error
            waiters = self._waiters.take_all(error) + self._wanted.take_all(error)
            self._guard.notify_all()
        tell(waiters)
