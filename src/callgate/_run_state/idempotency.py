"""Recognise a call that was handed in before, so that no call with an effect is started twice.

`run_state` keeps the calls with a key. A call is recognised by the caller's own key (scoped to principal and tool) or, if it has effects,
by the model's id within its iteration together with its tool and arguments. The same read may always run again, unless a human was asked
about it. A call that is handed in again gets the result of the first one, or a human's denial.
"""

from __future__ import annotations

import asyncio
import hashlib
from functools import partial
from heapq import heappop, heappush
from typing import Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from callgate._abort_signals import AbortSignal, settled
from callgate._json import plain_bytes
from callgate._run_state.event_bodies import decode_result, joined_texts
from callgate._run_state.recorder import off_loop
from callgate._run_state.settlements import EARLIER, STILL_RUNS, advice_to_settle, how_to_free
from callgate.calls import Note, RawCall, Scope, ToolResult
from callgate.errors import CallFailed, CallNotStarted, OutcomeUnknown
from callgate.protocols import Journal
from callgate.stage_types import ValidatedCall

__all__ = [
    "NOTHING_HAPPENED",
    "REPEATED_IN_MESSAGE",
    "IdenticalCalls",
    "KeyedCall",
    "call_key",
    "earlier_result",
    "is_others_failure",
    "keeps_effect_key",
    "possibly_another",
]

NOTHING_HAPPENED: Final = frozenset({"not_done", "not_started"})
"""The codes of failures after which a call with an effect may be started again."""


def call_key(call: ValidatedCall, asked_hash: str, occurrence: int = 0) -> str:
    """Return the key that identifies a call that must not run twice.

    The tool gets it as its idempotency key, unless it declares a key of its effect. A caller's key is scoped to its
    principal and tool. Without one, the key is made from the run, the provider's id of the message (or else the turn
    and the iteration), the call's principal, actor, conversation and workspace, its id, its tool and its arguments. An
    id made by the engine is unique to its call.

    Args:
        asked_hash: The hash of the arguments as they were submitted, from `arguments_hash`.
        occurrence: For a call that a tool makes: its number among the tool's identical calls; see `IdenticalCalls`.
    """
    raw, scope = call.raw, call.scope
    if raw.idempotency_key is not None:
        parts: tuple[str, ...] = ("key", scope.principal, call.tool.name, raw.idempotency_key)
    else:
        message = f"message {scope.message_id}" if scope.message_id else f"{scope.turn}/{scope.iteration}"
        at = f"{scope.run}/{message}/{occurrence}"
        parts = ("id", at, scope.principal, scope.actor, scope.conversation, scope.workspace, raw.id, call.tool.name, asked_hash)
    return hashlib.blake2b(joined_texts(parts), digest_size=16).hexdigest()


class IdenticalCalls:
    """Numbers the calls that one attempt of a tool makes, so that identical ones are different calls.

    If the attempt is made again, its calls get the same numbers. Calls are compared by their tool and their valid
    arguments, as they are for `call_key`.
    """

    def __init__(self) -> None:
        self._taken: dict[tuple[str, str], int] = {}
        """How many numbers were given out, by (tool, hash of the arguments)."""
        self._freed: dict[tuple[str, str], list[int]] = {}
        """The numbers of calls that never started, so that the next identical call is the same call."""

    def take(self, tool: str, asked_hash: str) -> int:
        same = (tool, asked_hash)
        if freed := self._freed.get(same):
            return heappop(freed)
        number = self._taken.get(same, 0)
        self._taken[same] = number + 1
        return number

    def free(self, tool: str, asked_hash: str, number: int) -> None:
        heappush(self._freed.setdefault((tool, asked_hash), []), number)


class KeyedCall(Struct, kw_only=True):
    """A call with a key, and its state."""

    tool: str
    arguments: str
    """The hash of the arguments with which it was first handed in."""
    uid: str
    result: ToolResult | None = None
    running: bool = False
    """Whether the call runs in this engine."""
    ended: asyncio.Future[None] | None = None
    """Resolved when the call ends. Created by the first caller that waits for the end."""
    entered: bool = True
    """Whether the tool's code may have been entered."""
    only_in_journal: bool = False
    """Whether the result is only in the journal, and no longer in memory."""
    denied: bool = False
    """Whether a human has denied the call, so that the result says that and the tool was not started."""
    keeps_effect_key: bool = False
    """Whether it ended with a failure that is the result of all calls with the same key of their effect; see `keeps_effect_key`."""
    shares_success: bool = False
    """Whether it ended with a success that is the result of all calls with the same key of their effect."""
    has_others_failure: bool = False
    """Whether it did not start, with arguments that a human gave, and its result is the failure of another call with the key of its effect.
    It counts until that call is settled."""


def is_others_failure(result: ToolResult) -> bool:
    """Return whether the result of a call that did not start is the stored failure of another one."""
    return result.status == "error" and (result.metadata.replayed or result.metadata.joined)


def keeps_effect_key(result: ToolResult, effect: str) -> bool:
    """Return whether the failure of a started call keeps the key of its effect, so that it answers later calls with the key.

    The effect may have happened before the tool returned the failure. An idempotent tool has no second effect if it is started again
    with the same key.
    """
    no_effect = effect == "idempotent" or result.code in NOTHING_HAPPENED or result.failure_class == "record_failed"
    return result.status == "error" and not no_effect


REPEATED_IN_MESSAGE: Final = Note(
    kind="warning",
    text="The message had this call twice, with the same id, tool and arguments. Nothing was run for this one; this is the first's result.",
)
"""The note of a call that its message had before."""
_POSSIBLY_ANOTHER: Final = (
    "{uid} had the same run, id, tool and arguments, so this is its result and nothing was run. If this is a call of another message, give"
    " Scope.message_id, or count Scope.iteration."
)


class RepeatedCall(Protocol):
    """A call that was handed in again."""

    raw: RawCall
    scope: Scope
    uid: str
    kill: AbortSignal
    duplicate: bool
    """Whether the same message contains the same call before it."""


class FirstCall(Protocol):
    """A call that runs, when it is handed in again."""

    started: bool
    """Whether the tool's code may have been entered."""


async def earlier_result(
    keyed: KeyedCall, call: RepeatedCall, journal: Journal, timeout_s: float, *, harmless: bool, first: FirstCall | None = None
) -> tuple[ToolResult, str] | None:
    """Return the result of a call that is handed in again, and whether it was stored (`replayed`) or still awaited (`joined`).

    None if the first call was awaited and never started: a human was asked about it, or it was refused or ended.

    Args:
        harmless: Whether the tool has no effect, so that a first call without a result changed nothing.
        first: The first call, if it still runs in this engine.

    Raises:
        CallNotStarted: The first call was a read that was ended without a result, or it has not started, and this one was killed or its
            time ran out.
        OutcomeUnknown: The first call ran without a result, or did not end before this one was killed or its time ran out.
    """
    joined = keyed.running
    if keyed.running:
        keyed.ended = keyed.ended or asyncio.get_running_loop().create_future()
        if not await settled(keyed.ended, call.kill, timeout_s):
            why = call.kill.reason or f"that one had not ended after {timeout_s:.3g} s"
            raise _not_awaited_error(keyed, why, harmless=harmless, started=first is None or first.started)
    if not keyed.entered:
        return None
    result = keyed.result or (await off_loop(journal, partial(_from_journal, keyed, journal)) if keyed.only_in_journal else None)
    if result is None and harmless:
        raise CallNotStarted(
            f"{keyed.tool} was handed in again while {keyed.uid} ran, which was ended. Nothing happened; it may be sent again."
        )
    if result is None:
        raise OutcomeUnknown(
            f"{keyed.tool} was handed in again while {keyed.uid} ran, and that call was ended without a result. It may have taken effect."
            f" {advice_to_settle(keyed.uid)}",
            details={EARLIER: keyed.uid},
        )
    notes = (*result.metadata.notes, *_notes(keyed, call))
    if keyed.keeps_effect_key:
        notes = (*notes, Note(kind="replayed", text=how_to_free(keyed.uid)))
    metadata = replace(result.metadata, replayed=not joined, joined=joined, notes=notes)
    own = decode_result(plain_bytes(result))  # a copy, because callers may change it
    return replace(own, id=call.raw.id, uid=call.uid, metadata=metadata), "joined" if joined else "replayed"


def _not_awaited_error(keyed: KeyedCall, why: str, *, harmless: bool, started: bool) -> CallFailed:
    """Return the error of a call that no longer waits for the first one, which has not ended."""
    text = f"{keyed.tool} is the same call as {keyed.uid}, and no longer waits for it: {why}."
    if harmless:
        return CallNotStarted(f"{text} Nothing happened; it may be sent again.")
    if not started:
        return CallNotStarted(f"{text} {keyed.uid} has not started yet. Do not repeat the call: the result of {keyed.uid} counts for both.")
    told = f"{keyed.uid} has begun and may take effect. Do not repeat the call: the result of {keyed.uid} counts for both."
    return OutcomeUnknown(f"{text} {told}", details={EARLIER: keyed.uid, STILL_RUNS: True})


def _notes(keyed: KeyedCall, call: RepeatedCall) -> tuple[Note, ...]:
    """Return notes that say why the call did not run, if its host may not have meant to repeat it."""
    if call.duplicate:
        return (REPEATED_IN_MESSAGE,)
    scope = call.scope
    placed = scope.message_id or scope.phase or scope.turn or scope.iteration
    if placed or call.raw.idempotency_key is not None:
        return ()
    return (possibly_another(keyed.uid),)


def possibly_another(uid: str) -> Note:
    """Return the note of a call that got the result of the call `uid`, and may have been meant as another call."""
    return Note(kind="warning", text=_POSSIBLY_ANOTHER.format(uid=uid))


def _from_journal(keyed: KeyedCall, journal: Journal) -> ToolResult | None:
    ends = [event for event in journal.read(call=keyed.uid) if event.kind == "call.completed"]
    return decode_result(ends[-1].body) if ends else None
