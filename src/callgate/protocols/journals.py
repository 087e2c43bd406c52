"""What keeps the record: events in order, runs that are held, and what other processes want of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from msgspec import Struct

from callgate.events import Draft, Event
from callgate.queries import EventQuery

__all__ = ["Journal", "JournalStatus", "Letter", "NamesWriters", "QueuedJournal", "RunWatcher"]


class JournalStatus(Struct, frozen=True, kw_only=True):
    """How a journal does, for an operator."""

    store: str
    where: str
    strength: str
    promise: str
    """What `strength` means, in words; begins with WEAKER where more could be had."""
    written: int
    """The position up to which everything is kept."""
    waiting: int = 0
    """Events that are not written yet."""
    failure: str = ""
    """Why nothing more is recorded; empty while all is well."""


class Letter(Struct, frozen=True, kw_only=True):
    """A row of a journal's inbox: what another process wants of a run."""

    id: int
    run: str
    kind: str
    """`approve`, `deny`, `stop` or `kill`; whatever else stands there is refused."""
    target: str
    """The approval, or the run."""
    actor: str
    reason: str
    at_ns: int
    """When it was put there, in UTC nanoseconds by the writer's clock."""
    cause: int = 0
    """The position of the event that it is about: the question, or the run's latest; 0: there is none."""


class RunWatcher(Protocol):
    """Told, on its own event loop, what becomes of the runs that a journal is held for."""

    def lost(self, run: str, why: str) -> None:
        """Somebody else has the run now: nothing of it is recorded here any more, and nothing may start in it."""
        ...

    def came(self, letter: Letter) -> None:
        """Another process wants something of a run that is held. To be recorded once, by an event with the letter's id as `inbox`."""
        ...


class Journal(Protocol):
    """Keeps events in order. One writer for each run."""

    strength: str
    """What survives: `memory` nothing, `process` the end of the process, `full` power loss."""
    remote: bool
    """Whether reading waits for a server."""

    def append(self, draft: Draft) -> int:
        """Take the event and return its position. Never waits.

        Where others write to the same journal the event may come to stand further on: a position that was returned here is good as a cause,
        for `durable` and for `place`, and for nothing else.
        """
        ...

    async def durable(self, position: int) -> None:
        """Return when everything up to `position` survives what `strength` promises.

        Raises:
            LeaseLost: The run is somebody else's now; nothing of this event is kept.
        """
        ...

    def place(self, position: int) -> int:
        """Where an event stands that is durable, by the position that `append` returned; a position that was read is given back."""
        ...

    async def hold(self, run: str) -> bool:
        """Have a run to oneself until it is let go or the journal is closed; tells whether it was not held before.

        The first event that only a run's holder may write does the same, without waiting.

        Raises:
            RunHeld: Somebody else has it, and may be alive.
        """
        ...

    def let_go(self, run: str) -> None:
        """Give a run back once all that was appended to it is written. Never waits."""
        ...

    def watch(self, watcher: RunWatcher) -> None:
        """Tell somebody on the running event loop what becomes of runs that are held."""
        ...

    def read(
        self, *, run: str | None = None, call: str | None = None, after: int = 0, limit: int | None = None, newest_first: bool = False
    ) -> Iterable[Event]:
        """Events after position `after`, in order, or backwards from the last."""
        ...

    def find(self, query: EventQuery) -> Iterable[Event]:
        """The events that the query asks for, those that are not durable yet included."""
        ...

    def status(self) -> JournalStatus: ...

    async def close(self) -> None:
        """Make everything durable and let go. Idempotent."""
        ...


@runtime_checkable
class NamesWriters(Protocol):
    """A journal that can tell whether an engine that wrote to it has ended, and with it all code that it ran."""

    writer: str
    """Names the engine that writes through this journal object; recorded with each start of a call that has effects."""

    def has_ended(self, writer: str) -> bool:
        """Whether the process of the writer with this name has certainly ended; False where it may only be silent."""
        ...


@runtime_checkable
class QueuedJournal(Protocol):
    """A journal whose events wait in a bounded queue until they are written."""

    @property
    def crowded(self) -> bool:
        """Whether so many events wait that nobody should begin something that adds more."""
        ...

    async def wait_for_capacity(self) -> None:
        """Wait until it is not crowded. Return at once if nothing more can be written: `append` raises then."""
        ...
