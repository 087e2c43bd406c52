"""The moments at which a process is killed, and what must be true of the call in question after another one has gone on.

A call that never started runs. A read and an idempotent call run again, the latter with the same key. A `once` call is not started again:
it is `unknown`, unless its tool's `verify` can find out.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

__all__ = ["MOMENTS", "ORDER", "KillPoint", "of"]

ORDER: Final = ("stock", "set_price", "charge", "ship")
"""The tools that each run calls in its one message, in this order. Effects: none, idempotent, once, once with a `verify`."""


class KillPoint(Struct, frozen=True, kw_only=True):
    """Where a run is killed."""

    name: str
    """The run's, too."""
    at: str
    """`before`, `inside` or `after` a tool's effect, or a kind of event, and the tool."""
    says: str
    status: str
    """How the call ends when all is over."""
    effects: int
    again: tuple[str, ...] = ()
    """Where the processes that go on are killed, one after the other."""

    @property
    def tool(self) -> str:
        return self.at.partition(" ")[2]


MOMENTS: Final = (
    KillPoint(name="approved", at="call.verdict charge", says="a charge was approved and had not begun: it runs", status="ok", effects=1),
    KillPoint(
        name="begun",
        at="call.started charge",
        says="a charge was on record as begun, and the money was not moved: nobody claims to know",
        status="unknown",
        effects=0,
    ),
    KillPoint(
        name="happened",
        at="after charge",
        says="a charge had moved the money, and its result was not kept: it is not repeated",
        status="unknown",
        effects=1,
    ),
    KillPoint(name="result", at="call.completed charge", says="a charge's result was kept: it is the result", status="ok", effects=1),
    KillPoint(
        name="verified", at="after ship", says="a parcel had left, and the tool can look that up: it is found", status="ok", effects=1
    ),
    KillPoint(
        name="verified-not",
        at="before ship",
        says="a parcel had not left, and the tool can look that up: it leaves",
        status="ok",
        effects=1,
    ),
    KillPoint(
        name="same-key",
        at="after set_price",
        says="a price was set, and its result was not kept: it is set again under its key",
        status="ok",
        effects=1,
    ),
    KillPoint(name="read", at="inside stock", says="a read was under way: it is read again", status="ok", effects=0),
    KillPoint(
        name="recovery",
        at="after charge",
        again=("run.resumed -", "call.completed charge", "phase.began -"),
        says="killed again while it went on, three times: still not repeated",
        status="unknown",
        effects=1,
    ),
)


def of(name: str) -> KillPoint:
    return next(moment for moment in MOMENTS if moment.name == name)
