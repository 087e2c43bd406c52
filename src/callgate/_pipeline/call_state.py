"""The state of one call on the route: the values that the stages pass on besides the call itself.

Mutable and private to the engine. It is dropped when the call has its outcome. `call_events` writes the events of the call from it. Knows
no stage.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from math import inf

from msgspec import Struct

from callgate._abort_signals import AbortSignal, Control
from callgate._pipeline.concurrency_limit import ConcurrencyLimit
from callgate._run_state.calls_in_doubt import Doubt
from callgate._run_state.earlier_effect import EffectClaim
from callgate._run_state.event_bodies import ScopeFacts
from callgate._run_state.idempotency import IdenticalCalls, KeyedCall
from callgate._run_state.recorder import Recorder
from callgate._run_state.run_recovery import UnfinishedCall
from callgate._run_state.run_state import RunState
from callgate.calls import RawCall, Scope, Suspended, ToolResult
from callgate.errors import CallAborted, CallNotStarted
from callgate.events import Progress
from callgate.stage_types import ApprovedCall, Checked, ParsedCall, ValidatedCall

__all__ = ["CallState", "Nest"]

Nest = Callable[["CallState", str, Mapping[str, object]], Awaitable[ToolResult]]


class CallState(Struct, kw_only=True, eq=False):
    """The state of one call. Mutable and private to the engine."""

    # The call

    raw: RawCall
    arguments: str | bytes | Mapping[str, object]
    """The arguments as they are parsed and recorded: as JSON text if `raw` has a small dict, which the host may change later."""
    scope: Scope
    uid: str
    kill: AbortSignal
    began: float
    """When the call began, on the engine's monotonic clock."""
    deadline: float = inf
    """When the call must end, on the engine's monotonic clock. Until the call's own time begins, this is its parent's
    deadline.
    """
    stopped: str = ""
    """Why this call must end its message although its conversation was not stopped; empty if it must not."""
    stopped_late: str = ""
    """Why the message ends after this call, which had finished when the stop was noticed; empty if it does not."""

    asked_within: tuple[Suspended, ...] = ()
    """The questions to humans about calls that its tool has made."""

    # Its record

    run_state: RunState
    recorder: Recorder
    facts: ScopeFacts
    """The recorded facts about the scope."""
    last: int
    """The position of this call's latest event, which causes its next event and its nested calls."""
    durable: int = 0
    """The position of an event of the call that is known to be durable, as all before it are."""
    on_record: bool = False
    """Whether any event of the call is recorded."""
    ended: bool = False
    """Whether the end of the call is recorded."""
    unrecorded_allow: ApprovedCall | None = None
    """The approved call until its verdict `allow` is recorded, together with the start or before the next other event."""
    logs: bool = False
    """Whether the logger is enabled for the level INFO."""
    _progressed: int = 0
    """The number of pieces of output that the tool has reported."""

    # Its arguments, from stage to stage

    parsed: ParsedCall | BaseException | None = None
    """What `parse` returned or raised, if the arguments were parsed before `prepare`."""
    judged: ValidatedCall | None = None
    """The call with the arguments that the gate is judging; None before the gate."""
    edited: bool = False
    """Whether a human has given the call other arguments."""
    encoded: bytes = b""
    """The final arguments as canonical JSON, once the call is approved."""
    final_hash: str = ""
    """The hash of the final arguments, if the call has effects and is approved."""
    tick: str = ""
    """The tick in which this call counts as dangerous; empty if dangerous calls are not counted."""
    withholds: bool = False
    """Whether hooks may still change or withhold the result, so that no part of it may be recorded before they have
    run.
    """

    # What identifies it when it is handed in again

    key: str = ""
    """The key that identifies the call in its run."""
    asked_hash: str = ""
    """The hash of the arguments as submitted, if the call has a key that identifies it."""
    keyed_call: KeyedCall | None = None
    """The entry of the call among the run's calls with a key, while it is running."""
    claim: EffectClaim | None = None
    """The key of its effect, while the call holds it; None otherwise."""
    unfinished: UnfinishedCall | None = None
    """The recorded state of the call, if another engine left it without an end and its run is resumed."""
    doubtful: bool = False
    """Whether it is unknown if the call took effect before this engine resumed it."""
    doubt: Doubt | None = None
    """The unknown outcome that was set aside so that the call could start again."""

    # Its place in its message

    duplicate: bool = False
    """Whether the same message contains an earlier call with the same id, tool and arguments."""
    first: ToolResult | None = None
    """For a duplicate without an effect: the result of the first call."""
    before_start: Callable[[ApprovedCall], Awaitable[None] | None] | None = None
    """Called by the emission's order between approval and start. If it returns an awaitable, the start waits for it."""
    on_result: Callable[[ToolResult], None] | None = None
    """Called once with the call's result, before the restart handler gets it."""

    # Calls within calls

    nest: Nest
    """Runs calls of other tools that this call's tool makes."""
    parent: CallState | None = None
    """For a nested call: the call whose tool makes it."""
    caller: CallState | None = None
    """The call within which this one was made: its parent, or the call whose tool called the engine directly."""
    identical: IdenticalCalls | None = None
    """For a nested call: the numbers of the calls that the same attempt of its parent makes."""
    occurrence: int = 0
    """For a nested call: its number among them."""
    nested_numbers: IdenticalCalls | None = None
    """The numbers of the nested calls that the current attempt makes; None before the first."""

    # Locks, slots and attempts

    locked: bool = False
    """Whether the call holds or waits for a lock of its engine."""
    release_lock: Callable[[], bool] | None = None
    """Releases that lock, also if it is released already. None before the call has one."""
    held: ConcurrencyLimit | None = None
    """The limit of which this call holds a slot while its tool runs."""
    attempt: int = 0
    """The number of the attempt that is running; 0 if none is."""
    attempt_ends: float = inf
    """When the attempt that is running must end, on the engine's monotonic clock."""
    started: bool = False
    """Whether the tool's code may have been entered."""
    code_over: bool = False
    """Whether the tool's code has ended or was abandoned, so that it can make no more calls."""

    def tell_result(self, result: ToolResult) -> None:
        """Call `on_result`, but only once, even if ending the call is tried again."""
        on_result, self.on_result = self.on_result, None
        if on_result is not None:
            on_result(result)

    # What its tool may do while it runs

    def report(self, text: str, stream: str) -> None:
        """Publish a piece of the tool's output to its subscribers."""
        self._progressed += 1
        if self.recorder.bus.busy:
            redacted = self.recorder.redacted
            piece = Progress(call=self.uid, seq=self._progressed, text=redacted(text), stream=redacted(stream), call_id=self.raw.id)
            self.recorder.bus.publish("call.progress", piece)

    async def call_nested(self, attempt: int, name: str, arguments: Mapping[str, object]) -> ToolResult:
        """Run a call of another tool that this call's tool makes.

        Raises:
            RuntimeError: This call, or the attempt whose code makes the nested call, has ended.
        """
        if self.recorder.crowded:
            await self.recorder.wait_for_capacity()
        if self.code_over or attempt != self.attempt:
            own = f"the call {self.uid}" if self.code_over else f"attempt {attempt} of the call {self.uid}"
            raise RuntimeError(
                f"{name} was not called: {own} that would have made it has ended."
                f" Await every call in {self.recorder.cut(self.raw.name)} before it returns."
            )
        return await self.nest(self, name, arguments)

    def number_nested(self) -> IdenticalCalls:
        """Return the numbers of the nested calls that the current attempt makes."""
        self.nested_numbers = IdenticalCalls() if self.nested_numbers is None else self.nested_numbers
        return self.nested_numbers

    # Concurrency slots

    async def acquire_slot(self, limit: ConcurrencyLimit, timeout_s: float) -> None:
        """Acquire a slot, waiting for one if necessary. The calls within which this one was made release theirs, as they wait for it.

        Raises:
            CallNotStarted: The call was killed or its time ran out before a slot was free.
        """
        above = self.caller
        while above is not None:
            above.release_slot()
            above = above.caller
        if not await limit.acquire(self.kill, timeout_s, first=self.caller is not None):
            why = self.kill.reason or f"no slot was free within {timeout_s:.3g} s"
            raise CallNotStarted.because(why)
        self.held = limit

    def release_slot(self) -> None:
        """Release the slot that this call holds."""
        held, self.held = self.held, None
        if held is not None:
            held.release()

    def has_ended_before(self, call: ValidatedCall) -> bool:
        """Return whether the same call, with an effect, was handed in before and has ended.

        False for a call that a tool makes, which nobody hands in again, and for one that may have taken effect before it was resumed.
        """
        return self.identical is None and not self.doubtful and self.run_state.has_ended(call)

    def stop_reason(self, control: Control) -> str | None:
        """Return the reason of a stop or a kill that is pending, or None."""
        return self.stopped or control.pending(self.scope.conversation)

    def check_stop(self, control: Control, checked: Checked | None = None) -> None:
        """Raise `CallAborted` if a stop is pending.

        The result of a call that ran is recorded, but not added to the history.
        """
        reason = self.stop_reason(control)
        if reason is not None:
            facts = None if checked is None else checked.facts
            if facts is not None and self.withholds:
                facts = {name: fact for name, fact in facts.items() if name != "error"}
            raise CallAborted("stopped_by_user", reason, details=facts)
