"""The engine: runs every tool call along one route, and owns everything that outlives a single call.

`_pipeline/call_route.py` contains the route. `Engine` assembles the parts of the route once, and offers what a host
needs: run calls, register tools, answer approval questions, close. Knows nothing of models, loops or transports.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never, Self, TypeVar

from callgate._abort_signals import AbortSignal
from callgate._clock import Clock
from callgate._engine_limits import Limits
from callgate._limits_from_environment import timeout_from_environment
from callgate._option_checks import Pause, by_name, check, refuse_unknown
from callgate._pipeline.approval_answers import check_answer, check_operator, encode_arguments
from callgate._pipeline.engine_assembly import EngineParts, HostOptions
from callgate._pipeline.engine_context import EngineContext
from callgate._pipeline.engine_options import check_parts, check_settings, hooks_of, policies_of, runners_of, server_change_of, servers_of
from callgate._pipeline.host_fields import HostFields
from callgate._pipeline.scope_checks import check_call, check_scope
from callgate._pipeline.sync_runner import SyncRunner
from callgate._run_state.approvals import Answer
from callgate._run_state.recorder import too_late
from callgate._run_state.settlements import Settlement, settle_call
from callgate._secret_redaction import Redactor
from callgate.calls import Approval, CurrentToolCall, Outcome, RawCall, Scope, ToolResult
from callgate.emission import Emission, EndedCall
from callgate.errors import RecordFailed, RunHeld, UsageError
from callgate.hooks import Hook
from callgate.protocols import (
    BlobStore,
    CacheStore,
    CallJudge,
    Follower,
    Journal,
    Policy,
    RestartHandler,
    Runner,
    ServerStatus,
    ToolServer,
    WriteLog,
)
from callgate.recorded_calls import latest_tool_call
from callgate.tools import Tool
from callgate.tools.registry import Layer, instance_of

if TYPE_CHECKING:
    from callgate._runners.process import ProcessLimits
    from callgate.mcp import McpServer, ServerContent
    from callgate.plugins import Plugin
    from callgate.provider_responses import ToolDefinitions
    from callgate.response_calls import ResponseReply
    from callgate.response_streams import WatchedStream

__all__ = ["Engine"]

Chunk = TypeVar("Chunk")

log = logging.getLogger("callgate")
_NOWHERE = Scope()
_DEFAULTS = Limits()
_TOGETHER = 256
"""The number of calls of a message to add before other tasks of the event loop may run."""


class Engine:
    """Runs tool calls. Each call is checked, can be stopped, takes effect at most once, and is recorded.

    Use it as `async with Engine(tools) as engine`. An engine belongs to one event loop; a process may have many
    engines.

    Args:
        tools: The tools to register as built-in. For a class, an instance is created. A server may be among them.
        servers: Sources of tools outside of this process, such as `mcp("uvx mcp-server-git")` and
            `plugin("./invoices")`. They are started by `async with`, or else by the first call, and their tools are registered then.
        policies: Asked in order about every call. If there are none, every valid call may run. Rules that name a tool,
            an argument or a value that does not exist are refused.
        hooks: The user's code that runs before and after calls.
        journal: Stores all events. None: a journal in memory.
        blobs: Stores large results. None: they are stored with the journal, which means on its server or in the folder
            `<journal>.blobs`; for a journal in memory, in memory up to 256 MiB, and the oldest are dropped first.
        persistent_cache: Stores results of tools with the cache scope `persistent`. None: the file `<journal>.cache`
            beside a journal in a file. With any other journal, such results are kept until the engine is closed, and a
            warning is logged.
        limits: All limits of the engine.
        runners: The host's own runners, by the name that tools use as `runner`.
        process_limits: The limits of the worker processes that run process tools. None: the defaults.
        timeout_s: Seconds for a whole call, including retries and waits. None: `TOOL_EXECUTION_TIMEOUT_MS`, or 300.
        coerce: Whether to convert arguments of a wrong type if this loses nothing (`"5"` to `5`). Each conversion is
            noted.
        repair: Whether to repair complete but malformed JSON arguments. Each repair is noted. Truncated arguments are
            always refused.
        restart: Called with results that enrich the context instead of the history.
        redactor: Removes secrets from everything that is recorded or shown.
        undo: Stores what calls change in their workspace, so that it can be undone (`callgate.undo.UndoStore`). None:
            nothing can be undone.
        memory: Follows the journal and remembers the outcomes of calls (`callgate.memory.Memory`); closed with the
            engine. None: nothing is remembered.
        run: The id of the engine's own run, which is used for scopes without a run.
        extra: A class with annotated fields. The `extra` of every scope is checked against it. None: any `extra` is
            accepted.
    """

    @by_name
    def __init__(
        self,
        tools: Iterable[Tool | type[Tool] | McpServer | Plugin | ToolServer] = (),
        *,
        servers: Iterable[McpServer | Plugin | ToolServer] = (),
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
        plain, tool_servers = servers_of(tools, servers)
        options = HostOptions(
            tools=tuple(instance_of(one) for one in plain),
            servers=tool_servers,
            policies=policies_of(policies),
            hooks=hooks_of(hooks),
            runners=runners_of(runners),
            process_limits=process_limits,
            persistent_cache=persistent_cache,
            coerce=coerce,
            repair=repair,
            restart=restart,
            undo=undo,
            memory=memory,
            run=run,
            host_fields=None if extra is None else HostFields(extra),
        )
        call_timeout_s = timeout_from_environment() if timeout_s is None else timeout_s
        context = EngineContext.of(journal=journal, blobs=blobs, clock=clock, limits=limits, timeout_s=call_timeout_s, redactor=redactor)
        self.clock, self.limits, self.journal, self.blobs = context.clock, limits, context.journal, context.blobs
        self.bus, self.control, self.conversations = context.bus, context.control, context.conversations
        self.restart, self.redactor = restart, redactor
        parts = self._parts = EngineParts.of(context, options)
        self.run, self.tools = parts.run, parts.tools
        self.runs = parts.runs
        """Operations on whole runs, for an agent loop."""
        self._sync_runner = SyncRunner(lambda: parts.lifecycle.loop, parts.lifecycle.check_unclosed)
        self._tool_definitions: ToolDefinitions | None = None

    async def call(self, raw: RawCall, scope: Scope = _NOWHERE, *, signal: AbortSignal | None = None, **unknown: Never) -> Outcome:
        """Run one call through the whole route, and return its outcome.

        Args:
            raw: The call as the model emitted it.
            scope: Where and for whom the call runs.
            signal: Ends the call when it fires. None: the conversation's signal, which `control.kill` fires.
            unknown: Refused, as by every other function of the engine. Without a decorator, because that would cost
                each call.

        Returns:
            `Answered` with the result, `Restarted`, `Aborted` or `Suspended`. Errors of the tool, the model or a hook
                become part of the outcome and are not raised.
        """
        if unknown:
            refuse_unknown("Engine.call", unknown, ("raw", "scope", "signal"))
        parts = self._parts
        if not parts.servers.settled:
            await self.start()
        if scope is not parts.latest_scope.opened:
            if type(raw) is not RawCall:
                check_call(raw)
            if not parts.admission.open_nowait(scope):
                try:
                    await self._acquire_run(scope)
                except (RunHeld, RecordFailed) as error:
                    return parts.route.refuse_unopened(raw, scope, error)
        return await parts.route.call(raw, scope, signal or self.control.signal(scope.conversation))

    async def _open(self, scope: Scope) -> None:
        """Start the servers, check the scope's `extra`, and acquire its run, as far as that is not done."""
        parts = self._parts
        if not parts.servers.settled:
            await self.start()
        if scope is not parts.latest_scope.opened:
            parts.admission.check_extra(scope)
            await self._acquire_run(scope)

    async def _acquire_run(self, scope: Scope) -> None:
        """Acquire the lease of a scope's run and load its state, within the timeout of a call."""
        waiting = asyncio.timeout(self._parts.context.timeout_s)
        try:
            async with waiting:
                await self._parts.admission.open(scope)
        except TimeoutError as error:
            if waiting.expired():
                raise too_late() from error
            raise

    @by_name
    def call_sync(self, raw: RawCall, scope: Scope = _NOWHERE) -> Outcome:
        """Run one call as `call` does, from synchronous code.

        The call runs on an event loop in a thread that belongs to the engine; use `close_sync` to close it. If the
        engine belongs to an event loop already, the call runs there, and this must be another thread. In a tool,
        `ToolContext.call_sync` is better: it makes the call part of the tool's call, with its deadline.

        Raises:
            UsageError: The calling thread has a running event loop, or the engine's event loop is blocked or has ended.
        """
        return self._sync_runner.run(lambda: self.call(raw, scope))

    # Many calls of one message

    def emission(
        self,
        scope: Scope = _NOWHERE,
        *,
        signal: AbortSignal | None = None,
        early: bool = True,
        on_result: Callable[[ToolResult], None] | None = None,
        **unknown: Never,
    ) -> Emission:
        """Return an `Emission`, to which the calls of one message are added.

        `unknown` is refused, see `call`.
        """
        if unknown:
            refuse_unknown("Engine.emission", unknown, ("scope", "signal", "early", "on_result"))
        parts = self._parts
        parts.admission.check(scope)
        kill = signal or self.control.signal(scope.conversation)
        run = parts.admission.run_of_message(scope, self._acquire_run) if self.journal.shared else None
        emission = Emission(parts.route, scope, kill, parts.queue_starter, run, early=early, on_result=on_result)
        parts.lifecycle.messages.add(emission)
        return emission

    @by_name
    async def call_many(self, raws: Iterable[RawCall], scope: Scope = _NOWHERE, *, signal: AbortSignal | None = None) -> list[Outcome]:
        """Run all calls of one message through the route, concurrently if they do not conflict.

        Return the outcomes in the order of the calls.
        """
        return [end.outcome for end in await self._run_message(raws, scope, signal) if end.outcome is not None]

    async def _run_message(self, raws: Iterable[RawCall], scope: Scope, signal: AbortSignal | None) -> list[EndedCall]:
        try:
            await self._open(scope)
        except (RunHeld, RecordFailed) as error:
            refuse = self._parts.route.refuse_unopened
            return [EndedCall(outcome=refuse(raw, scope, error, log=not number)) for number, raw in enumerate(raws)]
        emission = self.emission(scope, signal=signal, early=False)
        try:
            for number, raw in enumerate(raws, 1):
                emission.add(raw)
                if number % _TOGETHER == 0:
                    await asyncio.sleep(0)
        except BaseException as error:
            await emission.discard(f"the message was not taken in: {type(error).__name__}")
            raise
        return await emission.seal_with_ends()

    # Responses of a provider

    @by_name
    def schemas(self, provider: str, names: Iterable[str] | None = None, *, scope: Scope = _NOWHERE) -> list[Any]:
        """Return the tools as the `tools` of a provider's request; for Bedrock, as those of its `toolConfig`.

        Args:
            provider: `openai`, `openai-responses`, `anthropic`, `gemini`, `bedrock`, `mistral`, `cohere`, `ollama`, any other
                provider of `callgate.models.providers`, or an API such as `openai.chat`.
            names: The tools to return, by name or alias. None: all.
            scope: In deliberate mode, only its allowed tools are returned.

        Raises:
            UsageError: The provider is unknown, `names` is no iterable of names, no tool has one of them, `scope` is none, or the
                engine has servers that are not started.
        """
        check_scope(scope)
        if not self._parts.servers.settled:
            self._start_servers_now()
        allowed = scope.allowed_tools if scope.deliberate else None
        return self._definitions().definitions(provider, names, allowed)

    @by_name
    async def respond(
        self, response: object, scope: Scope = _NOWHERE, *, provider: str | None = None, signal: AbortSignal | None = None
    ) -> ResponseReply:
        """Run the calls of a provider's response as `call_many` does. Return what to append to the conversation.

        A response that is handed in again, for example after `approve`, is recognised by its own id: calls that had an
        effect return their stored results.

        Args:
            response: The whole response: the SDK's object, or a dict of it. Or a list of all chunks of its stream; for
                boto3, its dict with such a list as the `stream`.
            scope: Where and for whom the calls run. Without a `message_id`, the response's own id is used.
            provider: The provider or API, as for `schemas`. None: it is recognised by the response's fields.

        Raises:
            UsageError: It is not a whole response, its format is not known, its message is spoilt, or it has several
                choices.
        """
        from callgate.provider_responses import are_chunks, read_chunks, read_response
        from callgate.response_calls import failed_reply, reply_to, scope_of

        self._parts.admission.check(scope)
        if not self._parts.servers.settled:
            await self.start()
        read = (read_chunks if are_chunks(response) else read_response)(
            response,
            provider,
            tools=self._definitions(),
            message_id=scope.message_id,
            calls_per_message=self.limits.calls_per_message,
            reader="engine.respond",
        )
        failed = failed_reply(read)
        if failed is not None:
            return failed
        return reply_to(read, await self._run_message(read.calls, scope_of(scope, read.message_id), signal) if read.calls else [])

    @by_name
    def respond_sync(self, response: object, scope: Scope = _NOWHERE, *, provider: str | None = None) -> ResponseReply:
        """Do the same as `respond`, from synchronous code; see `call_sync`."""
        return self._sync_runner.run(lambda: self.respond(response, scope, provider=provider))

    @by_name
    def watch(
        self,
        stream: AsyncIterable[Chunk] | Iterable[Chunk],
        scope: Scope = _NOWHERE,
        *,
        provider: str | None = None,
        signal: AbortSignal | None = None,
    ) -> WatchedStream[Chunk]:
        """Return the chunks of an SDK's stream, unchanged, and start calls without effect while they arrive.

        Iterate over what is returned instead of over the stream, then `await` its `reply()`, which runs the other calls
        and returns what `respond` returns. An error of the stream is raised unchanged. A stream that fails, or is closed
        before its end, discards its message: calls that had started are ended.

        Args:
            stream: The SDK's stream, asynchronous or not, or any iterable of its chunks or of dicts of them. A synchronous
                stream is read in a thread.
            scope: Where and for whom the calls run. Without a `message_id`, the message's own id is used.
            provider: The provider or API, as for `schemas`. None: it is recognised by the first chunks.

        Raises:
            UsageError: It is not a stream.
        """
        from callgate.provider_responses import StreamReader, chunks_of
        from callgate.response_streams import WatchedStream

        chunks, message_id, of_boto3 = chunks_of(stream)
        self._parts.admission.check(scope)
        reader = StreamReader(
            provider,
            tools=self._definitions(),
            message_id=scope.message_id or message_id,
            calls_per_message=self.limits.calls_per_message,
            of_boto3=of_boto3,
        )

        async def open_emission(scope: Scope) -> Emission:
            await self._open(scope)
            return self.emission(scope, signal=signal)

        return WatchedStream(
            chunks, reader, scope, open_emission=open_emission, run=lambda raws, scope: self._run_message(raws, scope, signal)
        )

    def _definitions(self) -> ToolDefinitions:
        if self._tool_definitions is None:
            from callgate.provider_responses import ToolDefinitions

            self._tool_definitions = ToolDefinitions(self.tools)
        return self._tool_definitions

    def _start_servers_now(self) -> None:
        """Start the servers from synchronous code, because their tools are to be listed.

        Raises:
            UsageError: An event loop runs in this thread, which waiting would block.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self._sync_runner.run(self.start)
            return
        raise UsageError(
            "The tools of the engine's servers are not known before these have started. Write 'async with Engine(...) as engine:', or"
            " 'await engine.start()' first."
        )

    @by_name
    def asked(self, raw: RawCall, scope: Scope) -> tuple[str, bytes] | None:
        """Return the name of a call's tool, and its valid arguments as canonical JSON; None if the call is invalid.

        The call is neither recorded nor run.
        """
        return self._parts.preparation.asked(raw, scope)

    @property
    def may_ask(self) -> bool:
        """Whether this engine has a policy, a judge or a tool that may ask a human about a call."""
        return self._parts.preparation.may_ask

    @property
    def changes_results(self) -> bool:
        """Whether this engine has a hook that may change the results of tools."""
        return self._parts.changes_results

    async def asks_human(self, raw: RawCall, scope: Scope = _NOWHERE) -> bool:
        """Return whether a human has to decide about a call, and none has. For frameworks that want to know before they call a tool.

        Policies and judges are asked, hooks are not run. The call is neither recorded nor run: submit it with `call`,
        which asks again and records the question. False for a call that is invalid or denied.

        Raises:
            UsageError: The scope's `extra` is wrong, or the engine is closed or belongs to another event loop. The
                subclass `RunHeld` means that another engine works on the run.
        """
        await self._open(scope)
        return await self._parts.preparation.asks_human(raw, scope)

    # Resources and prompts of servers

    @by_name
    def server(self, name: str) -> ServerContent:
        """Return the resources and prompts of one of the engine's MCP servers. Starts nothing.

        Raises:
            UsageError: The engine has no MCP server with this name.
        """
        from callgate.mcp.server_content import content_of

        return content_of(self._parts.servers.get(name), self.start, self._parts.context.timeout_s)

    def mcp_servers(self) -> list[ServerContent]:
        """Return the resources and prompts of each of the engine's MCP servers, in their order. Starts nothing."""
        return [self.server(server.name) for server in self._parts.servers if server.layer == "mcp"]

    def servers_status(self) -> list[ServerStatus]:
        """Return the state of each of the engine's tool servers, in their order. Starts nothing."""
        return self._parts.servers.statuses()

    @by_name
    async def change_servers(
        self,
        *,
        add: Iterable[McpServer | Plugin | ToolServer] = (),
        remove: Iterable[str] = (),
        wait_s: float = 30.0,
        until_ended: bool = True,
    ) -> None:
        """Start servers and then remove others by name, while the engine runs. A server may be replaced by one of the same name.

        Tools of removed servers can be called until the added servers have started. One that replaces another and cannot run beside it is
        started again when the other has ended; until then, its tools answer with the reason. Other servers that could not be started are
        tried again at once, too; nothing waits for that.

        Args:
            wait_s: Seconds in which the running calls of removed servers may end.
            until_ended: Whether to return when the removed servers have ended. False: when the added ones have started, unless one cannot
                start beside the one that it replaces.

        Raises:
            UsageError: There is no server with such a name, a name is taken, a server with `required=True` cannot be started, or a rule is
                about something that no tool has any longer. Nothing has changed then.
        """
        check("engine.change_servers", "wait_s", wait_s, Pause)
        added, removed = server_change_of(add, remove)
        self._parts.lifecycle.check_open()
        await self._parts.server_changes.change(added, removed, wait_s, until_ended=until_ended)

    # What an operator does

    @by_name
    def register(self, tool: Tool | type[Tool], *, layer: Layer = "builtin") -> None:
        """Add a tool, or an instance of a tool class; see `ToolRegistry.register`.

        Raises:
            UsageError: The tool is incomplete, its name is taken, its runner cannot run it, or a rule about it can
                never match.
        """
        tool = instance_of(tool)
        self._parts.plans.check_runner(tool)
        self.tools.register(tool, layer=layer)

    @by_name
    async def approve(
        self, approval_id: str, *, by: str = "operator", reason: str = "", arguments: Mapping[str, object] | None = None
    ) -> None:
        """Approve a `Suspended` call. Submit the same call again after that: it runs once.

        Returns when the approval is durable, if the journal is. It takes effect before that, and stays in effect if the
        caller is cancelled. Repeating an approval changes nothing; the first `by` stays on record.

        Args:
            by: Who approves. Recorded; the model is told if there are other arguments.
            reason: Why. Recorded; the model is told if there are other arguments.
            arguments: The arguments with which the call runs instead of its own. They are validated now, and validated
                and judged when the call is submitted again; the model is told. None: the call's own.

        Raises:
            UsageError: No such question is open, or the tool does not accept the arguments; then the question stays
                open. The subclass `RunHeld` means that another engine works on the run; use `callgate.inbox` to send
                the approval to that engine.
            RecordFailed: The approval could not be recorded, so it has no effect.
        """
        check_answer("engine.approve", approval_id, by, reason)
        await self._answer(approval_id, Answer(allow=True, by=by, reason=reason, arguments=encode_arguments(arguments)))

    @by_name
    async def deny(self, approval_id: str, *, by: str = "operator", reason: str = "", told: bool = False) -> None:
        """Deny a `Suspended` call, or withdraw an approval that no call has used.

        If the same call is submitted again, it gets an `Answered` with a denial that says who denied it and why, however
        often it is submitted. A new call, with another id or in another message, asks again. Returns and raises as
        `approve` does.

        Args:
            by: Who denies. The model is told.
            reason: Why. The model is told.
            told: Whether you tell the model yourself and do not submit the call again. Then the denial waits for no call, and the
                next identical call asks again.
        """
        check_answer("engine.deny", approval_id, by, reason)
        check("engine.deny", "told", told, bool)
        await self._answer(approval_id, Answer(allow=False, by=by, reason=reason, told=told))

    async def _answer(self, approval_id: str, answer: Answer) -> None:
        self._parts.lifecycle.check_open()
        await self._parts.context.recorder.durable(await self._parts.questions.answer(approval_id, answer))

    @by_name
    def approve_sync(
        self, approval_id: str, *, by: str = "operator", reason: str = "", arguments: Mapping[str, object] | None = None
    ) -> None:
        """Do the same as `approve`, from synchronous code; see `call_sync`."""
        self._sync_runner.run(lambda: self.approve(approval_id, by=by, reason=reason, arguments=arguments))

    @by_name
    def deny_sync(self, approval_id: str, *, by: str = "operator", reason: str = "", told: bool = False) -> None:
        """Do the same as `deny`, from synchronous code; see `call_sync`."""
        self._sync_runner.run(lambda: self.deny(approval_id, by=by, reason=reason, told=told))

    @by_name
    async def answer(self, approval_id: str, *, allow: bool, by: str = "operator") -> None:
        """Approve or deny a `Suspended` call. An older form of `approve` and `deny`, without a reason or arguments."""
        check("engine.answer", "allow", allow, bool)
        await (self.approve if allow else self.deny)(approval_id, by=by)

    @by_name
    def answer_sync(self, approval_id: str, *, allow: bool, by: str = "operator") -> None:
        """Do the same as `answer`, from synchronous code; see `call_sync`."""
        check("engine.answer_sync", "allow", allow, bool)
        (self.approve_sync if allow else self.deny_sync)(approval_id, by=by)

    @by_name
    def approval(self, approval_id: str) -> Approval | None:
        """Return the question with this id and its answer; None if it was never asked, is used up, or has expired.

        Its `allowed` is None while nobody has answered. To wait for the answer, use `wait_for_answer`. If other engines
        may write to the journal, a question without an answer here is looked up in the journal; if that is on a server,
        this blocks: call it in a thread, with `await asyncio.to_thread(...)`.
        """
        return self._parts.questions.find(approval_id)

    @by_name
    async def wait_for_answer(self, approval_id: str, *, timeout_s: float | None = None) -> Approval | None:
        """Wait until a human has answered a question, with `approve` or `deny` or from another process.

        Submit the same call again after that, whatever the answer is. Any engine of the journal may work on the run
        meanwhile: this engine acquires the lease of the run if no other one holds it, and offers it while it waits.

        Args:
            approval_id: The `approval_id` of a `Suspended` outcome, of this engine or of an earlier one.
            timeout_s: Seconds to wait. None: until the question expires.

        Returns:
            The question with its answer; None if nobody answered it in time.

        Raises:
            UsageError: No such question is open, or the engine is closed.
        """
        check("engine.wait_for_answer", "timeout_s", timeout_s, Pause | None)
        check_answer("engine.wait_for_answer", approval_id, "", "")
        self._parts.lifecycle.check_open()
        return await self._parts.questions.wait(approval_id, timeout_s)

    @by_name
    def wait_for_answer_sync(self, approval_id: str, *, timeout_s: float | None = None) -> Approval | None:
        """Do the same as `wait_for_answer`, from synchronous code; see `call_sync`."""
        return self._sync_runner.run(lambda: self.wait_for_answer(approval_id, timeout_s=timeout_s))

    @by_name
    async def wait_for_run(self, scope: Scope, *, timeout_s: float | None = None) -> bool:
        """Wait until no other engine works on the scope's run, and acquire it. For a loop whose reply has `ended == "held"`.

        Args:
            scope: The scope of the calls.
            timeout_s: Seconds to wait. None: as long as it takes.

        Returns:
            Whether this engine can work on the run now. Another one may take it again after a moment without calls.

        Raises:
            UsageError: The engine is closed, or belongs to another event loop.
        """
        check("engine.wait_for_run", "timeout_s", timeout_s, Pause | None)
        self._parts.lifecycle.check_open()
        waiting = asyncio.timeout(timeout_s)
        try:
            async with waiting:
                while True:
                    with suppress(RunHeld):
                        await self._parts.runs.open(scope)
                        return True
        except TimeoutError:
            if not waiting.expired():
                raise
            return False

    @by_name
    def wait_for_run_sync(self, scope: Scope, *, timeout_s: float | None = None) -> bool:
        """Do the same as `wait_for_run`, from synchronous code; see `call_sync`."""
        return self._sync_runner.run(lambda: self.wait_for_run(scope, timeout_s=timeout_s))

    @by_name
    async def settle(self, uid: str, *, happened: bool, by: str = "operator", reason: str = "") -> None:
        """Record whether a call took effect that ended `unknown`, or whose process ended while it ran.

        If it did not happen, the same call may be submitted again in its run. If it happened, the next identical call
        is told so and does not run. `happened=False` also frees the key of the effect (`@tool(key=...)`) of a call whose
        tool returned a failure, or, with a reason, a success: the result no longer answers later calls with the key. Returns when
        this is durable, if the journal is. It takes effect before that, and stays in effect if the caller is cancelled.

        Args:
            uid: The uid of the call, or of a call that was refused because of it or got its result.

        Raises:
            UsageError: The outcome of the call is not unknown, and it has no such result; or `happened=False` has no reason
                although the tool has returned, or its code may still run. The subclass `RunHeld` means that another
                engine works on the run; use `callgate.inbox` to send this to that engine.
            RecordFailed: This could not be recorded, so it has no effect.
        """
        check("engine.settle", "happened", happened, bool)
        check_operator("engine.settle", by, reason)
        self._parts.lifecycle.check_open()
        parts, recorder = self._parts, self._parts.context.recorder
        position = await settle_call(uid, Settlement(happened=happened, by=by, reason=reason), parts.open_runs, parts.run_states, recorder)
        await recorder.durable(position)

    @by_name
    def settle_sync(self, uid: str, *, happened: bool, by: str = "operator", reason: str = "") -> None:
        """Do the same as `settle`, from synchronous code; see `call_sync`."""
        self._sync_runner.run(lambda: self.settle(uid, happened=happened, by=by, reason=reason))

    @by_name
    def current_tool_call(self, conversation: str) -> CurrentToolCall | None:
        """Return the conversation's latest successful call, with its parameters and its reason; None if there is none.

        The call is read from the journal, so it survives a restart if the journal does. None is also returned if a
        redactor changes the conversation's name. If the journal is on a server, this blocks: call it in a thread, with
        `await asyncio.to_thread(...)`.
        """
        return latest_tool_call(self._parts.context.journal, conversation)

    @property
    def activity_since_wake(self) -> int:
        """The number of calls that have succeeded since `wake` was called or this attribute was set.

        Calls outside of a conversation count, cached results do not.
        """
        return self._parts.activity.total

    @activity_since_wake.setter
    def activity_since_wake(self, count: int) -> None:
        self._parts.activity.total = count

    @by_name
    def activity(self, conversation: str) -> int:
        """Return the number of calls of one conversation that have succeeded since `wake`.

        Cached results do not count. The numbers are kept in memory, for the 10,000 most recently active conversations.
        """
        return self._parts.activity.of(conversation)

    @by_name
    def wake(self, conversation: str | None = None) -> None:
        """Reset the count of successful calls of this conversation, or all counts if no conversation is given."""
        self._parts.activity.wake(conversation)

    # Lifecycle

    async def start(self) -> None:
        """Start the engine's servers, and wait until each has listed its tools or has failed. Idempotent; `async with` does it.

        Raises:
            UsageError: A server with `required=True` cannot be started, or a rule is about something that no tool has.
        """
        self._parts.lifecycle.check_open()
        await self._parts.servers.start()

    @property
    def abandoned(self) -> int:
        """The number of threads, coroutines and tasks that still run although their calls have ended.

        These are threads and coroutines that did not stop when told to, and tasks that tools left running.
        """
        return self._parts.runners.abandoned + self._parts.context.offload.abandoned

    async def close(self) -> None:
        """End running calls in bounded time and release all resources.

        Idempotent. Closing continues if the task that waits for it is cancelled.

        Raises:
            UsageError: The engine belongs to another event loop that still runs.
        """
        self._parts.context.approvals.wake_all()
        await self._parts.lifecycle.close()

    def close_sync(self) -> None:
        """Close an engine from synchronous code, if it was used through `call_sync` or not at all.

        Raises:
            UsageError: The calling thread has a running event loop, or the engine belongs to another event loop that
                still runs.
        """
        self._sync_runner.close(self._parts.lifecycle.shut, self.close)

    def __enter__(self) -> Never:
        """Refuse `with`, because closing waits."""
        raise UsageError(
            "An engine is closed by 'async with Engine(...) as engine:'. In synchronous code, write 'engine = Engine(...)' and call"
            " engine.close_sync() at the end."
        )

    def __exit__(self, *exception: object) -> None:
        """Do nothing: `with` is refused."""

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()
