"""What journals in memory share: events, leases and an inbox, under one lock.

The third implementation of `LeaseStore` and `Inbox`, beside the tables in SQLite and PostgreSQL. A block under the lock is a commit.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from weakref import WeakSet

from msgspec.structs import replace

from callgate._journal.memory_events import MemoryEvents
from callgate.protocols import InboxMessage, Lease

__all__ = ["MemoryInbox", "MemoryLeases", "MemoryStore", "MemoryWriter"]

_ORDER = {"kill": 0, "stop": 1}
_ANSWERS = ("approve", "deny")


class MemoryWriter:
    """One opened journal, for as long as somebody has it."""

    __slots__ = ("__weakref__", "deliver", "number")

    def __init__(self, number: int, deliver: Callable[[], object]) -> None:
        self.number = number
        self.deliver = deliver
        """Called when a message has come, under the lock."""


class MemoryLeases:
    """A `LeaseStore` in memory. A holder is alive for as long as its journal object exists."""

    def __init__(self) -> None:
        self._leases: dict[str, Lease] = {}
        self._of_holder: dict[int, dict[str, int]] = {}
        self.epoch = 0
        """Of the latest lease, or of the latest journal that was opened."""
        self._writers: WeakSet[MemoryWriter] = WeakSet()

    @property
    def writers(self) -> list[MemoryWriter]:
        """The journals that are there."""
        return list(self._writers)

    def join(self, deliver: Callable[[], object]) -> MemoryWriter:
        """Count another journal in."""
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
        for run in self.epochs(holder):
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
        leases: Say whose messages are whose.
        events: Say what a message is about.
    """

    def __init__(self, leases: MemoryLeases, events: MemoryEvents) -> None:
        self._leases = leases
        self._events = events
        self._messages: dict[int, InboxMessage] = {}
        """Those that no event has recorded."""
        self._positions: dict[int, int] = {}
        """Of the events that recorded the others."""
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
    """What all journals have in common that share the events.

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
        """Add messages in the block; whoever holds their runs is told when it ends."""
        with self.lock:
            yield
            for writer in self.leases.writers:
                writer.deliver()
