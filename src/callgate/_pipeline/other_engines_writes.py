"""Find what the calls of other engines of the same journal may have written, so that the cache returns no result from before that.

The start of a call with an effect is recorded before its code runs, and its end before its caller gets the result. So reading the journal
before a cached result is used finds every write that a caller can know of. The journal does not say what a call writes, so it may be
anything. An undo of files, and a statement about an unknown outcome, say that something has changed outside of any running call. The
journal is read only for cached tools that declare what they read.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from callgate._abort_signals import FAILURES, AbortSignal, settled
from callgate._clock import Clock
from callgate._run_state.recorder import Recorder, off_loop
from callgate.event_queries import EventQuery
from callgate.events import TERMINAL, Event

__all__ = ["OtherEnginesWrites"]

_STARTED: Final = "call.started"
_ENDS: Final = (*sorted(TERMINAL), "call.late")
_OUTSIDE: Final = ("fact.settled", "files.redone", "files.undone")
"""What changes, or is known to have changed, while no engine runs the call: none has dropped what was read before that."""
_MOST_EVENTS: Final = 2_000
"""The largest number of events to read in one look. If there are more, everything counts as written."""
_TOGETHER: Final = 200
"""The largest number of calls in one query."""
_MOST_OWN: Final = 10_000
"""The number of own calls above which all that have ended are forgotten. One whose end is read after that counts as another engine's."""
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
        on_written: Called when anything may have been written since the last look; with True if not only by calls whose engines
            have dropped what they wrote from a store that they share with this engine.
        keeps_results: Whether this engine begins with results that only it drops. Then a write before the first look counts, too.
    """

    def __init__(self, recorder: Recorder, clock: Clock, on_written: Callable[[bool], None], *, keeps_results: bool) -> None:
        self._on_written = on_written
        self._journal = recorder.journal
        self._log = recorder.log
        self._clock = clock
        self._looking = asyncio.Lock()
        self._looks = 0
        self._seen: int | None = None
        """The position up to which the record was read; None before the first look."""
        self._knows_own = keeps_results
        """Whether the uids of own calls are kept."""
        self._begin = self._journal.status().written if keeps_results else sys.maxsize
        """The position up to which writes do not count, because they had ended before this engine kept anything."""
        self._own: set[str] = set()
        """The uids of this engine's own calls that write, or whose start may be found in the record again."""
        self._own_ended: set[str] = set()
        """Those whose code has ended."""
        self._own_read: set[str] = set()
        """Those whose end was found in the record, so that nothing of them is found again."""
        self._open: dict[str, int] = {}
        """The wall time in nanoseconds until which each running call of another engine may write, by uid."""
        self._is_known = False
        """Whether the last look has read the record."""

    def note_own_start(self, uid: str) -> None:
        """Note that a call of this engine is about to start, so that its start in the record is not taken for another engine's."""
        if self._knows_own:
            self._own.add(uid)

    def note_own_end(self, uid: str) -> None:
        """Note that the code of a call of this engine has ended."""
        if self._knows_own:
            self._own_ended.add(uid)

    async def are_under_way(self, kill: AbortSignal, within_s: float) -> bool:
        """Look at the record. Return whether a call of another engine may be writing now, also if that is not known in time."""
        if not self._journal.remote:
            return await self._look()
        look = asyncio.ensure_future(self._look())
        return not await settled(look, kill, within_s) or look.result()

    async def _look(self) -> bool:
        before = self._looks
        async with self._looking:
            if self._looks == before:  # else another caller has looked meanwhile
                self._looks += 1
                self._is_known = False
                try:
                    await self._read_new()
                    self._is_known = True
                except FAILURES as error:
                    self._log.warning("Whether other engines have written is not known (%s); results are not cached", type(error).__name__)
                    self._on_written(False)
            return bool(self._open) or not self._is_known  # before the next look, which another caller may be waiting for

    async def _read_new(self) -> None:
        """Read what was recorded since the last look, and report whether anything may have been written."""
        status, first = self._journal.status(), self._seen is None
        kinds = (_STARTED, *_ENDS, *_OUTSIDE)
        found = await self._find(EventQuery(kinds=kinds, after=self._seen or 0, limit=_MOST_EVENTS, newest_first=True))
        events = [event for event in reversed(found) if event.kind not in _OUTSIDE]
        outside, missed = len(events) < len(found), len(found) == _MOST_EVENTS
        if first:
            await self._follow([event for event in events if event.position <= self._begin])  # for the calls that still run
            self._drop_overdue()
            events = [event for event in events if event.position > self._begin]
            missed = missed and found[-1].position > self._begin
        elif missed:
            outside = bool(await self._find(EventQuery(kinds=_OUTSIDE, after=self._seen or 0, limit=1)))
        written = await self._follow(events) or missed
        outside = self._drop_overdue() or outside
        self._forget_own()
        stored = (event.position for event in found if event.hash)  # the position of one that is not stored yet may change
        self._seen, self._knows_own = max(self._seen or 0, status.written, *stored), True
        if written or outside:
            self._on_written(outside)

    async def _follow(self, events: Sequence[Event]) -> bool:
        """Follow which calls of other engines have started and ended, and return whether one of them had an effect."""
        written = False
        started: set[str] = set()
        unknown: dict[str, None] = {}
        for event in events:
            if event.call in self._own:
                if event.kind in TERMINAL and event.hash:
                    self._own_read.add(event.call)
            elif event.kind == _STARTED:
                started.add(event.call)
                written = self._note_start(event) or written
            elif self._open.pop(event.call, None) is not None:
                written = True
            elif event.call not in started:
                unknown[event.call] = None
        return written or await self._have_effects(list(unknown))

    def _note_start(self, event: Event) -> bool:
        """Return whether the call that starts has an effect."""
        if not _has_effect(event):
            return False
        self._open[event.call] = event.at_ns + int(_decode_started(event.body).timeout_s * 1e9) + _GRACE_NS
        return True

    async def _have_effects(self, calls: Sequence[str]) -> bool:
        """Return whether any of these calls of other engines, whose starts were not read, has an effect."""
        for first in range(0, len(calls), _TOGETHER):
            if any(map(_has_effect, await self._find(EventQuery(calls=tuple(calls[first : first + _TOGETHER]), kinds=(_STARTED,))))):
                return True
        return False

    def _drop_overdue(self) -> bool:
        """Forget calls that have no end on record although their time is over: their process has ended. Return whether there are any."""
        now_ns = self._clock.wall_ns()
        overdue = [uid for uid, until_ns in self._open.items() if until_ns < now_ns]
        for uid in overdue:
            del self._open[uid]
        return bool(overdue)

    def _forget_own(self) -> None:
        """Forget own calls that have ended and of which nothing will be found again; if there are too many, all that have ended."""
        over = frozenset(self._own_ended if len(self._own) > _MOST_OWN else self._own_ended & self._own_read)
        for uids in (self._own, self._own_ended, self._own_read):
            uids.difference_update(over)

    async def _find(self, query: EventQuery) -> list[Event]:
        return await off_loop(self._journal, lambda: list(self._journal.find(query)))


def _has_effect(started: Event) -> bool:
    return _decode_started(started.body).effect != "none"
