"""What the stages ask the engine for: hooks per tool, limits, slots, contexts, progress, nested calls.

One per engine. Holds no order: which stage comes when is the engine's.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from functools import partial
from typing import TypeGuard

from callgate._abort_signals import AbortSignal
from callgate._json import small_jsonable
from callgate._pipeline.approvals import Question
from callgate._pipeline.flight import Flight
from callgate._pipeline.gate import Judge
from callgate._pipeline.ground import Ground
from callgate._pipeline.hooks import HookChain
from callgate._pipeline.judgment import Judges
from callgate._pipeline.known_runs import KnownRuns
from callgate._pipeline.record import MOST_CHARS, Reason, with_id
from callgate._pipeline.rejudge import Rejudge
from callgate._pipeline.slots import Slots
from callgate._pipeline.unfinished import Unfinished
from callgate._pipeline.writer import off_loop
from callgate._redact import Redactor
from callgate._runners.result_reader import ReadingTimeout
from callgate.calls import RawCall, Scope
from callgate.errors import CallAborted, DangerousLimitReached
from callgate.events import Draft
from callgate.hooks import Hook
from callgate.protocols import CallJudge, Execution, InstantPolicy, PathFilter, PathPolicy, Policy
from callgate.route import ApprovedCall, Checked, ValidatedCall
from callgate.tools import BoundTool, ToolContext

__all__ = ["Desk", "judges"]


class Desk:
    """The engine's side of what `gate`, `run` and the hooks need."""

    def __init__(
        self,
        ground: Ground,
        known: KnownRuns,
        policies: Iterable[Policy | CallJudge],
        hooks: Iterable[Hook],
        own_files: tuple[str, ...] = (),
    ) -> None:
        limits = ground.limits
        self._known = known
        self.settle = known.settle
        self._writer = ground.writer
        asked = tuple(policies)
        self.policies, self.waits = judges(one for one in asked if not isinstance(one, CallJudge))
        self.judges = Judges([one for one in asked if isinstance(one, CallJudge)], ground.host_code, ground.redactor, self.cut)
        self.rounds = limits.policy_rounds
        self.policy_timeout_s = limits.policy_timeout_s
        self.hook_timeout_s = limits.hook_timeout_s
        self._control = ground.control
        self._clock = ground.clock
        self._limits = limits
        self._hooks = tuple(hooks)
        self._approvals = ground.approvals
        self._normaliser = ground.normaliser
        self._reader = ground.reader
        self.ask = ground.host_code.ask
        self._own_files = own_files
        self._chains: dict[str, HookChain] = {}
        self._all_slots = Slots(limits.parallel_calls)
        self._slots: dict[str, Slots] = {}

    # A call on its way

    def flight(
        self,
        raw: RawCall,
        scope: Scope,
        kill: AbortSignal,
        *,
        parent: Flight | None = None,
        occurrence: int = 0,
        cause: int = 0,
        unfinished: Unfinished | None = None,
    ) -> Flight:
        """Give a call its place in its run, or the one it had."""
        raw = with_id(raw, self._clock)
        state = self._known.state(scope.run)
        uid = state.next_uid(scope.iteration) if unfinished is None else unfinished.uid
        began, last = self._clock.monotonic(), cause or state.position
        flight = Flight(raw=raw, scope=scope, state=state, writer=self._writer, uid=uid, kill=kill, began=began, last=last)
        if occurrence:
            flight.occurrence = occurrence
        if parent is not None:
            flight.parent, flight.last, flight.deadline = parent, parent.last, parent.deadline
        if unfinished is not None:
            flight.unfinished, flight.last, flight.doubtful = unfinished, unfinished.position, unfinished.claimed
        return flight

    def check_stop(self, flight: Flight, checked: Checked | None = None) -> None:
        """End the message where a stop is pending. What a call that ran came to stays in the record and out of the history.

        Raises:
            CallAborted: One is.
        """
        reason = flight.stopped or self._control.pending(flight.scope.conversation)
        if reason is not None:
            facts = None if checked is None else checked.facts
            if facts is not None and flight.withholds:
                facts = {name: fact for name, fact in facts.items() if name != "error"}
            raise CallAborted("stopped_by_user", reason, details=facts)

    # What the gate asks

    def hooks(self, tool: BoundTool) -> HookChain:
        chain = self._chains.get(tool.identity)
        if chain is None:
            chain = self._chains[tool.identity] = HookChain.of(self._hooks, tool)
        return chain

    def check_limits(self, call: ValidatedCall) -> None:
        most = self._limits.dangerous_per_tick
        if most is None:
            return
        if self._known.state(call.scope.run).dangerous.get(_tick(call.scope), 0) >= most:
            raise DangerousLimitReached(
                f"{call.tool.name} was not run: the limit is {most} dangerous call{'s' if most != 1 else ''} per tick, and this tick has"
                " had that many. Go on with safe tools, or wait for the next tick."
            )

    def spend_approval(self, binding: str) -> Question | None:
        return self._approvals.spend(binding)

    async def answer(self, approval_id: str, *, allow: bool, by: str) -> int:
        """Answer a question, and record that; one that another process asked is found in its run's record.

        Returns:
            The position of the event; where the same was said before, of that one.
        """
        if isinstance(approval_id, str) and self._approvals.find(approval_id) is None:
            journal = self._writer.journal
            for event in await off_loop(journal, partial(journal.read, call=approval_id)):
                if event.kind == "call.suspended":
                    await self._known.open(event.run)
        question = self._approvals.find(approval_id)
        if question is not None and question.allowed is allow:
            return question.answered_at
        return self.answered(self.to_answer(approval_id, allow=allow), allow=allow, by=by)

    def to_answer(self, approval_id: str, *, allow: bool) -> Question:
        """The question of this id, if this can be said to it.

        Raises:
            UsageError: It cannot.
        """
        return self._approvals.to_answer(approval_id, allow=allow)

    def answered(self, question: Question, *, allow: bool, by: str, cause: int = 0) -> int:
        """Allow the call once, or close the question; and record that. Gives the event's position."""
        body = Reason(reason=self._writer.cut(by), status="allowed" if allow else "refused", details={"approval": question.approval_id})
        parents = (cause,) if cause else ()
        draft = Draft(kind="approval.answered", run=question.run, body=body, call=question.approval_id, parents=parents)
        question.answered_at = self._writer.write(draft)
        question.allowed, question.by = allow, self._writer.cut(by)
        return question.answered_at

    def hook_failed(self, hook: Hook, call: ValidatedCall, why: str) -> None:
        self._writer.log.warning("The hook %r failed on %s: %s", hook.title, call.uid, why)
        body = Reason(reason=why, details={"hook": self._writer.cut(hook.title)})
        self._writer.write(Draft(kind="hook.failed", run="hooks", body=body, call=call.uid))

    @property
    def redactor(self) -> Redactor | None:
        return self._writer.redactor

    def cut(self, text: object, chars: int = MOST_CHARS) -> str:
        """See `Writer.cut`."""
        return self._writer.cut(text, chars)

    async def read(self, value: object) -> Execution:
        """What a hook or `verify` gave, read as a tool's result is, within a hook's time."""
        small = small_jsonable(value, self._reader.max_bytes)
        if small is not None:
            return Execution(status="returned", value=small[0], read=True, changes=small[1])
        read = await self._reader.read(Execution(status="returned", value=value), ReadingTimeout(self.hook_timeout_s, AbortSignal()))
        return self._writer.bounded(read) if read.error else read

    # What the run asks

    def slots(self, tool: BoundTool) -> Slots:
        if tool.parallel is None:
            return self._all_slots
        slots = self._slots.get(tool.identity)
        if slots is None:
            slots = self._slots[tool.identity] = Slots(tool.parallel, self._all_slots)
        return slots

    def take_dangerous(self, call: ValidatedCall) -> str:
        """Count a dangerous call that is about to start, and return its tick; refuses where others came first."""
        if self._limits.dangerous_per_tick is None:
            return ""
        self.check_limits(call)
        tick, ticks = _tick(call.scope), self._known.state(call.scope.run).dangerous
        ticks[tick] = ticks.get(tick, 0) + 1
        return tick

    def context(self, flight: Flight, approved: ApprovedCall) -> ToolContext:
        scope, soft_warn = flight.scope, self._limits.soft_warn_iteration
        return ToolContext(
            scope=scope,
            call_id=flight.raw.id,
            uid=flight.uid,
            tool=approved.call.tool.name,
            idempotency_key=approved.key,
            signal=flight.kill,
            report=flight.report,
            nested=flight.nested,
            own_files=self._own_files,
            policies=Rejudge(approved.call, self) if self.policies or approved.judgments else None,
            show_kill_hint=soft_warn is not None and scope.iteration >= soft_warn,
        )

    def late(self, uid: str, execution: Execution) -> None:
        """An answer came after its call had ended: recorded, never used."""
        self._writer.log.warning("A late answer of %s was discarded", uid)
        body = Reason(reason="the call had ended before its tool answered", status=execution.status)
        self._writer.write(Draft(kind="call.late", run=uid.rsplit("/", 2)[0], body=body, call=uid))


def judges(policies: Iterable[Policy]) -> tuple[tuple[Judge, ...], bool]:
    """Policies as the gate asks them, and whether one of them has to be waited for."""
    asked = tuple(one if _is_instant(one) else _Waiting(one) for one in policies)
    return asked, any(isinstance(one, _Waiting) for one in asked)


def _is_instant(policy: Policy) -> TypeGuard[InstantPolicy]:
    """Whether a policy answers at once; one whose `judge` is a coroutine has to be waited for, whatever it says of itself."""
    return isinstance(policy, InstantPolicy) and bool(policy.never_waits) and not inspect.iscoroutinefunction(policy.judge)


class _Waiting:
    """A policy that is always waited for."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.decide = policy.decide

    def path_filter(self, call: ValidatedCall) -> PathFilter | None:
        return self._policy.path_filter(call) if isinstance(self._policy, PathPolicy) else None

    def judge(self, call: ValidatedCall) -> None:
        return None


def _tick(scope: Scope) -> str:
    return f"{scope.conversation}/{scope.tick or scope.turn}"
