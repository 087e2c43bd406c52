"""Read the call of a task or of an ended request from the journal: its arguments, and its result if it has ended.

Used for tasks that are not in this process's memory, for example after a restart, and for requests that the gateway has ended. The
recorded result is returned even if the tool is gone or the rules have changed. A call without a recorded end is submitted again with its
original arguments; arguments that are too large for an event are stored as a blob. Does not decide about running calls.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from callgate._json import decode, plain_bytes
from callgate._run_state.event_bodies import MOST_RAW, decode_reason, decode_result
from callgate._run_state.recorder import off_loop
from callgate.calls import ToolResult
from callgate.engine import Engine
from callgate.errors import CallgateError
from callgate.event_queries import EventQuery
from callgate.events import Event
from callgate.gateway._tool_calls.submitted_calls import SubmittedCall, recorded_call

__all__ = ["CLIENT_CANCELLED", "CallRecords", "RecordedOutcome"]

CLIENT_CANCELLED = "the client has cancelled the task"
"""The recorded reason for the end of a call whose client has cancelled its task."""
_ENDS = ("call.completed", "call.aborted", "approval.answered")
_MOST_ENDS = 100


class RecordedOutcome(Struct, frozen=True):
    """The end of a call."""

    result: ToolResult | None
    """None: the client has cancelled it."""
    at_ms: int
    """When it ended, in milliseconds since 1970."""

    @property
    def final(self) -> bool:
        """Whether submitting the call again could not lead to another end: it was answered, refused or cancelled."""
        return self.is_told and (self.result is None or self.result.status != "unknown")

    @property
    def is_told(self) -> bool:
        """Whether its client may know it, so that the task is not reported as running again: the call was started, refused or cancelled."""
        return self.result is None or self.result.failure_class != "not_started"


class CallRecords:
    """Reads the records of the calls of one gateway.

    Args:
        workspace: The workspace of all calls; empty: none.
    """

    def __init__(self, engine: Engine, workspace: str) -> None:
        self._engine = engine
        self._workspace = workspace

    def keep_arguments(self, arguments: object) -> str:
        """Return the digest of a call's arguments. Store those that are too large for the record of the call.

        Arguments with a secret are not stored.
        """
        data, redactor = plain_bytes(arguments), self._engine.redactor
        if len(data) > MOST_RAW and (redactor is None or redactor.redact(data) == data):
            return self._engine.blobs.put(data)
        return hashlib.sha256(data).hexdigest()

    async def has(self, call_id: str) -> bool:
        """Return whether a call is on record, by its id, as durably as the journal guarantees. While that cannot be read, it is not."""
        try:
            found = await self._find(EventQuery(conversation=call_id, kinds=("call.received",), limit=1)) if call_id else []
            for event in found:
                await self._engine.journal.durable(event.position)
        except CallgateError:
            return False
        return bool(found)

    async def call(self, call_id: str, digest: str) -> SubmittedCall | None:
        """Return a call by its id; None if it is not on record.

        Args:
            digest: That of its arguments. If they are not on record, the call is not `whole`.
        """
        query = EventQuery(conversation=call_id, kinds=("call.received",), limit=1)
        found = await self._find(query) if call_id else []
        call = recorded_call(found[0], self._workspace) if found else None
        if call is None or (call.whole and hashlib.sha256(plain_bytes(call.raw.arguments)).hexdigest() == digest):
            return call
        kept = self._read_arguments(digest)
        return replace(call, raw=replace(call.raw, arguments=kept or {}), whole=kept is not None)

    async def end(self, call_id: str) -> RecordedOutcome | None:
        """Return how a call has ended, by its id; None if it has not."""
        return _end(await self._find(EventQuery(conversation=call_id, kinds=_ENDS, newest_first=True, limit=_MOST_ENDS)))

    async def start(self, call_id: str) -> Event | None:
        """Return the event of a call's last start, by its id; None if it was not started."""
        found = await self._find(EventQuery(conversation=call_id, kinds=("call.started",), newest_first=True, limit=1))
        return found[0] if found else None

    async def durable(self, call_id: str) -> None:
        """Wait until what is recorded of a call, by its id, is as durable as the journal guarantees."""
        for event in await self._find(EventQuery(conversation=call_id, newest_first=True, limit=1)):
            await self._engine.journal.durable(event.position)

    async def _find(self, query: EventQuery) -> list[Event]:
        journal = self._engine.journal
        return await off_loop(journal, lambda: list(journal.find(query)))

    def _read_arguments(self, digest: str) -> Mapping[str, Any] | None:
        data = self._engine.blobs.get(digest)
        found = None if data is None else decode(data)
        return found if isinstance(found, dict) else None


def _end(events: Iterable[Event]) -> RecordedOutcome | None:
    """Return the end among the events of a call, the newest first. What its tool has answered counts more than a cancellation."""
    cancelled: RecordedOutcome | None = None
    latest: RecordedOutcome | None = None
    for event in events:
        at_ms = event.at_ns // 1_000_000
        if event.kind == "call.completed":
            result = _result(event)
            if result is not None and result.status != "unknown" and result.metadata.attempts:
                return RecordedOutcome(result, at_ms)
            latest = latest or (None if result is None else RecordedOutcome(result, at_ms))
        elif cancelled is None and _is_of_client(event):
            cancelled = RecordedOutcome(None, at_ms)
    return cancelled or latest


def _result(event: Event) -> ToolResult | None:
    try:
        return decode_result(event.body)
    except msgspec.DecodeError:
        return None


def _is_of_client(event: Event) -> bool:
    """Return whether an event ends a call because its client has cancelled it."""
    try:
        body = decode_reason(event.body)
    except msgspec.DecodeError:
        return False
    said = body.reason if event.kind == "call.aborted" else (body.details or {}).get("reason")
    return isinstance(said, str) and said.endswith(CLIENT_CANCELLED)
