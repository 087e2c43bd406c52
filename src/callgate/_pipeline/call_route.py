"""The one route that every tool call takes.

    parse → resolve → validate → gate → cache → execute → check → hooks → normalise      (all of it is recorded)

The order is fixed in code and cannot be configured, because the safety of a call depends on it. Stages raise typed
errors; only `Outcomes` turns them into results. The engine assembles the route from its parts. An `Emission` takes the
calls of a message along the route, and a tool takes the calls that it makes along it. Must not know models, loops or
transports.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from functools import partial
from typing import Any, assert_never

from msgspec import Struct
from msgspec.structs import replace

from callgate._abort_signals import AbortSignal
from callgate._json import canonical, exceeds
from callgate._pipeline.admission import Admission
from callgate._pipeline.approval_answers import close_question
from callgate._pipeline.call_hooks import hook_result
from callgate._pipeline.call_locks import CallLocks, caller_of
from callgate._pipeline.call_preparation import CallPreparation
from callgate._pipeline.call_state import CallState
from callgate._pipeline.concurrency import footprint_of
from callgate._pipeline.effect_claims import EffectClaims, EffectKnown
from callgate._pipeline.engine_lifecycle import Activity, Lifecycle
from callgate._pipeline.engine_options import EngineContext
from callgate._pipeline.engine_policies import EnginePolicies
from callgate._pipeline.execute import Executor
from callgate._pipeline.gate import gate
from callgate._pipeline.outcomes import Outcomes, UnstartedCalls
from callgate._pipeline.parse import has_large_arguments
from callgate._pipeline.recorded_effects import RecordedEffects
from callgate._pipeline.remembered_results import RememberedResults
from callgate._pipeline.result_cache import Cache
from callgate._pipeline.result_parts import has_large_parts
from callgate._pipeline.tool_plan import ToolPlan, ToolPlans
from callgate._pipeline.unknown_outcomes import UnknownOutcomes, refuse_other_arguments
from callgate._pipeline.wait_graph import WaitGraph
from callgate._run_state.approvals import REFUSED_BY_ANSWER
from callgate._run_state.event_bodies import Reason, arguments_hash
from callgate._run_state.idempotency import Known, call_key, earlier_result, is_others_failure, keeps_effect_key
from callgate._run_state.recorder import off_loop
from callgate._run_state.run_recovery import Unfinished
from callgate._run_state.settlements import call_in_doubt, is_settled
from callgate._runners.offload_to_threads import LARGE_BYTES
from callgate.calls import Aborted, Answered, Outcome, RawCall, Restarted, Scope, Suspended, ToolResult
from callgate.errors import ApprovalNeeded, CallDenied, CallFailed, CallNotStarted, RecordFailed, ResultRejected, RunHeld
from callgate.stage_types import ApprovedCall, Checked, ValidatedCall

__all__ = ["CallRoute", "RouteParts"]


class RouteParts(Struct, frozen=True, kw_only=True):
    """The parts of the route."""

    context: EngineContext
    admission: Admission
    preparation: CallPreparation
    plans: ToolPlans
    policies: EnginePolicies
    unknown: UnknownOutcomes
    waits: WaitGraph
    locks: CallLocks
    effects: EffectClaims
    recorded_effects: RecordedEffects
    cache: Cache
    executor: Executor
    outcomes: Outcomes
    unstarted: UnstartedCalls
    results: RememberedResults
    lifecycle: Lifecycle
    activity: Activity


class CallRoute:
    """Takes calls along the route, in two halves, so that all calls of a message are prepared before the first effect.

    Args:
        timeout_s: Seconds for a whole call, and for waiting for the same call that is already running.
    """

    def __init__(self, parts: RouteParts, *, timeout_s: float) -> None:
        context = parts.context
        self._admission = parts.admission
        self.preparation = parts.preparation
        self._plans = parts.plans.by_identity
        self._policies = parts.policies
        self._unknown = parts.unknown
        self._waits = parts.waits
        self._locks = parts.locks
        self._effects = parts.effects
        self._recorded_effects = parts.recorded_effects
        self._cache = parts.cache
        self._executor = parts.executor
        self._outcomes = parts.outcomes
        self._unstarted = parts.unstarted
        self._results = parts.results
        self._lifecycle = parts.lifecycle
        self._activity = parts.activity
        self._running = parts.lifecycle.running
        self._clock = context.clock
        self._control = context.control
        self._host = context.host
        self._approvals = context.approvals
        self._journal = context.journal
        self._normaliser = context.normaliser
        self._offload = context.offload
        self._recorder = context.recorder
        self._shared = context.journal.shared
        self._survives = context.journal.strength != "memory"
        self._timeout_s = timeout_s

    def admit(self, raw: RawCall, scope: Scope, signal: AbortSignal, *, cause: int = 0, unfinished: Unfinished | None = None) -> CallState:
        """Create the state of a call in its run, or restore the state that it had before its run was interrupted."""
        return self._admission.admit(raw, scope, signal, self._nested, cause=cause, unfinished=unfinished)

    async def call(self, raw: RawCall, scope: Scope, kill: AbortSignal) -> Outcome:
        """Take a call through both halves. Return its outcome when that is durable, if the journal is."""
        if self._shared:  # another engine may take this call's run over, and another process end it, alone
            kill = AbortSignal(kill)
        if self._survives and self._recorder.crowded:
            await self._recorder.wait_for_capacity()
        state = self._admission.admit(raw, scope, kill, self._nested)
        outcome = await self._run(state)
        if self._survives:
            (outcome,) = await self._outcomes.durable([(state, outcome)])
        if type(outcome) is Answered and outcome.result.failure_class == RecordFailed.failure_class:
            return self.remembered(state, outcome)
        return outcome

    def unopened(self, raw: RawCall, scope: Scope, error: RunHeld | RecordFailed) -> Outcome:
        """Return the outcome of a call whose run cannot be opened: its stored result, if this engine remembers it."""
        outcome = self._outcomes.unrecorded(raw, error)
        return outcome if isinstance(error, RunHeld) else self._results.instead_of(outcome, raw, self._admission.placed(scope))

    def remembered(self, state: CallState, outcome: Outcome) -> Outcome:
        """Return the outcome of a call, or the stored result if the call is refused only because its repetition cannot be recorded."""
        return self._results.instead_of(outcome, state.raw, state.scope)

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
            return self._unstarted.not_started(state, "the engine was closed")
        self._running[state.uid] = state
        state.run_state.under_way += 1
        try:
            plan = self._plans[call.tool.identity]
            approved = await self._approved(state, call, plan)
            if not isinstance(approved, ApprovedCall):
                return await self._outcomes.answered(state, approved)
            result = await self._result(state, plan, approved)
            outcome = await self._outcomes.answered(state, result, state.release_lock if self._survives else None)
            return self._outcomes.stopped(state, outcome) if state.stopped_late else outcome
        except (Exception, SystemExit) as error:
            self._leave_doubt(state, call)
            if isinstance(error, CallDenied) and error.code in REFUSED_BY_ANSWER:
                return self._denied(state, call, error)
            return self._outcomes.ended(state, error, call.tool.name, harmless=call.tool.effect == "none")
        except BaseException as error:
            self._leave_doubt(state, call)
            self._outcomes.left(state, error)
            raise
        finally:
            if state.release_lock is not None:
                release, state.release_lock = state.release_lock, None  # it refers to the state
                release()
            if state.known is not None:
                state.run_state.over(state.known, state.key, started=state.started)
                if state.identical is not None and not state.known.entered:
                    state.identical.free(call.tool.name, state.asked_hash, state.occurrence)
            if state.claim is not None:
                self._effects.release(state.claim)
            self._lifecycle.ended(state)

    def withdraw_question(self, state: CallState, approval_id: str, why: str) -> None:
        """Close the open question about a call whose message was discarded. An answer is kept: it is for the next such call of the run."""
        question = self._approvals.find(approval_id)
        if question is not None and question.allowed is None:
            self._close_question(state, state.judged, f"its message was discarded: {why}")

    async def _approved(self, state: CallState, call: ValidatedCall, plan: ToolPlan) -> ApprovedCall | ToolResult:
        """Return the approved call: gate. If an earlier call has answered this one, return its result."""
        state.key, state.judged, state.withholds = state.uid, call, plan.hooks.withholds
        if state.stopped or self._control.stops:
            state.check_stop(self._control)
        earlier: ToolResult | None = None
        if not plan.reads_only or state.raw.idempotency_key is not None or state.doubtful or state.first is not None:
            earlier = await self._earlier(state, call)
        elif state.run_state.keeps_reads and (read := state.run_state.find(call, *_identity(state, call))) is not None:
            earlier = await self._replayed(state, read)
        if earlier is not None:
            return earlier
        try:
            gated = gate(call, plan.hooks.before, self._policies, state.key, state)
            approved = gated if isinstance(gated, ApprovedCall) else await self._judged(state, call, plan, gated)
        except ApprovalNeeded as asks:
            done = await self._done_before(state, state.judged, asks)
            if done is None:
                if self._approvals.is_outdated(asks.same_call, asks.doubt):
                    self._close_question(
                        state, state.judged, "it is asked again: the outcome of an identical call was not known, or is now"
                    )
                raise
            self._close_question(state, state.judged, "an earlier call had the effect")
            return done
        except CallFailed as error:
            if not (isinstance(error, CallDenied) and error.approval):
                self._close_question(state, state.judged, "the call was refused")
            raise
        if self._approvals.by_call:
            self._close_question(state, approved.call, "the call was allowed without an answer")
        if state.doubtful:
            refuse_other_arguments(state, approved)
        if approved.approval and state.known is None and state.identical is None:
            approved = _kept_read(state, call, approved)
        state.approved(approved)
        return approved

    async def _judged(
        self, state: CallState, call: ValidatedCall, plan: ToolPlan, gated: Coroutine[Any, Any, ApprovedCall]
    ) -> ApprovedCall:
        """Wait for the gate. A call that a host makes on its own keeps its place meanwhile; an emission orders its calls itself."""
        if state.before_start is None and caller_of(state) is None:
            lock = self._locks.take(state, call.tool.name, plan.footprint or footprint_of(call), judged=False)
            state.release_lock = partial(self._locks.release, lock)
        return await self._host.unless_killed(gated, state.kill, "gate")

    def _close_question(self, state: CallState, call: ValidatedCall | None, why: str) -> None:
        """Close the open question about a call, if there is one, because the call goes on without an answer."""
        if call is not None and self._approvals.by_call:
            close_question(self._recorder, self._approvals, call, why, cause=state.last)

    async def _result(self, state: CallState, plan: ToolPlan, approved: ApprovedCall) -> ToolResult:
        """Return the result of an approved call: cache, execute and check, hooks, normalise."""
        tool = plan.tool
        try:
            if state.before_start is not None and (turn := state.before_start(approved)) is not None:
                await turn
            lock = self._locks.take(state, tool.name, plan.footprint or footprint_of(approved.call))
            state.release_lock = partial(self._locks.release, lock)
            if not lock.granted:
                await self._locks.wait(lock)
            if tool.effect_key is not None:
                approved = await self._effects.claim(state, approved)
            if tool.cache_scope is not None:
                checked = await self._cached(state, plan, approved)
            else:
                checked = await self._executor.execute(state, plan, approved)
                if plan.hooks.after or state.stopped or self._control.stops:
                    checked = await self._hooked(state, plan, approved.call, checked)
            if checked.status == "ok" and checked.cached is None:
                self._activity.count(state.scope.conversation)
            value, normalise = checked.value, partial(self._normaliser.result, approved.call, approved.rule, checked)
            is_large = len(value) > LARGE_BYTES if type(value) is str else exceeds(value, LARGE_BYTES)
            if is_large or ((checked.content or checked.server_fields is not None) and has_large_parts(checked)):
                result = await self._offload.run(normalise)
            else:
                result = normalise()
        except EffectKnown as earlier_call:
            result = earlier_call.result or await self._verified(state, approved.call, earlier_call.checked)
        except CallFailed as error:
            if not state.stopped_late:
                state.check_stop(self._control)
            result = self._outcomes.result_of(state, error, tool.name, approved)
        if state.known is not None:
            state.known.result = result
            state.known.keeps_effect_key = state.claim is not None and state.started and keeps_effect_key(result, tool.effect)
            state.known.has_others_failure = state.edited and not state.started and is_others_failure(result)
        return result

    async def _earlier(self, state: CallState, call: ValidatedCall) -> ToolResult | None:
        """Return the result of the same call, if it was submitted before; wait for it if it is still running.

        The key identifies the same call. If there is none, remember this call and return None: it has to run.
        """
        state.encoded = canonical(call.arguments)
        if state.first is not None:
            return await self._replayed(state, Known(tool=call.tool.name, arguments="", uid=state.first.uid, result=state.first))
        asked = arguments_hash(state.encoded)
        if state.identical is not None:
            state.occurrence = state.identical.take(call.tool.name, asked)
        state.key = call_key(call, asked, state.occurrence)
        if state.doubtful and state.unfinished is not None and state.unfinished.started is not None:
            state.key = state.unfinished.started.key
            checked = await self._unknown.rule_out_second_start(state, call)
            if checked is not None:
                result = await self._verified(state, call, checked)
                state.run_state.known[state.key] = Known(tool=call.tool.name, arguments=asked, uid=call.uid, result=result)
                return result
        while (known := state.run_state.find(call, state.key, asked)) is not None:
            if known.has_others_failure and await self._was_settled(known.uid):
                if state.run_state.known.get(state.key) is known:  # the same call may have been handed in again meanwhile
                    del state.run_state.known[state.key]
            elif (earlier := await self._replayed(state, known)) is not None:
                return earlier
        state.known = state.run_state.take_on(call, state.key, asked)
        state.asked_hash = asked
        return None

    async def _was_settled(self, uid: str) -> bool:
        """Return whether somebody has settled the call whose failure the call `uid` got."""

        def read() -> bool:
            return is_settled(self._journal.read(call=call_in_doubt(self._journal.read(call=uid), uid)))

        return await off_loop(self._journal, read)

    def _denied(self, state: CallState, call: ValidatedCall, error: CallDenied) -> Outcome:
        """End a call that a human has denied, and keep the denial for when the same call is handed in again."""
        if state.known is None:  # a read, which is not remembered
            state.key, state.asked_hash = _identity(state, call)
        outcome = self._outcomes.ended(state, error, call.tool.name)
        if isinstance(outcome, Answered) and outcome.result.code in REFUSED_BY_ANSWER:
            state.known = state.known or state.run_state.take_on(call, state.key, state.asked_hash)
            state.run_state.deny(state.known, outcome.result)
        return outcome

    async def _replayed(self, state: CallState, known: Known) -> ToolResult | None:
        """Return the stored result of the same call, or wait for it if the call is still running.

        Never starts a second call. None if the first one ended without a start, so that this one has to go its own way.

        Raises:
            CallNotStarted: The call would wait for itself.
        """
        harmless = state.judged is not None and state.judged.tool.effect == "none"
        first = self._running.get(known.uid) if known.running else None
        if first is None:
            earlier = await earlier_result(known, state, self._journal, self._timeout_s, harmless=harmless)
        else:
            state.caller = caller_of(state)
            if self._waits.closes_circle(state, first):
                raise CallNotStarted(
                    f"{state.raw.name} was not started: it is the same call as {first.uid}, which waits for this one. Nothing happened.",
                    code="waits_for_itself",
                )
            with self._waits.waiting(state, first):
                earlier = await earlier_result(known, state, self._journal, self._timeout_s, harmless=harmless, first=first)
        state.check_stop(self._control)
        if earlier is None:
            return None
        result, why = earlier
        state.write("call.replayed", Reason(reason=why, details={"uid": known.uid}))
        return result

    async def _done_before(self, state: CallState, call: ValidatedCall, asks: ApprovalNeeded) -> ToolResult | None:
        """Return the stored result of a call about which a human would be asked, if an earlier call had its effect."""
        checked = None if state.doubtful else await self._unknown.answer_instead_of_human(state, call, asks)
        if checked is not None:
            state.verdict("ask", call.tool.name, rule=asks.rule, reason=asks.question, judgments=asks.judgments)
            result: ToolResult | None = await self._verified(state, call, checked)
        else:
            result = await self._recorded_effects.replay(state, call, asks)
        if result is not None:
            state.check_stop(self._control)
            if state.known is not None:
                state.known.result = result
        return result

    async def _verified(self, state: CallState, call: ValidatedCall, checked: Checked) -> ToolResult:
        """Return the result of a call that an earlier engine started, as the tool's `verify` gave it, after its hooks
        have run.
        """
        hooks = self._plans[call.tool.identity].hooks.after
        try:
            return self._normaliser.result(call, "", await hook_result(call, checked, hooks, self._host))
        except ResultRejected as error:
            return self._normaliser.refusal(state.raw, state.uid, call.tool.name, error, call.notes)

    async def _cached(self, state: CallState, plan: ToolPlan, approved: ApprovedCall) -> Checked:
        """Return the checked result: from the cache, from an identical call that is running, or by running the call."""
        state.deadline = min(state.deadline, self._clock.monotonic() + self._timeout_s)  # never beyond its parent's
        execute = partial(self._executor.execute, state, plan, approved)
        hooked = partial(self._hooked, state, plan, approved.call)
        return await self._cache.answer(state, approved, execute, hooked, plan.hooks.changes_by)

    async def _hooked(self, state: CallState, plan: ToolPlan, call: ValidatedCall, checked: Checked) -> Checked:
        """Return the checked result as the hooks after the call leave it."""
        if state.stopped or self._control.stops:
            state.stopped_late = self._stopped_after(state, call, checked)
            if not state.stopped_late:
                state.check_stop(self._control, checked)
        return await hook_result(call, checked, plan.hooks.after, self._host) if plan.hooks.after else checked

    def _stopped_after(self, state: CallState, call: ValidatedCall, checked: Checked) -> str:
        """Return why the message ends after a call with an effect that finished although a stop is pending; empty if the call leaves no
        result.
        """
        finished = checked.status == "ok" or (checked.status == "error" and checked.failure_class == "tool_declared")
        if not finished or call.tool.effect == "none" or state.kill.aborted:
            return ""
        return state.stopped or self._control.pending(state.scope.conversation) or ""

    @staticmethod
    def _leave_doubt(state: CallState, call: ValidatedCall) -> None:
        """Remember, after a failure of the engine, that the outcome is unknown if the tool's code may have been
        entered.
        """
        if state.known is not None and state.started:
            tool_key = state.key if state.claim is None else state.claim.tool_key
            state.run_state.now_uncertain(call, state.encoded, state.key, tool_key, gone=False)

    async def _nested(self, parent: CallState, name: str, arguments: Mapping[str, object]) -> ToolResult:
        """Run a call that a tool makes, with the parent's scope, deadline and kill signal. The parent causes it.

        The call is identified by its parent: if the parent is started again, a call with an effect that it has already
        made gets the stored result. The parent gives up its slots and does not take them back: a parent that waits for
        a child must not keep the child from running, and taking the slots back could mean waiting for a sibling.
        """
        raw = RawCall(id=f"in:{parent.uid}", name=name, arguments=arguments, origin=f"tool:{parent.uid}")
        state = self._admission.admit_nested(raw, parent)
        parent.give()
        match await self._run(state):
            case Answered(result=result) | Aborted(finished=ToolResult() as result):
                return result
            case Suspended(question=question):
                why = f"a human has to decide first: {question}"
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


def _identity(state: CallState, call: ValidatedCall) -> tuple[str, str]:
    """Return the key that identifies a call, and the hash of its arguments."""
    asked = arguments_hash(canonical(call.arguments))
    return call_key(call, asked, state.occurrence), asked


def _kept_read(state: CallState, call: ValidatedCall, approved: ApprovedCall) -> ApprovedCall:
    """Remember a read that a human has allowed, so that it gets its result, and nobody is asked, when it is handed in again."""
    state.key, state.asked_hash = _identity(state, call)
    state.known = state.run_state.take_on(call, state.key, state.asked_hash)
    state.run_state.keeps_reads = True
    return replace(approved, key=state.key)
