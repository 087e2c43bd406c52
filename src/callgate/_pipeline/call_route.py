"""The one route that every tool call takes.

    parse → resolve → validate → gate → cache → execute → check → hooks → normalise      (all of it is recorded)

The order is fixed in code and cannot be configured, because the safety of a call depends on it. Stages raise typed
errors; `Outcomes` ends the call with them. The engine assembles the route from its parts. An `Emission` takes the
calls of a message along the route, and a tool takes the calls that it makes along it. Must not know models, loops or
transports.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import assert_never

from msgspec import Struct

from callgate._abort_signals import AbortSignal
from callgate._json import exceeds
from callgate._pipeline.activity import Activity
from callgate._pipeline.admission import Admission
from callgate._pipeline.call_approval import CallApproval
from callgate._pipeline.call_hooks import hook_result
from callgate._pipeline.call_locks import CallLocks
from callgate._pipeline.call_order import footprint_of
from callgate._pipeline.call_preparation import CallPreparation
from callgate._pipeline.call_state import CallState
from callgate._pipeline.effect_claims import EffectClaims, EffectKnown
from callgate._pipeline.engine_context import EngineContext
from callgate._pipeline.engine_lifecycle import Lifecycle
from callgate._pipeline.execute import Executor
from callgate._pipeline.outcomes import Outcomes
from callgate._pipeline.parse import has_large_arguments
from callgate._pipeline.remembered_results import RememberedResults
from callgate._pipeline.repeated_calls import RepeatedCalls
from callgate._pipeline.result_cache import Cache
from callgate._pipeline.result_parts import has_large_parts
from callgate._pipeline.running_calls import RunningCalls
from callgate._pipeline.tool_plan import ToolPlan
from callgate._pipeline.unstarted_calls import UnstartedCalls
from callgate._run_state.approvals import REFUSED_BY_ANSWER
from callgate._run_state.run_recovery import UnfinishedCall
from callgate._run_state.run_state import RunState
from callgate._runners.offload_to_threads import LARGE_BYTES
from callgate.calls import Aborted, Answered, Outcome, RawCall, Restarted, Scope, Suspended, ToolResult
from callgate.errors import CallDenied, CallFailed, CallNotStarted, RecordFailed, RunHeld
from callgate.stage_types import ApprovedCall, Checked, ValidatedCall

__all__ = ["CallRoute"]

_NEVER_ACTED = frozenset({"killed", "not_started"})
"""Failure classes of calls that were ended before their tool can have had an effect, unless their status is `unknown`."""


class CallRoute(Struct, frozen=True, kw_only=True, eq=False):
    """Takes calls along the route, in two halves, so that all calls of a message are prepared before the first effect."""

    context: EngineContext
    admission: Admission
    preparation: CallPreparation
    """The first half of the route."""
    approval: CallApproval
    plans: Mapping[str, ToolPlan]
    """How the calls of each tool are handled, by the tool's identity."""
    repeated: RepeatedCalls
    locks: CallLocks
    effects: EffectClaims
    cache: Cache
    executor: Executor
    outcomes: Outcomes
    unstarted: UnstartedCalls
    remembered: RememberedResults
    runs: Mapping[str, RunState]
    """The states of the runs that the engine knows."""
    lifecycle: Lifecycle
    running: RunningCalls
    activity: Activity

    def __repr__(self) -> str:
        """Return only the type, because an error monitor that keeps local variables would list all tools in each frame of a call."""
        return f"<{type(self).__name__}>"

    def admit(
        self, raw: RawCall, scope: Scope, signal: AbortSignal, *, cause: int = 0, unfinished: UnfinishedCall | None = None
    ) -> CallState:
        """Create the state of a call in its run, or restore the state that it had before its run was interrupted."""
        return self.admission.admit(raw, scope, signal, self._run_nested, cause=cause, unfinished=unfinished)

    async def call(self, raw: RawCall, scope: Scope, kill: AbortSignal) -> Outcome:
        """Take a call through both halves. Return its outcome when that is durable, if the journal is."""
        if self.context.journal.shared:  # another engine may take this call's run over, and another process end it, alone
            kill = AbortSignal(kill)
        if self.context.survives and self.context.recorder.crowded:
            await self.context.recorder.wait_for_capacity()
        state = self.admission.admit(raw, scope, kill, self._run_nested)
        outcome = await self._run(state)
        if self.context.survives:
            (outcome,) = await self.outcomes.durable([(state, outcome)])
        if type(outcome) is Answered and outcome.result.failure_class == RecordFailed.failure_class:
            return self.replace_unrecorded(state, outcome)
        return outcome

    def refuse_unopened(self, raw: RawCall, scope: Scope, error: RunHeld | RecordFailed, *, log: bool = True) -> Outcome:
        """Return the outcome of a call whose run cannot be opened: its stored result, if this engine remembers it.

        Args:
            log: Whether to log the reason. False for a further call of the same message.
        """
        outcome = self.outcomes.refuse_unopened(raw, error, log=log)
        if isinstance(error, RunHeld):
            return outcome
        return self.remembered.replace_unrecorded(outcome, raw, self.admission.scope_with_run(scope))

    def replace_unrecorded(self, state: CallState, outcome: Outcome) -> Outcome:
        """Return the outcome of a call, or the stored result if the call is refused only because its repetition cannot be recorded."""
        return self.remembered.replace_unrecorded(outcome, state.raw, state.scope)

    async def _run(self, state: CallState) -> Outcome:
        """Take an admitted call through both halves."""
        arguments = state.arguments
        if (type(arguments) is not str or len(arguments) > LARGE_BYTES) and has_large_arguments(arguments):
            await self.preparation.parse_large(state)
        call = self.preparation.prepare(state)
        return await self.complete(state, call) if isinstance(call, ValidatedCall) else call

    async def complete(self, state: CallState, call: ValidatedCall) -> Outcome:
        """Take a valid call to its outcome, running its tool at most once."""
        if self.lifecycle.ending:
            return self.unstarted.end(state, "the engine was closed", call)
        self.running.by_uid[state.uid] = state
        state.run_state = self.runs.get(state.scope.run, state.run_state)  # the run may have been opened since the call was admitted
        state.run_state.under_way += 1
        try:
            plan = self.plans[call.tool.identity]
            approved = await self.approval.approve(state, call, plan)
            if isinstance(approved, ApprovedCall):
                result = await self._result(state, plan, approved)
                outcome = await self.outcomes.end_with_result(state, result, state.release_lock if self.context.survives else None)
            else:
                outcome = await self.outcomes.end_with_result(state, approved)
            return self.outcomes.abort_with_result(state, outcome) if state.stopped_late else outcome
        except (Exception, SystemExit) as error:
            self.repeated.keep_doubt(state, call)
            if isinstance(error, CallDenied) and error.code in REFUSED_BY_ANSWER:
                return self._end_denied(state, call, error)
            return self.outcomes.end_with_error(state, error, call.tool.name, harmless=call.tool.effect == "none")
        except BaseException as error:
            self.repeated.keep_doubt(state, call)
            self.outcomes.end_with_caller(state, error)
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
                self.effects.release(state.claim)
            state.run_state.under_way -= 1
            self.running.remove(state)

    async def end_unstarted(self, state: CallState, call: ValidatedCall, why: str) -> Outcome:
        """End a call whose message was stopped before it: with its result, if it was handed in before and has ended."""
        state.run_state = self.runs.get(state.scope.run, state.run_state)
        earlier = await self.repeated.answer_stopped(state, call)
        return self.unstarted.end(state, why) if earlier is None else await self.outcomes.end_with_result(state, earlier)

    async def _result(self, state: CallState, plan: ToolPlan, approved: ApprovedCall) -> ToolResult:
        """Return the result of an approved call: cache, execute and check, hooks, normalise."""
        tool = plan.tool
        try:
            if state.before_start is not None and (turn := state.before_start(approved)) is not None:
                _release_lock(state)  # the other call of the message might wait for it
                await turn
            lock = self.locks.take(state, tool.name, plan.footprint or footprint_of(approved.call))
            state.release_lock = partial(self.locks.release, lock)
            if not lock.granted:
                await self.locks.wait(lock)
            if tool.effect_key is not None:
                approved = await self.effects.claim(state, approved)
            if tool.cache_scope is not None:
                checked = await self._answer_from_cache(state, plan, approved)
            else:
                checked = await self.executor.execute(state, plan, approved)
                if plan.hooks.after or state.stopped or self.context.control.stops:
                    checked = await self._apply_hooks(state, plan, approved.call, checked)
            if checked.status == "ok" and checked.cached is None:
                self.activity.count(state.scope.conversation)
            value, normalise = checked.value, partial(self.context.normaliser.result, approved.call, approved.rule, checked)
            is_large = len(value) > LARGE_BYTES if type(value) is str else exceeds(value, LARGE_BYTES)
            if is_large or ((checked.content or checked.server_fields is not None) and has_large_parts(checked)):
                result = await self.context.offload.run(normalise)
            else:
                result = normalise()
        except EffectKnown as earlier_call:
            result = earlier_call.result or await self.repeated.verified_result(state, approved.call, earlier_call.checked)
        except CallFailed as error:
            if not state.stopped_late:
                state.check_stop(self.context.control)
            result = self.outcomes.result_of_error(state, error, tool.name, approved)
            if result.status == "unknown":
                self.repeated.keep_doubt(state, approved.call)
        if state.keyed_call is not None:
            state.keyed_call.result = result
            if state.claim is not None or state.edited:
                self.repeated.keep_end(state, state.keyed_call, result, tool.effect)
        return result

    def _end_denied(self, state: CallState, call: ValidatedCall, error: CallDenied) -> Outcome:
        """End a call that a human has denied, and keep the denial for when the same call is handed in again."""
        self.repeated.identify(state, call)
        outcome = self.outcomes.end_with_error(state, error, call.tool.name)
        if isinstance(outcome, Answered) and outcome.result.code in REFUSED_BY_ANSWER:
            self.repeated.keep_denial(state, call, outcome.result)
        return outcome

    async def _answer_from_cache(self, state: CallState, plan: ToolPlan, approved: ApprovedCall) -> Checked:
        """Return the checked result: from the cache, from an identical call that is running, or by running the call."""
        state.deadline = min(state.deadline, self.context.clock.monotonic() + self.context.timeout_s)  # never beyond its parent's
        execute = partial(self.executor.execute, state, plan, approved)
        hooked = partial(self._apply_hooks, state, plan, approved.call)
        return await self.cache.answer(state, approved, execute, hooked, plan.hooks.changes_by)

    async def _apply_hooks(self, state: CallState, plan: ToolPlan, call: ValidatedCall, checked: Checked) -> Checked:
        """Return the checked result as the hooks after the call leave it."""
        if state.stopped or self.context.control.stops:
            state.stopped_late = self._late_stop_reason(state, call, checked)
            if not state.stopped_late:
                state.check_stop(self.context.control, checked)
        return await hook_result(call, checked, plan.hooks.after, self.context.host) if plan.hooks.after else checked

    def _late_stop_reason(self, state: CallState, call: ValidatedCall, checked: Checked) -> str:
        """Return why the message ends after a call with an effect that finished although a stop is pending; empty if the call leaves
        no result.
        """
        never_acted = call.tool.effect == "none" or checked.failure_class in _NEVER_ACTED
        if never_acted or checked.status == "unknown" or state.kill.aborted:
            return ""
        return state.stopped or self.context.control.pending(state.scope.conversation) or ""

    async def _run_nested(self, parent: CallState, name: str, arguments: Mapping[str, object]) -> ToolResult:
        """Run a call that a tool makes, with the parent's scope, deadline and kill signal. The parent causes it.

        The call is identified by its parent: if the parent is started again, a call with an effect that it has already
        made gets the stored result. The parent gives up its slots and does not take them back: a parent that waits for
        a child must not keep the child from running, and taking the slots back could mean waiting for a sibling.
        """
        raw = RawCall(id=f"in:{parent.uid}", name=name, arguments=arguments, origin=f"tool:{parent.uid}")
        state = self.admission.admit_nested(raw, parent)
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
        return self.context.normaliser.refusal(raw, state.uid, name, CallNotStarted(f"{name} gave no result: {why}."))


def _release_lock(state: CallState) -> None:
    """Give up the place that a call kept while it was judged, if it has one."""
    if state.release_lock is not None:
        state.release_lock()
        state.release_lock = None
