"""A call that an engine began and did not live to end: what the record says of it, and whether it may start again.

Asked by whoever resumes a run; opening a journal asks nothing. A read runs again, an idempotent call again under the same key and with
the same final arguments, and a `once` call whose intent is on record only if its tool's `verify` says that it did not happen. What may have
taken effect ends as `ok` or `unknown`, whatever refuses it now. Knows no models and no messages.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from callgate._pipeline.doubts import Settling, as_verified, verified
from callgate._pipeline.record import Started, Verdict, arguments_hash
from callgate.errors import CallFailed, OutcomeUnknown
from callgate.events import TERMINAL, Event
from callgate.route import ApprovedCall, Checked, ValidatedCall
from callgate.tools import Verified

if TYPE_CHECKING:
    from callgate._pipeline.flight import Flight

__all__ = ["Unfinished", "refuse_other_arguments", "rule_out_second_start", "told_as_unknown", "unfinished_calls", "why_unknown"]

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
            known = msgspec.structs.replace(known, taken=True)
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
        started_ns=event.at_ns,
        attempts=max(call.attempts, event.attempt),
        arguments=kept,
    )


async def rule_out_second_start(flight: Flight, call: ValidatedCall, desk: Settling) -> Checked | None:
    """Decide about a call that may have taken effect already.

    Returns:
        None where it may start (again); what it gave where the tool's `verify` says that it did happen.

    Raises:
        OutcomeUnknown: Nobody knows whether it happened.
    """
    unfinished, tool = flight.unfinished, call.tool
    assert unfinished is not None
    started = unfinished.started
    assert started is not None
    if started.tool == tool.name and started.effect == tool.effect == "idempotent":
        flight.doubt = flight.state.reopen(unfinished.uid)
        return None
    found = Verified(happened=None)
    if unfinished.arguments and started.tool == tool.name:
        found = await verified(tool, unfinished.arguments, started.key, desk.hook_timeout_s)
    if found.happened is True:
        checked = as_verified(tool, found)
        if checked.status == "ok":
            desk.settle(unfinished.uid, happened=True, why="the tool verified it")
        return checked
    if found.happened is False:
        desk.settle(unfinished.uid, happened=False, why="the tool verified it")
        flight.doubtful = False
        return None
    raise why_unknown(unfinished)


def refuse_other_arguments(flight: Flight, approved: ApprovedCall) -> None:
    """Let a call that may have taken effect start again under its key only with the arguments that it had.

    Raises:
        OutcomeUnknown: They are others now.
    """
    unfinished = flight.unfinished
    if not flight.doubtful or unfinished is None or unfinished.started is None:
        return
    if arguments_hash(approved.encoded) != unfinished.started.arguments_hash:
        raise why_unknown(unfinished, "Its arguments would not be the same now.")


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


def told_as_unknown(flight: Flight, error: CallFailed) -> CallFailed:
    """What to say of a call that something refuses now: where it may have taken effect, that nobody knows."""
    if not flight.doubtful or flight.unfinished is None:
        return error
    if flight.doubt is not None:
        flight.state.uncertain.update([flight.doubt])
    if isinstance(error, OutcomeUnknown):
        return error
    return why_unknown(flight.unfinished, f"Starting it again was refused: {str(error)[:500]}")
