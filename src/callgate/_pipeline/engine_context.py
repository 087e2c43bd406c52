"""The parts that all stages of one engine share: its journal, recorder, clock, limits, tools and control.

Made before all other parts (`engine_assembly`). Knows no stage.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from callgate._abort_signals import Control
from callgate._blob_store import MemoryBlobs
from callgate._clock import Clock, SystemClock
from callgate._conversation_queue import TurnQueues
from callgate._deadlines import Deadlines
from callgate._engine_limits import Limits
from callgate._journal import MemoryJournal
from callgate._pipeline.host_code import HostCode
from callgate._pipeline.normalise import Normaliser
from callgate._run_state.approvals import Approvals
from callgate._run_state.recorder import Recorder
from callgate._runners.offload_to_threads import Offload
from callgate._runners.return_values import ResultReader
from callgate._secret_redaction import Redactor
from callgate.events import Bus
from callgate.protocols import BlobStore, HoldsBlobs, Journal
from callgate.tools.registry import ToolRegistry

__all__ = ["EngineContext"]

_BLOB_BYTES: Final = 268_435_456


class EngineContext(Struct, frozen=True, kw_only=True, eq=False):
    """The parts that all stages of one engine share, such as its recorder, clock, limits and control.

    Made once from the host's options. If the host gives no journal, the record is kept in memory only. Holds no state of a single call.
    """

    journal: Journal
    survives: bool
    """Whether the journal outlives the process, so that what is shown to callers has to be durable first."""
    blobs: BlobStore
    clock: Clock
    limits: Limits
    timeout_s: float
    """Seconds for a whole call, including retries and waits; also the longest time that a call waits for another one."""
    redactor: Redactor | None
    bus: Bus
    conversations: TurnQueues
    control: Control
    recorder: Recorder
    approvals: Approvals
    normaliser: Normaliser
    tools: ToolRegistry
    """The registered tools; empty until the parts that check tools are made."""
    deadlines: Deadlines
    """Of what is no tool: records that become durable, and work in threads."""
    offload: Offload
    host: HostCode
    reader: ResultReader

    @classmethod
    def of(
        cls,
        *,
        journal: Journal | None,
        blobs: BlobStore | None,
        clock: Clock | None,
        limits: Limits,
        timeout_s: float,
        redactor: Redactor | None,
    ) -> EngineContext:
        clock = SystemClock() if clock is None else clock
        journal = MemoryJournal(clock) if journal is None else journal
        blobs = _blobs_of(journal) if blobs is None else blobs
        bus, conversations, deadlines, tools = Bus(), TurnQueues(), Deadlines(), ToolRegistry()
        recorder, offload = Recorder(journal, bus, redactor, deadlines), Offload(limits, deadlines)
        reader = ResultReader(offload, limits.result_bytes)
        return cls(
            journal=journal,
            survives=journal.strength != "memory",
            blobs=blobs,
            clock=clock,
            limits=limits,
            timeout_s=timeout_s,
            redactor=redactor,
            bus=bus,
            conversations=conversations,
            control=Control(on_kill=conversations.drain),
            recorder=recorder,
            approvals=Approvals(clock, limits.approval_s),
            normaliser=Normaliser(limits, blobs, redactor, tools),
            tools=tools,
            deadlines=deadlines,
            offload=offload,
            host=HostCode(recorder, reader, offload, limits),
            reader=reader,
        )


def _blobs_of(journal: Journal) -> BlobStore:
    return journal.blobs if isinstance(journal, HoldsBlobs) else MemoryBlobs(max_bytes=_BLOB_BYTES)
