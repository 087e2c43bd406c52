"""Read from events what became of a call that has claimed the key of its effect. Pure.

The claims of a key are the events of a run of their own, `effect:<tool>/<digest>`. The latest claim names the call
whose outcome counts. The events of that call, which may belong to any run and any process, say what became of it.
Starts nothing and knows no journal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from msgspec import Struct

from callgate._run_state.calls_in_doubt import UncertainCall
from callgate._run_state.event_bodies import Received, arguments_hash, decode_reason, decode_received, decode_result, has_made_id, utc_text
from callgate._run_state.idempotency import keeps_effect_key
from callgate._run_state.run_recovery import UnfinishedCall, unfinished_calls
from callgate.calls import RawCall, Scope, ToolResult
from callgate.events import TERMINAL, Event

__all__ = ["EarlierEffect", "EffectClaim", "effect_run"]


class EffectClaim(Struct, kw_only=True, eq=False):
    """The key of an effect, and the call of this engine that holds it."""

    key: str
    """The key as text for people and models."""
    tool_key: str
    """The key as the tool gets it: its idempotency key."""
    run: str
    """The run that has the claims of the key."""
    uid: str
    ended: asyncio.Future[None]
    """Resolved when the call releases the key."""


def effect_run(tool: str, digest: str) -> str:
    """Return the id of the run that has the claims of one key."""
    return f"effect:{tool}/{digest}"


class LaterCall(Protocol):
    """A call that was handed in, as far as it is compared with an earlier one."""

    raw: RawCall
    scope: Scope
    key: str
    """The key that identifies the call in its run."""


class EarlierEffect(Struct, frozen=True, kw_only=True):
    """The call that claimed a key last, according to the events."""

    uid: str
    state: Literal["nothing", "answered", "happened", "unknown"]
    """`nothing`: the call had no effect. `answered`: it has a result. `happened`: it had its effect, but its result is
    not stored. `unknown`: it is not known whether it had an effect.
    """
    result: ToolResult | None = None
    arguments: bytes = b""
    """The final arguments of the call; empty if they are not recorded."""
    arguments_hash: str = ""
    key: str = ""
    """The key that identifies the call in its run."""
    received: Received | None = None
    """The call as it was received; None if that is not recorded."""
    may_end: bool = False
    """Whether its end is not recorded, and the engine that claimed the key may still record it."""
    ended_ns: int = 0
    """When it ended, in UTC nanoseconds; 0 if that is not recorded."""
    doubt: UncertainCall | None = None
    """For an unknown outcome: the facts that `verify` and the `Fence` need to settle it."""

    @classmethod
    def of(cls, uid: str, writer: str, events: Sequence[Event], has_ended: Callable[[str], bool]) -> EarlierEffect:
        """Read the events of one call.

        Args:
            writer: The engine that claimed the key for the call, by its name in the journal.
            has_ended: Returns whether an engine has certainly ended.
        """
        ends = [event for event in events if event.kind in TERMINAL]
        call = unfinished_calls(event for event in events if event.kind not in TERMINAL).get(uid)
        started = call.started if call is not None else None
        result = decode_result(ends[-1].body) if ends and ends[-1].kind == "call.completed" else None
        ended = bool(writer) and has_ended(writer)
        state = _settlement(events, result) or _state(call, ends[-1].kind if ends else "", result, ended=ended)
        doubt = None
        if state == "unknown" and call is not None and started is not None:
            doubt = UncertainCall(uid=uid, key=started.key, tool_key=started.tool_key, origin=call.origin, gone=False)
        return cls(
            uid=uid,
            state=state,
            result=result,
            arguments=call.arguments if call is not None else b"",
            arguments_hash=started.arguments_hash if started is not None else "",
            key=started.key if started is not None else "",
            received=next((decode_received(event.body) for event in events if event.kind == "call.received"), None),
            may_end=not ends and not ended,
            ended_ns=ends[-1].at_ns if ends else 0,
            doubt=doubt,
        )

    def had_other_arguments(self, encoded: bytes) -> bool:
        return bool(self.arguments_hash) and self.arguments_hash != arguments_hash(encoded)

    @property
    def ended_at(self) -> str:
        """When it ended, in UTC."""
        return utc_text(self.ended_ns)

    @property
    def principal(self) -> str | None:
        """The principal of the call; None if that is not recorded."""
        return None if self.received is None else str((self.received.scope or {}).get("principal", ""))

    def is_the_call(self, other: LaterCall) -> bool:
        """Return whether another call is this one, handed in again: with a caller's key, or with its id in the same provider's message.

        A message that is known only by the id of its call is the same one only in the same run, because models repeat call ids.
        """
        if self.received is None or (self.key and self.key == other.key):
            return bool(self.key) and self.key == other.key
        scope, recorded = other.scope, self.received.scope or {}
        if scope.message_id == other.raw.id and not self.uid.startswith(f"{scope.run}/"):
            return False
        message = (str(recorded.get("message_id", "")), str(recorded.get("conversation", "")), self.received.id)
        return bool(scope.message_id) and not has_made_id(other.raw.id) and message == (scope.message_id, scope.conversation, other.raw.id)


def _settlement(events: Sequence[Event], result: ToolResult | None) -> Literal["nothing", "happened"] | None:
    """Return how an operator or the tool's `verify` settled the call.

    None if it was not settled, or if it was started again after that. A success counts, unless an operator has said after it that the
    call had no effect.
    """
    succeeded = result is not None and result.status == "ok"
    said = ""
    for event in events:
        if event.kind == "fact.settled":
            fact = decode_reason(event.body)
            said = fact.status if not succeeded or (fact.details or {}).get("by") else said
        elif event.kind == "call.started" or (event.kind == "call.completed" and succeeded):
            said = ""
    if succeeded or not said:
        return "nothing" if said == "not_happened" else None
    return "happened" if said == "happened" else "nothing"


def _state(
    call: UnfinishedCall | None, end: str, result: ToolResult | None, *, ended: bool
) -> Literal["nothing", "answered", "happened", "unknown"]:
    """Return the state of a call that was not settled.

    Args:
        end: The kind of its end; empty if none is recorded.
        ended: Whether the engine that claimed the key has certainly ended.
    """
    if result is not None and result.status == "ok":
        return "answered"
    unstarted = call is not None and call.unstarted
    if not end:
        return "nothing" if unstarted and ended else "unknown"
    if end == "call.restarted":
        return "happened"
    if unstarted:
        return "nothing"
    if result is None or result.status == "unknown" or call is None or call.started is None:
        return "unknown"
    return "answered" if keeps_effect_key(result, call.started.effect) else "nothing"
