"""Find what the calls of other engines of the same journal may have written, so that the cache returns no result from before that.

An effect is on record before it begins, and its end before anybody is told of it. So a look at the record before each use of a cached
result finds every write whose result somebody may know. What such a call writes is not on record: it may be anything. Looks are made only
for cached tools that declare what they read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from callgate._abort_signals import FAILURES
from callgate._clock import Clock
from callgate._run_state.recorder import Recorder, off_loop
from callgate.event_queries import EventQuery
from callgate.events import TERMINAL, Event

__all__ = ["OtherEnginesWrites"]

_STARTED: Final = "call.started"
_ENDS: Final = (*sorted(TERMINAL), "call.late")
_MOST_EVENTS: Final = 2_000
"""The largest number of events to read in one look. If there are more, everything counts as written."""
_MOST_OWN: Final = 10_000
_GRACE_NS: Final = 10_000_000_000
"""How long a call may write beyond its timeout, for its clean-up and for the difference between two clocks."""


class _Started(Struct):
    """What `call.started` says of a call's effect."""

    effect: str = "none"
    timeout_s: float = 0.0


_decode_started = msgspec.json.Decoder(_Started).decode


class OtherEnginesWrites:
    """The writes of other engines that use the journal of one engine.

    Args:
        recorder: Has the journal, which must be shared.
    """

    def __init__(self, recorder: Recorder, clock: Clock) -> None:
        self._journal = recorder.journal
        self._log = recorder.log
        self._clock = clock
        self._looking = asyncio.Lock()
        self._looks = 0
        self._seen: int | None = None
        """The position up to which the record was read; None before the first look."""
        self._own: set[str] = set()
        """The uids of this engine's own calls that write, or whose start may be found in the record again."""
        self._own_ended: set[str] = set()
        self._open: dict[str, int] = {}
        """The wall time in nanoseconds until which each running call of another engine may write, by uid."""
        self._written = False

    def note_own_start(self, uid: str) -> None:
        """Note that a call of this engine is about to start, so that its start in the record is not taken for another engine's."""
        if self._seen is not None:
            self._own.add(uid)

    def note_own_end(self, uid: str) -> None:
        """Note that a call of this engine has ended."""
        if self._seen is not None:
            self._own_ended.add(uid)

    async def look(self) -> tuple[bool, bool]:
        """Return whether another engine may have written anything since the last look, and whether one may be writing now."""
        before = self._looks
        async with self._looking:
            if self._looks == before:  # else another caller has looked meanwhile
                self._looks += 1
                try:
                    await self._read_new()
                except FAILURES as error:
                    self._log.warning("Whether other engines have written is not known (%s); results are not cached", type(error).__name__)
                    return True, True
        written, self._written = self._written, False
        return written, bool(self._open)

    async def _read_new(self) -> None:
        ended, status = frozenset(self._own_ended), self._journal.status()
        events = await self._find(EventQuery(kinds=(_STARTED, *_ENDS), after=self._seen or 0, limit=_MOST_EVENTS, newest_first=True))
        await self._apply(events[::-1])
        self._drop_overdue()
        if self._seen is None:
            self._written = False  # nothing was kept before the first look
        elif len(events) == _MOST_EVENTS:
            self._written = True
        self._forget_own(ended, all_durable=not status.waiting)
        stored = (event.position for event in events if event.hash)  # the position of one that is not stored yet may change
        self._seen = max(self._seen or 0, status.written, *stored)

    async def _apply(self, events: Sequence[Event]) -> None:
        """Follow which calls of other engines have started and ended."""
        started: set[str] = set()
        unknown: dict[str, None] = {}
        for event in events:
            if event.call in self._own:
                continue
            if event.kind == _STARTED:
                started.add(event.call)
                self._note_start(event)
            elif self._open.pop(event.call, None) is not None:
                self._written = True
            elif event.call not in started:
                unknown[event.call] = None
        if unknown and not self._written:
            self._written = any(_has_effect(event) for event in await self._find(EventQuery(calls=tuple(unknown), kinds=(_STARTED,))))

    def _note_start(self, event: Event) -> None:
        if _has_effect(event):
            self._written = True
            self._open[event.call] = event.at_ns + int(_decode_started(event.body).timeout_s * 1e9) + _GRACE_NS

    def _drop_overdue(self) -> None:
        """Forget calls that have no end on record although their time is over: their process has ended."""
        now_ns = self._clock.wall_ns()
        for uid in [uid for uid, until_ns in self._open.items() if until_ns < now_ns]:
            del self._open[uid]
            self._written = True

    def _forget_own(self, ended: Iterable[str], *, all_durable: bool) -> None:
        """Forget own calls that have ended, if this look was the last that could find their starts."""
        if all_durable or len(self._own) > _MOST_OWN:
            self._own.difference_update(ended)
            self._own_ended.difference_update(ended)

    async def _find(self, query: EventQuery) -> list[Event]:
        return await off_loop(self._journal, lambda: list(self._journal.find(query)))


def _has_effect(started: Event) -> bool:
    return _decode_started(started.body).effect != "none"
