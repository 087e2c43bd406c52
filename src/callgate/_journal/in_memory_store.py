"""The shared state of journals in memory: events, leases and an inbox, under one lock.

The third implementation of `LeaseStore` and `Inbox`, besides the tables in SQLite and PostgreSQL. A block under the lock is a commit.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from weakref import WeakSet

from msgspec.structs import replace

from callgate._journal.in_memory_events import MemoryEvents
from callgate.protocols import InboxMessage, Lease

__all__ = ["MemoryInbox", "MemoryLeases", "MemoryStore", "MemoryWriter"]

_ORDER = {"kill": 0, "stop": 1}
_ANSWERS = ("approve", "deny")


class MemoryWriter:
    """One opened journal. It counts as alive as long as the journal refers to this object."""

    __slots__ = ("__weakref__", "deliver", "number")

    def __init__(self, number: int, deliver: Callable[[], object]) -> None:
        self.number = number
        self.deliver = deliver
        """Called under the lock when a message was added."""


class MemoryLeases:
    """A `LeaseStore` in memory. A holder is alive as long as its journal object exists."""

    def __init__(self) -> None:
        self._leases: dict[str, Lease] = {}
        self._of_holder: dict[int, dict[str, int]] = {}
        self.epoch = 0
        """The epoch of the latest lease, or the number of the latest journal that was opened."""
        self._writers: WeakSet[MemoryWriter] = WeakSet()

    @property
    def writers(self) -> list[MemoryWriter]:
        """Return the writers whose journal objects still exist."""
        return list(self._writers)

    def join(self, deliver: Callable[[], object]) -> MemoryWriter:
        """Register another journal and return its writer."""
        writer = MemoryWriter(self.next_epoch(), deliver)
        self._writers.add(writer)
        return writer

    def now_ns(self) -> int:
        return time.monotonic_ns()

    def is_alive(self, holder: int) -> bool:
        return any(writer.number == holder for writer in self._writers)

    def last_epoch(self) -> int:
        return self.epoch

    def next_epoch(self) -> int:
        self.epoch += 1
        return self.epoch

    def get(self, run: str) -> Lease | None:
        return self._leases.get(run)

    def put(self, lease: Lease) -> None:
        before = self._leases.get(lease.run)
        if before is not None:
            self.release(before.holder, lease.run)
        self._leases[lease.run] = lease
        self._of_holder.setdefault(lease.holder, {})[lease.run] = lease.epoch

    def epochs(self, holder: int) -> Mapping[str, int]:
        return self._of_holder.get(holder, {})

    def renew(self, holder: int, expires_ns: int | None) -> None:
        for run in (run for run in self.epochs(holder) if self._leases[run].expires_ns != 0):
            self._leases[run] = replace(self._leases[run], expires_ns=expires_ns)

    def release(self, holder: int, run: str) -> None:
        if self._of_holder.get(holder, {}).pop(run, None) is not None:
            del self._leases[run]

    def release_all(self, holder: int) -> None:
        for run in self._of_holder.pop(holder, {}):
            del self._leases[run]


class MemoryInbox:
    """An `Inbox` in memory.

    Args:
        leases: The leases, which decide whose runs the messages are for.
        events: The events, in which the cause of a message is looked up.
    """

    def __init__(self, leases: MemoryLeases, events: MemoryEvents) -> None:
        self._leases = leases
        self._events = events
        self._messages: dict[int, InboxMessage] = {}
        """Messages that no event has recorded."""
        self._positions: dict[int, int] = {}
        """The positions of the events that recorded the other messages, by message id."""
        self._last = 0

    def add(self, *, run: str, kind: str, target: str, actor: str, reason: str, at_ns: int) -> int:
        self._last += 1
        message = InboxMessage(id=self._last, run=run, kind=kind, target=target, actor=actor, reason=reason, at_ns=at_ns)
        self._messages[message.id] = message
        return message.id

    def pending(self, holder: int, *, known: Collection[int] = (), limit: int = 1_024) -> list[InboxMessage]:
        held = self._leases.epochs(holder)
        found = [one for one in self._messages.values() if one.run in held and one.id not in known]
        found.sort(key=lambda one: (_ORDER.get(one.kind, len(_ORDER)), one.id))
        return [replace(one, cause=self._cause(one)) for one in found[:limit]]

    def unrecorded(self, run: str) -> list[InboxMessage]:
        return [one for one in self._messages.values() if one.run == run]

    def position(self, id: int) -> int:
        return self._positions.get(id, 0)

    def mark_recorded(self, id: int, position: int) -> None:
        if self._messages.pop(id, None) is not None:
            self._positions[id] = position

    def _cause(self, message: InboxMessage) -> int:
        if message.kind in _ANSWERS:
            events = self._events.read(call=message.target, newest_first=True) if message.target else []
            return next((event.position for event in events if event.kind == "call.suspended"), 0)
        return next((event.position for event in self._events.read(run=message.run, newest_first=True, limit=1)), 0)


class MemoryStore:
    """The state that journals in memory share.

    Args:
        most: How many events are kept at most.
    """

    def __init__(self, most: int) -> None:
        self.lock = threading.RLock()
        self.events = MemoryEvents(most, self.lock)
        self.leases = MemoryLeases()
        self.inbox = MemoryInbox(self.leases, self.events)
        self.who = f"process {os.getpid()}"

    @contextmanager
    def inbox_commit(self) -> Iterator[None]:
        """Add messages inside the block. When it ends, they are delivered to the journals that hold their runs."""
        with self.lock:
            yield
            for writer in self.leases.writers:
                writer.deliver()
