"""A call that an engine began and did not live to end: what the record says of it.

Asked by whoever resumes a run; opening a journal asks nothing. Whether it may start again is settled in `doubts`. Knows no models and no
messages.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec
from msgspec import Struct

from callgate._pipeline.again import Origin
from callgate._pipeline.record import Started, Verdict, arguments_hash, decode_reason
from callgate.errors import OutcomeUnknown
from callgate.events import TERMINAL, Event

__all__ = ["Unfinished", "unfinished_calls", "why_unknown"]

_started = msgspec.json.Decoder(Started).decode
_verdict = msgspec.json.Decoder(Verdict).decode


class Unfinished(Struct, frozen=True, kw_only=True):
    """A call without an end."""

    uid: str
    position: int
    """Of its latest event."""
    name: str = ""
    started: Started | None = None
    """Its intent, which is also its claim unless it says otherwise; None where it never started."""
    taken: bool = False
    """Whether a runner outside the process had claimed it."""
    origin: Origin | None = None
    """Where its latest attempt ran; None where it never started."""
    started_ns: int = 0
    """When, in UTC nanoseconds."""
    attempts: int = 0
    arguments: bytes = b""
    """The final arguments; empty where the record does not have them as they were."""

    @property
    def claimed(self) -> bool:
        """Whether it may have taken effect."""
        return not self.unstarted and self.started is not None and self.started.effect != "none"

    @property
    def unstarted(self) -> bool:
        """Whether its tool's code was certainly not entered."""
        return self.started is None or (self.started.claims and not self.taken)


def unfinished_calls(events: Iterable[Event]) -> dict[str, Unfinished]:
    """The calls of these events that have no end, by uid, in the order in which they came."""
    found: dict[str, Unfinished] = {}
    verdicts: dict[str, bytes] = {}
    for event in events:
        if not event.call or not event.kind.startswith("call."):
            continue
        if event.kind in TERMINAL:
            found.pop(event.call, None)
            continue
        known = found.get(event.call)
        if event.kind == "call.received":
            known = Unfinished(uid=event.call, position=event.position)
        if known is None:  # it has ended before
            continue
        known = msgspec.structs.replace(known, position=event.position)
        if event.kind == "call.verdict":
            verdicts[event.call] = bytes(_verdict(event.body).arguments)
        elif event.kind == "call.claimed":
            known = _claimed(known, str((decode_reason(event.body).details or {}).get("worker", "")))
        elif event.kind == "call.started":
            known = _begun(known, event, verdicts.get(event.call, b""))
        found[event.call] = known
    return found


def _begun(call: Unfinished, event: Event, final: bytes) -> Unfinished:
    started = _started(event.body)
    kept = final if started.arguments_hash and arguments_hash(final) == started.arguments_hash else b""
    return msgspec.structs.replace(
        call,
        name=started.tool,
        started=call.started if call.claimed else started,
        origin=Origin(writer=started.writer, runner=started.runner, worker=call.origin.worker if call.origin else ""),
        started_ns=event.at_ns,
        attempts=max(call.attempts, event.attempt),
        arguments=kept,
    )


def _claimed(call: Unfinished, worker: str) -> Unfinished:
    origin = call.origin and msgspec.structs.replace(call.origin, worker=worker)
    return msgspec.structs.replace(call, taken=True, origin=origin)


def why_unknown(unfinished: Unfinished, because: str = "") -> OutcomeUnknown:
    """The error that says all that is known of a call whose outcome nobody knows."""
    started = unfinished.started
    at = datetime.fromtimestamp(unfinished.started_ns / 1e9, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    details: dict[str, object] = {"may_have_executed": True, "started_at": at, "attempt": unfinished.attempts, "retry_safe": False}
    if started is not None:
        details["idempotency_key"] = started.key
    return OutcomeUnknown(
        f"{unfinished.name} was started at {at} ({unfinished.uid}), and the process that ran it ended before it answered. It may have taken"
        f" effect. It was not run again.{' ' + because if because else ''} Check the real state first; repeat it only if that shows that"
        " it did not happen.",
        details=details,
    )
