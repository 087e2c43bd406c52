"""Recognise a call that was handed in before, so that nothing with an effect starts twice.

One `RunState` per run: its counter, the calls with a key and what became of them, and the facts nobody knows. `recovery` builds it from the
run's events, so that a new engine on an old journal knows what the last one did; the route keeps it true while calls run, and
`unknown_outcomes` settles what nobody knows. A call is known by the caller's own key (scoped to principal and tool) or, where it has
effects, by the model's id within its iteration together with its tool and arguments; the same read may always run again. A call that is
handed in again gets what the first one gave.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from functools import partial
from typing import Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from callgate._abort_signals import AbortSignal, settled
from callgate._json import canonical
from callgate._pipeline.event_bodies import arguments_hash, decode_result
from callgate._pipeline.recorder import off_loop
from callgate.calls import Note, RawCall, ToolResult
from callgate.errors import CallNotStarted, IdempotencyConflict, OutcomeUnknown
from callgate.protocols import Journal
from callgate.route import ApprovedCall, ValidatedCall

__all__ = ["Doubt", "Known", "Origin", "RunState", "Uncertain", "call_key", "earlier_result"]


def call_key(call: ValidatedCall, asked_hash: str, occurrence: int = 0) -> str:
    """The key by which a call that must not run twice is known again, and which the tool gets as its idempotency key.

    A caller's key counts within its principal and tool. Without one, the call is known by run, iteration, whom it is for, its id, tool and
    arguments; an id of ours is one that no other call has.

    Args:
        asked_hash: Of the arguments as they were handed in, as `arguments_hash` gives it.
        occurrence: Of a call that a tool makes: how many like it the tool has made before.
    """
    raw, scope = call.raw, call.scope
    if raw.idempotency_key is not None:
        parts: tuple[str, ...] = ("key", scope.principal, call.tool.name, raw.idempotency_key)
    else:
        at = f"{scope.run}/{scope.turn}/{scope.iteration}/{occurrence}"
        parts = ("id", at, scope.principal, scope.actor, scope.conversation, scope.workspace, raw.id, call.tool.name, asked_hash)
    return hashlib.blake2b("\x00".join(parts).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


class Known(Struct, kw_only=True):
    """What became of a call with a key."""

    tool: str
    arguments: str
    """Hash of the arguments it was first handed in with."""
    uid: str
    result: ToolResult | None = None
    running: bool = False
    """Whether the call runs in this engine."""
    ended: asyncio.Future[None] | None = None
    """Made by the first who waits for its end."""
    entered: bool = True
    """Whether the tool's code may have been entered."""
    kept: bool = False
    """Whether a result is in the journal that is no longer held here."""


class Origin(Struct, frozen=True, kw_only=True):
    """Where the record says that a call ran."""

    writer: str
    """The engine that started it, as its journal names it; see `callgate.protocols.NamesWriters`."""
    runner: str
    worker: str = ""
    """The process that took it on, where the runner says which."""


class Uncertain(Struct, frozen=True, kw_only=True):
    """A call whose outcome nobody knows."""

    uid: str
    key: str
    origin: Origin | None = None
    """Where it ran, as the record says; None: in this engine."""
    gone: bool = True
    """Of a call of this engine: whether its code had ended, as far as its runner knows."""


Doubt = tuple[tuple[str, str], Uncertain]
"""A tool with the hash of final arguments, and the call of it whose outcome nobody knows."""


class RunState:
    """What one engine knows of one run."""

    def __init__(self, run: str, *, remember: int) -> None:
        self.run = run
        self.counter = 0
        self.dangerous: dict[str, int] = {}
        """Dangerous calls started, by tick."""
        self.uncertain: dict[tuple[str, str], Uncertain] = {}
        """By (tool, hash of the final arguments): calls with an effect whose outcome nobody knows."""
        self.known: dict[str, Known] = {}
        """The calls with a key, by it."""
        self._held: deque[Known] = deque()
        self._remember = remember
        self.under_way = 0
        """How many of its calls are on the second half of the route in this engine."""
        self.position = 0
        """Of the run's last event that was there when this state was made: what the first call is caused by."""

    def next_uid(self, iteration: int) -> str:
        uid = f"{self.run}/{iteration}/{self.counter}"
        self.counter += 1
        return uid

    def find(self, call: ValidatedCall, key: str, asked_hash: str) -> Known | None:
        """The call handed in before under this key, or None.

        Raises:
            IdempotencyConflict: The key stands for another tool or other arguments.
            OutcomeUnknown: That call was started by an engine that did not live to record its result.
        """
        known = self.known.get(key)
        if known is None:
            return None
        if known.tool != call.tool.name or (known.arguments and known.arguments != asked_hash):
            raise IdempotencyConflict(
                f"The idempotency key of this call was used for another call ({known.tool}, {known.uid}) in this run."
                " Nothing was run. Use a new key for a new call."
            )
        if known.result is None and not known.running and not known.kept:
            if call.tool.effect == "none":
                del self.known[key]
                return None
            raise OutcomeUnknown(_not_known(call.tool.name, known.uid))
        return known

    def take_on(self, call: ValidatedCall, key: str, asked_hash: str) -> Known:
        """Remember a call that is under way."""
        known = Known(tool=call.tool.name, arguments=asked_hash, uid=call.uid, running=True)
        self.known[key] = known
        return known

    def over(self, known: Known, key: str, *, started: bool) -> None:
        """Remember what came of it; one that never started may be handed in again."""
        known.running = False
        told = known.result is not None and known.result.status == "ok"
        known.entered = started or told
        if known.ended is not None:
            known.ended.set_result(None)
        if not known.entered:
            self.known.pop(key, None)
        elif known.result is not None:
            self._held.append(known)
            if len(self._held) > self._remember:
                self._let_go()

    def _let_go(self) -> None:
        """Hold only the latest results. That a call was made is never forgotten; what it gave is in the journal."""
        while len(self._held) > self._remember:
            oldest = self._held.popleft()
            oldest.kept, oldest.result = True, None

    @property
    def idle(self) -> bool:
        """Whether nothing runs and nothing is in doubt."""
        return not self.under_way and not self.uncertain

    def doubt(self, approved: ApprovedCall) -> Uncertain | None:
        """The earlier call of the same tool with the same arguments whose outcome nobody knows, or None."""
        return self.uncertain.get((approved.call.tool.name, arguments_hash(approved.encoded))) if self.uncertain else None

    def now_uncertain(self, call: ValidatedCall, encoded: bytes, key: str, *, gone: bool) -> None:
        """Nobody knows what came of this call, whose final arguments were `encoded`; one without effect leaves no doubt.

        Args:
            gone: Whether its code has ended, as far as its runner knows.
        """
        if call.tool.effect != "none":
            self.uncertain[call.tool.name, arguments_hash(encoded)] = Uncertain(uid=call.uid, key=key, gone=gone)

    def reopen(self, uid: str) -> Doubt | None:
        """Let a call that was left open start again; returns the doubt there was."""
        for fact, doubt in self.uncertain.items():
            if doubt.uid == uid:
                del self.uncertain[fact]
                self.known.pop(doubt.key, None)
                return fact, doubt
        return None

    def is_in_doubt(self, uid: str) -> bool:
        return any(doubt.uid == uid for doubt in self.uncertain.values())

    def settle(self, uid: str, *, happened: bool) -> None:
        """Forget that a call's outcome is unknown. One that did not happen may be handed in again."""
        for fact, doubt in self.uncertain.items():
            if doubt.uid == uid:
                del self.uncertain[fact]
                if not happened:
                    self.known.pop(doubt.key, None)
                return


def _not_known(tool: str, uid: str) -> str:
    return (
        f"{tool} was started before as {uid} and its outcome is not known, because the engine ended before it answered. It may have taken"
        " effect. It was not run again. Check the real state first; repeat the call under a new id only if that shows it did not happen."
    )


_TWICE: Final = Note(kind="warning", text="The message had this call twice, with the same id, tool and arguments: it ran once.")


class RepeatedCall(Protocol):
    """A call that was handed in again."""

    raw: RawCall
    uid: str
    kill: AbortSignal
    duplicate: bool
    """Whether its message has the same call before it."""


async def earlier_result(known: Known, call: RepeatedCall, journal: Journal, timeout_s: float) -> tuple[ToolResult, str]:
    """The result of a call that is handed in again, and whether it was stored (`replayed`) or still running (`joined`).

    Raises:
        CallNotStarted: It was refused before it started.
        OutcomeUnknown: It ran and left no result, or did not end in time.
    """
    joined = known.running
    if known.running:
        known.ended = known.ended or asyncio.get_running_loop().create_future()
        await settled(known.ended, call.kill, timeout_s)
    if not known.entered:
        raise CallNotStarted(
            f"{known.tool} was handed in twice at once, and {known.uid} was refused. Nothing happened; it may be sent again."
        )
    result = known.result or (await off_loop(journal, partial(_from_journal, known, journal)) if known.kept else None)
    if result is None:
        raise OutcomeUnknown(
            f"{known.tool} was handed in again while {known.uid} ran, and that call gave no result. Check the real state first."
        )
    notes = (*result.metadata.notes, _TWICE) if call.duplicate else result.metadata.notes
    metadata = replace(result.metadata, replayed=not joined, joined=joined, notes=notes)
    own = decode_result(canonical(result))  # nobody shares what somebody may change
    return replace(own, id=call.raw.id, uid=call.uid, metadata=metadata), "joined" if joined else "replayed"


def _from_journal(known: Known, journal: Journal) -> ToolResult | None:
    ends = [event for event in journal.read(call=known.uid) if event.kind == "call.completed"]
    return decode_result(ends[-1].body) if ends else None
