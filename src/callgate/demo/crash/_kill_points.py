"""The moments at which a process is killed, and the expected outcome of the call after the run was resumed.

A call that had not started runs. A read and an idempotent call run again, the idempotent call with the same key. A
`once` call that had started does not run again: its outcome is `unknown`, unless its tool's `verify` can determine it.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

__all__ = ["MOMENTS", "ORDER", "KillPoint", "of"]

ORDER: Final = ("stock", "set_price", "charge", "ship")
"""The tools that each run calls in its only message, in this order.

Their effects are none, idempotent, once, and once with a `verify`.
"""


class KillPoint(Struct, frozen=True, kw_only=True):
    """A moment at which a run is killed."""

    name: str
    """The name of the moment and of its run."""
    at: str
    """The moment and the tool: `before`, `inside` or `after` the tool's effect, or a kind of event."""
    says: str
    status: str
    """The final status of the call."""
    effects: int
    again: tuple[str, ...] = ()
    """The moments at which the processes that resume the run are killed, in order."""

    @property
    def tool(self) -> str:
        return self.at.partition(" ")[2]


MOMENTS: Final = (
    KillPoint(name="received", at="call.received charge", says="a charge was received but not started: it runs", status="ok", effects=1),
    KillPoint(
        name="begun",
        at="call.started charge",
        says="a charge was recorded as started, and no money was moved: its outcome is unknown",
        status="unknown",
        effects=0,
    ),
    KillPoint(
        name="happened",
        at="after charge",
        says="a charge had moved the money, but its result was not recorded: it is not repeated",
        status="unknown",
        effects=1,
    ),
    KillPoint(name="result", at="call.completed charge", says="a charge's result was recorded: it is used", status="ok", effects=1),
    KillPoint(
        name="verified", at="after ship", says="a parcel had been sent, which the tool can check: it is found", status="ok", effects=1
    ),
    KillPoint(
        name="verified-not",
        at="before ship",
        says="a parcel had not been sent, which the tool can check: it is sent",
        status="ok",
        effects=1,
    ),
    KillPoint(
        name="same-key",
        at="after set_price",
        says="a price was set, but its result was not recorded: it is set again with the same key",
        status="ok",
        effects=1,
    ),
    KillPoint(name="read", at="inside stock", says="a read was running: it runs again", status="ok", effects=0),
    KillPoint(
        name="recovery",
        at="after charge",
        again=("run.resumed -", "call.completed charge", "phase.began -"),
        says="killed three more times during recovery: still not repeated",
        status="unknown",
        effects=1,
    ),
)


def of(name: str) -> KillPoint:
    return next(moment for moment in MOMENTS if moment.name == name)
