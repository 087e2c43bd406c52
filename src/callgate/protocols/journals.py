"""The protocol of journals: events in order, leases of runs, and the inbox for messages of other processes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from msgspec import Struct

from callgate.event_queries import EventQuery
from callgate.events import Draft, Event
from callgate.protocols.inbox import InboxMessage

__all__ = ["Journal", "JournalStatus", "NamesWriters", "OffersLeases", "QueuedJournal", "RunWatcher"]


class JournalStatus(Struct, frozen=True, kw_only=True):
    """The state of a journal, for operators."""

    store: str
    where: str
    strength: str
    promise: str
    """`strength` in words; starts with WEAKER if a stronger mode is available."""
    written: int
    """The position up to which all events are durable."""
    waiting: int = 0
    """The number of events that are not written yet."""
    failure: str = ""
    """Why no further event is recorded; empty if the journal works."""


class RunWatcher(Protocol):
    """Receives news of the runs that it holds, on its own event loop."""

    def lost(self, run: str, why: str) -> None:
        """Another engine has taken over the run: nothing of it is recorded here any more, and nothing may start in it."""
        ...

    def message_arrived(self, message: InboxMessage) -> None:
        """A message for a held run has arrived. Record it once, in an event with the message's id as `inbox`."""
        ...


class Journal(Protocol):
    """Stores events in order. Each run has one writer."""

    strength: str
    """What the events survive: `memory` nothing, `process` the end of the process, `full` a power loss."""
    remote: bool
    """Whether reading waits for a server."""
    shared: bool
    """Whether other engines may write to the same journal, and other processes may send messages to its inbox."""

    def append(self, draft: Draft) -> int:
        """Add the event and return its provisional position. Never waits.

        If others write to the same journal, the final position may be higher. Use the returned position only as a cause, for `durable` and
        for `place`.
        """
        ...

    async def durable(self, position: int) -> None:
        """Return when everything up to `position` is as durable as `strength` promises.

        Raises:
            LeaseLost: Another engine has taken over the run; the event is not stored.
        """
        ...

    def final_position(self, position: int) -> int:
        """Return the final position of a durable event, given the position that `append` returned; a final position is returned as is."""
        ...

    async def acquire_lease(self, run: str) -> bool:
        """Acquire the run's lease until it is released or the journal is closed; return whether it was newly acquired.

        The first event that only the holder may write acquires it too, without waiting.

        Raises:
            RunHeld: Another engine holds the run and may be alive.
        """
        ...

    def release_lease(self, run: str) -> None:
        """Release a run's lease when all its events are written. Never waits."""
        ...

    def watch(self, watcher: RunWatcher) -> None:
        """Send news of held runs to the engine that uses this journal object, on the running event loop.

        Raises:
            UsageError: Another engine that is not closed uses it.
        """
        ...

    def read(
        self, *, run: str | None = None, call: str | None = None, after: int = 0, limit: int | None = None, newest_first: bool = False
    ) -> Iterable[Event]:
        """Return the events after position `after`, in order or from the last backwards."""
        ...

    def find(self, query: EventQuery) -> Iterable[Event]:
        """Return the events that match the query, including those that are not durable yet."""
        ...

    def status(self) -> JournalStatus: ...

    async def close(self) -> None:
        """Make all events durable and release the journal. Idempotent."""
        ...


@runtime_checkable
class OffersLeases(Protocol):
    """A journal that can hold the lease of an idle run until another engine wants it."""

    def offer_lease(self, run: str) -> None:
        """Let other engines take the lease of a run when all its events are written. Never waits.

        Until one does, this journal holds the lease and receives the messages for the run. After that, events of the run are refused until
        `acquire_lease` is called, which keeps the lease again. Its watcher is not told of the loss, unless it was writing to the run.
        """
        ...


@runtime_checkable
class NamesWriters(Protocol):
    """A journal that knows whether an engine that wrote to it has ended, with all code that it ran."""

    writer: str
    """Names the engine that writes through this journal object; recorded with each start of a call that has effects."""

    def has_ended(self, writer: str) -> bool:
        """Whether the process of this writer has certainly ended; False if it may only be silent."""
        ...


@runtime_checkable
class QueuedJournal(Protocol):
    """A journal whose events wait in a bounded queue until they are written."""

    @property
    def crowded(self) -> bool:
        """Whether so many events are waiting that no call that would add more should start."""
        ...

    async def wait_for_capacity(self) -> None:
        """Wait until the queue has room. Return at once if nothing more can be written; then `append` raises."""
        ...
