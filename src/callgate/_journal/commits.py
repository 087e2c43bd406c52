"""Give events their places at once and write them soon: one queue, one writing thread, group commit.

What every journal with a store behind it shares. `append` never waits; `durable` has the thread commit whatever has gathered, once every
task that is ready has had its turn, so that calls side by side share their commits. What nobody waits for is written soon after. After the
first failure nothing more is taken: an event that may be lost must not be followed by one that is kept. Knows neither databases nor what
events mean.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Protocol

from msgspec import Struct

from callgate._clock import Clock
from callgate._journal.rows import chain
from callgate.errors import JournalFailed, UsageError
from callgate.events import Draft, Event
from callgate.protocols import JournalStatus
from callgate.queries import EventQuery

__all__ = ["Commits", "Store", "Tail"]

_MOST_PENDING = 100_000
_MOST_TOGETHER = 4_096
"""Events in one commit: what one that waits may have to wait for."""
_SOON_S = 0.005
"""Until what nobody waits for is written."""
_END_S = 5.0


class Tail(Struct, frozen=True):
    """Where a stored journal ends, and for whom it is open."""

    position: int
    hash: str
    epoch: int


class Store(Protocol):
    """Where batches go. Used by the writing thread alone."""

    def write(self, batch: Sequence[Event]) -> None:
        """Commit all of them or none.

        Raises:
            JournalFailed: They are not kept, or another engine writes here now.
        """
        ...

    def renew(self) -> None:
        """Show that the writer is alive; called where nothing is written for a while."""
        ...

    def close(self) -> None: ...


class Commits:
    """The queue before a store, and the thread that empties it.

    Args:
        last_seq: The number of a run's last stored event; 0 for none. Must not wait for long.
        where: Names the journal in errors.
        renew_s: How long the store may be left alone; None: for ever.
    """

    def __init__(
        self, store: Store, tail: Tail, clock: Clock, *, last_seq: Callable[[str], int], where: str, renew_s: float | None = None
    ) -> None:
        self.written = tail.position
        """Everything up to here is kept."""
        self.failure: Exception | None = None
        self._store = store
        self._clock = clock
        self._last_seq = last_seq
        self._where = where
        self._renew_s = renew_s
        self._position, self._hash, self._epoch = tail.position, tail.hash, tail.epoch
        self._seq: dict[str, int] = {}
        self._pending: deque[Event] = deque()
        self._waiters: list[tuple[int, asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._guard = threading.Condition()
        self._closing = False
        self._urgent = False
        """Whether somebody waits for what is pending."""
        self._asleep = False
        """Whether the thread has to be told of a first event."""
        self._thread = threading.Thread(target=self._write_forever, name="callgate-journal", daemon=True)
        self._thread.start()

    def append(self, draft: Draft) -> int:
        with self._guard:
            self._refuse_if_broken()
            position, seq = self._position + 1, self._next_seq(draft.run)
            event = draft.sealed(position=position, seq=seq, at_ns=self._clock.wall_ns(), mono=self._clock.monotonic())
            self._position, self._seq[draft.run] = position, seq  # only now: an event that cannot be encoded must not leave a gap
            self._pending.append(event)
            if self._asleep or len(self._pending) == _MOST_TOGETHER:
                self._guard.notify_all()
        return position

    async def durable(self, position: int) -> None:
        if position <= self.written:
            return
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        with self._guard:
            if self.failure is not None:
                raise self.failure
            if position <= self.written:
                return
            self._waiters.append((position, loop, future))
        loop.call_soon(self._hurry)
        await future

    def _hurry(self) -> None:
        with self._guard:
            if self._waiters and not self._urgent:
                self._urgent = True
                self._guard.notify_all()

    def answered(self, query: EventQuery, stored: Callable[[EventQuery, int | None], list[Event]]) -> list[Event]:
        """What the query asks for, of what is written and what is not yet.

        Args:
            stored: Asks the store for what it has up to a position; None: for all.
        """
        if query.derived:  # only the store knows what belongs together: let it have everything first
            self._settle()
            return stored(query, None)
        with self._guard:
            written, fresh = self.written, [event for event in self._pending if query.holds(event)]
        if query.newest_first:
            fresh.reverse()
            missing = query.limit is None or len(fresh) < query.limit
            return [*fresh, *(stored(query, written) if missing else ())][: query.limit]
        return [*(stored(query, written) if query.after < written else ()), *fresh][: query.limit]

    def _settle(self) -> None:
        """Wait until what waits now is written, or cannot be."""
        with self._guard:
            position, self._urgent = self._position, True
            self._guard.notify_all()
            self._guard.wait_for(lambda: self.written >= position or self.failure is not None, _END_S)

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
        """Write what waits and end the thread. Idempotent."""
        with self._guard:
            self._closing = True
            self._guard.notify_all()
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join, _END_S)

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
            while (batch := self._next_batch()) is not None:
                if batch:
                    self._store.write(batch)
                    self._committed(batch)
                else:
                    self._store.renew()
        except Exception as error:
            self._fail(error)
        finally:
            with suppress(Exception):  # what was written is written; what was not is known
                self._store.close()

    def _next_batch(self) -> list[Event] | None:
        """What waits to be written, chained; empty where the store is to be shown a sign of life; None at the end."""
        with self._guard:
            if not self._ready() and not self._guard.wait_for(self._ready, _SOON_S) and not self._pending:
                self._asleep = True
                self._guard.wait_for(lambda: self._pending or self._closing, self._renew_s)
                self._asleep = False
                self._guard.wait_for(self._ready, _SOON_S if self._pending else 0)
            if self._closing and not self._pending:
                return None
            self._urgent = len(self._pending) > _MOST_TOGETHER
            gathered = list(islice(self._pending, _MOST_TOGETHER))
        return list(self._chained(gathered))

    def _ready(self) -> bool:
        return self._closing or (self._urgent and bool(self._pending)) or len(self._pending) >= _MOST_TOGETHER

    def _chained(self, events: Iterable[Event]) -> Iterable[Event]:
        for event in events:
            event = chain(event, self._hash, self._epoch)
            self._hash = event.hash
            yield event

    def _committed(self, batch: Sequence[Event]) -> None:
        with self._guard:
            for _ in batch:
                self._pending.popleft()
            self.written = batch[-1].position
            ready = [waiter for waiter in self._waiters if waiter[0] <= self.written]
            self._waiters = [waiter for waiter in self._waiters if waiter[0] > self.written]
            self._guard.notify_all()
        _tell([(loop, future) for _, loop, future in ready], None)

    def _fail(self, error: Exception) -> None:
        """Nothing more can be recorded: refuse every further event, and tell whoever waits."""
        with self._guard:
            self.failure = error
            waiters, self._waiters = self._waiters, []
            self._guard.notify_all()
        _tell([(loop, future) for _, loop, future in waiters], error)


def _tell(waiters: Iterable[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]], error: Exception | None) -> None:
    """Settle the futures, each on its loop and all of one loop by one wake-up."""
    by_loop: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for loop, future in waiters:
        by_loop.setdefault(loop, []).append(future)
    for loop, futures in by_loop.items():
        with suppress(RuntimeError):  # the loop of whoever waited may be gone
            loop.call_soon_threadsafe(_settle, futures, error)


def _settle(futures: Iterable[asyncio.Future[None]], error: Exception | None) -> None:
    for future in futures:
        if future.done():
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
