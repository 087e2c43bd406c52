"""Read from events what became of a call that has claimed the key of its effect. Pure.

The claims of a key are the events of a run of their own, `effect:<tool>/<digest>`. The latest claim names the call
whose outcome counts. The events of that call, which may belong to any run and any process, say what became of it.
Starts nothing and knows no journal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct

from callgate._run_state.event_bodies import arguments_hash, decode_reason, decode_result
from callgate._run_state.idempotency import Uncertain
from callgate._run_state.run_recovery import Unfinished, unfinished_calls
from callgate.calls import ToolResult
from callgate.events import TERMINAL, Event

__all__ = ["EarlierEffect", "EffectClaim", "effect_run"]

_NOTHING_HAPPENED = frozenset({"not_done", "not_started"})


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


class EarlierEffect(Struct, frozen=True, kw_only=True):
    """What the events say of the call that claimed a key last."""

    uid: str
    state: Literal["nothing", "answered", "happened", "unknown"]
    """`nothing`: the call had no effect. `answered`: it has a result. `happened`: it had its effect, but its result is
    not stored. `unknown`: it is not known whether it had an effect.
    """
    result: ToolResult | None = None
    arguments: bytes = b""
    """The final arguments of the call; empty if they are not recorded."""
    arguments_hash: str = ""
    doubt: Uncertain | None = None
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
        result = decode_result(ends[-1].body) if ends and ends[-1].kind == "call.completed" else None
        state = _settled(events, result) or _state(call, ends[-1].kind if ends else "", result, ended=bool(writer) and has_ended(writer))
        doubt = None
        if state == "unknown" and call is not None and call.started is not None:
            doubt = Uncertain(uid=uid, key=call.started.key, tool_key=call.started.tool_key, origin=call.origin, gone=False)
        return cls(
            uid=uid,
            state=state,
            result=result,
            arguments=call.arguments if call is not None else b"",
            arguments_hash=call.started.arguments_hash if call is not None and call.started is not None else "",
            doubt=doubt,
        )

    def had_other_arguments(self, encoded: bytes) -> bool:
        return bool(self.arguments_hash) and self.arguments_hash != arguments_hash(encoded)


def _settled(events: Sequence[Event], result: ToolResult | None) -> Literal["nothing", "happened"] | None:
    """Return what an operator or the tool's `verify` said of the call.

    None if nobody did, if the call was started again after that, or if it succeeded.
    """
    if result is not None and result.status == "ok":
        return None
    said = ""
    for event in events:
        if event.kind == "fact.settled":
            said = decode_reason(event.body).status
        elif event.kind == "call.started":
            said = ""
    return None if not said else "happened" if said == "happened" else "nothing"


def _state(
    call: Unfinished | None, end: str, result: ToolResult | None, *, ended: bool
) -> Literal["nothing", "answered", "happened", "unknown"]:
    """Return the state of a call whose outcome nobody has settled.

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
    idempotent = call.started.effect == "idempotent"  # started again with the same key, it has no second effect
    no_effect = idempotent or result.code in _NOTHING_HAPPENED or result.failure_class == "record_failed"
    return "nothing" if no_effect else "answered"
