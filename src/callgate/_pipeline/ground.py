"""What all stages of one engine stand on: its record, its clock, its bounds, and how its results look.

Made once, by the engine. Holds nothing of a single call.
"""

from __future__ import annotations

from msgspec import Struct

from callgate._clock import Clock
from callgate._limits import Limits
from callgate._pipeline.approvals import Approvals
from callgate._pipeline.normalise import Normaliser
from callgate._pipeline.record import Writer
from callgate._redact import Redactor
from callgate._signals import Control
from callgate.events import Bus
from callgate.protocols import BlobStore, Journal

__all__ = ["Ground"]


class Ground(Struct, frozen=True, kw_only=True, eq=False):
    """See the module."""

    journal: Journal
    bus: Bus
    control: Control
    clock: Clock
    limits: Limits
    redactor: Redactor | None
    writer: Writer
    approvals: Approvals
    normaliser: Normaliser

    @classmethod
    def of(
        cls, *, journal: Journal, blobs: BlobStore, bus: Bus, control: Control, clock: Clock, limits: Limits, redactor: Redactor | None
    ) -> Ground:
        return cls(
            journal=journal,
            bus=bus,
            control=control,
            clock=clock,
            limits=limits,
            redactor=redactor,
            writer=Writer(journal, bus, redactor),
            approvals=Approvals(clock, limits.approval_s),
            normaliser=Normaliser(limits, blobs, redactor),
        )
