"""The state of one call on the route: what is recorded of it, and the values that the stages pass on besides the call
itself.

Mutable and private to the engine. It is dropped when the call has its outcome. Knows no stage.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from math import inf

from msgspec import Raw, Struct
from msgspec.structs import replace

from callgate._abort_signals import AbortSignal, Control
from callgate._json import plain_bytes
from callgate._pipeline.concurrency_limit import ConcurrencyLimit
from callgate._pipeline.validate import Modified
from callgate._run_state.approvals import REFUSED_BY_ANSWER
from callgate._run_state.calls_in_doubt import Doubt
from callgate._run_state.earlier_effect import EffectClaim
from callgate._run_state.event_bodies import (
    MOST_CHARS,
    MOST_RAW,
    AttemptFailed,
    Raised,
    Reason,
    ReceivedCall,
    ScopeFacts,
    Started,
    Verdict,
    arguments_hash,
)
from callgate._run_state.idempotency import IdenticalCalls, Known, RunState
from callgate._run_state.recorder import Recorder
from callgate._run_state.run_recovery import Unfinished
from callgate.calls import RawCall, Scope, ToolResult
from callgate.errors import CallAborted, CallDenied, CallNotStarted, RecordFailed
from callgate.events import Body, Draft, Progress
from callgate.protocols import Execution
from callgate.stage_types import ApprovedCall, Checked, ParsedCall, ValidatedCall

__all__ = ["CallState", "Nest"]

Nest = Callable[["CallState", str, Mapping[str, object]], Awaitable[ToolResult]]


class CallState(Struct, kw_only=True, eq=False):
    """The state of one call. Mutable and private to the engine. Each event of the call is caused by its previous one."""

    raw: RawCall
    arguments: str | bytes | Mapping[str, object]
    """The arguments as they are parsed and recorded: as JSON text if `raw` has a small dict, which the host may change later."""
    scope: Scope
    run_state: RunState
    recorder: Recorder
    uid: str
    kill: AbortSignal
    facts: ScopeFacts
    """The recorded facts about the scope."""
    nest: Nest
    """Runs calls of other tools that this call's tool makes."""
    began: float
    """When the call began, on the engine's monotonic clock."""
    last: int
    """The position of this call's latest event, which causes its next event and its nested calls."""
    identical: IdenticalCalls | None = None
    """For a nested call: the numbers of the calls that the same attempt of its parent makes."""
    occurrence: int = 0
    """For a nested call: its number among them."""
    duplicate: bool = False
    """Whether the same message contains an earlier call with the same id, tool and arguments."""
    first: ToolResult | None = None
    """For a duplicate without an effect: the result of the first call."""
    parsed: ParsedCall | BaseException | None = None
    """What `parse` returned or raised, if the arguments were parsed before `prepare`."""
    parent: CallState | None = None
    caller: CallState | None = None
    """The call within which this one was made: its parent, or the call whose tool called the engine directly."""
    locked: bool = False
    """Whether the call holds or waits for a lock of its engine."""
    release_lock: Callable[[], bool] | None = None
    """Releases that lock, also if it is released already. None before the call has one."""
    attempt_ends: float = inf
    """When the attempt that is running must end, on the engine's monotonic clock."""
    deadline: float = inf
    """When the call must end, on the engine's monotonic clock. Until the call's own time begins, this is its parent's
    deadline.
    """
    asked_hash: str = ""
    """The hash of the arguments as submitted, if the call has a key that identifies it."""
    ended: bool = False
    """Whether the end of the call is recorded."""
    on_record: bool = False
    """Whether any event of the call is recorded."""
    durable: int = 0
    """The position of an event of the call that is known to be durable, as all before it are."""
    before_start: Callable[[ApprovedCall], Awaitable[None] | None] | None = None
    """Called by the emission's order between approval and start. If it returns an awaitable, the start waits for it."""
    on_result: Callable[[ToolResult], None] | None = None
    """Called once with the call's result, before the restart handler gets it."""
    held: ConcurrencyLimit | None = None
    """The limit of which this call holds a slot while its tool runs."""
    judged: ValidatedCall | None = None
    """The call with the arguments that the gate is judging; None before the gate."""
    withholds: bool = False
    """Whether hooks may still change or withhold the result, so that no part of it may be recorded before they have
    run.
    """
    encoded: bytes = b""
    """The final arguments as canonical JSON, once the call is approved."""
    tick: str = ""
    """The tick in which this call counts as dangerous; empty if dangerous calls are not counted."""
    _progressed: int = 0
    started: bool = False
    """Whether the tool's code may have been entered."""
    unfinished: Unfinished | None = None
    """The recorded state of the call, if another engine left it without an end and its run is resumed."""
    stopped_late: str = ""
    """Why the message ends after this call, which had finished when the stop was noticed; empty if it does not."""
    stopped: str = ""
    """Why this call must end its message although its conversation was not stopped; empty if it must not."""
    doubtful: bool = False
    """Whether it is unknown if the call took effect before this engine resumed it."""
    doubt: Doubt | None = None
    """The unknown outcome that was set aside so that the call could start again."""
    attempt: int = 0
    """The number of the attempt that is running; 0 if none is."""
    _made: IdenticalCalls | None = None
    """The numbers of the nested calls that the current attempt makes."""
    code_over: bool = False
    """Whether the tool's code has ended or was abandoned, so that it can make no more calls."""
    logs: bool = False
    """Whether the logger is enabled for the level INFO."""
    key: str = ""
    """The key that identifies the call in its run."""
    claim: EffectClaim | None = None
    """The key of its effect, while the call holds it; None otherwise."""
    edited: bool = False
    """Whether a human has given the call other arguments."""
    known: Known | None = None
    """The entry of the call among the run's calls with a key, while it is running."""
    final_hash: str = ""
    """The hash of the final arguments, if the call has effects and is approved."""
    unrecorded_allow: ApprovedCall | None = None
    """The approved call until its verdict `allow` is recorded, together with the start or before the next other event."""

    # The record of the call

    def write(self, kind: str, body: Body, attempt: int = 0) -> int:
        if self.unrecorded_allow is not None:
            self._record_allow(self.unrecorded_allow)
        parents = (self.last,) if self.last else ()
        self.last = position = self.recorder.write(
            Draft(kind=kind, run=self.scope.run, body=body, call=self.uid, attempt=attempt, parents=parents)
        )
        return position

    def end(self, kind: str, body: Body) -> int:
        """Record the end of the call. If it has ended already, the first end stays."""
        if self.ended:
            return self.last
        if self.unrecorded_allow is not None:
            self._record_allow(self.unrecorded_allow)
        parents = (self.last,) if self.last else ()
        self.last = position = self.recorder.write(Draft(kind=kind, run=self.scope.run, body=body, call=self.uid, parents=parents))
        self.ended = True
        return position

    def received(self) -> None:
        """Record that the call was received, or that it was resumed together with its run."""
        self.on_record = True
        raw, arguments = self.raw, self.arguments
        kind: str = "call.received"
        body: Body
        if self.unfinished is not None:
            kind = "call.resumed"
            body = Reason(reason="its run was resumed", status="not_started" if self.unfinished.unstarted else "started")
        else:
            body = ReceivedCall(raw, arguments, self.facts, self.parent.uid if self.parent else "", self.recorder.redactor)
            short = type(arguments) is str and len(arguments) <= MOST_RAW and len(raw.reasoning) <= MOST_CHARS
            if not short or raw.beside is not None:
                body = body.encode()  # what is long is cut now, and not kept until somebody reads it
        parents = (self.last,) if self.last else ()
        self.last = self.recorder.write(Draft(kind=kind, run=self.scope.run, body=body, call=self.uid, parents=parents))

    def modified(self, change: Modified) -> None:
        """Record that the gate continues with other arguments."""
        self.judged = change.call
        self.edited = self.edited or bool(change.approval)
        name = change.call.tool.name
        key = self.key if change.approval and self.asked_hash else ""
        self.verdict("modify", name, rule=change.rule, reason=change.reason, hook=change.hook, approval=change.approval, key=key)

    @property
    def judged_arguments(self) -> bytes:
        """The arguments that the gate judges, as JSON; `null` without any, or if a policy has put in what is not JSON."""
        return b"null" if self.judged is None else _arguments_json(self.judged)

    def verdict(
        self,
        verdict: str,
        tool: str,
        *,
        rule: str = "",
        reason: str = "",
        hook: str = "",
        judgments: tuple[object, ...] = (),
        approval: str = "",
        key: str = "",
    ) -> None:
        """Record a verdict on the arguments that the gate judges.

        Args:
            key: The key of the call, if the verdict is repeated when the same call is handed in again.
        """
        identity = "" if self.judged is None else self.judged.tool.identity
        body = Verdict(
            verdict=verdict,
            tool=tool,
            rule=rule,
            reason=reason,
            identity=identity,
            arguments=Raw(self.judged_arguments),
            hook=hook,
            judgments=judgments,
            approval=approval,
            key=key,
            asked_hash=self.asked_hash if key else "",
        )
        self.write("call.verdict", body)

    def denied(self, error: CallDenied, tool: str) -> None:
        """Record that a policy, a hook or a human denied the call."""
        by = error.details or {}
        rule, hook = (str(by.get(one, "")) for one in ("rule", "hook"))
        key = self.key if error.code in REFUSED_BY_ANSWER else ""
        self.verdict("deny", tool, rule=rule, reason=str(error), hook=hook, judgments=error.judgments, approval=error.approval, key=key)

    def approved(self, approved: ApprovedCall) -> None:
        """Keep the approved call; its verdict is recorded together with its start."""
        if approved.call.tool.effect != "none":
            unchanged = self.asked_hash and approved.encoded == self.encoded
            self.final_hash = self.asked_hash if unchanged else arguments_hash(approved.encoded)
        self.encoded = approved.encoded
        self.unrecorded_allow = approved

    def _record_allow(self, approved: ApprovedCall) -> None:
        """Record the verdict `allow` of a call that does not start, such as one that is answered from the cache."""
        tool = approved.call.tool
        body = Verdict(
            verdict="allow",
            tool=tool.name,
            rule=approved.rule,
            identity=tool.identity,
            arguments=Raw(approved.arguments_json),
            notes=approved.call.notes,
            approval=approved.approval,
            judgments=approved.judgments,
            key=approved.key if approved.approval and self.asked_hash else "",
            asked_hash=self.asked_hash if approved.approval else "",
        )
        draft = Draft(kind="call.verdict", run=self.scope.run, body=body, call=self.uid, parents=(self.last,))
        self.last = self.recorder.write(draft)
        self.unrecorded_allow = None

    def attempt_started(self, approved: ApprovedCall, attempt: int, timeout_s: float, *, claims: bool = False) -> int:
        """Record the intent to enter the tool's code, together with the verdict `allow` if that is not recorded yet."""
        tool = approved.call.tool
        has_effect = tool.effect != "none"
        body = Started(
            tool=tool.name,
            effect=tool.effect,
            key=approved.key,
            effect_key=approved.effect_key,
            runner=tool.runner,
            timeout_s=timeout_s,
            asked_hash=self.asked_hash,
            arguments_hash=self.final_hash,
            claims=has_effect and claims,
            writer=self.recorder.identity if has_effect else "",
            tick=self.tick,
        )
        if self.unrecorded_allow is not None:
            body = replace(
                body,
                verdict="allow",
                rule=approved.rule,
                identity=tool.identity,
                arguments=Raw(approved.arguments_json),
                notes=approved.call.notes,
                approval=approved.approval,
                judgments=approved.judgments,
            )
        self.doubtful = False
        self.attempt, self._made = attempt, None
        numbered = attempt if self.unfinished is None else self._attempt_number(attempt)
        draft = Draft(kind="call.started", run=self.scope.run, body=body, call=self.uid, attempt=numbered, parents=(self.last,))
        self.last = position = self.recorder.write(draft)
        self.unrecorded_allow = None
        return position

    async def claimed(self, attempt: int, worker: str = "") -> None:
        """Record that a runner outside this process is about to enter the tool's code.

        The runner must wait until this returns.

        Args:
            worker: The process that will run the code, as `process_identity` names it; empty if it is not on this
                machine.

        Raises:
            RecordFailed: The claim could not be recorded.
        """
        body = Reason(reason="a worker has it", details={"worker": worker} if worker else None)
        await self.recorder.durable(self.write("call.claimed", body, self._attempt_number(attempt)))
        self.started = True

    def _attempt_number(self, attempt: int) -> int:
        """Return the attempt's number among all attempts, including those of earlier processes."""
        return attempt if self.unfinished is None else attempt + self.unfinished.attempts

    def raised(self, attempt: int, execution: Execution) -> None:
        """Record the exception of a tool, and log it for the tool's author.

        If hooks may withhold the result, only the type of the exception is recorded and logged.
        """
        if self.withholds:
            execution = replace(execution, error="", traceback="")
        name = self.raw.name if self.judged is None else self.judged.tool.name
        self.recorder.log.debug("Tool %s raised %s (%s)\n%s", name, execution.error_type, self.uid, execution.traceback)
        with suppress(RecordFailed):  # the end of the call fails in the same way and reports it
            self.write("call.raised", Raised.of(execution, self.recorder.redactor), self._attempt_number(attempt))

    def attempt_failed(self, attempt: int, execution: Execution, wait_s: float) -> None:
        self.attempt = 0
        if self.withholds:
            execution = replace(execution, error=execution.error_type)
        self.write("call.attempt_failed", AttemptFailed.of(execution, wait_s, self.recorder.redactor), attempt)

    def tell_result(self, result: ToolResult) -> None:
        """Call `on_result`, but only once, even if ending the call is tried again."""
        told, self.on_result = self.on_result, None
        if told is not None:
            told(result)

    # What its tool may do while it runs

    def report(self, text: str, stream: str) -> None:
        """Publish a piece of the tool's output to its subscribers."""
        self._progressed += 1
        if self.recorder.bus.busy:
            told = self.recorder.redacted
            piece = Progress(call=self.uid, seq=self._progressed, text=told(text), stream=told(stream), call_id=self.raw.id)
            self.recorder.bus.publish("call.progress", piece)

    async def nested(self, attempt: int, name: str, arguments: Mapping[str, object]) -> ToolResult:
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

    @property
    def made(self) -> IdenticalCalls:
        """The numbers of the nested calls that the current attempt makes."""
        self._made = IdenticalCalls() if self._made is None else self._made
        return self._made

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


def _arguments_json(call: ValidatedCall) -> bytes:
    """Return the arguments as JSON; `null` if a policy has replaced them in place with something that is not JSON."""
    try:
        return plain_bytes(call.arguments)
    except Exception:
        return b"null"
