"""The parts of one engine. Each part is made from those before it.

Nothing is assigned to a part after it was made, and no part holds one that was made later. Decides nothing: `engine_options` has checked
what the host provided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from callgate._cache import JournalCache, MemoryCache
from callgate._pipeline.activity import Activity
from callgate._pipeline.admission import Admission
from callgate._pipeline.attempts import Attempts
from callgate._pipeline.cached_results import CachedResults
from callgate._pipeline.call_approval import CallApproval
from callgate._pipeline.call_locks import CallLocks
from callgate._pipeline.call_preparation import ArgumentSettings, CallPreparation
from callgate._pipeline.call_route import CallRoute
from callgate._pipeline.effect_claims import EffectClaims
from callgate._pipeline.engine_context import EngineContext
from callgate._pipeline.engine_lifecycle import Lifecycle
from callgate._pipeline.engine_policies import EnginePolicies
from callgate._pipeline.engine_questions import EngineQuestions
from callgate._pipeline.engine_runs import EngineRuns
from callgate._pipeline.execute import Executor
from callgate._pipeline.host_fields import HostFields
from callgate._pipeline.inbox_delivery import InboxDelivery
from callgate._pipeline.open_runs import LatestScope, OpenRuns
from callgate._pipeline.outcomes import Outcomes
from callgate._pipeline.recorded_effects import RecordedEffects
from callgate._pipeline.remembered_results import RememberedResults
from callgate._pipeline.repeated_calls import RepeatedCalls
from callgate._pipeline.result_cache import Cache
from callgate._pipeline.run_leases import RunLeases
from callgate._pipeline.run_states import RunStates, Work
from callgate._pipeline.running_calls import RunningCalls
from callgate._pipeline.server_catalogue import Catalogue
from callgate._pipeline.server_changes import ServerChanges
from callgate._pipeline.task_queue import QueueStarter
from callgate._pipeline.tool_plan import ToolPlans
from callgate._pipeline.tool_servers import ToolServers
from callgate._pipeline.unknown_outcomes import Fence, UnknownOutcomes
from callgate._pipeline.unstarted_calls import UnstartedCalls
from callgate._pipeline.wait_graph import WaitGraph
from callgate._run_state.event_bodies import ScopeFacts
from callgate._runners import Runners
from callgate.calls import Scope
from callgate.hooks import Hook
from callgate.protocols import CacheStore, CallJudge, Follower, HasCachePath, OnDisk, Policy, RestartHandler, Runner, ToolServer, WriteLog
from callgate.tools import Tool, ToolRegistry

if TYPE_CHECKING:
    from callgate._runners.process import ProcessLimits

__all__ = ["EngineParts", "HostOptions"]

_MEMORY_END_S = 5.0


class HostOptions(Struct, frozen=True, kw_only=True, eq=False):
    """The host's options that are not in the context; see `Engine`."""

    tools: Sequence[Tool] = ()
    servers: Sequence[ToolServer] = ()
    policies: Sequence[Policy | CallJudge] = ()
    hooks: Sequence[Hook] = ()
    runners: Mapping[str, Runner] = {}
    process_limits: ProcessLimits | None = None
    persistent_cache: CacheStore | None = None
    coerce: bool = True
    repair: bool = False
    restart: RestartHandler | None = None
    undo: WriteLog | None = None
    memory: Follower | None = None
    run: str = ""
    host_fields: HostFields | None = None


class EngineParts(Struct, frozen=True, kw_only=True, eq=False):
    """All parts of an engine."""

    context: EngineContext
    run: str
    """The engine's own run."""
    tools: ToolRegistry
    plans: ToolPlans
    servers: ToolServers
    server_changes: ServerChanges
    run_states: RunStates
    open_runs: OpenRuns
    latest_scope: LatestScope
    runners: Runners
    admission: Admission
    lifecycle: Lifecycle
    activity: Activity
    preparation: CallPreparation
    route: CallRoute
    runs: EngineRuns
    questions: EngineQuestions
    queue_starter: QueueStarter
    changes_results: bool
    """Whether a hook may change the results of tools."""

    @classmethod
    def of(cls, context: EngineContext, options: HostOptions) -> EngineParts:
        """Make the parts.

        Raises:
            UsageError: A tool or a policy cannot be used, or a runner has a name that is reserved for the engine's own runners.
        """
        runs = _RunParts.of(context, options)
        execution = _ExecutionParts.of(context, options, runs.run_states)
        tools = _ToolParts.of(context, options, execution)
        outcomes = Outcomes(context, options.restart)
        resources = _Resources(context, execution.runners, execution.cached_results, options.memory, tools.servers)
        lifecycle = Lifecycle(context.journal, runs.leases, runs.running, outcomes, resources, context.limits.grace_s)
        admission = _AdmissionParts.of(context, options, runs, execution.runners, lifecycle)
        route = _route(context, options, runs, execution, tools, outcomes, lifecycle, admission.admission)
        engine_runs = EngineRuns(
            context, admission.admission, runs.leases, outcomes, lifecycle, runs.running, execution.policies.judges, tools.servers.start
        )
        if options.memory is not None:
            options.memory.follow(context.journal, context.bus, context.tools, context.redactor)
        return cls(
            context=context,
            run=runs.run,
            tools=context.tools,
            plans=tools.plans,
            servers=tools.servers,
            server_changes=ServerChanges(tools.servers, runs.running, lifecycle.check_unclosed),
            run_states=runs.run_states,
            open_runs=admission.open_runs,
            latest_scope=admission.latest_scope,
            runners=execution.runners,
            admission=admission.admission,
            lifecycle=lifecycle,
            activity=route.activity,
            preparation=route.preparation,
            route=route,
            runs=engine_runs,
            questions=EngineQuestions(context, engine_runs, admission.open_runs, runs.run_states, route.preparation),
            queue_starter=QueueStarter(),
            changes_results=any(hook.phase == "after" and hook.kind == "transform" for hook in options.hooks),
        )


def _route(
    context: EngineContext,
    options: HostOptions,
    runs: _RunParts,
    execution: _ExecutionParts,
    tools: _ToolParts,
    outcomes: Outcomes,
    lifecycle: Lifecycle,
    admission: Admission,
) -> CallRoute:
    """Make the route, and the parts that only the route uses."""
    plans, waits, effects = tools.plans.by_identity, execution.waits, execution.recorded_effects
    settings = ArgumentSettings(coerce=options.coerce, repair=options.repair)
    preparation = CallPreparation(context, context.tools, execution.policies, effects, outcomes, settings)
    repeated = RepeatedCalls(context, runs.running, plans, effects, execution.unknown, waits)
    locks = CallLocks(waits, context.clock, runs.run, context.recorder.log)
    return CallRoute(
        context=context,
        admission=admission,
        preparation=preparation,
        plans=plans,
        approval=CallApproval(context=context, policies=execution.policies, repeated=repeated, locks=locks),
        repeated=repeated,
        locks=locks,
        effects=EffectClaims(context, effects, runs.run_states, execution.unknown, waits),
        cache=execution.cache,
        executor=execution.executor,
        outcomes=outcomes,
        unstarted=UnstartedCalls(context.recorder, context.approvals, outcomes, lifecycle),
        remembered=RememberedResults(runs.run_states, preparation, context.normaliser),
        runs=runs.run_states.by_run,
        lifecycle=lifecycle,
        running=runs.running,
        activity=Activity(),
    )


class _RunParts(Struct, frozen=True, kw_only=True, eq=False):
    """The parts that know the runs of an engine, and hold their leases."""

    run: str
    """The engine's own run."""
    running: RunningCalls
    run_states: RunStates
    leases: RunLeases

    @classmethod
    def of(cls, context: EngineContext, options: HostOptions) -> _RunParts:
        recorder, control = context.recorder, context.control
        run = options.run or f"engine-{context.clock.new_id()}"
        running = RunningCalls()
        work: dict[str, Work] = {}
        run_states = RunStates(context, run, work)
        delivery = InboxDelivery(recorder, control, work, running, run_states, context.approvals, context.tools, coerce=options.coerce)
        leases = RunLeases(recorder, control, work, running, run_states, delivery)
        return cls(run=run, running=running, run_states=run_states, leases=leases)


class _AdmissionParts(Struct, frozen=True, kw_only=True, eq=False):
    """The parts that admit calls to runs."""

    latest_scope: LatestScope
    open_runs: OpenRuns
    admission: Admission

    @classmethod
    def of(cls, context: EngineContext, options: HostOptions, runs: _RunParts, runners: Runners, lifecycle: Lifecycle) -> _AdmissionParts:
        nowhere, run_states = Scope(), runs.run_states
        latest = LatestScope(nowhere, nowhere, ScopeFacts(nowhere, context.redactor))
        open_runs = OpenRuns(context, run_states, runs.run, latest, runners.abandoned_calls, runs.leases.deliver)
        is_new, host_fields = not options.run, options.host_fields
        admission = Admission(context, run_states, open_runs, latest, lifecycle, runs.run, is_new=is_new, host_fields=host_fields)
        return cls(latest_scope=latest, open_runs=open_runs, admission=admission)


class _ToolParts(Struct, frozen=True, kw_only=True, eq=False):
    """The parts that know the tools of an engine, and those of its servers."""

    plans: ToolPlans
    servers: ToolServers

    @classmethod
    def of(cls, context: EngineContext, options: HostOptions, execution: _ExecutionParts) -> _ToolParts:
        persists, captures = execution.store is not None, options.undo is not None
        plans = ToolPlans(options.hooks, execution.runners, context.limits, context.recorder.log, persists=persists, captures=captures)
        catalogue = Catalogue(options.servers, context.tools, plans, options.policies, context.recorder, context.clock)
        for tool in options.tools:
            plans.check_runner(tool)
        context.tools.add_all(options.tools, catalogue.check)
        return cls(plans=plans, servers=ToolServers(catalogue))


class _ExecutionParts(Struct, frozen=True, kw_only=True, eq=False):
    """The parts that judge calls, run the code of tools, and keep what it returned."""

    policies: EnginePolicies
    waits: WaitGraph
    store: CacheStore | None
    """The store for results that outlive the process, if there is one."""
    cached_results: CachedResults
    cache: Cache
    runners: Runners
    recorded_effects: RecordedEffects
    unknown: UnknownOutcomes
    executor: Executor

    @classmethod
    def of(cls, context: EngineContext, options: HostOptions, run_states: RunStates) -> _ExecutionParts:
        policies = EnginePolicies(options.policies, context.host, context.approvals, run_states, context.limits, coerce=options.coerce)
        waits = WaitGraph()
        common = JournalCache(context.journal.cache_path) if isinstance(context.journal, HasCachePath) else None
        store = common if options.persistent_cache is None else options.persistent_cache
        recorder = context.recorder if context.journal.shared else None
        cached_results = CachedResults(MemoryCache(), options.persistent_cache, common, context.clock, context.redactor)
        cache = Cache(cached_results, context.clock, waits, recorder=recorder)
        runners = Runners(
            context.limits,
            context.clock,
            process_limits=options.process_limits,
            on_late=context.recorder.late,
            on_gone=cache.code_ended,
            own=options.runners,
        )
        own_files = _files(context.journal, context.blobs, store, options.memory)
        if options.undo is not None:
            options.undo.leave_out(own_files)
        unknown = UnknownOutcomes(context.host, run_states, Fence(context.journal, runners.abandoned_calls))
        attempts = Attempts(context, runners, policies, (*own_files, *_files(options.undo)))
        executor = Executor(context, attempts, runners, cache, unknown, policies, options.undo)
        return cls(
            policies=policies,
            waits=waits,
            store=store,
            cached_results=cached_results,
            cache=cache,
            runners=runners,
            recorded_effects=RecordedEffects(context),
            unknown=unknown,
            executor=executor,
        )


class _Resources:
    """The resources that an engine closes last."""

    def __init__(
        self, context: EngineContext, runners: Runners, cached_results: CachedResults, memory: Follower | None, servers: ToolServers
    ) -> None:
        self._servers = servers
        self._context = context
        self._runners = runners
        self._cached_results = cached_results
        self._memory = memory

    async def close(self) -> None:
        context = self._context
        await self._servers.close()
        await self._runners.close()
        if self._memory is not None:
            closed = await context.host.ask(self._memory.close(), _MEMORY_END_S, "memory")
            if closed.error is not None:
                context.recorder.log.error("Memory: it could not be closed: %s: %s", type(closed.error).__name__, closed.error)
        await context.host.close()
        context.deadlines.close()
        try:
            self._cached_results.close()
        finally:
            await context.journal.close()


def _files(*parts: object) -> tuple[str, ...]:
    """Return the files that parts of an engine write."""
    return tuple(path for part in parts if isinstance(part, OnDisk) for path in part.files)
