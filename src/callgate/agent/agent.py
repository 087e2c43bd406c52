"""`Agent`: runs a model with an engine.

The public interface of an agent. Its parts are made here, once: `AgentRuns` starts a run when it is the conversation's turn, `RunExecutor`
executes it, `RunResumer` resumes it, and `TurnFactory` makes the parts of its turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from callgate._conversation_queue import TurnQueues
from callgate._limits_from_environment import silence_from_environment
from callgate._option_checks import by_name, by_name_with, check
from callgate._pipeline.sync_runner import SyncRunner
from callgate._runners.await_host_code import HostAwaits
from callgate.agent.agent_config import (
    AgentConfig,
    compaction_of,
    deliberation_of,
    engine_of,
    exits_of,
    instructions_of,
    model_of,
    output_of,
    request_of,
    with_text_calls,
)
from callgate.agent.agent_options import (
    AgentRunOptions,
    AgentStreamOptions,
    EngineOptions,
    TextCallMode,
    check_agent_options,
    check_run_options,
)
from callgate.agent.event_queue import EventQueue
from callgate.agent.history import HistoryCache
from callgate.agent.loop_settings import PRESETS, ModelSettings, PresetName, Settings
from callgate.agent.repetition import StuckLimits
from callgate.agent.run_events import AgentEvent
from callgate.agent.run_executor import RunExecutor
from callgate.agent.run_result import RunResult
from callgate.agent.run_resumer import RunResumer
from callgate.agent.run_starter import ActiveRuns, AgentRuns, TurnRequest
from callgate.agent.turn_factory import TurnFactory
from callgate.calls import Scope
from callgate.engine import Engine
from callgate.errors import UsageError
from callgate.messages import Message, UserMessage
from callgate.models.model_protocol import Model
from callgate.models.wire.request import ToolSpec
from callgate.stream import StreamLimits

if TYPE_CHECKING:  # loaded when first used: most agents need none of these
    from callgate.agent.compaction import Compaction
    from callgate.agent.deliberate_mode import Deliberate
    from callgate.agent.run_summary import Episode

__all__ = ["Agent"]

_NOWHERE = Scope()


class Agent:
    """Lets a model use tools until its task is done.

    Args:
        model: A `Model`, or `"provider:model"`.
        engine: Runs the calls. None: the agent makes an engine from `engine_options` and closes it in `close`. Agents
            that share an engine share its conversations: only one turn of a conversation runs at a time, whichever
            agent runs it, and `stop` and `kill` of any of these agents reach it. Each agent remembers the messages of
            its conversations separately.
        instructions: The system prompt, or a function that returns it. The function is called before each request to
            the model, with the number of iterations that are left (None: no limit).
        output: The type of the answer; None: text.
        exit_tools: Tools that are offered to the model but never run: their calls become signals. `ToolSpec`s, or tool
            dictionaries in OpenAI's format.
        preset: The settings to use if `settings` is not given.
        settings: All limits and rules of the loop.
        model_settings: The parameters of every request to the model: `max_tokens`, `temperature`, and further fields of
            its body.
        stream_limits: How long the model may send nothing; None: from `STREAM_SDK_CALL_TIMEOUT_MS`, or 120 s.
        stuck: The numbers of identical calls after which the model gets a hint, further calls are refused, and the turn
            ends. None: repeated calls are not detected.
        deliberate: Offer only the tools that each message asks for; None: always offer all tools.
        compact: Make long histories shorter; None: never.
        text_calls: When calls are read from the model's text. `auto`: only if the model has no native calls; the prompt
            then teaches it to write calls as text. `fallback`: also for a model with native calls, in messages that
            contain no native call. `never`.
        dialect: The format in which the model's family writes calls as text; None: detected from the text.
        system_text: Whether the loop adds its own system text before the instructions: time, rounds left, rules for
            tools. None: it is added if `Settings.system_text` is set, with the preset `worker`, and if calls are read
            from text.
        engine_options: The options of the new engine, such as `tools`, `policies`, `hooks`, `journal`, `limits`; the
            same as for `Engine`.

    Raises:
        UsageError: An option does not exist or has an invalid value, or options of an engine are given together with an
            engine.
    """

    @by_name_with(EngineOptions)
    def __init__(
        self,
        model: Model | str,
        engine: Engine | None = None,
        *,
        instructions: str | Callable[[int | None], str] = "",
        output: Any = None,
        exit_tools: Iterable[ToolSpec | Mapping[str, object]] = (),
        preset: PresetName = "agent",
        settings: Settings | None = None,
        model_settings: ModelSettings | None = None,
        stream_limits: StreamLimits | None = None,
        stuck: StuckLimits | None = StuckLimits(),  # noqa: B008
        deliberate: Deliberate | None = None,
        compact: Compaction | None = None,
        text_calls: TextCallMode = "auto",
        dialect: str | None = None,
        system_text: bool | None = None,
        **engine_options: Unpack[EngineOptions],
    ) -> None:
        check_agent_options(engine=engine, preset=preset, settings=settings, model_settings=model_settings)
        check_agent_options(stream_limits=stream_limits, stuck=stuck, text_calls=text_calls, system_text=system_text)
        given, settings = model_of(model), settings or PRESETS[preset]
        self.model = with_text_calls(given, text_calls, dialect)
        self.settings = settings
        self.engine = engine_of(engine, settings, engine_options)
        self._own_engine = engine is None
        kind = output_of(output)
        config = AgentConfig(
            model=self.model,
            engine=self.engine,
            settings=settings,
            instructions=instructions_of(instructions),
            system_text=(settings.system_text or preset == "worker" or self.model is not given) if system_text is None else system_text,
            exits=exits_of(exit_tools, self.engine),
            stream_limits=stream_limits or StreamLimits(idle_s=silence_from_environment()),
            stuck=stuck,
            output=kind,
            deliberation=deliberation_of(deliberate, self.engine),
            compaction=compaction_of(compact),
            request=request_of(self.model, kind, model_settings),
            host_awaits=HostAwaits(),
        )
        turns, histories = TurnFactory(config), HistoryCache()
        executor = RunExecutor(config, turns)
        self._host_awaits = config.host_awaits
        self._active = ActiveRuns()
        self._runs = AgentRuns(config, turns, executor, self._active, histories)
        self._resumer = RunResumer(config, turns, self._runs, executor, histories)
        self._sync = SyncRunner(lambda: self.engine.runs.loop, self._active.check_open)

    @property
    def conversations(self) -> TurnQueues:
        """The engine's conversations. Only one turn of a conversation runs at a time, whichever agent runs it."""
        return self.engine.conversations

    # Runs

    @by_name
    async def run(
        self,
        task: str | UserMessage,
        *,
        conversation: str = "",
        history: Iterable[Message] | None = None,
        scope: Scope = _NOWHERE,
        trigger: str | None = None,
        scene: bool = False,
        reflect: bool = False,
        deliberate: bool | None = None,
        expose: Iterable[str] = (),
        on_event: Callable[[AgentEvent], None] | None = None,
    ) -> RunResult:
        """Work on `task` until it is done, waits for a human, is stopped or fails.

        Args:
            task: The user's message.
            conversation: The conversation to continue. Only one of its turns runs at a time; further turns wait. Empty:
                a new conversation, for this run only.
            history: The earlier messages of the conversation. None: the messages that this agent remembers; it
                remembers the 1,000 conversations that were used last.
            scope: Principal, actor, workspace and the like. The agent sets the run and the turn if they are not given,
                and the iteration of each message. The scope's conversation does not count, so that a tool can pass on its
                own scope without joining the conversation that it runs in: give `conversation`.
            trigger: The host's id of the message that starts the turn. If the turn had to wait in the conversation's
                queue, it replies to this message: the id is `reply_to` of the streaming context, which the model and
                the tools see.
            scene: Whether the turn is one of several turns with the same trigger (a scene), such as a dialogue of
                personas. Such a turn replies to no message. Turns of one conversation that wait or run at the same time
                with the same trigger are treated as a scene even without this option.
            reflect: Run without changing the conversation: the model sees it and may use tools, but nothing is added to
                it.
            deliberate: Deliberate mode on or off for this run; None: as configured for the agent.
            expose: Tools that deliberate mode offers in this run, whatever the message says.
            on_event: A plain function that is called with each event immediately. If it raises, the run goes on: the first
                error is logged, and all are counted in `engine.bus.failures`.

        Raises:
            UsageError: A tool started a turn of the conversation that it runs in (`waits_for_itself`), too many turns
                wait, or the task or the history is invalid.
            UsageError: A call of the run that the scope names waits for a human, or the process of the run ended before its
                calls were done (`run_not_ended`): resume the run first.
            RunHeld: Another engine works on the run that the scope names. A kind of `UsageError`.
        """
        check_run_options("Agent.run", conversation=conversation, scope=scope, trigger=trigger, on_event=on_event)
        check_run_options("Agent.run", history=history, expose=expose, scene=scene, reflect=reflect, deliberate=deliberate)
        request = TurnRequest(
            conversation=conversation,
            history=history,
            trigger=trigger,
            scene=scene,
            reflect=reflect,
            on_event=on_event,
            deliberate=deliberate,
            expose=tuple(expose),
        )
        return await self._runs.run(task, request, scope)

    @by_name
    async def follow_up(
        self, task: str | UserMessage, *, conversation: str, scope: Scope = _NOWHERE, trigger: str | None = None
    ) -> RunResult:
        """Run a message that arrives while a turn is running.

        The model's current answer is interrupted for it; running tool calls are not.

        Raises:
            UsageError: A tool of the running turn called this method, which would wait for that same turn.
        """
        check_run_options("Agent.follow_up", conversation=conversation, scope=scope, trigger=trigger)
        self.conversations.refuse_inside(conversation)
        if self.conversations.may_interrupt(conversation):
            self.engine.control.follow_up(conversation)
        return await self._runs.run(task, TurnRequest(conversation=conversation, trigger=trigger, first=True), scope)

    @by_name
    async def resume(
        self, run: RunResult | str, *, extra: object = None, on_event: Callable[[AgentEvent], None] | None = None
    ) -> RunResult:
        """Resume a run that waits for a human, was interrupted with its process, or ended before its task was done.

        A run that waits: answer with `engine.approve` or `engine.deny` first. Calls without an answer wait again.

        A run whose process ended is resumed from its record:

        - Recorded results are kept.
        - Calls that never started are run, after the rules have been applied again.
        - Reads and idempotent calls are run again.
        - A started call with the effect `once` ends `unknown`, unless its tool's `verify` knows its outcome.

        A run that failed, was stopped or used up its budget is resumed by its id. The model is called again with the
        conversation as it is; the resources that the run has used still count.

        Args:
            run: The result that a run returned in this process, or the id of a run in the engine's journal. If the run
                was resumed after that result, it continues from its current state.
            extra: The host's own context. It replaces the run's earlier context, which is not recorded.
            on_event: Called with each event immediately.

        Raises:
            UsageError: The run is not on record, is completed, or is already being worked on; or a call that a human
                allowed, or can still allow, has no tool here.
        """
        check("Agent.resume", "run", run, str | RunResult)
        check_run_options("Agent.resume", on_event=on_event)
        if isinstance(run, str):
            return await self._resumer.resume_recorded(run, extra, on_event)
        return await self._resumer.resume_waiting(run, extra, on_event)

    def run_sync(self, task: str | UserMessage, **options: Unpack[AgentRunOptions]) -> RunResult:
        """Call `run` from synchronous code, on an event loop in a thread of the agent's own. Call `close_sync` at the end.

        Raises:
            UsageError: The current thread has a running event loop.
        """
        return self._sync.run(lambda: self.run(task, **options))

    async def stream(self, task: str | UserMessage, **options: Unpack[AgentStreamOptions]) -> AsyncIterator[AgentEvent]:
        """Call `run` and yield its events; the last is `RunEnded`. Leaving the `async for` early kills the run."""
        if "on_event" in options:
            raise UsageError("Agent.stream(on_event=...) is not taken: the events are what it yields. Leave it out, or take Agent.run.")
        events = EventQueue()
        running = asyncio.ensure_future(self.run(task, on_event=events.put, **options))
        running.add_done_callback(lambda _: events.end())
        try:
            async for event in events:
                yield event
            await running
        finally:
            if not running.done():
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)

    def episodes(self, run: str) -> list[Episode]:
        """Return one short line per call of a run, read from the engine's journal, for use as a memory in later steps."""
        from callgate.agent.run_summary import episodes

        return episodes(self.engine.journal.read(run=run))

    # Control

    def stop(self, conversation: str, reason: str = "stopped by the user") -> bool:
        """Stop the running turn soon: the model's current answer ends now; calls that are already running finish first.

        Returns:
            Whether a turn of the conversation, or a call in it, was running. If not, nothing is stopped, now or later.
        """
        under_way = self.engine.runs.under_way(conversation)
        if under_way:
            self.engine.control.stop(conversation, reason)
        return under_way

    def kill(self, conversation: str, reason: str = "killed by the user") -> bool:
        """End the running turn now, including its tools and its connection, and remove every waiting turn.

        Returns:
            Whether a turn of the conversation, or a call in it, was running. If not, nothing is killed, now or later.
        """
        under_way = self.engine.runs.under_way(conversation)
        if under_way:
            self.engine.control.kill(conversation, reason)
        return under_way

    # Closing

    async def close(self) -> None:
        """End all runs of this agent, and close its own parts: the engine if the agent made it, and model streams that did not stop.

        Code that awaits one of these runs gets a result with status `stopped`. No call and no request to the model starts after `close` has
        returned.
        """
        self._active.close()
        await self._active.end(self.engine.control)
        await self._host_awaits.close()
        if self._own_engine:
            await self.engine.close()

    def close_sync(self) -> None:
        """Close an agent that was used through `run_sync`."""
        self._sync.close(self._active.close, self.close)

    async def __aenter__(self) -> Self:
        if self._own_engine:
            await self.engine.__aenter__()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()
