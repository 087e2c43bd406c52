"""The engine: makes the one route that every tool call takes, and owns what lives longer than a call.

The route itself is `_pipeline/call_route.py`. Here are its parts, put together once, and what a host does with an engine: hand in calls,
register tools, answer questions, close. Knows nothing of models, loops or transports.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

from callgate._abort_signals import AbortSignal
from callgate._clock import Clock
from callgate._engine_limits import Limits
from callgate._json import decode
from callgate._limits_from_environment import timeout_from_environment
from callgate._option_checks import by_name
from callgate._pipeline.approval_answers import answer_approval, edited_arguments
from callgate._pipeline.engine_assembly import EngineParts, GivenParts
from callgate._pipeline.engine_lifecycle import SyncRunner
from callgate._pipeline.engine_options import (
    EngineContext,
    HostFields,
    check_parts,
    check_settings,
    hooks_of,
    policies_of,
    runners_of,
    tools_of,
)
from callgate._run_state.approvals import Answer
from callgate._run_state.recorder import too_late
from callgate._run_state.settlements import Settlement, settle_call
from callgate._secret_redaction import Redactor
from callgate.calls import Approval, CurrentToolCall, Outcome, RawCall, Scope, ToolResult
from callgate.emission import Emission
from callgate.errors import RecordFailed, RunHeld
from callgate.hooks import Hook
from callgate.protocols import BlobStore, CacheStore, CallJudge, Follower, Journal, Policy, RestartHandler, Runner, WriteLog
from callgate.recorded_calls import latest_tool_call
from callgate.tools import Tool
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
        given = GivenParts(
            tools=tuple(instance_of(one) for one in tools_of(tools)),
            policies=policies_of(policies),
            hooks=hooks_of(hooks),
            runners=runners_of(runners),
            process_limits=process_limits,
            persistent_cache=persistent_cache,
            timeout_s=timeout_from_environment() if timeout_s is None else timeout_s,
            coerce=coerce,
            repair=repair,
            restart=restart,
            undo=undo,
            memory=memory,
            run=run,
            host_fields=None if extra is None else HostFields(extra),
        )
        context = EngineContext.of(journal=journal, blobs=blobs, clock=clock, limits=limits, redactor=redactor)
        self.clock, self.limits, self.journal, self.blobs = context.clock, limits, context.journal, context.blobs
        self.bus, self.control, self.conversations = context.bus, context.control, context.conversations
        self.restart, self.redactor = restart, redactor
        parts = self._parts = EngineParts.of(context, given)
        self.run, self.tools = parts.run, parts.tools
        self.runs = parts.runs
        """Operations on whole runs, for an agent loop."""
        self._sync_runner = SyncRunner()

    async def call(self, raw: RawCall, scope: Scope = _NOWHERE, *, signal: AbortSignal | None = None) -> Outcome:
        """Take one call through the whole route.

        Args:
            raw: As the model emitted it.
            scope: Where and for whom.
            signal: Ends the call when it fires; None: the conversation's own, which `control.kill` fires.

        Returns:
            `Answered` with the one result, `Restarted`, `Aborted` or `Suspended`. Whatever the tool, the model or a hook did, this returns.
        """
        parts = self._parts
        if scope is not parts.admission.last_scope:
            parts.admission.check_extra(scope)
            try:
                await self._open(scope)
            except (RunHeld, RecordFailed) as error:
                return parts.outcomes.unrecorded(raw, error)
        return await parts.route.call(raw, scope, signal or self.control.signal(scope.conversation))

    async def _open(self, scope: Scope) -> None:
        """Acquire the lease of a scope's run and load its state, in the time that a call has."""
        waiting = asyncio.timeout(self._parts.timeout_s)
        try:
            async with waiting:
                await self._parts.admission.open(scope)
        except TimeoutError as error:
            if waiting.expired():
                raise too_late() from error
            raise

    def call_sync(self, raw: RawCall, scope: Scope = _NOWHERE) -> Outcome:
        """The same for plain code: runs on an event loop in a thread of the engine's own; end it with `close_sync`.

        Raises:
            UsageError: Inside a running event loop.
        """
        return self._sync_runner.run(self._parts.lifecycle.check_unclosed, lambda: self.call(raw, scope))

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
        parts = self._parts
        parts.admission.check(scope)
        kill, limits = signal or self.control.signal(scope.conversation), self.limits
        most, parallel = limits.calls_per_message, limits.parallel_calls
        emission = Emission(
            parts.route,
            parts.unstarted,
            parts.outcomes,
            scope,
            kill,
            parts.queue_starter,
            early=early,
            on_result=on_result,
            most=most,
            parallel=parallel,
        )
        parts.lifecycle.messages.add(emission)
        return emission

    async def call_many(self, raws: Iterable[RawCall], scope: Scope = _NOWHERE, *, signal: AbortSignal | None = None) -> list[Outcome]:
        """Take all calls of one message through the route, side by side where they may; outcomes in the order of the calls."""
        parts = self._parts
        if scope is not parts.admission.last_scope:
            parts.admission.check_extra(scope)
            try:
                await self._open(scope)
            except (RunHeld, RecordFailed) as error:
                return [parts.outcomes.unrecorded(raw, error) for raw in raws]
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
        """Return the name of a call's tool, and its valid arguments as canonical JSON; None if the call is invalid.

        Records and runs nothing.
        """
        return self._parts.route.asked(raw, scope)

    # What an operator does

    def register(self, tool: Tool | type[Tool], *, layer: Layer = "builtin") -> None:
        """Add a tool, or an instance of its class; see `ToolRegistry.register`.

        Raises:
            UsageError: It is incomplete, its name is taken, its runner could not run it, or a rule about it could never match.
        """
        tool = instance_of(tool)
        self._parts.plans.check_runner(tool)
        self.tools.register(tool, layer=layer)

    async def approve(
        self, approval_id: str, *, by: str = "operator", reason: str = "", arguments: Mapping[str, object] | None = None
    ) -> None:
        """Answer the question of a `Suspended` call with yes. Hand the same call in again: it runs once.

        Comes back when the answer is on disk, where the record survives. It counts from before that, also where the caller is cancelled.
        The same said again changes nothing: who said it first stays on record.

        Args:
            by: Who says so; the model is told, like the reason.
            arguments: With which the call is to run, instead of its own. They are validated now and again when it is handed in, and judged
                again then; the model is told. None: its own.

        Raises:
            UsageError: No such question is open; or its tool does not accept the arguments, and it stays open; or, as `RunHeld`, another
                engine works on its run: tell that one by `callgate.inbox`.
            RecordFailed: It could not be kept, so it does not count.
        """
        await self._answer(approval_id, Answer(allow=True, by=by, reason=reason, arguments=edited_arguments(arguments)))

    async def deny(self, approval_id: str, *, by: str = "operator", reason: str = "") -> None:
        """Answer it with no. The same call, handed in again, gets one `Answered` with a denial that says who denied it, and why.

        Comes back and raises as `approve` does. Takes back a yes that no call has used.
        """
        await self._answer(approval_id, Answer(allow=False, by=by, reason=reason))

    async def _answer(self, approval_id: str, answer: Answer) -> None:
        self._parts.lifecycle.check_open()
        context, parts = self._parts.context, self._parts
        position = await answer_approval(approval_id, answer, parts.known, context.approvals, context.recorder, parts.tools)
        await context.recorder.durable(position)

    def approve_sync(
        self, approval_id: str, *, by: str = "operator", reason: str = "", arguments: Mapping[str, object] | None = None
    ) -> None:
        """The same as `approve` for plain code, as `call_sync` is."""
        check = self._parts.lifecycle.check_unclosed
        self._sync_runner.run(check, lambda: self.approve(approval_id, by=by, reason=reason, arguments=arguments))

    def deny_sync(self, approval_id: str, *, by: str = "operator", reason: str = "") -> None:
        """The same as `deny` for plain code, as `call_sync` is."""
        self._sync_runner.run(self._parts.lifecycle.check_unclosed, lambda: self.deny(approval_id, by=by, reason=reason))

    async def answer(self, approval_id: str, *, allow: bool, by: str = "operator") -> None:
        """The older form of `approve` and `deny`, without a reason or arguments."""
        await (self.approve if allow else self.deny)(approval_id, by=by)

    def answer_sync(self, approval_id: str, *, allow: bool, by: str = "operator") -> None:
        """The same for plain code, as `call_sync` is."""
        (self.approve_sync if allow else self.deny_sync)(approval_id, by=by)

    def approval(self, approval_id: str) -> Approval | None:
        """What a human was asked under this id and answered; None where it was never asked, is used up, or has expired."""
        question = self._parts.context.approvals.find(approval_id)
        if question is None:
            return None
        return Approval(
            approval_id=question.approval_id,
            run=question.run,
            expires_at=question.expires_at,
            allowed=question.allowed,
            by=question.by,
            reason=question.reason,
            arguments=decode(question.arguments) if question.arguments else None,
        )

    async def settle(self, uid: str, *, happened: bool, by: str = "operator", reason: str = "") -> None:
        """Say what became of a call that ended `unknown`, or whose process ended while it ran.

        If it did not happen, the same call may be sent again in its run. If it did, the next one like it is told so, and not run.
        Comes back when that is on disk, where the record survives. It counts from before that, also where the caller is cancelled.

        Args:
            uid: The call's, or that of a call that was refused because of it.

        Raises:
            UsageError: The call is not in doubt; or, as `RunHeld`, another engine works on its run: tell that one by `callgate.inbox`.
            RecordFailed: It could not be kept, so it does not count.
        """
        self._parts.lifecycle.check_open()
        recorder = self._parts.context.recorder
        position = await settle_call(uid, Settlement(happened=happened, by=by, reason=reason), self._parts.known, recorder)
        await recorder.durable(position)

    def settle_sync(self, uid: str, *, happened: bool, by: str = "operator", reason: str = "") -> None:
        """The same for plain code, as `call_sync` is."""
        self._sync_runner.run(self._parts.lifecycle.check_unclosed, lambda: self.settle(uid, happened=happened, by=by, reason=reason))

    def current_tool_call(self, conversation: str) -> CurrentToolCall | None:
        """The conversation's latest successful call, with its parameters and why it was made; survives where the journal does.

        None where a redactor changes the conversation's name. Waits for the server where the journal is on one: call it in a thread then,
        as `await asyncio.to_thread(...)`.
        """
        return latest_tool_call(self._parts.context.journal, conversation)

    @property
    def activity_since_wake(self) -> int:
        """Calls that have succeeded since `wake`, or since this was set, in any conversation or none. Cached results do not count."""
        return self._parts.activity.total

    @activity_since_wake.setter
    def activity_since_wake(self, count: int) -> None:
        self._parts.activity.total = count

    def activity(self, conversation: str) -> int:
        """The same of one conversation. Kept in memory, for the 10,000 conversations that were active last."""
        return self._parts.activity.of(conversation)

    def wake(self, conversation: str | None = None) -> None:
        """Count activity anew: that of this conversation, or of the engine and all of them."""
        self._parts.activity.wake(conversation)

    # Lifecycle

    @property
    def abandoned(self) -> int:
        """How much code of calls that have ended still runs: threads and coroutines that would not stop, and tasks that tools left."""
        return self._parts.runners.abandoned + self._parts.context.offload.abandoned

    async def close(self) -> None:
        """End running calls in bounded time and release all resources. Idempotent; finishes even if the waiting task is cancelled.

        Raises:
            UsageError: The engine's event loop is another one, and still runs.
        """
        await self._parts.lifecycle.close()

    def close_sync(self) -> None:
        """Close an engine that was used through `call_sync`, or not at all.

        Raises:
            UsageError: Inside a running event loop, or where the engine's own is another that still runs.
        """
        self._sync_runner.close(self._parts.lifecycle.shut, self.close)

    async def __aenter__(self) -> Self:
        self._parts.lifecycle.check_open()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()
