"""Start runs of an agent: wait for the conversation's turn, load its history, and remember it afterwards.

`Agent` calls this module with a task, and this module calls `run_executor` with a turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager

from msgspec import Struct
from msgspec.structs import replace

from callgate._abort_signals import Control
from callgate._conversation_queue import QueuedTurn
from callgate.agent.agent_config import AgentConfig
from callgate.agent.history import History, HistoryCache
from callgate.agent.nested_turns import stopped_with_outer_turn
from callgate.agent.run_events import AgentEvent
from callgate.agent.run_executor import RunExecutor, result_of_unbegun
from callgate.agent.run_result import RunResult
from callgate.agent.turn_factory import TurnFactory, TurnStart
from callgate.agent.unended_runs import refuse_unended
from callgate.calls import Scope
from callgate.errors import RecordFailed, RunHeld, UsageError
from callgate.loop_decision import Ending
from callgate.messages import Message, UserMessage

__all__ = ["ActiveRuns", "AgentRuns", "TurnRequest"]

_CLOSING_S = 10.0
"""How long `close` waits for runs to end."""


class TurnRequest(Struct, frozen=True, kw_only=True, eq=False):
    """The options of one run."""

    conversation: str = ""
    """Empty: a new conversation, for this run only."""
    history: Iterable[Message] | None = None
    trigger: str | None = None
    scene: bool = False
    reflect: bool = False
    on_event: Callable[[AgentEvent], None] | None = None
    deliberate: bool | None = None
    """Deliberate mode on or off; None: as configured for the agent."""
    expose: tuple[str, ...] = ()
    first: bool = False
    """Whether the turn is put before the turns that already wait."""


class ActiveRuns:
    """The runs of one agent that are running or wait for their turn, until the agent is closed."""

    def __init__(self) -> None:
        self._runs: dict[object, tuple[asyncio.Task[object], str]] = {}
        """For each run, the task that awaits it, and its conversation."""
        self._closed = False

    @contextmanager
    def track(self, conversation: str) -> Iterator[None]:
        """Track a run for as long as the block lasts, so that `end` ends it.

        Raises:
            UsageError: The agent is closed.
        """
        self.check_open()
        task, run = asyncio.current_task(), object()
        assert task is not None
        self._runs[run] = (task, conversation)
        try:
            yield
        finally:
            del self._runs[run]

    def check_open(self) -> None:
        """Raise `UsageError` if the agent is closed."""
        if self._closed:
            raise UsageError("This agent is closed. Make a new one.")

    def close(self) -> None:
        """Prevent further runs from starting."""
        self._closed = True

    async def end(self, control: Control) -> None:
        """Kill the runs, and wait at most `_CLOSING_S` seconds until they have ended.

        A run that has not ended by then starts no further work.
        """
        waiting = {task for task, _ in self._runs.values()} - {asyncio.current_task()}
        for conversation in {conversation for _, conversation in self._runs.values()}:
            control.kill(conversation, "the agent was closed")
        if waiting:
            await asyncio.wait(waiting, timeout=_CLOSING_S)


class AgentRuns:
    """Starts the runs of one agent.

    Args:
        config: The agent's configuration.
        turns: Plans the tools that a turn offers.
        executor: Executes the run.
        active: Tracks the runs until they end.
        histories: The conversations that the agent remembers.
    """

    def __init__(self, config: AgentConfig, turns: TurnFactory, executor: RunExecutor, active: ActiveRuns, histories: HistoryCache) -> None:
        self._model = config.model
        self._engine = config.engine
        self._turns = turns
        self._executor = executor
        self._active = active
        self._histories = histories

    async def run(self, task: str | UserMessage, request: TurnRequest, scope: Scope) -> RunResult:
        """Run `task` as a new run when its conversation's turn has come."""
        engine, given = self._engine, bool(scope.run)
        run = scope.run or f"run-{engine.clock.new_id()}"
        scope = replace(scope, run=run, conversation=request.conversation or run, provider=self._model.provider)
        engine.runs.check_extra(scope)
        message = UserMessage(task) if isinstance(task, str) else task
        if not isinstance(message, UserMessage):
            raise UsageError(f"The task is a {type(task).__name__}. Give text, or a UserMessage.")
        with engine.runs.at_work(run, scope.conversation):
            async with self.turn(scope.conversation, request) as place:
                if not place.drained:
                    try:
                        await engine.runs.open(scope, new=not given)
                    except RunHeld:
                        raise
                    except (RecordFailed, UsageError) as error:  # the engine may have been closed while the turn waited
                        return result_of_unbegun(tuple(request.history or ()), scope, Ending("error", str(error)))
                    if given and not engine.runs.works_in_others(run, scope.conversation):
                        await refuse_unended(engine, run)
                return await self._run_in_conversation(message, request, scope, place)

    @asynccontextmanager
    async def turn(self, conversation: str, request: TurnRequest | None = None) -> AsyncIterator[QueuedTurn]:
        """Wait for the conversation's turn and hold it until the block ends.

        Stops that were requested before the turn are discarded.
        """
        request, control = request or TurnRequest(), self._engine.control
        waits = self._engine.conversations.turn(conversation, trigger=request.trigger, scene=request.scene, first=request.first)
        with self._active.track(conversation):
            async with waits as place:
                if not (place.queued or place.drained):
                    control.end_turn(conversation)
                try:
                    with stopped_with_outer_turn(control, conversation):
                        yield place
                finally:
                    if not place.drained:
                        control.end_turn(conversation)

    async def _run_in_conversation(self, message: UserMessage, request: TurnRequest, scope: Scope, place: QueuedTurn) -> RunResult:
        named = bool(request.conversation)
        reflects = request.reflect and named  # a conversation without a name is not kept anyway
        leaves_trace = named and not reflects
        history = self._history(request)
        exposure = None
        if not place.drained:
            scope = _next_turn(history, scope)
            if leaves_trace:
                self._histories.keep(request.conversation, history)
            exposure = self._turns.plan_exposure(message, history, scope, request.deliberate, request.expose, leaves_trace=leaves_trace)
        return await self._executor.run(
            TurnStart(
                place=place,
                history=history.fork() if reflects else history,
                scope=scope,
                on_event=request.on_event,
                exposure=exposure,
                task=message,
                phase="reflect" if reflects else "deliberate",
            )
        )

    def _history(self, request: TurnRequest) -> History:
        """Return the conversation before the run: the one given by the host, or the remembered one."""
        if request.history is not None:
            return History(request.history)
        return self._histories.get(request.conversation) or History()


def _next_turn(history: History, scope: Scope) -> Scope:
    """Return the scope with the turn's number: the given one, or one more than the conversation's latest."""
    history.turns = scope.turn or history.turns + 1
    return replace(scope, turn=history.turns)
