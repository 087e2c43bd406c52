"""Decide whether a valid call runs: it was handed in before, or the gate approves, refuses or wants to ask a human.

Between `call_preparation` and the start of the tool. Closes the question about a call that goes on without an answer. Starts no tool.
"""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from typing import Any

from msgspec import Struct

from callgate._pipeline.approval_answers import close_question
from callgate._pipeline.call_events import keep_approval, record_change
from callgate._pipeline.call_locks import CallLocks, caller_of
from callgate._pipeline.call_order import footprint_of
from callgate._pipeline.call_state import CallState
from callgate._pipeline.engine_context import EngineContext
from callgate._pipeline.engine_policies import EnginePolicies
from callgate._pipeline.gate import gate
from callgate._pipeline.repeated_calls import RepeatedCalls
from callgate._pipeline.tool_plan import ToolPlan
from callgate._pipeline.unknown_outcomes import refuse_other_arguments
from callgate._run_state.approvals import Question
from callgate.calls import ToolResult
from callgate.errors import ApprovalNeeded, CallDenied, CallFailed
from callgate.stage_types import ApprovedCall, ValidatedCall

__all__ = ["CallApproval"]


class CallApproval(Struct, frozen=True, kw_only=True, eq=False):
    """Approves the calls of one engine, or finds the results of earlier calls that answer them."""

    context: EngineContext
    policies: EnginePolicies
    repeated: RepeatedCalls
    locks: CallLocks

    async def approve(self, state: CallState, call: ValidatedCall, plan: ToolPlan) -> ApprovedCall | ToolResult:
        """Return the approved call, or the result of an earlier call that answers it.

        Raises:
            CallDenied: A policy, a hook or a human denied the call.
            ApprovalNeeded: A human has to decide about it.
            CallFailed: It was refused for another reason, such as a stop.
        """
        state.key, state.judged, state.withholds = state.uid, call, plan.hooks.withholds
        earlier: ToolResult | None = None
        if (state.stopped or self.context.control.stops) and state.stop_reason(self.context.control) is not None:
            earlier = await self.repeated.answer_stopped(state, call)
            if earlier is not None:
                return earlier
            state.check_stop(self.context.control)
        if not plan.reads_only or state.raw.idempotency_key is not None or state.doubtful or state.first is not None:
            earlier = await self.repeated.answer_or_remember(state, call)
        elif state.run_state.keeps_reads:
            earlier = await self.repeated.answer_read(state, call)
        if earlier is not None:
            return earlier
        try:
            gated = gate(call, plan.hooks.before, self.policies, state.key, partial(record_change, state))
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
        if self.context.approvals.by_call:
            self._close_unasked(state, approved.call)
        if state.doubtful:
            refuse_other_arguments(state, approved)
        if approved.approval and state.keyed_call is None and state.identical is None:
            approved = self.repeated.keep_allowed_read(state, call, approved)
        keep_approval(state, approved)
        return approved

    async def _answer_instead_of_human(self, state: CallState, call: ValidatedCall, asks: ApprovalNeeded) -> ToolResult | None:
        """Return the result of an earlier call that had the effect of this one, about which a human would be asked; None if there is
        none."""
        earlier = await self.repeated.answer_instead_of_human(state, call, asks)
        if earlier is not None:
            self._close_question(state, call, "an earlier call had the effect")
        elif self.context.approvals.is_outdated(asks.same_call, asks.doubt):
            self._close_question(state, call, "it is asked again: the outcome of an identical call was not known, or is now")
        return earlier

    async def _await_gate(
        self, state: CallState, call: ValidatedCall, plan: ToolPlan, gated: Coroutine[Any, Any, ApprovedCall]
    ) -> ApprovedCall:
        """Wait for the gate. A call that no other call makes keeps its place in the order of arrival meanwhile."""
        if caller_of(state) is None:
            lock = self.locks.take(state, call.tool.name, plan.footprint or footprint_of(call), judged=False)
            state.release_lock = partial(self.locks.release, lock)
        return await self.context.host.unless_killed(gated, state.kill, "gate")

    def _close_unasked(self, state: CallState, call: ValidatedCall) -> None:
        """Close the open question about an allowed call, and warn if it is that of an earlier process: the rules may have been lost."""
        question = self._close_own_question(state, call, "the call was allowed without an answer")
        if question is not None and question.restored and question.allowed is None:
            log = self.context.recorder.log
            log.warning(
                "%s runs %s without an answer to question %s: no policy asks it now", state.uid, call.tool.name, question.approval_id
            )

    def _close_own_question(self, state: CallState, call: ValidatedCall, why: str) -> Question | None:
        """Close the open question about a call. A question that was asked about an earlier call of its message stays open."""
        return self._close_question(state, call, why) if call.asked_with in ("", call.raw.id) else None

    def _close_question(self, state: CallState, call: ValidatedCall, why: str) -> Question | None:
        """Close the open question about a call, if there is one, because the call goes on without an answer, and return it."""
        if not self.context.approvals.by_call:
            return None
        return close_question(self.context.recorder, self.context.approvals, call, why, cause=state.last)
