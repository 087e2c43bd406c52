"""The state of one call on the route: its record, and what the stages hand along beside the call itself.

Mutable, private to the engine, gone when the call has its outcome. Knows no stage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from math import inf

from msgspec import Raw, Struct
from msgspec.structs import replace

from callgate._abort_signals import AbortSignal, Control
from callgate._json import exceeds, plain_bytes
from callgate._pipeline.concurrency import Slots
from callgate._pipeline.validate import Modified
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
from callgate._run_state.idempotency import Doubt, Known, RunState
from callgate._run_state.recorder import Recorder
from callgate._run_state.run_recovery import Unfinished
from callgate.calls import RawCall, Scope, ToolResult
from callgate.errors import CallAborted, CallNotStarted, RecordFailed
from callgate.events import Body, Draft, Progress
from callgate.protocols import Execution
from callgate.stage_types import ApprovedCall, Checked, ParsedCall, ValidatedCall

__all__ = ["CallState", "Nest"]

_MOST_COMPARED = 4_194_304
Nest = Callable[["CallState", str, Mapping[str, object]], Awaitable[ToolResult]]


class CallState(Struct, kw_only=True, eq=False):
    """Mutable, private to the engine, gone when the call has its outcome. Each event it writes is caused by the one before."""

    raw: RawCall
    scope: Scope
    run_state: RunState
    recorder: Recorder
    uid: str
    kill: AbortSignal
    facts: ScopeFacts
    """What the record says of the scope."""
    nest: Nest
    """Takes calls of other tools that this one's tool makes."""
    began: float
    """On the engine's monotonic clock."""
    last: int
    """The position of this call's latest event: what nested calls are caused by."""
    occurrence: int = 0
    """How many earlier calls of the same tool, with the same arguments, the call that makes this one has made."""
    duplicate: bool = False
    """Whether its message has the same call, with the same id, tool and arguments, before it."""
    first: ToolResult | None = None
    """The result that a read of which this is the duplicate got."""
    parsed: ParsedCall | BaseException | None = None
    """What `parse` returned or raised, where it was done before the call is prepared."""
    parent: CallState | None = None
    caller: CallState | None = None
    """The call within which this one was made: its parent, or the call whose tool handed it in at the engine itself."""
    locked: bool = False
    """Whether it holds a lock of its engine, or waits for one."""
    deadline: float = inf
    """On the same clock; until the call's own clock starts, that of the call that made this one."""
    asked_hash: str = ""
    """Of the arguments as they were handed in, where the call has a key by which it is known again."""
    ended: bool = False
    """Whether its one end is on record."""
    on_record: bool = False
    """Whether anything of it is."""
    before_start: Callable[[ApprovedCall], Awaitable[None] | None] | None = None
    """Asked between approval and start, and waited for where it says so: the emission's say."""
    on_result: Callable[[ToolResult], None] | None = None
    """Told the call's result once, before the restart handler is offered it."""
    held: Slots | None = None
    """Where this call holds a slot while its tool runs."""
    judged: ValidatedCall | None = None
    """The call with the arguments that the gate judges; None before it."""
    withholds: bool = False
    """Whether hooks may yet change or withhold what it comes to, so that nothing of that may be recorded before them."""
    encoded: bytes = b""
    """The final arguments as canonical JSON, once the call is approved."""
    tick: str = ""
    """The tick whose dangerous calls this one counts among; empty where they are not counted."""
    _progressed: int = 0
    started: bool = False
    """Whether the tool's code may have been entered."""
    unfinished: Unfinished | None = None
    """What another engine left of it, where a run that was cut off is resumed."""
    stopped: str = ""
    """Why this call is to end its message, though its conversation goes on; empty: it is not."""
    doubtful: bool = False
    """Whether it may have taken effect before this engine took it up, and nobody knows."""
    doubt: Doubt | None = None
    """The doubt that was put aside so that the call could start again."""
    attempt: int = 0
    """The one whose code runs; 0: none does."""
    _made: Counter[tuple[str, str]] | None = None
    """How often the present attempt has made each call of another tool."""
    code_over: bool = False
    """Whether the tool's code has ended or was abandoned, so that it can make no more calls."""
    logs: bool = False
    """Whether the log takes lines at level INFO."""
    key: str = ""
    """By which the call is known again; what the tool gets as its idempotency key."""
    claim: EffectClaim | None = None
    """The key of its effect, while the call has it."""
    known: Known | None = None
    """The call among those of its run that are known again, while it is under way."""
    final_hash: str = ""
    """Of the final arguments, where the call has effects and is approved."""
    unrecorded_allow: ApprovedCall | None = None
    """The approved call until its allow is recorded: with its start, or before whatever else is recorded of it first."""

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
        """Write the call's one end; one that has ended keeps the end it has."""
        if self.ended:
            return self.last
        if self.unrecorded_allow is not None:
            self._record_allow(self.unrecorded_allow)
        parents = (self.last,) if self.last else ()
        self.last = position = self.recorder.write(Draft(kind=kind, run=self.scope.run, body=body, call=self.uid, parents=parents))
        self.ended = True
        return position

    def received(self) -> None:
        """Record that the call came in, or that its run was resumed and it with it."""
        self.on_record = True
        raw = self.raw
        kind: str = "call.received"
        body: Body
        if self.unfinished is not None:
            kind = "call.resumed"
            body = Reason(reason="its run was resumed", status="not_started" if self.unfinished.unstarted else "started")
        else:
            body = ReceivedCall(raw, self.facts, self.parent.uid if self.parent else "", self.recorder.redactor)
            short = type(raw.arguments) is str and len(raw.arguments) <= MOST_RAW and len(raw.reasoning) <= MOST_CHARS
            if not short or raw.beside is not None:
                body = body.encode()  # what is long is cut now, and not kept until somebody reads it
        parents = (self.last,) if self.last else ()
        self.last = self.recorder.write(Draft(kind=kind, run=self.scope.run, body=body, call=self.uid, parents=parents))

    def modified(self, change: Modified) -> None:
        """The gate goes on with other arguments."""
        self.judged = change.call
        name = change.call.tool.name
        self.verdict("modify", name, rule=change.rule, reason=change.reason, hook=change.hook, approval=change.approval)

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
    ) -> None:
        """Record a verdict on the arguments that the gate judges."""
        judged = self.judged
        identity, arguments = ("", b"null") if judged is None else (judged.tool.identity, _encoded(judged))
        body = Verdict(
            verdict=verdict,
            tool=tool,
            rule=rule,
            reason=reason,
            identity=identity,
            arguments=Raw(arguments),
            hook=hook,
            judgments=judgments,
            approval=approval,
        )
        self.write("call.verdict", body)

    def approved(self, approved: ApprovedCall) -> None:
        """Remember that the gate lets the call run; recorded with its start."""
        if approved.call.tool.effect != "none":
            unchanged = self.asked_hash and approved.encoded == self.encoded
            self.final_hash = self.asked_hash if unchanged else arguments_hash(approved.encoded)
        self.encoded = approved.encoded
        self.unrecorded_allow = approved

    def _record_allow(self, approved: ApprovedCall) -> None:
        """Record the allow of a call that did not start, as one that was answered from the cache."""
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
        )
        draft = Draft(kind="call.verdict", run=self.scope.run, body=body, call=self.uid, parents=(self.last,))
        self.last = self.recorder.write(draft)
        self.unrecorded_allow = None

    def attempt_started(self, approved: ApprovedCall, attempt: int, timeout_s: float, *, claims: bool = False) -> int:
        """Record the intent to enter the tool's code, with the allow if it is not on record yet."""
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
        numbered = attempt if self.unfinished is None else self._numbered(attempt)
        draft = Draft(kind="call.started", run=self.scope.run, body=body, call=self.uid, attempt=numbered, parents=(self.last,))
        self.last = position = self.recorder.write(draft)
        self.unrecorded_allow = None
        return position

    async def claimed(self, attempt: int, worker: str = "") -> None:
        """Record that a runner outside this process is about to enter the tool's code; it may not before that.

        Args:
            worker: The process that will run it, as `process_identity` names it; empty where it is none of this machine.

        Raises:
            RecordFailed: It is not.
        """
        body = Reason(reason="a worker has it", details={"worker": worker} if worker else None)
        await self.recorder.durable(self.write("call.claimed", body, self._numbered(attempt)))
        self.started = True

    def _numbered(self, attempt: int) -> int:
        """The attempt's number among all that there were, in earlier processes too."""
        return attempt if self.unfinished is None else attempt + self.unfinished.attempts

    def raised(self, attempt: int, execution: Execution) -> None:
        """Record the exception of a tool, and log it for the tool's author. Only its type, if hooks may withhold the result."""
        if self.withholds:
            execution = replace(execution, error="", traceback="")
        name = self.raw.name if self.judged is None else self.judged.tool.name
        self.recorder.log.debug("Tool %s raised %s (%s)\n%s", name, execution.error_type, self.uid, execution.traceback)
        with suppress(RecordFailed):  # the end of the call fails in the same way and reports it
            self.write("call.raised", Raised.of(execution, self.recorder.redactor), self._numbered(attempt))

    def attempt_failed(self, attempt: int, execution: Execution, wait_s: float) -> None:
        self.attempt = 0
        if self.withholds:
            execution = replace(execution, error=execution.error_type)
        self.write("call.attempt_failed", AttemptFailed.of(execution, wait_s, self.recorder.redactor), attempt)

    def tell_result(self, result: ToolResult) -> None:
        """Call `on_result` once, even if ending the call is tried again."""
        told, self.on_result = self.on_result, None
        if told is not None:
            told(result)

    # What its tool may do while it runs

    def report(self, text: str, stream: str) -> None:
        """Publish a piece of the tool's output to its subscribers."""
        self._progressed += 1
        if self.recorder.bus.busy:
            told = self.recorder.redacted
            self.recorder.bus.publish("call.progress", Progress(call=self.uid, seq=self._progressed, text=told(text), stream=told(stream)))

    async def nested(self, attempt: int, name: str, arguments: Mapping[str, object]) -> ToolResult:
        """Take a call of another tool that this call's tool makes.

        Raises:
            RuntimeError: Its own call is over, or the attempt at it that its code belongs to.
        """
        if self.recorder.crowded:
            await self.recorder.wait_for_capacity()
        if self.code_over or attempt != self.attempt:
            own = f"the call {self.uid}" if self.code_over else f"attempt {attempt} of the call {self.uid}"
            raise RuntimeError(
                f"{name} was not called: {own} that would have made it is over, so it could be part of nothing."
                f" Let {self.recorder.cut(self.raw.name)} wait for what it begins before it returns."
            )
        return await self.nest(self, name, arguments)

    def made_before(self, name: str, arguments: Mapping[str, object]) -> int:
        """Count a nested call, and return how often this attempt has made the same call before."""
        if exceeds(arguments, _MOST_COMPARED):  # it will be refused
            return 0
        same = (name, repr(sorted(arguments.items(), key=repr) if isinstance(arguments, Mapping) else arguments))
        self._made = Counter() if self._made is None else self._made
        self._made[same] += 1
        return self._made[same] - 1

    # The room to run in

    async def take(self, slots: Slots, timeout_s: float) -> None:
        """Take a slot, waiting for it in turn.

        Raises:
            CallNotStarted: The call was killed, or its time was over, before there was room.
        """
        if not await slots.take(self.kill, timeout_s, first=self.parent is not None):
            why = self.kill.reason or f"no room for it within {timeout_s:.3g} s"
            raise CallNotStarted(f"It was not started: {why}. Nothing happened; it may be sent again.")
        self.held = slots

    def give(self) -> None:
        """Give back the slot that is held."""
        held, self.held = self.held, None
        if held is not None:
            held.give()

    def check_stop(self, control: Control, checked: Checked | None = None) -> None:
        """Raise `CallAborted` if a stop is pending. The result of a call that ran stays on record and out of the history."""
        reason = self.stopped or control.pending(self.scope.conversation)
        if reason is not None:
            facts = None if checked is None else checked.facts
            if facts is not None and self.withholds:
                facts = {name: fact for name, fact in facts.items() if name != "error"}
            raise CallAborted("stopped_by_user", reason, details=facts)


def _encoded(call: ValidatedCall) -> bytes:
    """The arguments as JSON; null where a policy left something else in their place."""
    try:
        return plain_bytes(call.arguments)
    except Exception:
        return b"null"
