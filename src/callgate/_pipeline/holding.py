"""The runs that one engine works on: who of its own is at work on them, and what happens when another engine has taken one over.

A run that is lost ends here at once: its calls are killed, its conversation too, and nothing more of it can be recorded, because the
journal refuses. Beside `known_runs`, which has what is in a run. Knows no route and no loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

from msgspec import Struct, field

from callgate._abort_signals import Control
from callgate._pipeline.flight import Flight
from callgate._pipeline.post import KnowsRuns, Post, Questions
from callgate._pipeline.writer import Writer
from callgate.errors import UsageError
from callgate.protocols import InboxMessage

__all__ = ["Holding"]

_MOST_LOST = 1_000


class Known(KnowsRuns, Protocol):
    """What the engine knows of its runs."""

    def lost(self, run: str) -> None: ...
    def under_way(self, run: str) -> bool: ...


class _Work(Struct):
    """Who is at work on one run."""

    count: int = 0
    conversations: set[str] = field(default_factory=set)
    begun: bool = False
    """Whether it has its conversation to itself by now."""
    end_wanted: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while a stop or kill waits for the run to begin."""


class Holding:
    """Runs by id.

    Args:
        own: The engine's own run, which is held until the engine is closed.
        running: The calls that are under way.
        known: What is known of runs.
        questions: What was asked in them.
    """

    def __init__(
        self,
        writer: Writer,
        control: Control,
        own: str,
        running: Callable[[], Iterable[Flight]],
        known: Known,
        questions: Questions,
    ) -> None:
        self._journal = writer.journal
        self._log = writer.log
        self._control = control
        self._own = own
        self._running = running
        self._known = known
        self._work: dict[str, _Work] = {}
        self._post = Post(writer, control, self._work.get, running, known, questions)
        self._lost: dict[str, str] = {}

    def is_busy(self, run: str) -> bool:
        return run == self._own or run in self._work or self._known.under_way(run)

    @contextmanager
    def at_work(self, run: str, conversation: str | None, *, alone: bool) -> Iterator[asyncio.Event]:
        """Say that somebody works on a run, for as long as the block lasts; others may have it then.

        Yields:
            An event that is set when another process wants the run stopped or killed before it begins.

        Raises:
            UsageError: Somebody does already, and two at once may not be.
        """
        if alone and run in self._work:
            raise UsageError(f"Run '{run[:80]}' is being worked on already. Wait until that has ended, or kill its conversation.")
        self._lost.pop(run, None)
        work = self._work.setdefault(run, _Work())
        work.count += 1
        if conversation is not None:
            work.conversations.add(conversation)
        try:
            yield work.end_wanted
        finally:
            work.count -= 1
            if not work.count:
                del self._work[run]
                if not self.is_busy(run):
                    self._post.forget(run)
                    self._journal.let_go(run)

    def why_lost(self, run: str) -> str:
        """Why nothing more can be done in a run; empty where it can."""
        return self._lost.get(run, "")

    def lost(self, run: str, why: str) -> None:
        """Somebody else has the run now."""
        self._log.error("%s", why)
        self._lost[run] = why
        while len(self._lost) > _MOST_LOST:
            del self._lost[next(iter(self._lost))]
        self._known.lost(run)
        for flight in self._running():
            if flight.scope.run == run:
                flight.kill.fire(why)
        work = self._work.get(run)
        for conversation in work.conversations if work is not None else ():
            self._control.kill(conversation, why)

    # What other processes want

    def came(self, letter: InboxMessage) -> None:
        self._post.came(letter)

    def begin(self, run: str) -> None:
        """A run of an agent has its conversation to itself now: what was wanted of it before is wanted still."""
        if run in self._work:
            self._work[run].begun = True
        self.take_in(run)

    def take_in(self, run: str) -> None:
        """Do what is wanted of a run, as far as it can be done by now."""
        self._post.take_in(run)
