"""What all stages of one engine stand on: its record, its clock, its bounds, how it is stopped, and how its results look.

Made once, by the engine, of what the host gave; what was not given lives as long as the process. Holds nothing of a single call.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from callgate._abort_signals import Control
from callgate._blobs import MemoryBlobs
from callgate._clock import Clock, SystemClock
from callgate._journal import MemoryJournal
from callgate._limits import Limits
from callgate._pipeline.approvals import Approvals
from callgate._pipeline.host_code import HostCode
from callgate._pipeline.normalise import Normaliser
from callgate._pipeline.writer import Writer
from callgate._redact import Redactor
from callgate._runners.offload import Offload
from callgate._runners.result_reader import ResultReader
from callgate._turn_queue import TurnQueues
from callgate.events import Bus
from callgate.protocols import BlobStore, HoldsBlobs, Journal

__all__ = ["Ground"]

_BLOB_BYTES: Final = 268_435_456


class Ground(Struct, frozen=True, kw_only=True, eq=False):
    """See the module."""

    journal: Journal
    blobs: BlobStore
    clock: Clock
    limits: Limits
    redactor: Redactor | None
    bus: Bus
    conversations: TurnQueues
    control: Control
    writer: Writer
    approvals: Approvals
    normaliser: Normaliser
    offload: Offload
    host_code: HostCode
    reader: ResultReader

    @classmethod
    def of(
        cls, *, journal: Journal | None, blobs: BlobStore | None, clock: Clock | None, limits: Limits, redactor: Redactor | None
    ) -> Ground:
        clock = SystemClock() if clock is None else clock
        journal = MemoryJournal(clock) if journal is None else journal
        blobs = _blobs_of(journal) if blobs is None else blobs
        bus, conversations, offload = Bus(), TurnQueues(), Offload(limits)
        return cls(
            journal=journal,
            blobs=blobs,
            clock=clock,
            limits=limits,
            redactor=redactor,
            bus=bus,
            conversations=conversations,
            control=Control(on_kill=conversations.drain),
            writer=Writer(journal, bus, redactor),
            approvals=Approvals(clock, limits.approval_s),
            normaliser=Normaliser(limits, blobs, redactor),
            offload=offload,
            host_code=HostCode(limits.grace_s),
            reader=ResultReader(offload, limits.result_bytes),
        )


def _blobs_of(journal: Journal) -> BlobStore:
    return journal.blobs if isinstance(journal, HoldsBlobs) else MemoryBlobs(max_bytes=_BLOB_BYTES)
