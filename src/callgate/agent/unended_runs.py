"""Find out whether the latest turn of a run has left calls that only a resumption can take up.

A new turn of the same run would hide them: a run is resumed from its latest turn. Only reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec

from callgate._run_state.recorder import off_loop
from callgate.agent.run_recorder import RunEndedBody, read_body
from callgate.engine import Engine
from callgate.errors import UsageError
from callgate.events import Event

__all__ = ["refuse_unended"]

_LATEST_EVENTS: Final = 50
"""How many events are read to find the end of the latest turn, which few events follow."""
_LOOP: Final = frozenset({"run.began", "run.resumed", "run.ended"})


async def refuse_unended(engine: Engine, run: str) -> None:
    """Check that a new turn of a run hides no call of its latest one.

    Raises:
        UsageError: A call of the latest turn waits for a human, or its process ended before its calls were done.
    """
    why = await off_loop(engine.journal, partial(_why_unended, engine, run))
    if why:
        name = run[:80]
        raise UsageError(
            f"Run '{name}' has not ended: {why}. Resume it with agent.resume({name!r}), or give the new task a run of its own.",
            code="run_not_ended",
        )


def _why_unended(engine: Engine, run: str) -> str:
    """Return why the run has not ended; empty if it has, or if there is no such run of an agent."""
    journal, blobs = engine.journal, engine.blobs
    latest = next((event for event in journal.read(run=run, limit=_LATEST_EVENTS, newest_first=True) if event.kind in _LOOP), None)
    if latest is not None and latest.kind == "run.ended":
        body = read_body(latest.body, blobs)
        if body and msgspec.json.decode(body, type=RunEndedBody).turn_status == "completed":
            return ""
    return _why_open(engine, list(journal.read(run=run)))


def _why_open(engine: Engine, events: Sequence[Event]) -> str:
    from callgate.agent.recorded_run import load_turn

    loaded = load_turn(events, engine.blobs)
    if loaded is None:
        return ""
    if loaded.pending is not None:
        return f"{', '.join(one.approval_id for one in loaded.pending.approvals)} waits for a human"
    if loaded.open is not None and not loaded.ended:
        return "its process ended before the calls of its last message were done"
    return ""
