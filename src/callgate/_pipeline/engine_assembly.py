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
from callgate._pipeline.call_locks import CallLocks
from callgate._pipeline.call_preparation import ArgumentSettings, CallPreparation
from callgate._pipeline.call_route import CallRoute, RouteParts
from callgate._pipeline.call_state import CallState
from callgate._pipeline.effect_claims import EffectClaims
from callgate._pipeline.engine_context import EngineContext
from callgate._pipeline.engine_lifecycle import Lifecycle
from callgate._pipeline.engine_policies import EnginePolicies
from callgate._pipeline.engine_runs import EngineRuns
from callgate._pipeline.execute import Executor
from callgate._pipeline.host_fields import HostFields
from callgate._pipeline.inbox_delivery import InboxDelivery
from callgate._pipeline.known_runs import KnownRuns, Work
from callgate._pipeline.open_runs import LatestScope, OpenRuns
from callgate._pipeline.outcomes import Outcomes
from callgate._pipeline.recorded_effects import RecordedEffects
from callgate._pipeline.remembered_results import RememberedResults
from callgate._pipeline.repeated_calls import RepeatedCalls
from callgate._pipeline.result_cache import Cache
from callgate._pipeline.run_leases import RunLeases
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

__all__ = ["EngineParts", "GivenParts"]

_MEMORY_END_S = 5.0


class GivenParts(Struct, frozen=True, kw_only=True, eq=False):
    """The host's options that are not in the context; see `Engine`."""

    tools: Sequence[Tool] = ()
    servers: Sequence[ToolServer] = ()
    policies: Sequence[Policy | CallJudge] = ()
    hooks: Sequence[Hook] = ()
    runners: Mapping[str, Runner] = {}
    process_limits: ProcessLimits | None = None
    persistent_cache: CacheStore | None = None
    timeout_s: float
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
    known: KnownRuns
    open_runs: OpenRuns
    latest_scope: LatestScope
    runners: Runners
    admission: Admission
    outcomes: Outcomes
    unstarted: UnstartedCalls
    lifecycle: Lifecycle
    activity: Activity
    preparation: CallPreparation
    route: CallRoute
    runs: EngineRuns
    queue_starter: QueueStarter
    timeout_s: float
    changes_results: bool
    """Whether a hook may change the results of tools."""

    @classmethod
    def of(cls, context: EngineContext, given: GivenParts) -> EngineParts:
        """Make the parts.

        Raises:
            UsageError: A tool or a policy cannot be used, or a runner has a name that is reserved for the engine's own runners.
        """
        recorder = context.recorder
        run = given.run or f"engine-{context.clock.new_id()}"
        run_parts = _RunParts.of(context, run, coerce=given.coerce)
        running, known, leases = run_parts.running, run_parts.known, run_parts.leases
        policies = EnginePolicies(given.policies, context.host, context.approvals, known, context.limits, coerce=given.coerce)
        waits = WaitGraph()
        execution = _ExecutionParts.of(context, given, policies, known, waits)
        cache, runners, unknown = execution.cache, execution.runners, execution.unknown

        tool_parts = _ToolParts.of(context, given, execution)
        tools, plans, servers = context.tools, tool_parts.plans, tool_parts.servers

        outcomes = Outcomes(context, given.restart, given.timeout_s)
        resources = _Resources(context, runners, cache, given.memory, servers)
        lifecycle = Lifecycle(context.journal, leases, running, outcomes, resources, context.limits.grace_s)
        server_changes = ServerChanges(servers, lifecycle)
        unstarted = UnstartedCalls(recorder, outcomes, lifecycle)
        nowhere = Scope()
        latest = LatestScope(nowhere, nowhere, ScopeFacts(nowhere, context.redactor))
        open_runs = OpenRuns(context, known, run, latest, runners.abandoned_calls, leases.deliver)
        admission = Admission(context, known, open_runs, latest, lifecycle, run, is_new=not given.run, host_fields=given.host_fields)

        activity = Activity()
        settings = ArgumentSettings(coerce=given.coerce, repair=given.repair)
        preparation = CallPreparation(context, tools, policies, execution.recorded_effects, outcomes, settings)
        route_parts = RouteParts(
            context=context,
            admission=admission,
            preparation=preparation,
            plans=plans,
            policies=policies,
            repeated=RepeatedCalls(
                context, running, plans.by_identity, execution.recorded_effects, unknown, waits, timeout_s=given.timeout_s
            ),
            locks=CallLocks(waits, context.clock, run, recorder.log),
            effects=EffectClaims(context, execution.recorded_effects, known, unknown, waits, given.timeout_s),
            cache=cache,
            executor=execution.executor,
            outcomes=outcomes,
            unstarted=unstarted,
            results=RememberedResults(known, preparation, context.normaliser),
            runs=known.by_run,
            lifecycle=lifecycle,
            activity=activity,
        )
        if given.memory is not None:
            given.memory.follow(context.journal, context.bus, tools, context.redactor)
        return cls(
            context=context,
            run=run,
            tools=tools,
            plans=plans,
            servers=servers,
            server_changes=server_changes,
            known=known,
            open_runs=open_runs,
            latest_scope=latest,
            runners=runners,
            admission=admission,
            outcomes=outcomes,
            unstarted=unstarted,
            lifecycle=lifecycle,
            activity=activity,
            preparation=preparation,
            route=CallRoute(route_parts, timeout_s=given.timeout_s),
            runs=EngineRuns(context, admission, leases, outcomes, lifecycle, policies.judges, servers.start),
            queue_starter=QueueStarter(),
            timeout_s=given.timeout_s,
            changes_results=any(hook.phase == "after" and hook.kind == "transform" for hook in given.hooks),
        )


class _RunParts(Struct, frozen=True, kw_only=True, eq=False):
    """The parts that know the runs of an engine, and hold their leases."""

    running: dict[str, CallState]
    """The calls that are under way, by uid."""
    known: KnownRuns
    leases: RunLeases

    @classmethod
    def of(cls, context: EngineContext, run: str, *, coerce: bool) -> _RunParts:
        recorder, control = context.recorder, context.control
        running: dict[str, CallState] = {}
        work: dict[str, Work] = {}
        known = KnownRuns(context, run, work)
        delivery = InboxDelivery(recorder, control, work, running, known, context.approvals, context.tools, coerce=coerce)
        return cls(running=running, known=known, leases=RunLeases(recorder, control, work, running, known, delivery))


class _ToolParts(Struct, frozen=True, kw_only=True, eq=False):
    """The parts that know the tools of an engine, and those of its servers."""

    plans: ToolPlans
    servers: ToolServers

    @classmethod
    def of(cls, context: EngineContext, given: GivenParts, execution: _ExecutionParts) -> _ToolParts:
        persists, captures = execution.store is not None, given.undo is not None
        plans = ToolPlans(given.hooks, execution.runners, context.limits, context.recorder.log, persists=persists, captures=captures)
        catalogue = Catalogue(given.servers, context.tools, plans, given.policies, context.recorder, context.clock)
        for tool in given.tools:
            plans.check_runner(tool)
        context.tools.add_all(given.tools, catalogue.check)
        return cls(plans=plans, servers=ToolServers(catalogue))


class _ExecutionParts(Struct, frozen=True, kw_only=True, eq=False):
    """The parts that run the code of tools, and keep what it returned."""

    store: CacheStore | None
    """The store for results that outlive the process, if there is one."""
    cache: Cache
    runners: Runners
    recorded_effects: RecordedEffects
    unknown: UnknownOutcomes
    executor: Executor

    @classmethod
    def of(cls, context: EngineContext, given: GivenParts, policies: EnginePolicies, known: KnownRuns, waits: WaitGraph) -> _ExecutionParts:
        store = _persistent_store(context, given)
        cache = Cache(MemoryCache(), store, context.clock, context.redactor, waits)
        runners = Runners(
            context.limits,
            context.clock,
            process_limits=given.process_limits,
            on_late=context.recorder.late,
            on_gone=cache.code_ended,
            own=given.runners,
        )
        own_files = _files(context.journal, context.blobs, store, given.memory)
        if given.undo is not None:
            given.undo.leave_out(own_files)
        unknown = UnknownOutcomes(context.host, known, Fence(context.journal, runners.abandoned_calls))
        attempts = Attempts(context, runners, policies, own_files, given.timeout_s)
        executor = Executor(context, attempts, runners, cache, unknown, policies, given.undo, given.timeout_s)
        return cls(store=store, cache=cache, runners=runners, recorded_effects=RecordedEffects(context), unknown=unknown, executor=executor)


class _Resources:
    """The resources that an engine closes last."""

    def __init__(self, context: EngineContext, runners: Runners, cache: Cache, memory: Follower | None, servers: ToolServers) -> None:
        self._servers = servers
        self._context = context
        self._runners = runners
        self._cache = cache
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
            self._cache.close()
        finally:
            await context.journal.close()


def _persistent_store(context: EngineContext, given: GivenParts) -> CacheStore | None:
    """Return the store for results that outlive the process: the host's, or a file beside the journal's; None if there is neither."""
    if given.persistent_cache is None and isinstance(context.journal, HasCachePath):
        return JournalCache(context.journal.cache_path)
    return given.persistent_cache


def _files(*parts: object) -> tuple[str, ...]:
    """Return the files that parts of an engine write."""
    return tuple(path for part in parts if isinstance(part, OnDisk) for path in part.files)
