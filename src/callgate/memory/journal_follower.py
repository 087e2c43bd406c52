"""Follow a journal: store newly ended calls, and mark the files that they may have written.

The journal is the queue: the process holds only one page of events, and a new process continues from the stored position. Only durable
events are read, so that no passage exists without its event. Every step may be repeated.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Literal

from msgspec.structs import replace

from callgate._workspace import Workspace
from callgate.errors import CallgateError
from callgate.event_queries import EventQuery
from callgate.events import TERMINAL, Event
from callgate.memory.ended_calls import changes_of, ended_calls, marks_of
from callgate.memory.journal_read_positions import ChangedFile, ReadPositions
from callgate.memory.memory_limits import MemoryLimits
from callgate.memory.passage import Passage, PassageStore
from callgate.protocols import Journal
from callgate.tools import ToolRegistry

__all__ = ["Find", "JournalFollower", "Progress", "make_finder"]

_PAGE = 500
_MOST_OPEN = 10_000


Find = Callable[[EventQuery], Iterable[Event]]
"""A function that returns the events of a call, or up to a limit of events after a position."""

Progress = Literal["all", "some", "early"]
"""The result of `read_events`: `all` events are read, `some` remain, or the next events are not durable yet (`early`)."""


class JournalFollower:
    """Reads one journal into a memory. Thread-safe.

    Args:
        keep: Stores the passages of calls.
        tools: The tools, which declare what their calls write. A call of a tool that is missing here may have written
            anything.
        redacted: Whether the writer of the journal redacts secrets.
        files: Whether to mark files that calls may have written.
        lasting: Whether the journal outlives this process. If so, the position in it is stored.
    """

    def __init__(
        self,
        find: Find,
        positions: ReadPositions,
        store: PassageStore,
        limits: MemoryLimits,
        *,
        keep: Callable[[Mapping[str, Sequence[Passage]]], None],
        tools: ToolRegistry | None = None,
        lasting: bool = True,
        redacted: bool = False,
        files: bool = True,
    ) -> None:
        self._find = find
        self._positions = positions
        self._store = store
        self._limits = limits
        self._keep_changes = keep
        self._tools = tools
        self._lasting = lasting
        self._redacted = redacted
        self._files = files
        self._guard = threading.Lock()
        self._name = ""
        self._position = 0
        self._open: OrderedDict[str, list[Event]] = OrderedDict()

    def read_events(self, most: int, durable: Callable[[], int] | None = None) -> Progress:
        """Read the next events, at most `most`.

        Args:
            durable: Returns the position up to which events are durable. If not given, all events are durable.
        """
        with self._guard:
            while most > 0 and self._identify():
                found = list(self._find(EventQuery(after=self._position, limit=min(_PAGE, most))))
                upto = durable() if durable is not None else None
                page = [event for event in found if upto is None or event.position <= upto]
                if not page:
                    return "early" if found else "all"
                self._keep(page)
                most -= len(page)
            return "some" if most <= 0 else "all"

    def restart(self) -> None:
        """Set the position to the start of the journal, so that all events are read again."""
        with self._guard:
            if self._identify():
                self._position = 0

    def _identify(self) -> bool:
        """Identify the journal by its first event, which never changes. Return whether the journal has an event."""
        if not self._name:
            first = next(iter(self._find(EventQuery(limit=1))), None)
            if first is None:
                return False
            said = f"{first.run}\0{first.at_ns}\0{first.hash}"
            self._name = hashlib.sha256(said.encode("utf-8", "replace")).hexdigest()[:16]
            self._position = self._positions.position(self._name) if self._lasting else 0
        return True

    def _keep(self, page: list[Event]) -> None:
        calls = ended_calls(self._complete(page))
        changes: dict[str, list[Passage]] = {}
        for call in calls:
            changes |= changes_of(call, self._name)
        if self._files:
            self._positions.mark([placed for call in calls for mark in marks_of(call, self._tools) for placed in self._resolve_mark(mark)])
        if changes:
            self._keep_changes(changes)
        for principal in {call.word("principal") for call in calls}:
            if self._store.count("call", principal) > self._limits.calls:
                self._store.trim("call", principal, self._limits.calls)
        self._position = page[-1].position
        if self._lasting:
            self._positions.set_position(self._name, self._position)

    def _resolve_mark(self, mark: ChangedFile) -> Iterator[ChangedFile]:
        """Yield the mark with its real path; nothing if the path is outside the workspace or the workspace does not exist."""
        with suppress(CallgateError), Workspace(mark.workspace, sync=False) as workspace:
            path = workspace.normalise(mark.path) if mark.path else ""
            cause = replace(mark.cause, redacted=self._redacted)
            yield replace(mark, workspace=os.path.realpath(mark.workspace), path=path, cause=cause)

    def _complete(self, page: list[Event]) -> list[Event]:
        """Return all events of the calls that end on this page, and keep the events of calls that have not ended."""
        done: list[Event] = []
        for event in page:
            if event.kind == "call.received":
                self._open[event.call] = [event]
            elif event.call in self._open:
                self._open[event.call].append(event)
            if event.kind in TERMINAL:
                mine = self._open.pop(event.call, [])
                done += mine or self._find(EventQuery(call=event.call))
        while len(self._open) > _MOST_OPEN:
            self._open.popitem(last=False)
        return done


def make_finder(journal: Journal) -> Find:
    """Return a function that reads events from the journal."""

    def find(query: EventQuery) -> list[Event]:
        for _ in range(2):
            try:
                return list(journal.read(run=query.run, call=query.call, after=query.after, limit=query.limit))
            except IndexError:  # a journal in memory may have dropped its oldest events
                continue
        return []

    return find
