"""A call that is handed in again while it runs, or after: it gets what the first one gave.

What is known of a run's calls is in `again`; here a call on its way is entered there, and a second one waits for it or reads its result.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from msgspec.structs import replace

from callgate._abort_signals import settled
from callgate._json import canonical
from callgate._pipeline.again import Known
from callgate._pipeline.flight import Flight
from callgate._pipeline.record import decode_result
from callgate._pipeline.writer import off_loop
from callgate.calls import Note, ToolResult
from callgate.errors import CallNotStarted, OutcomeUnknown
from callgate.protocols import Journal
from callgate.route import ValidatedCall

__all__ = ["earlier_result", "taking_on"]

_TWICE: Final = Note(kind="warning", text="The message had this call twice, with the same id, tool and arguments: it ran once.")


@contextmanager
def taking_on(flight: Flight, call: ValidatedCall, key: str, asked_hash: str) -> Iterator[Known]:
    """Remember a call while it is under way, and what came of it; one that never started may be handed in again.

    Where something breaks after the tool's code may have been entered, what came of it is in doubt.
    """
    state = flight.state
    known = state.take_on(call, key, asked_hash)
    flight.asked_hash = asked_hash
    try:
        yield known
    except BaseException:
        if flight.started:
            state.now_uncertain(call, flight.encoded, key, gone=False)
        raise
    finally:
        state.over(known, key, started=flight.started)


async def earlier_result(known: Known, flight: Flight, journal: Journal, timeout_s: float) -> tuple[ToolResult, str]:
    """The result of a call that is handed in again, and whether it was stored (`replayed`) or still running (`joined`).

    Raises:
        CallNotStarted: It was refused before it started.
        OutcomeUnknown: It ran and left no result, or did not end in time.
    """
    joined = known.running is not None
    if known.running is not None:
        await settled(known.running, flight.kill, timeout_s)
    if not known.entered:
        raise CallNotStarted(
            f"{known.tool} was handed in twice at once, and {known.uid} was refused. Nothing happened; it may be sent again."
        )
    result = known.result or (await off_loop(journal, partial(_from_journal, known, journal)) if known.kept else None)
    if result is None:
        raise OutcomeUnknown(
            f"{known.tool} was handed in again while {known.uid} ran, and that call gave no result. Check the real state first."
        )
    notes = (*result.metadata.notes, _TWICE) if flight.duplicate else result.metadata.notes
    metadata = replace(result.metadata, replayed=not joined, joined=joined, notes=notes)
    own = decode_result(canonical(result))  # nobody shares what somebody may change
    return replace(own, id=flight.raw.id, uid=flight.uid, metadata=metadata), "joined" if joined else "replayed"


def _from_journal(known: Known, journal: Journal) -> ToolResult | None:
    ends = [event for event in journal.read(call=known.uid) if event.kind == "call.completed"]
    return decode_result(ends[-1].body) if ends else None
