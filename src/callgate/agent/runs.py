"""What runs of an agent need behind its door: their place in a conversation, their record, their turn, and how they end.

`Agent` is the door and says what an agent is made of; here is what happens between a task and its `RunResult`. Only here does an exception
of a model become a status.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from callgate._conversations import Conversations, Place
from callgate._json import decode
from callgate._runners.guard import Guards
from callgate._signals import is_own_failure
from callgate.agent.account import Account
from callgate.agent.deadline import in_time
from callgate.agent.events import AgentEvent, CallStarted, RunEnded
from callgate.agent.exits import Exits
from callgate.agent.history import History
from callgate.agent.intake import raw_call
from callgate.agent.record import Began, Phase, RunRecord
from callgate.agent.restart import ContextRestarts, Enrichment
from callgate.agent.results import RunResult
from callgate.agent.settings import Settings
from callgate.agent.stuck import StuckGuard, StuckLimits
from callgate.agent.turn import Turn
from callgate.calls import Scope
from callgate.decide import RUN_STATUS, Ending
from callgate.engine import Engine
from callgate.errors import CallgateError, RecordFailed, UsageError
from callgate.events import Event, Progress
from callgate.messages import Message, ToolCall, UserMessage
from callgate.models.model import Model, StreamingContext
from callgate.models.wire.request import ModelRequest, ToolSpec
from callgate.stream import StreamLimits

if TYPE_CHECKING:  # loaded when first used: most agents need none of these
    from callgate.agent.compaction import Compaction, Compactor
    from callgate.agent.deliberate import Deliberate, Deliberation, Exposure
    from callgate.agent.output import OutputType
    from callgate.agent.resume import GoesOn

__all__ = ["Mode", "Runs"]

log = logging.getLogger("callgate")
_MOST_CONVERSATIONS = 1_000


class Mode(Struct, frozen=True):
    """What a run says of deliberate mode."""

    deliberate: bool | None = None
    expose: tuple[str, ...] = ()


class Runs:
    """The runs of one agent; `Agent` makes what is declared here."""

    model: Model
    engine: Engine
    settings: Settings
    _instructions: str | Callable[[int | None], str]
    _bios: bool
    _exits: dict[str, ToolSpec]
    _limits: StreamLimits
    _stuck: StuckLimits | None
    _output: OutputType | None
    _deliberation: Deliberation | None
    _compaction: Compaction | None
    _request: ModelRequest
    _guards: Guards
    _histories: OrderedDict[str, History]

    @property
    def conversations(self) -> Conversations:
        """The engine's, so that a conversation has one turn at a time whichever agent runs it."""
        return self.engine.conversations

    async def _in_turn(
        self,
        task: str | UserMessage,
        conversation: str,
        history: Iterable[Message] | None,
        scope: Scope,
        trigger: str | None,
        reflect: bool,
        on_event: Callable[[AgentEvent], None] | None,
        mode: Mode,
        *,
        first: bool,
    ) -> RunResult:
        run = scope.run or f"run-{self.engine.clock.new_id()}"
        scope = replace(scope, run=run, conversation=conversation or run, provider=self.model.provider)
        message = UserMessage(task) if isinstance(task, str) else task
        if not isinstance(message, UserMessage):
            raise UsageError(f"The task is a {type(task).__name__}. Give text, or a UserMessage.")
        with self.engine.at_work(run):
            return await self._in_conversation(message, conversation, history, scope, trigger, reflect, on_event, mode, first=first)

    async def _in_conversation(
        self,
        message: UserMessage,
        conversation: str,
        history: Iterable[Message] | None,
        scope: Scope,
        trigger: str | None,
        reflect: bool,
        on_event: Callable[[AgentEvent], None] | None,
        mode: Mode,
        *,
        first: bool,
    ) -> RunResult:
        reflect = reflect and bool(conversation)  # a conversation that nobody named is forgotten anyway
        leaves_trace = bool(conversation) and not reflect
        async with self.conversations.turn(scope.conversation, trigger=trigger, first=first) as place:
            kept = History(history) if history is not None else self._remembered(conversation) or History()
            if place.drained:
                return _ended(kept, scope, Ending("stopped_by_user", place.drained))
            if leaves_trace:
                self._remember(conversation, kept)
            exposure = self._exposure(message, kept, scope, mode, leaves_trace=leaves_trace)
            phase: Phase = "reflect" if reflect else "deliberate"
            return await self._run(place, kept.fork() if reflect else kept, scope, on_event, exposure, task=message, phase=phase)

    async def _run(
        self,
        place: Place,
        history: History,
        scope: Scope,
        on_event: Callable[[AgentEvent], None] | None,
        exposure: Exposure | None,
        *,
        task: UserMessage | None = None,
        phase: Phase = "deliberate",
        goes_on: GoesOn | None = None,
    ) -> RunResult:
        if not place.queued:
            self.engine.control.end_turn(scope.conversation)
        if goes_on is not None:
            self.engine.control.take_over_errors(scope.conversation, goes_on.errors)
        deaf = self._listen(scope, on_event) if on_event is not None else None
        record = RunRecord(self.engine, scope.run, phase)
        turn = self._turn(place, history, exposure.scope(scope) if exposure is not None else scope, on_event, exposure, record, goes_on)
        try:
            self._begin(record, history, scope, task, exposure, phase, goes_on)
            async with in_time(turn.account, self.engine.clock, self.engine.control, scope.conversation):
                ending = await self._work(turn, goes_on)
                result = await self._typed(turn, ending) if self._output is not None else turn.result(ending)
        except Exception as error:
            log.exception("The run failed")
            said = f"{error}" if isinstance(error, CallgateError) else f"{type(error).__name__}: {error}"
            result = turn.result(Ending("error", said))
        except asyncio.CancelledError as error:
            if not is_own_failure(error):
                raise
            result = turn.result(Ending("error", "the model cancelled itself; nobody had asked it to stop"))
        finally:
            self.engine.control.end_turn(scope.conversation)
            if deaf is not None:
                deaf()
        result = self._end(record, history, result)
        if on_event is not None:
            on_event(RunEnded(result))
        return result

    def _begin(
        self,
        record: RunRecord,
        history: History,
        scope: Scope,
        task: UserMessage | None,
        exposure: Exposure | None,
        phase: Phase,
        goes_on: GoesOn | None,
    ) -> None:
        """Put on record that the run begins, or goes on, and add its task to the conversation."""
        known = history.recorded if goes_on is None else self._recorded(history, scope.run)
        body = Began(
            task=task,
            model=f"{self.model.provider}:{self.model.name}",
            tools={tool.name: tool.identity for tool in self.engine.tools},
            settings=self.settings,
            scope=replace(scope, extra=None),
            phase=phase,
            exposed=exposure.exposed if exposure is not None else None,
            exits=tuple(self._exits.values()),
            after=known if goes_on is None else 0,
            history=() if known else tuple(history.messages),
        )
        if task is not None:
            history.add(task)
        if goes_on is None or not (goes_on.last or self._has_begun(scope.run)):
            record.began(body)
        else:
            record.resumed(body, goes_on.last)

    def _has_begun(self, run: str) -> bool:
        return any(event.kind == "run.began" for event in self.engine.journal.read(run=run))

    def _recorded(self, history: History, run: str) -> int:
        """The position up to which the record of this very run has the conversation; 0 if it does not."""
        at = history.recorded
        found = next(iter(self.engine.journal.read(after=at - 1, limit=1)), None) if at else None
        return at if found is not None and found.position == at and found.run == run else 0

    async def _work(self, turn: Turn, goes_on: GoesOn | None) -> Ending:
        if goes_on is not None and goes_on.open is not None:
            return await turn.go_on(goes_on.open, goes_on.left)
        return await (turn.resume(goes_on.pending) if goes_on is not None and goes_on.pending is not None else turn.run())

    def _end(self, record: RunRecord, history: History, result: RunResult) -> RunResult:
        try:
            record.ended(result)
        except RecordFailed as error:
            log.error("%s", error)
        history.recorded = record.last
        return replace(result, recorded=record.last)

    def _turn(
        self,
        place: Place,
        history: History,
        scope: Scope,
        on_event: Callable[[AgentEvent], None] | None,
        exposure: Exposure | None,
        record: RunRecord,
        goes_on: GoesOn | None,
    ) -> Turn:
        context = StreamingContext(scope.conversation, reply_to=place.reply_to, extra=scope.extra)
        tools = self._specs(scope)
        turn = Turn(
            model=self.model,
            engine=self.engine,
            request=replace(self._request, tools=tools),
            history=history,
            scope=scope,
            context=context,
            settings=self.settings,
            limits=self._limits,
            guards=self._guards,
            account=Account(self.settings.budget, self.settings.prices, self.engine.clock, goes_on.spent if goes_on else None),
            record=record,
            exits=self._exit_calls(),
            head=partial(self._head, len(tools) > len(self._exits)) if self._bios or self._instructions else None,
            tell=on_event,
            guard=self._guard(scope, goes_on),
            exposure=exposure,
            enrichment=self._enrichment(goes_on),
            compactor=self._compactor(scope.conversation),
        )
        if goes_on is not None:
            turn.signals, turn.results, turn.texts = list(goes_on.signals), list(goes_on.results), list(goes_on.texts)
            turn.iteration = goes_on.iteration
        return turn

    async def _typed(self, turn: Turn, ending: Ending) -> RunResult:
        """Read the answer as its type; one that is not goes back to the model, a few times."""
        from callgate.agent.output import OutputInvalid

        assert self._output is not None
        for attempt in range(self.settings.output_retries + 1):
            result = turn.result(ending)
            if ending.status != "completed":
                return result
            try:
                return replace(result, output=self._output.read(result.text))
            except OutputInvalid as error:
                if attempt == self.settings.output_retries:
                    return replace(result, status="failed", turn_status="error", reason=str(error))
                turn.say(str(error))
                ending = await turn.run()
        raise AssertionError("unreachable")

    def _head(self, offers_tools: bool, left: int | None) -> str:
        """The system text of the next pass."""
        given = self._instructions
        own = given(left) if callable(given) else given
        if not self._bios:
            return own
        from callgate.agent.bios import bios as bios_text

        has_tools = offers_tools and not (left == 0 and self.settings.when_spent == "answer")
        exits = tuple(self._exits.values())
        text = bios_text(at_ns=self.engine.clock.wall_ns(), left=left, name=self.model.name, exits=exits, has_tools=has_tools)
        return f"{text}\n\n{own}" if own else text

    def _exposure(self, message: UserMessage, history: History, scope: Scope, mode: Mode, *, leaves_trace: bool) -> Exposure | None:
        if self._deliberation is None and not mode.deliberate and not mode.expose:
            return None
        return self._planner().begin(
            message, history.messages, scope, active=mode.deliberate, expose=mode.expose, leaves_trace=leaves_trace
        )

    def _planner(self, deliberate: Deliberate | None = None) -> Deliberation:
        """Deliberate mode's planner, made when it is first needed."""
        if self._deliberation is None:
            from callgate.agent.deliberate import Deliberate, Deliberation

            self._deliberation = Deliberation(deliberate or Deliberate(active=False), self.engine.tools)
        return self._deliberation

    def _enrichment(self, goes_on: GoesOn | None) -> Enrichment:
        owner = self.engine.restart if isinstance(self.engine.restart, ContextRestarts) else None
        return Enrichment(owner, goes_on.added, goes_on.restarted) if goes_on is not None else Enrichment(owner)

    def _guard(self, scope: Scope, goes_on: GoesOn | None) -> StuckGuard | None:
        if self._stuck is None:
            return None
        guard = StuckGuard(self._stuck, partial(self._asked, scope), goes_on.repeats if goes_on is not None else ())
        for calls, results, finals in goes_on.rounds if goes_on is not None else ():
            guard.told(calls, results, finals)
        return guard

    def _asked(self, scope: Scope, call: ToolCall) -> tuple[str, bytes] | None:
        return self.engine.asked(raw_call(call, "sealed", self.model.provider), scope)

    def _compactor(self, conversation: str) -> Compactor | None:
        if self._compaction is None:
            return None
        from callgate.agent.compaction import Compactor

        return Compactor(self._compaction, self._guards, conversation)

    def _specs(self, scope: Scope) -> tuple[ToolSpec, ...]:
        """The tools that the turn offers, and the exit tools, which nothing hides."""
        allowed = scope.allowed_tools if scope.deliberate else None
        tools = [
            ToolSpec(name=tool.name, description=tool.description, schema=tool.schema.source)
            for tool in self.engine.tools
            if allowed is None or tool.name in allowed or not allowed.isdisjoint(tool.tool.aliases)
        ]
        return (*tools, *self._exits.values())

    def _exit_calls(self) -> Exits:
        return Exits(self._exits, self.engine.tools)

    def _check_exits(self) -> None:
        for name in self._exits:
            if name in self.engine.tools:
                raise UsageError(f"'{name}' is both a tool and an exit tool. An exit tool is never run; rename one of them.")

    def _listen(self, scope: Scope, tell: Callable[[AgentEvent], None]) -> Callable[[], None]:
        """Tell of calls that start and of their progress."""
        prefix = f"{scope.run}/"

        def hear(topic: str, item: object) -> None:
            if isinstance(item, Progress) and item.call.startswith(prefix):
                tell(item)
            elif isinstance(item, Event) and item.run == scope.run:
                tell(CallStarted(item.call, decode(item.body).get("tool", "")))

        return self.engine.bus.subscribe(hear, "call.started", "call.progress")

    def _remembered(self, conversation: str) -> History | None:
        history = self._histories.get(conversation)
        if history is not None:
            self._histories.move_to_end(conversation)
        return history

    def _remember(self, conversation: str, history: History) -> None:
        self._histories[conversation] = history
        if len(self._histories) > _MOST_CONVERSATIONS:
            self._histories.popitem(last=False)


def _ended(history: History, scope: Scope, ending: Ending) -> RunResult:
    """The result of a run that never began."""
    return RunResult(
        status=RUN_STATUS[ending.status],
        turn_status=ending.status,
        reason=ending.reason,
        messages=tuple(history.messages),
        run=scope.run,
        conversation=scope.conversation,
    )
