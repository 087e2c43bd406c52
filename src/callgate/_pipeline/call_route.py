"""The one route that every tool call takes.

    parse → resolve → validate → gate → cache → execute → check → hooks → normalise      (all of it is recorded)

The order is fixed in code and cannot be configured, because the safety of a call depends on it. Stages raise typed
errors; `Outcomes` ends the call with them. The engine assembles the route from its parts. An `Emission` takes the
calls of a message along the route, and a tool takes the calls that it makes along it. Must not know models, loops or
transports.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from functools import partial
from typing import Any, assert_never

from msgspec import Struct

from callgate._abort_signals import AbortSignal
from callgate._json import exceeds
from callgate._pipeline.activity import Activity
from callgate._pipeline.admission import Admission
from callgate._pipeline.approval_answers import close_question
from callgate._pipeline.call_events import keep_approval, record_change
from callgate._pipeline.call_hooks import hook_result
from callgate._pipeline.call_locks import CallLocks, caller_of
from callgate._pipeline.call_order import footprint_of
from callgate._pipeline.call_preparation import CallPreparation
from callgate._pipeline.call_state import CallState
from callgate._pipeline.effect_claims import EffectClaims, EffectKnown
from callgate._pipeline.engine_context import EngineContext
from callgate._pipeline.engine_lifecycle import Lifecycle
from callgate._pipeline.engine_policies import EnginePolicies
from callgate._pipeline.execute import Executor
from callgate._pipeline.gate import gate
from callgate._pipeline.outcomes import Outcomes
from callgate._pipeline.parse import has_large_arguments
from callgate._pipeline.remembered_results import RememberedResults
from callgate._pipeline.repeated_calls import RepeatedCalls
from callgate._pipeline.result_cache import Cache
from callgate._pipeline.result_parts import has_large_parts
from callgate._pipeline.tool_plan import ToolPlan, ToolPlans
from callgate._pipeline.unknown_outcomes import refuse_other_arguments
from callgate._pipeline.unstarted_calls import UnstartedCalls
from callgate._run_state.approvals import REFUSED_BY_ANSWER
from callgate._run_state.run_recovery import UnfinishedCall
from callgate._run_state.run_state import RunState
from callgate._runners.offload_to_threads import LARGE_BYTES
from callgate.calls import Aborted, Answered, Outcome, RawCall, Restarted, Scope, Suspended, ToolResult
from callgate.errors import ApprovalNeeded, CallDenied, CallFailed, CallNotStarted, RecordFailed, RunHeld
from callgate.stage_types import ApprovedCall, Checked, ValidatedCall

__all__ = ["CallRoute", "RouteParts"]

_NEVER_ACTED = frozenset({"killed", "not_started"})
"""Failure classes of calls that were ended before their tool can have had an effect, unless their status is `unknown`."""


class RouteParts(Struct, frozen=True, kw_only=True):
    """The parts of the route."""

    context: EngineContext
    admission: Admission
    preparation: CallPreparation
    plans: ToolPlans
    policies: EnginePolicies
    repeated: RepeatedCalls
    locks: CallLocks
    effects: EffectClaims
    cache: Cache
    executor: Executor
    outcomes: Outcomes
    unstarted: UnstartedCalls
    results: RememberedResults
    runs: Mapping[str, RunState]
    """The states of the runs that the engine knows."""
    lifecycle: Lifecycle
    activity: Activity


class CallRoute:
    """Takes calls along the route, in two halves, so that all calls of a message are prepared before the first effect."""

    def __init__(self, parts: RouteParts) -> None:
        context = parts.context
        self._admission = parts.admission
        self.preparation = parts.preparation
        self._plans = parts.plans.by_identity
        self._policies = parts.policies
        self._repeated = parts.repeated
        self._locks = parts.locks
        self._effects = parts.effects
        self._cache = parts.cache
        self._executor = parts.executor
        self._outcomes = parts.outcomes
        self._unstarted = parts.unstarted
        self._results = parts.results
        self._runs = parts.runs
        self._lifecycle = parts.lifecycle
        self._activity = parts.activity
        self._running = parts.lifecycle.running
        self._clock = context.clock
        self._control = context.control
        self._host = context.host
        self._approvals = context.approvals
        self._normaliser = context.normaliser
        self._offload = context.offload
        self._recorder = context.recorder
        self._shared = context.journal.shared
        self._survives = context.journal.strength != "memory"
        self._timeout_s = context.timeout_s

    def admit(
        self, raw: RawCall, scope: Scope, signal: AbortSignal, *, cause: int = 0, unfinished: UnfinishedCall | None = None
    ) -> CallState:
        """Create the state of a call in its run, or restore the state that it had before its run was interrupted."""
        return self._admission.admit(raw, scope, signal, self._run_nested, cause=cause, unfinished=unfinished)

    async def call(self, raw: RawCall, scope: Scope, kill: AbortSignal) -> Outcome:
        """Take a call through both halves. Return its outcome when that is durable, if the journal is."""
        if self._shared:  # another engine may take this call's run over, and another process end it, alone
            kill = AbortSignal(kill)
        if self._survives and self._recorder.crowded:
            await self._recorder.wait_for_capacity()
        state = self._admission.admit(raw, scope, kill, self._run_nested)
        outcome = await self._run(state)
        if self._survives:
            (outcome,) = await self._outcomes.durable([(state, outcome)])
        if type(outcome) is Answered and outcome.result.failure_class == RecordFailed.failure_class:
            return self.replace_unrecorded(state, outcome)
        return outcome

    def refuse_unopened(self, raw: RawCall, scope: Scope, error: RunHeld | RecordFailed, *, log: bool = True) -> Outcome:
        """Return the outcome of a call whose run cannot be opened: its stored result, if this engine remembers it.

        Args:
            log: Whether to log the reason. False for a further call of the same message.
        """
        outcome = self._outcomes.refuse_unopened(raw, error, log=log)
        if isinstance(error, RunHeld):
            return outcome
        return self._results.replace_unrecorded(outcome, raw, self._admission.scope_with_run(scope))

    def replace_unrecorded(self, state: CallState, outcome: Outcome) -> Outcome:
        """Return the outcome of a call, or the stored result if the call is refused only because its repetition cannot be recorded."""
        return self._results.replace_unrecorded(outcome, state.raw, state.scope)

    async def _run(self, state: CallState) -> Outcome:
        """Take an admitted call through both halves."""
        arguments = state.arguments
        if (type(arguments) is not str or len(arguments) > LARGE_BYTES) and has_large_arguments(arguments):
            await self.preparation.parse_large(state)
        call = self.preparation.prepare(state)
        return await self.complete(state, call) if isinstance(call, ValidatedCall) else call

    async def complete(self, state: CallState, call: ValidatedCall) -> Outcome:
        """Take a valid call to its outcome, running its tool at most once."""
        if self._lifecycle.ending:
            return self._unstarted.end(state, "the engine was closed", call)
        self._running[state.uid] = state
        state.run_state = self._runs.get(state.scope.run, state.run_state)  # the run may have been opened since the call was admitted
        state.run_state.under_way += 1
        try:
            plan = self._plans[call.tool.identity]
            approved = await self._approve(state, call, plan)
            if isinstance(approved, ApprovedCall):
                result = await self._result(state, plan, approved)
                outcome = await self._outcomes.end_with_result(state, result, state.release_lock if self._survives else None)
            else:
                outcome = await self._outcomes.end_with_result(state, approved)
            return self._outcomes.abort_with_result(state, outcome) if state.stopped_late else outcome
        except (Exception, SystemExit) as error:
            self._repeated.keep_doubt(state, call)
            if isinstance(error, CallDenied) and error.code in REFUSED_BY_ANSWER:
                return self._end_denied(state, call, error)
            return self._outcomes.end_with_error(state, error, call.tool.name, harmless=call.tool.effect == "none")
        except BaseException as error:
            self._repeated.keep_doubt(state, call)
            self._outcomes.end_with_caller(state, error)
            raise
        finally:
            if state.release_lock is not None:
                release, state.release_lock = state.release_lock, None  # it refers to the state
                release()
            if state.keyed_call is not None:
                state.run_state.end(state.keyed_call, state.key, started=state.started)
                if state.identical is not None and not state.keyed_call.entered:
                    state.identical.free(call.tool.name, state.asked_hash, state.occurrence)
            if state.claim is not None:
                self._effects.release(state.claim)
            self._lifecycle.remove(state)

    async def end_unstarted(self, state: CallState, call: ValidatedCall, why: str) -> Outcome:
        """End a call whose message was stopped before it: with its result, if it was handed in before and has ended."""
        state.run_state = self._runs.get(state.scope.run, state.run_state)
        earlier = await self._repeated.answer_stopped(state, call)
        return self._unstarted.end(state, why) if earlier is None else await self._outcomes.end_with_result(state, earlier)

    def withdraw_question(self, state: CallState, approval_id: str, why: str) -> None:
        """Close the open question about a call whose message was discarded. An answer is kept: it is for the next such call of the run."""
        question = self._approvals.find(approval_id)
        if question is not None and question.allowed is None:
            self._close_question(state, state.judged, f"its message was discarded: {why}")

    async def _approve(self, state: CallState, call: ValidatedCall, plan: ToolPlan) -> ApprovedCall | ToolResult:
        """Return the approved call: gate. If an earlier call has answered this one, return its result."""
        state.key, state.judged, state.withholds = state.uid, call, plan.hooks.withholds
        earlier: ToolResult | None = None
        if (state.stopped or self._control.stops) and state.stop_reason(self._control) is not None:
            earlier = await self._repeated.answer_stopped(state, call)
            if earlier is not None:
                return earlier
            state.check_stop(self._control)
        if not plan.reads_only or state.raw.idempotency_key is not None or state.doubtful or state.first is not None:
            earlier = await self._repeated.answer_or_remember(state, call)
        elif state.run_state.keeps_reads:
            earlier = await self._repeated.answer_read(state, call)
        if earlier is not None:
            return earlier
        try:
            gated = gate(call, plan.hooks.before, self._policies, state.key, partial(record_change, state))
            approved = gated if isinstance(gated, ApprovedCall) else await self._await_gate(state, call, plan, gated)
        except ApprovalNeeded as asks:
            earlier = await self._answer_instead_of_human(state, state.judged, asks)
            if earlier is None:
                raise
            return earlier
        except CallFailed as error:
            if not (isinstance(error, CallDenied) and error.approval):
                self._close_own_question(state, state.judged, "the call was refused")
            raise
        if self._approvals.by_call:
            self._close_own_question(state, approved.call, "the call was allowed without an answer")
        if state.doubtful:
            refuse_other_arguments(state, approved)
        if approved.approval and state.keyed_call is None and state.identical is None:
            approved = self._repeated.keep_allowed_read(state, call, approved)
        keep_approval(state, approved)
        return approved

    async def _answer_instead_of_human(self, state: CallState, call: ValidatedCall, asks: ApprovalNeeded) -> ToolResult | None:
        """Return the result of an earlier call that had the effect of this one, about which a human would be asked; None if there is
        none."""
        earlier = await self._repeated.answer_instead_of_human(state, call, asks)
        if earlier is not None:
            self._close_question(state, call, "an earlier call had the effect")
        elif self._approvals.is_outdated(asks.same_call, asks.doubt):
            self._close_question(state, call, "it is asked again: the outcome of an identical call was not known, or is now")
        return earlier

    async def _await_gate(
        self, state: CallState, call: ValidatedCall, plan: ToolPlan, gated: Coroutine[Any, Any, ApprovedCall]
    ) -> ApprovedCall:
        """Wait for the gate. A call that no other call makes keeps its place in the order of arrival meanwhile."""
        if caller_of(state) is None:
            lock = self._locks.take(state, call.tool.name, plan.footprint or footprint_of(call), judged=False)
            state.release_lock = partial(self._locks.release, lock)
        return await self._host.unless_killed(gated, state.kill, "gate")

    def _close_own_question(self, state: CallState, call: ValidatedCall, why: str) -> None:
        """Close the open question about a call. A question that was asked about an earlier call of its message stays open."""
        if call.asked_with in ("", call.raw.id):
            self._close_question(state, call, why)

    def _close_question(self, state: CallState, call: ValidatedCall | None, why: str) -> None:
        """Close the open question about a call, if there is one, because the call goes on without an answer."""
        if call is not None and self._approvals.by_call:
            close_question(self._recorder, self._approvals, call, why, cause=state.last)

    async def _result(self, state: CallState, plan: ToolPlan, approved: ApprovedCall) -> ToolResult:
        """Return the result of an approved call: cache, execute and check, hooks, normalise."""
        tool = plan.tool
        try:
            if state.before_start is not None and (turn := state.before_start(approved)) is not None:
                _release_lock(state)  # the other call of the message might wait for it
                await turn
            lock = self._locks.take(state, tool.name, plan.footprint or footprint_of(approved.call))
            state.release_lock = partial(self._locks.release, lock)
            if not lock.granted:
                await self._locks.wait(lock)
            if tool.effect_key is not None:
                approved = await self._effects.claim(state, approved)
            if tool.cache_scope is not None:
                checked = await self._answer_from_cache(state, plan, approved)
            else:
                checked = await self._executor.execute(state, plan, approved)
                if plan.hooks.after or state.stopped or self._control.stops:
                    checked = await self._apply_hooks(state, plan, approved.call, checked)
            if checked.status == "ok" and checked.cached is None:
                self._activity.count(state.scope.conversation)
            value, normalise = checked.value, partial(self._normaliser.result, approved.call, approved.rule, checked)
            is_large = len(value) > LARGE_BYTES if type(value) is str else exceeds(value, LARGE_BYTES)
            if is_large or ((checked.content or checked.server_fields is not None) and has_large_parts(checked)):
                result = await self._offload.run(normalise)
            else:
                result = normalise()
        except EffectKnown as earlier_call:
            result = earlier_call.result or await self._repeated.verified_result(state, approved.call, earlier_call.checked)
        except CallFailed as error:
            if not state.stopped_late:
                state.check_stop(self._control)
            result = self._outcomes.result_of_error(state, error, tool.name, approved)
            if result.status == "unknown":
                self._repeated.keep_doubt(state, approved.call)
        if state.keyed_call is not None:
            state.keyed_call.result = result
            if state.claim is not None or state.edited:
                self._repeated.keep_end(state, state.keyed_call, result, tool.effect)
        return result

    def _end_denied(self, state: CallState, call: ValidatedCall, error: CallDenied) -> Outcome:
        """End a call that a human has denied, and keep the denial for when the same call is handed in again."""
        self._repeated.identify(state, call)
        outcome = self._outcomes.end_with_error(state, error, call.tool.name)
        if isinstance(outcome, Answered) and outcome.result.code in REFUSED_BY_ANSWER:
            self._repeated.keep_denial(state, call, outcome.result)
        return outcome

    async def _answer_from_cache(self, state: CallState, plan: ToolPlan, approved: ApprovedCall) -> Checked:
        """Return the checked result: from the cache, from an identical call that is running, or by running the call."""
        state.deadline = min(state.deadline, self._clock.monotonic() + self._timeout_s)  # never beyond its parent's
        execute = partial(self._executor.execute, state, plan, approved)
        hooked = partial(self._apply_hooks, state, plan, approved.call)
        return await self._cache.answer(state, approved, execute, hooked, plan.hooks.changes_by)

    async def _apply_hooks(self, state: CallState, plan: ToolPlan, call: ValidatedCall, checked: Checked) -> Checked:
        """Return the checked result as the hooks after the call leave it."""
        if state.stopped or self._control.stops:
            state.stopped_late = self._late_stop_reason(state, call, checked)
            if not state.stopped_late:
                state.check_stop(self._control, checked)
        return await hook_result(call, checked, plan.hooks.after, self._host) if plan.hooks.after else checked

    def _late_stop_reason(self, state: CallState, call: ValidatedCall, checked: Checked) -> str:
        """Return why the message ends after a call with an effect that finished although a stop is pending; empty if the call leaves
        no result.
        """
        never_acted = call.tool.effect == "none" or checked.failure_class in _NEVER_ACTED
        if never_acted or checked.status == "unknown" or state.kill.aborted:
            return ""
        return state.stopped or self._control.pending(state.scope.conversation) or ""

    async def _run_nested(self, parent: CallState, name: str, arguments: Mapping[str, object]) -> ToolResult:
        """Run a call that a tool makes, with the parent's scope, deadline and kill signal. The parent causes it.

        The call is identified by its parent: if the parent is started again, a call with an effect that it has already
        made gets the stored result. The parent gives up its slots and does not take them back: a parent that waits for
        a child must not keep the child from running, and taking the slots back could mean waiting for a sibling.
        """
        raw = RawCall(id=f"in:{parent.uid}", name=name, arguments=arguments, origin=f"tool:{parent.uid}")
        state = self._admission.admit_nested(raw, parent)
        parent.release_slot()
        outcome = await self._run(state)
        parent.asked_within += state.asked_within
        match outcome:
            case Answered(result=result) | Aborted(kept_result=ToolResult() as result):
                return result
            case Suspended(question=question):
                parent.asked_within += (outcome,)
                why = f"a human has to decide first ({question})"
            case Aborted(reason=reason):
                why = reason
            case Restarted():
                why = "its result was consumed"
            case unknown:
                assert_never(unknown)
        return self._normaliser.refusal(raw, state.uid, name, CallNotStarted(f"{name} gave no result: {why}."))

    @property
    def crowded(self) -> bool:
        """Whether so many events wait to be written that a new call has to wait."""
        return self._survives and self._recorder.crowded

    async def wait_for_capacity(self) -> None:
        """Wait until the queue of events is no longer too full for a new call."""
        await self._recorder.wait_for_capacity()


def _release_lock(state: CallState) -> None:
    """Give up the place that a call kept while it was judged, if it has one."""
    if state.release_lock is not None:
        state.release_lock()
        state.release_lock = None
