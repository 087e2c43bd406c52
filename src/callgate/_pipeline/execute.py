"""Run an approved call: acquire a slot, run the last checks and the attempts, check the result. Skipped if the `cache` stage has an answer.

Takes only an `ApprovedCall`. Between approval and start, the last checks may still prevent a call with an effect: the order of the
message's calls, an identical earlier call with an unknown outcome, the slots, and the limit of dangerous calls per tick (`Scope.tick`, a
time step of the host). Hooks that only observe see the call directly before it starts. While a call with an effect runs, the cache stores
nothing that it may change. Knows nothing of how policies decide, of other hooks, of timeouts, and of the format of results.
"""

from __future__ import annotations

import logging
from functools import partial

from callgate._json import exceeds
from callgate._pipeline.attempts import Attempts
from callgate._pipeline.call_hooks import observe_start
from callgate._pipeline.call_state import CallState
from callgate._pipeline.engine_context import EngineContext
from callgate._pipeline.engine_policies import EnginePolicies
from callgate._pipeline.result_cache import Cache
from callgate._pipeline.result_check import AttemptsResult, check
from callgate._pipeline.tool_plan import ToolPlan
from callgate._pipeline.undo_capture import capture_writes
from callgate._pipeline.unknown_outcomes import UnknownOutcomes
from callgate._runners import OWN_RUNNERS, Runners
from callgate._runners.offload_to_threads import LARGE_BYTES
from callgate.protocols import WriteLog
from callgate.stage_types import ApprovedCall, Checked
from callgate.tools import BoundTool

__all__ = ["Executor"]

log = logging.getLogger("callgate")


class Executor:
    """Runs the approved calls of one engine.

    Args:
        unknown: Settles unknown outcomes of earlier calls.
        undo: Captures what calls write; None: nothing is captured.
    """

    def __init__(
        self,
        context: EngineContext,
        attempts: Attempts,
        runners: Runners,
        cache: Cache,
        unknown: UnknownOutcomes,
        policies: EnginePolicies,
        undo: WriteLog | None,
    ) -> None:
        self._attempts = attempts
        self._runners = runners
        self._cache = cache
        self._unknown = unknown
        self._policies = policies
        self._undo = undo
        self._timeout_s = context.timeout_s
        self._control = context.control
        self._clock = context.clock
        self._host = context.host
        self._redactor = context.redactor
        self._offload = context.offload
        self._advised: set[str] = set()
        """The identities of tools whose authors were advised how to report failures more precisely."""

    async def execute(self, state: CallState, plan: ToolPlan, approved: ApprovedCall) -> Checked:
        """Acquire a slot, run the last checks and the attempts, and return the checked result."""
        began = self._clock.monotonic()
        try:
            if plan.limit.acquire_nowait():
                state.held = plan.limit
            else:
                await state.acquire_slot(plan.limit, min(self._timeout_s, state.deadline - began))
            if plan.hooks.observers or state.run_state.in_doubt.latest or state.run_state.in_doubt.confirmed:
                earlier = await self._last_checks(state, plan, approved)
                if earlier is not None:
                    return earlier
            if state.stopped or self._control.stops:
                state.check_stop(self._control)
            if plan.counted:
                state.tick = self._policies.count_dangerous(approved.call)
            ran = await (self._attempts.run(state, plan, approved) if plan.reads_only else self._run_with_effect(state, plan, approved))
        finally:
            state.code_over = True
            if state.held is not None:
                held, state.held = state.held, None
                held.release()
        if ran.execution.status != "returned":
            state.started = ran.may_have_happened
        took_s = self._clock.monotonic() - began
        value = ran.execution.value
        if plan.tool.output is not None and (len(value) > LARGE_BYTES if type(value) is str else exceeds(value, LARGE_BYTES)):
            checked = await self._offload.run(partial(check, plan.tool, ran, took_s, self._redactor))
        else:
            checked = check(plan.tool, ran, took_s, self._redactor)
        return checked if checked.status != "unknown" else await self._settle_doubt(state, approved, ran, checked)

    async def _last_checks(self, state: CallState, plan: ToolPlan, approved: ApprovedCall) -> Checked | None:
        """Return None if the call may start now, after its observers have seen it; else the result of an identical earlier call.

        Unknown outcomes are checked after the other waits, because another call may leave one while this one waits for a slot or for
        observers.
        """
        if plan.hooks.observers:
            earlier = await self._unknown.rule_out_repeat(state, approved)
            if earlier is not None:
                return earlier
            state.check_stop(self._control)
            await observe_start(approved, plan.hooks.observers, self._host)
        return await self._unknown.rule_out_repeat(state, approved)

    async def _run_with_effect(self, state: CallState, plan: ToolPlan, approved: ApprovedCall) -> AttemptsResult:
        """Run a call with an effect. Meanwhile, the cache does not store what the call may change, and its writes are captured for undo."""
        touched = approved.call.tool.touched(approved.call.arguments, state.scope) if plan.declares else None
        writes = self._cache.begin_writing(state.uid, touched)
        try:
            if self._undo is None or not state.scope.workspace:
                return await self._attempts.run(state, plan, approved)
            async with capture_writes(self._undo, state, approved, touched):
                return await self._attempts.run(state, plan, approved)
        finally:
            if state.uid in self._runners.abandoned_calls:
                self._cache.keep_writing(state.uid, writes)
            else:
                self._cache.end_writing(state.uid, writes)

    async def _settle_doubt(self, state: CallState, approved: ApprovedCall, ran: AttemptsResult, checked: Checked) -> Checked:
        """Ask the tool's `verify` about a call with an unknown outcome. If it does not know, prevent identical calls from starting."""
        execution, runner = ran.execution, approved.call.tool.runner
        gone = execution.status == "raised" or (runner in OWN_RUNNERS and not (runner == "process" and execution.abandoned))
        if execution.status == "raised" and not execution.code:  # a code is of a runner, whose failures the tool's code cannot declare
            self._advise_author(approved.call.tool, execution.error_type)
        if execution.status in ("raised", "crashed", "not_started"):
            within_s = min(self._host.hook_timeout_s, state.deadline - self._clock.monotonic())
            checked = await self._unknown.settle_by_verify(state, approved, checked, within_s, gone=gone)
        if checked.status == "unknown":
            state.run_state.add_doubt(approved.call, approved.encoded, approved.key, approved.tool_key, gone=gone)
        return checked

    def _advise_author(self, tool: BoundTool, exception: str) -> None:
        if tool.identity not in self._advised:
            self._advised.add(tool.identity)
            log.warning(
                "Tool %s (%s) %s, and its effect is `%s`: it may have happened before that, so the outcome is unknown."
                ' If the tool only reads, say effect="none". %s This is said once for each tool.',
                *(tool.name, tool.tool.where(), f"raised {exception}" if exception else "failed", tool.effect),
                tool.tool.not_done_advice(exception),
            )
