"""Count the questions of a journal that no human has answered, for the metrics.

The journal is read and not what this gateway remembers, because other gateways and commands ask and answer, too. Only what was written
since the last read is read.
"""

from __future__ import annotations

import asyncio
import threading

from callgate._run_state.event_bodies import question_of
from callgate._run_state.recorder import off_loop
from callgate.engine import Engine
from callgate.errors import CallgateError
from callgate.event_queries import EventQuery

__all__ = ["UnansweredQuestions"]

_WAIT_S = 1.0
"""How long a refresh waits for a journal on a server. Metrics have to be shown just when it does not answer."""
_READ_AGAIN = 1_000
"""How many positions are read again, because events that are not written yet may still change their positions."""
_KINDS = ("call.suspended", "approval.answered", "approval.closed")


class UnansweredQuestions:
    """The open questions of the journal of an engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._expires_ns: dict[str, int] = {}
        """When each question expires that was asked, by its id."""
        self._over: set[str] = set()
        """The ids of questions that are answered or closed."""
        self._read_to = 0
        self._reading: asyncio.Task[None] | None = None
        self._lock = threading.Lock()
        """Held by a reader of the journal."""

    async def refresh(self) -> None:
        """Read the journal without blocking the event loop. If that takes long, it goes on while the caller does."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(off_loop(self._engine.journal, self._read))
        await asyncio.wait({self._reading}, timeout=_WAIT_S)

    def count(self) -> int:
        """Return how many questions are open. Reads the journal, unless it is on a server: see `refresh`."""
        if not self._engine.journal.remote:
            self._read()
        now_ns = self._engine.clock.wall_ns()
        known = self._expires_ns.copy()  # a thread may be adding to it
        return sum(expires_ns > now_ns for approval, expires_ns in known.items() if approval not in self._over)

    def _read(self) -> None:
        """Read what is new. If the journal cannot be read, what was read before stays."""
        clock, life_ns = self._engine.clock, int(self._engine.limits.approval_s * 1e9)
        with self._lock:
            self._forget_expired(clock.wall_ns())
            query = EventQuery(kinds=_KINDS, since_ns=clock.wall_ns() - life_ns, after=max(0, self._read_to - _READ_AGAIN))
            try:
                for event in self._engine.journal.find(query):
                    self._read_to = max(self._read_to, event.position)
                    if event.kind == "call.suspended":
                        question = question_of(event)
                        self._expires_ns.setdefault(question.approval_id, question.expires_at or event.at_ns + life_ns)
                    else:
                        self._over.add(event.call)
            except (CallgateError, ValueError):  # the connection is lost, or an event is damaged
                return

    def _forget_expired(self, now_ns: int) -> None:
        for approval in [approval for approval, expires_ns in self._expires_ns.items() if expires_ns <= now_ns]:
            del self._expires_ns[approval]
            self._over.discard(approval)
