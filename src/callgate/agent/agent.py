"""`Agent`: a model and an engine, and runs of the two.

What an agent is made of, and what one can ask of it. Its parts are made here, once: `AgentRuns` says when a run begins, `RunExecutor` has
it, `RunResumer` resumes it, and `TurnFactory` makes the parts of its turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from callgate._conversation_queue import TurnQueues
from callgate._environment_limits import silence_from_environment
from callgate._options import by_name, by_name_with, check
from callgate._pipeline.lifecycle import SyncRunner
from callgate._runners.host_awaits import HostAwaits
from callgate.agent.agent_config import (
    AgentConfig,
    compaction_of,
    deliberation_of,
    engine_of,
    exits_of,
    instructions_of,
    model_of,
    output_of,
    reading_text,
    request_of,
)
from callgate.agent.event_queue import EventQueue
from callgate.agent.events import AgentEvent
from callgate.agent.history import HistoryCache
from callgate.agent.options import AgentRunOptions, AgentStreamOptions, EngineOptions, TextCallMode, check_asked, check_made
from callgate.agent.repetition import StuckLimits
from callgate.agent.results import RunResult
from callgate.agent.run_executor import RunExecutor
from callgate.agent.run_resumer import RunResumer
from callgate.agent.runs import ActiveRuns, AgentRuns, TurnRequest
from callgate.agent.settings import PRESETS, ModelSettings, PresetName, Settings
from callgate.agent.turn_factory import TurnFactory
from callgate.calls import Scope
from callgate.engine import Engine
from callgate.errors import UsageError
from callgate.messages import Message, UserMessage
from callgate.models.model import Model
from callgate.models.wire.request import ToolSpec
from callgate.stream import StreamLimits

if TYPE_CHECKING:  # loaded when first used: most agents need none of these
    from callgate.agent.compaction import Compaction
    from callgate.agent.deliberate import Deliberate
    from callgate.agent.run_summary import Episode

__all__ = ["Agent"]

_NOWHERE = Scope()


class Agent:
    """Lets a model use tools until its task is done.

    Args:
        model: A `Model`, or `"provider:model"`.
        engine: Runs the calls; None: one is made of `engine_options`, and closed with the agent. Agents that share an engine share its
            conversations: one turn of each at a time, whoever runs it, and stop and kill reach it through any of them. What was said in
            a conversation each agent remembers for itself.
        instructions: The system prompt, or a function that returns it, given the iterations that are left (None: no limit) before each
            pass.
        output: The type of the answer; None: text.
        exit_tools: Offered to the model; their calls become signals, and never run. `ToolSpec`s, or tool dictionaries as OpenAI has them.
        preset: Where `settings` is not given.
        settings: Every bound and rule of the loop.
        model_settings: What every request to the model has: `max_tokens`, `temperature`, and more of its body.
        stream_limits: On the model's silence; None: from `STREAM_SDK_CALL_TIMEOUT_MS`, or 120 s.
        stuck: When a model that repeats itself is told, refused and stopped; None: never.
        deliberate: Offer only the tools that each message asks for; None: all of them, always.
        compact: Make long histories shorter; None: never.
        text_calls: When calls are read from the model's text. `auto`: only where the model has no calls of its own, which then is
            taught to write them; `fallback`: also where a message of a model with calls has none; `never`.
        dialect: How the model's family writes calls as text; None: found out.
        system_text: Whether the loop writes a system text of its own before the instructions: time, rounds left, rules of tools. None: as
            `Settings.system_text` says, which the preset `worker` has, and where calls are text.
        engine_options: What the new engine is made of, such as `tools`, `policies`, `hooks`, `journal`, `limits`; as for `Engine`.

    Raises:
        UsageError: An option does not exist or has a value that cannot be, or options of an engine are given together with an engine.
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
        check_made(engine=engine, preset=preset, settings=settings, model_settings=model_settings, stream_limits=stream_limits, stuck=stuck)
        check_made(text_calls=text_calls, system_text=system_text)
        given, settings = model_of(model), settings or PRESETS[preset]
        self.model = reading_text(given, text_calls, dialect)
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
            guards=HostAwaits(),
        )
        turns, histories = TurnFactory(config), HistoryCache()
        executor = RunExecutor(config, turns)
        self._guards = config.guards
        self._active = ActiveRuns()
        self._runs = AgentRuns(config, turns, executor, self._active, histories)
        self._resumer = RunResumer(config, turns, self._runs, executor, histories)
        self._sync = SyncRunner()

    @property
    def conversations(self) -> TurnQueues:
        """The engine's conversations: one turn of each runs at a time, whichever agent runs it."""
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
            task: What the user says.
            conversation: Which conversation goes on; one turn of it at a time, others wait. Empty: one of its own.
            history: The conversation so far; None: as this agent remembers it, which it does for the 1,000 conversations used last.
            scope: Principal, actor, workspace and the like; run, conversation, turn and iteration are filled in.
            trigger: The host's id of the message that asks. A turn that waited in the conversation's queue replies to it: it is `reply_to`
                of the streaming context then, which the model and the tools see.
            scene: The turn is one of several that share their trigger, such as a dialogue of personas: it replies to no message. Turns of
                one conversation that wait or run at once with one trigger are a scene also without this.
            reflect: Leave no trace in the conversation: the model thinks about it, with tools if it likes.
            deliberate: Deliberate mode on or off for this run; None: as the agent was made.
            expose: Tools that deliberate mode offers in this run whatever the message says.
            on_event: A plain function, told everything at once. What it raises fails the run; at `CallStarted` and `Progress`, which the
                engine tells, it is counted and breaks nothing, and at `RunEnded` it is logged.

        Raises:
            UsageError: A tool asked for a turn of the conversation that it runs in (`waits_for_itself`), too many turns wait, or the task
                or the history is none; or, as `RunHeld`, another engine works on the run that the scope names.
        """
        check_asked("Agent.run", conversation=conversation, scope=scope, trigger=trigger, on_event=on_event)
        check_asked("Agent.run", history=history, expose=expose, scene=scene, reflect=reflect, deliberate=deliberate)
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
        """Run a message that came in while a turn runs: a pass of the model is interrupted for it, running tool calls are not.

        Raises:
            UsageError: It was called by a tool of the turn that it would wait for.
        """
        check_asked("Agent.follow_up", conversation=conversation, scope=scope, trigger=trigger)
        self.conversations.refuse_inside(conversation)
        if self.conversations.may_interrupt(conversation):
            self.engine.control.follow_up(conversation)
        return await self._runs.run(task, TurnRequest(conversation=conversation, trigger=trigger, first=True), scope)

    @by_name
    async def resume(
        self, run: RunResult | str, *, extra: object = None, on_event: Callable[[AgentEvent], None] | None = None
    ) -> RunResult:
        """Resume a run that waits for a human, that was cut off when its process ended, or that ended before its task was done.

        A run that waits: answer with `engine.answer` first; calls that nobody answered wait again. A run that was cut off: what the
        record has of its calls decides. Results that are there stay; calls that never started run, rules asked again; reads and
        idempotent calls run again; a `once` call that had started ends `unknown`, unless its tool's `verify` knows better. A run that
        failed, was stopped or used up its budget, by its id: the model is asked again where it stands; what it has spent counts.

        Args:
            run: What a run came to here, or the id of a run that the engine's journal has. Where it was resumed since, it goes on from
                where it stands now.
            extra: The host's own context, in place of the one the run had: the record has none.
            on_event: Told everything at once.

        Raises:
            UsageError: The run is not on record, is completed, or somebody works on it already.
        """
        check("Agent.resume", "run", run, str | RunResult)
        check_asked("Agent.resume", on_event=on_event)
        if isinstance(run, str):
            return await self._resumer.resume_recorded(run, extra, on_event)
        return await self._resumer.resume_waiting(run, extra, on_event)

    def run_sync(self, task: str | UserMessage, **options: Unpack[AgentRunOptions]) -> RunResult:
        """Run `run` from synchronous code, on an event loop in a thread of the agent's own. Call `close_sync` at the end.

        Raises:
            UsageError: Inside a running event loop.
        """
        return self._sync.run(self._active.check_open, lambda: self.run(task, **options))

    async def stream(self, task: str | UserMessage, **options: Unpack[AgentStreamOptions]) -> AsyncIterator[AgentEvent]:
        """Run `run` and yield its events; the last is `RunEnded`. Leaving the `async for` early kills the run."""
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
        """Return one short line per call of a run, read from the engine's journal, as a memory for later steps."""
        from callgate.agent.run_summary import episodes

        return episodes(self.engine.journal.read(run=run))

    # Control

    def stop(self, conversation: str, reason: str = "stopped by the user") -> bool:
        """Let the running turn end soon: a pass of the model ends now, a call that runs is the last.

        Returns:
            Whether anything of the conversation was under way. If not, nothing is stopped, now or later: the next turn begins clean.
        """
        under_way = self.engine.runs.under_way(conversation)
        if under_way:
            self.engine.control.stop(conversation, reason)
        return under_way

    def kill(self, conversation: str, reason: str = "killed by the user") -> bool:
        """End the running turn now, its tools and its connection with it, and every turn that waits.

        Returns:
            Whether anything of the conversation was under way, as `stop` does.
        """
        under_way = self.engine.runs.under_way(conversation)
        if under_way:
            self.engine.control.kill(conversation, reason)
        return under_way

    # Life

    async def close(self) -> None:
        """End the runs that are under way, and close what the agent made: its engine, and models left behind.

        Whoever awaits one of these runs gets a result with status `stopped`. No call and no pass starts after this has returned.
        """
        self._active.close()
        await self._active.end(self.engine.control)
        await self._guards.close()
        if self._own_engine:
            await self.engine.close()

    def close_sync(self) -> None:
        """Close an agent that was used through `run_sync`."""
        self._sync.close(self._active.close, self.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()
