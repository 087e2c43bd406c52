"""The engine: makes the one route that every tool call takes, and owns what lives longer than a call.

The route itself is `_pipeline/call_route.py`. Here are its parts, put together once, and what a host does with an engine: hand in calls,
register tools, answer questions, close. Knows nothing of models, loops or transports.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

from callgate._abort_signals import AbortSignal
from callgate._cache import JournalCache, MemoryCache
from callgate._clock import Clock
from callgate._environment_limits import timeout_from_environment
from callgate._limits import Limits
from callgate._options import by_name
from callgate._pipeline.activity import Activity
from callgate._pipeline.approvals import Question
from callgate._pipeline.at_work import RunsAtWork
from callgate._pipeline.cache import Cache
from callgate._pipeline.call_route import CallRoute, RouteParts
from callgate._pipeline.desk import Desk
from callgate._pipeline.endings import Endings
from callgate._pipeline.entrance import Entrance
from callgate._pipeline.execute import Executor
from callgate._pipeline.ground import Ground
from callgate._pipeline.holding import Holding
from callgate._pipeline.host_fields import HostFields
from callgate._pipeline.known_runs import KnownRuns
from callgate._pipeline.life import Life
from callgate._pipeline.options import check_parts, check_policies, check_settings, hooks_of, policies_of, runners_of, tools_of
from callgate._pipeline.pump import Soon
from callgate._pipeline.sync import SyncDoor
from callgate._pipeline.unrouted import Unrouted
from callgate._pipeline.writer import too_late
from callgate._redact import Redactor
from callgate._runners import Runners
from callgate.calls import CurrentToolCall, Outcome, RawCall, Scope, ToolResult
from callgate.emission import Emission
from callgate.errors import RecordFailed, RunHeld, UsageError
from callgate.hooks import Hook
from callgate.protocols import (
    BlobStore,
    CacheStore,
    CallJudge,
    Follower,
    HasCachePath,
    Journal,
    OnDisk,
    Policy,
    RestartHandler,
    Runner,
    WriteLog,
)
from callgate.tools import BoundTool, Tool, ToolRegistry
from callgate.tools.registry import Layer, instance_of

if TYPE_CHECKING:
    from callgate._runners.process import ProcessLimits

__all__ = ["Engine"]

log = logging.getLogger("callgate")
_NOWHERE = Scope()
_DEFAULTS = Limits()
_MEMORY_END_S = 5.0
_TOGETHER = 256
"""Calls of a message that are taken in before the event loop comes round."""


class Engine:
    """Runs tool calls: checked, stoppable, never twice, all on record.

    Use it as `async with Engine(tools) as engine`. An engine belongs to one event loop; many engines may live in one process.

    Args:
        tools: Registered as built-in; of a class, an instance is made.
        policies: Asked in order, about every call; none: everything validated may run. Rules that name a tool, an argument or a value
            that does not exist are refused.
        hooks: The user's code around calls.
        journal: Where everything is recorded; None: in memory.
        blobs: Where large results are kept; None: with the journal, on its server or in the folder `<journal>.blobs`; in memory with one
            that is in memory, up to 256 MiB, the oldest going first.
        persistent_cache: For tools with cache scope `persistent`; None: the file `<journal>.cache` beside a journal in a file; with any
            other journal, such results live as long as the engine, and a warning in the log says so.
        limits: Every bound.
        runners: The host's own, by the name that tools give as `runner`.
        process_limits: Of the worker processes that run process tools; None: the defaults.
        timeout_s: Of a whole call, retries and waits included; None: from `TOOL_EXECUTION_TIMEOUT_MS`, or 300.
        coerce: Put arguments of a wrong type right where nothing is lost (`"5"` → `5`), and note it.
        repair: Repair complete but malformed JSON arguments, and note it; cut-off ones are refused either way.
        restart: Consumes results that enrich the context instead of the history.
        redactor: Takes secrets out of whatever is recorded or shown.
        undo: Keeps what calls change in their workspace, so that it can be undone (`callgate.undo.UndoStore`); None: nothing is kept.
        memory: Follows the record and remembers what calls came to (`callgate.memory.Memory`); closed with the engine. None: nobody does.
        run: The id of the engine's own run, for scopes that name none.
        extra: The class of what scopes have as `extra`, with annotated fields: every scope's is checked against it. None: anything goes.
    """

    @by_name
    def __init__(
        self,
        tools: Iterable[Tool | type[Tool]] = (),
        *,
        policies: Iterable[Policy | CallJudge] = (),
        hooks: Iterable[Hook] = (),
        journal: Journal | None = None,
        blobs: BlobStore | None = None,
        persistent_cache: CacheStore | None = None,
        limits: Limits = _DEFAULTS,
        process_limits: ProcessLimits | None = None,
        runners: Mapping[str, Runner] | None = None,
        timeout_s: float | None = None,
        coerce: bool = True,
        repair: bool = False,
        restart: RestartHandler | None = None,
        redactor: Redactor | None = None,
        undo: WriteLog | None = None,
        memory: Follower | None = None,
        clock: Clock | None = None,
        run: str = "",
        extra: object = None,
    ) -> None:
        check_settings(process_limits, limits=limits, timeout_s=timeout_s, run=run, coerce=coerce, repair=repair)
        check_parts(journal=journal, blobs=blobs, persistent_cache=persistent_cache, redactor=redactor, clock=clock)
        check_parts(undo=undo, memory=memory, restart=restart)
        host_fields = None if extra is None else HostFields(extra)
        ground = self._ground = Ground.of(journal=journal, blobs=blobs, clock=clock, limits=limits, redactor=redactor)
        self.clock, self.limits, self.journal, self.blobs = ground.clock, limits, ground.journal, ground.blobs
        self.bus, self.control, self.conversations = ground.bus, ground.control, ground.conversations
        self.restart = restart
        self.redactor = redactor
        self._log = ground.writer.log
        self.run = run or f"engine-{self.clock.new_id()}"
        self._activity = Activity()
        self._survives = self.journal.strength != "memory"
        self._timeout_s = timeout_from_environment() if timeout_s is None else timeout_s
        self._known = KnownRuns(ground)
        asked = policies_of(policies)
        if persistent_cache is None and isinstance(self.journal, HasCachePath):
            persistent_cache = JournalCache(self.journal.cache_path)
        self._persists = persistent_cache is not None
        own = _files(self.journal, self.blobs, persistent_cache, memory)
        self._desk = Desk(ground, self._known, asked, hooks_of(hooks), tuple(own))
        self._endings = Endings(ground, restart, self._timeout_s)
        self._runners = Runners(limits, self.clock, process_limits=process_limits, on_late=self._desk.late, own=runners_of(runners))
        self._cache = Cache(MemoryCache(), persistent_cache, self.clock, redactor)
        executor = Executor(ground, self._desk, self._cache, self._runners, self._timeout_s, undo)
        self._life = Life(lambda: self.journal.watch(self._holding), self._endings.cancelled, self._let_go, limits.grace_s)
        self._holding = Holding(ground.writer, self.control, self.run, self._life.running.values, self._known, self._desk)
        self._known.is_busy = self._holding.is_busy
        self._entrance = Entrance(self._desk, self._known, self._life, self._holding, self.run, is_new=not run, host_fields=host_fields)
        self._unrouted = Unrouted(ground.writer, self._endings, self._life)
        self.runs = RunsAtWork(ground, self._entrance, self._holding, self._endings, self._life, self._desk.judges)
        """The other side of the engine: for whoever works on whole runs, as an agent does."""
        self._door = SyncDoor()
        self._memory = memory
        if undo is not None:
            undo.leave_out(own)
        self._soon = Soon()
        given = [instance_of(one) for one in tools_of(tools)]
        for one in given:
            self._check_runner(one)
        self._unkept: set[str] = set()
        """Tools of which was said that their results cannot be kept."""
        self.tools = ToolRegistry(given, check=partial(self._check_tools, asked))
        parts = RouteParts(
            ground=ground,
            desk=self._desk,
            entrance=self._entrance,
            executor=executor,
            endings=self._endings,
            unrouted=self._unrouted,
            life=self._life,
            tools=self.tools,
            activity=self._activity,
        )
        self._route = CallRoute(parts, timeout_s=self._timeout_s, coerce=coerce, repair=repair)
        if memory is not None:
            memory.follow(self.journal, self.bus, self.tools, redactor)

    async def call(self, raw: RawCall, scope: Scope = _NOWHERE, *, signal: AbortSignal | None = None) -> Outcome:
        """Take one call through the whole route.

        Args:
            raw: As the model emitted it.
            scope: Where and for whom.
            signal: Ends the call when it fires; None: the conversation's own, which `control.kill` fires.

        Returns:
            `Answered` with the one result, `Restarted`, `Aborted` or `Suspended`. Whatever the tool, the model or a hook did, this returns.
        """
        if scope is not self._entrance.given:
            self._entrance.check_extra(scope)
            try:
                await self._open(scope)
            except (RunHeld, RecordFailed) as error:
                return self._endings.unrecorded(raw, error)
        if self._survives and self._ground.writer.crowded:
            await self._ground.writer.wait_for_capacity()
        kill = signal or self.control.signal(scope.conversation)
        if self.journal.shared:  # another engine may take this call's run over, and another process end it, alone
            kill = AbortSignal(kill)
        flight = self._route.admit(raw, scope, kill)
        outcome = await self._route.run(flight)
        if self._survives:
            (outcome,) = await self._endings.told([(flight, outcome)])
        return outcome

    async def _open(self, scope: Scope) -> None:
        """Have a scope's run to this engine, in the time that a call has."""
        waiting = asyncio.timeout(self._timeout_s)
        try:
            async with waiting:
                await self._entrance.open(scope)
        except TimeoutError as error:
            if waiting.expired():
                raise too_late() from error
            raise

    def call_sync(self, raw: RawCall, scope: Scope = _NOWHERE) -> Outcome:
        """The same for plain code: runs on an event loop in a thread of the engine's own; end it with `close_sync`.

        Raises:
            UsageError: Inside a running event loop.
        """
        return self._door.run(self._life.check_unclosed, lambda: self.call(raw, scope))

    # Many calls of one message

    def emission(
        self,
        scope: Scope = _NOWHERE,
        *,
        signal: AbortSignal | None = None,
        early: bool = True,
        on_result: Callable[[ToolResult], None] | None = None,
    ) -> Emission:
        """Begin a message's calls; see `Emission`."""
        self._entrance.check(scope)
        kill, limits = signal or self.control.signal(scope.conversation), self.limits
        most, parallel = limits.calls_per_message, limits.parallel_calls
        emission = Emission(
            self._route, self._unrouted, scope, kill, self._soon, early=early, on_result=on_result, most=most, parallel=parallel
        )
        self._life.messages.add(emission)
        return emission

    async def call_many(self, raws: Iterable[RawCall], scope: Scope = _NOWHERE, *, signal: AbortSignal | None = None) -> list[Outcome]:
        """Take all calls of one message through the route, side by side where they may; outcomes in the order of the calls."""
        if scope is not self._entrance.given:
            self._entrance.check_extra(scope)
            try:
                await self._open(scope)
            except (RunHeld, RecordFailed) as error:
                return [self._endings.unrecorded(raw, error) for raw in raws]
        emission = self.emission(scope, signal=signal, early=False)
        try:
            for number, raw in enumerate(raws, 1):
                emission.add(raw)
                if number % _TOGETHER == 0:
                    await asyncio.sleep(0)
        except BaseException as error:
            await emission.discard(f"the message was not taken in: {type(error).__name__}")
            raise
        return await emission.seal()

    def asked(self, raw: RawCall, scope: Scope) -> tuple[str, bytes] | None:
        """Which tool a call is for, and its valid arguments as canonical JSON; None where it is none. Records and runs nothing."""
        return self._route.asked(raw, scope)

    # What an operator does

    def register(self, tool: Tool | type[Tool], *, layer: Layer = "builtin") -> None:
        """Add a tool, or an instance of its class; see `ToolRegistry.register`.

        Raises:
            UsageError: It is incomplete, its name is taken, its runner could not run it, or a rule about it could never match.
        """
        tool = instance_of(tool)
        self._check_runner(tool)
        self.tools.register(tool, layer=layer)

    def _check_tools(self, policies: tuple[Policy | CallJudge, ...], tools: Sequence[BoundTool]) -> None:
        check_policies(policies, tools)
        unkept = {tool.name for tool in tools if tool.cache_scope == "persistent" and not self._persists} - self._unkept
        self._unkept |= unkept
        for name in sorted(unkept):
            self._log.warning(
                "Results of the tool %s are to outlive the process (cache_scope='persistent'), but there is nowhere to keep them: they live"
                " as long as the engine. Give Engine(persistent_cache=SqliteCache(path)), or a journal in a file.",
                name,
            )

    def _check_runner(self, tool: Tool) -> None:
        if tool.runner is not None:
            self._runners.check(tool.runner, tool)

    async def answer(self, approval_id: str, *, allow: bool, by: str = "operator") -> None:
        """Answer the question of a `Suspended` call. If allowed, hand the same call in again: it runs once, with these arguments only.

        Comes back when the answer is on disk, where the record survives. It counts from before that, also where the caller is cancelled.
        The same said again changes nothing: who said it first stays on record. A no takes back a yes that no call has used.

        Raises:
            UsageError: No such question is open; or, as `RunHeld`, another engine works on its run: tell that one by `callgate.inbox`.
            RecordFailed: It could not be kept, so it does not count.
        """
        self._life.check_open()
        await self._ground.writer.durable(await self._desk.answer(approval_id, allow=allow, by=by))

    def answer_sync(self, approval_id: str, *, allow: bool, by: str = "operator") -> None:
        """The same for plain code, as `call_sync` is."""
        self._door.run(self._life.check_unclosed, lambda: self.answer(approval_id, allow=allow, by=by))

    def approval(self, approval_id: str) -> Question | None:
        """What a human was asked under this id and said, as far as it is neither used up nor expired."""
        return self._ground.approvals.find(approval_id)

    async def settle(self, uid: str, *, happened: bool) -> None:
        """Say what became of a call that ended `unknown`, so that the same call may be sent again in its run.

        Comes back when that is on disk, where the record survives. It counts from before that, also where the caller is cancelled.

        Raises:
            UsageError: No call of this uid is in doubt.
            RecordFailed: It could not be kept, so it does not count.
        """
        self._life.check_open()
        position = self._known.settle(uid, happened=happened, why="the operator said so")
        if position is None:
            raise UsageError(f"No call '{uid!s:.80}' is in doubt in this engine. Nothing was changed.")
        await self._ground.writer.durable(position)

    def settle_sync(self, uid: str, *, happened: bool) -> None:
        """The same for plain code, as `call_sync` is."""
        self._door.run(self._life.check_unclosed, lambda: self.settle(uid, happened=happened))

    def current_tool_call(self, conversation: str) -> CurrentToolCall | None:
        """The conversation's latest successful call, with its parameters and why it was made; survives where the journal does.

        Waits for the server where the journal is on one: call it in a thread then, as `await asyncio.to_thread(...)`.
        """
        return self._endings.latest(conversation)

    @property
    def activity_since_wake(self) -> int:
        """Calls that have succeeded since `wake`, or since this was set, in any conversation or none. Cached results do not count."""
        return self._activity.total

    @activity_since_wake.setter
    def activity_since_wake(self, count: int) -> None:
        self._activity.total = count

    def activity(self, conversation: str) -> int:
        """The same of one conversation. Kept in memory, for the 10,000 conversations that were active last."""
        return self._activity.of(conversation)

    def wake(self, conversation: str | None = None) -> None:
        """Count activity anew: that of this conversation, or of the engine and all of them."""
        self._activity.wake(conversation)

    # Life

    @property
    def abandoned(self) -> int:
        """How much code of calls that have ended still runs: threads and coroutines that would not stop, and tasks that tools left."""
        return self._runners.abandoned + self._ground.offload.abandoned

    async def close(self) -> None:
        """End what runs, in bounded time, and let go of everything. Idempotent; goes on to its end if whoever waits for it is cancelled.

        Raises:
            UsageError: The engine's event loop is another one, and still runs.
        """
        await self._life.close()

    def close_sync(self) -> None:
        """Close an engine that was used through `call_sync`, or not at all.

        Raises:
            UsageError: Inside a running event loop, or where the engine's own is another that still runs.
        """
        self._door.close(self._life.shut, self.close)

    async def _let_go(self) -> None:
        await self._runners.close()
        if self._memory is not None:
            closed = await self._ground.host_code.ask(self._memory.close(), _MEMORY_END_S, "memory")
            if closed.error is not None:
                self._log.error("Memory: it could not be closed: %s: %s", type(closed.error).__name__, closed.error)
        self._ground.offload.close()
        await self._ground.host_code.close()
        try:
            self._cache.close()
        finally:
            await self.journal.close()

    async def __aenter__(self) -> Self:
        self._life.check_open()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()


def _files(*parts: object) -> list[str]:
    """The files that parts of an engine write."""
    return [path for part in parts if isinstance(part, OnDisk) for path in part.files]
