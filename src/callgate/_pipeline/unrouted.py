"""Calls of a message that never take the route, or leave it untaken: each gets onto the record, and has its end.

Because their message ended before them, has more calls than the limit, or is held by nobody any more. Starts nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from callgate._pipeline.endings import Endings
from callgate._pipeline.flight import Flight
from callgate._pipeline.life import Life
from callgate._pipeline.record import Reason
from callgate._pipeline.writer import Writer
from callgate.calls import Outcome, RawCall, Scope
from callgate.errors import CallNotStarted, RecordFailed
from callgate.events import Draft

__all__ = ["Unrouted"]

_TOGETHER = 64
"""Calls that are refused before the event loop comes round."""


class Unrouted:
    """What one engine does for calls that it does not take along the route."""

    def __init__(self, writer: Writer, endings: Endings, life: Life) -> None:
        self._writer = writer
        self._endings = endings
        self._life = life

    def not_started(self, flight: Flight, why: str) -> Outcome:
        """The end of a call of a message that ended before it."""
        if not flight.on_record:
            with suppress(RecordFailed):  # the end meets the same fault, and says so
                flight.received()
        error = CallNotStarted(f"It was not started: {why}. Nothing happened; it may be sent again.")
        return self._endings.ended(flight, error, flight.raw.name)

    async def above_limit(self, raws: list[RawCall], scope: Scope, most: int) -> list[Outcome]:
        """The outcomes of a message's calls above the limit: refused one by one, recorded once for all of them."""
        why = f"Its message has {most + len(raws)} calls; {most} is the limit"
        error = CallNotStarted(
            f"It was not started: {why}, and it is one of those above. Nothing happened; send it again in a later message.",
            code="too_many_calls",
        )
        outcomes: list[Outcome] = []
        for number, raw in enumerate(raws, 1):
            outcomes.append(self._endings.unrouted(raw, scope, error))
            if number % _TOGETHER == 0:
                await asyncio.sleep(0)
        self._writer.log.warning("%s. The %d above it were refused", why, len(raws))
        self._note(scope.run, "emission.limited", Reason(reason=why, details={"limit": most, "refused": len(raws)}))
        return outcomes

    def forgotten(self, flights: list[Flight], why: str) -> None:
        """End the calls of a message that nobody has any more, as soon as the event loop comes round. From any thread."""
        if self._life.loop is not None:
            with suppress(RuntimeError):  # the loop is closed, and nothing can be written any more
                self._life.loop.call_soon_threadsafe(self._forget, flights, why)

    def _forget(self, flights: list[Flight], why: str) -> None:
        left = [flight for flight in flights if not flight.ended]
        if self._life.closed and not left:  # closing has ended them
            return
        for flight in left:
            self.not_started(flight, why)
        self.note("emission.discarded", [flight.uid for flight in flights], why)

    def note(self, kind: str, uids: list[str], reason: str) -> None:
        """Record what happened to a message as a whole."""
        self._note(uids[0].rsplit("/", 2)[0], kind, Reason(reason=reason, details={"calls": uids}))

    def _note(self, run: str, kind: str, body: Reason) -> None:
        try:
            self._writer.write(Draft(kind=kind, run=run, body=body))
        except RecordFailed as error:  # each call meets the same fault on its own way, and says so
            self._writer.log.error("%s", error)

    async def told(self, ends: Sequence[tuple[Flight, Outcome]]) -> list[Outcome]:
        """See `Endings.told`."""
        return await self._endings.told(ends)
