"""Which calls wait for which others, and whether another wait would make a call wait for itself.

A call that makes another call waits for it. So a call would wait for itself if it waited, directly or through others,
for a call within which it was made. Pure. Shared by all stages in which a call may wait for another call.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from callgate._pipeline.call_state import CallState

__all__ = ["WaitGraph", "callers"]


def callers(state: CallState) -> Iterator[CallState]:
    """Return the calls within which this one was made, the innermost first."""
    above = state.caller
    while above is not None:
        yield above
        above = above.caller


class WaitGraph:
    """The waiting calls of one engine."""

    def __init__(self) -> None:
        self._awaited: dict[CallState, CallState] = {}
        """The call that each waiting call waits for."""
        self._within: dict[CallState, dict[CallState, None]] = {}
        """For each call, the waiting calls that are this call or were made within it."""

    def begin(self, waiting: CallState, awaited: CallState) -> None:
        """Record that a call waits for another one. It replaces an earlier wait of the call."""
        if waiting not in self._awaited:
            for state in (waiting, *callers(waiting)):
                self._within.setdefault(state, {})[waiting] = None
        self._awaited[waiting] = awaited

    def end(self, waiting: CallState) -> None:
        """Record that a call no longer waits. Does nothing if it did not wait."""
        if self._awaited.pop(waiting, None) is None:
            return
        for state in (waiting, *callers(waiting)):
            within = self._within[state]
            del within[waiting]
            if not within:
                del self._within[state]

    @contextmanager
    def waiting(self, waiting: CallState, awaited: CallState) -> Iterator[None]:
        """Record that a call waits for another one until the block ends."""
        self.begin(waiting, awaited)
        try:
            yield
        finally:
            self.end(waiting)

    def would_deadlock(self, waiting: CallState, awaited: CallState) -> bool:
        """Return whether `awaited` cannot end before `waiting` does, or before a call within which `waiting` was made."""
        line = {waiting, *callers(waiting)}
        found, queue = {awaited}, [awaited]
        while queue:
            state = queue.pop()
            if state in line:
                return True
            more = {self._awaited[one] for one in self._within.get(state, ())} - found
            found |= more
            queue += more
        return False
