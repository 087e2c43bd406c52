"""What runs of an agent need behind its door: their place in a conversation, their record, their turn, and how they end.

`Agent` is the door and says what an agent is made of; here is what happens between a task and its `RunResult`. Only here does an exception
of a model become a status.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from callgate._abort_signals import is_own_failure
from callgate._json import decode
from callgate._pipeline.writer import off_loop
from callgate._redact import RedactedLog, Redactor, cut_middle, redacted_text
from callgate._runners.failures import describe
from callgate._turn_queue import QueuedTurn, TurnQueues
from callgate.agent.deadline import in_time
from callgate.agent.events import AgentEvent, CallStarted, RunEnded
from callgate.agent.history import History
from callgate.agent.parts import Mode, Parts, Start
from callgate.agent.record import Began, RunRecord
from callgate.agent.results import RunResult
from callgate.agent.turn import Turn
from callgate.calls import Scope
from callgate.decide import RUN_STATUS, Ending
from callgate.errors import CallgateError, RecordFailed, RunHeld, UsageError
from callgate.events import Event, Progress
from callgate.messages import Message, UserMessage

if TYPE_CHECKING:  # loaded when first used: most agents need none of these
    from callgate.agent.resume import GoesOn

__all__ = ["Runs", "Wish"]

_ERROR_CHARS = 4_000
_MOST_CONVERSATIONS = 1_000
_CLOSING_S = 10.0
"""How long `close` waits for runs to end."""


class Wish(Struct, frozen=True, kw_only=True, eq=False):
    """How a run is asked for."""

    conversation: str = ""
    """Empty: one of its own."""
    history: Iterable[Message] | None = None
    trigger: str | None = None
    scene: bool = False
    reflect: bool = False
    on_event: Callable[[AgentEvent], None] | None = None
    mode: Mode = Mode()
    first: bool = False
    """Whether it goes before the turns that wait."""


class Runs(Parts):
    """The runs of one agent; `Agent` makes what is declared here."""

    _histories: OrderedDict[str, History]
    _under_way: dict[object, tuple[asyncio.Task[object], str]]
    """Of each run that is under way or waits for its turn: the task that waits for it, and its conversation."""
    _closed: bool

    @property
    def _log(self) -> RedactedLog:
        return RedactedLog(self.engine.redactor)

    @property
    def conversations(self) -> TurnQueues:
        """The engine's, so that a conversation has one turn at a time whichever agent runs it."""
        return self.engine.conversations

    async def _in_turn(self, task: str | UserMessage, wish: Wish, scope: Scope) -> RunResult:
        """Have a run of its own, in its conversation's turn."""
        given = bool(scope.run)
        run = scope.run or f"run-{self.engine.clock.new_id()}"
        scope = replace(scope, run=run, conversation=wish.conversation or run, provider=self.model.provider)
        self.engine.runs.check_extra(scope)
        message = UserMessage(task) if isinstance(task, str) else task
        if not isinstance(message, UserMessage):
            raise UsageError(f"The task is a {type(task).__name__}. Give text, or a UserMessage.")
        with self.engine.runs.at_work(run, scope.conversation):
            async with self._turn(scope.conversation, wish) as place:
                if not place.drained:
                    try:
                        await self.engine.runs.open(scope, new=not given)
                    except RunHeld:
                        raise
                    except (RecordFailed, UsageError) as error:  # the engine may have been closed while the turn waited
                        return _ended(tuple(wish.history or ()), scope, Ending("error", str(error)))
                return await self._in_conversation(message, wish, scope, place)

    @asynccontextmanager
    async def _turn(self, conversation: str, wish: Wish | None = None) -> AsyncIterator[QueuedTurn]:
        """Have a conversation to itself; what was asked of it before this turn was is forgotten, and what is asked from now on counts."""
        with self._noted(conversation):
            async with self._alone(conversation, wish or Wish()) as place:
                yield place

    @contextmanager
    def _noted(self, conversation: str) -> Iterator[None]:
        """Note a run while it is under way, for `close` to end."""
        self._check_open()
        task, run = asyncio.current_task(), object()
        assert task is not None
        self._under_way[run] = (task, conversation)
        try:
            yield
        finally:
            del self._under_way[run]

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("This agent is closed. Make a new one.")

    async def _end_runs(self) -> None:
        """End the runs that are under way, in bounded time. Nothing of them starts any more, also where one does not end."""
        waiting = {task for task, _ in self._under_way.values()} - {asyncio.current_task()}
        for conversation in {conversation for _, conversation in self._under_way.values()}:
            self.engine.control.kill(conversation, "the agent was closed")
        if waiting:
            await asyncio.wait(waiting, timeout=_CLOSING_S)

    @asynccontextmanager
    async def _alone(self, conversation: str, wish: Wish) -> AsyncIterator[QueuedTurn]:
        async with self.conversations.turn(conversation, trigger=wish.trigger, scene=wish.scene, first=wish.first) as place:
            if not (place.queued or place.drained):
                self.engine.control.end_turn(conversation)
            try:
                yield place
            finally:
                if not place.drained:
                    self.engine.control.end_turn(conversation)

    async def _in_conversation(self, message: UserMessage, wish: Wish, scope: Scope, place: QueuedTurn) -> RunResult:
        reflects = wish.reflect and bool(wish.conversation)  # a conversation that nobody named is forgotten anyway
        leaves_trace = bool(wish.conversation) and not reflects
        kept = History(wish.history) if wish.history is not None else self._remembered(wish.conversation) or History()
        begins = not place.drained
        if begins:
            scope = _next_turn(kept, scope)
        if leaves_trace and begins:
            self._remember(wish.conversation, kept)
        start = Start(
            place=place,
            history=kept.fork() if reflects else kept,
            scope=scope,
            on_event=wish.on_event,
            exposure=self._exposure(message, kept, scope, wish.mode, leaves_trace=leaves_trace) if begins else None,
            task=message,
            phase="reflect" if reflects else "deliberate",
        )
        return await self._run(start)

    async def _run(self, start: Start) -> RunResult:
        """Have the turn, from its first event on record to its last; one that was drained from its queue never begins."""
        if start.place.drained:
            return _ended(start.history.messages, start.scope, Ending("stopped_by_user", start.place.drained))
        if start.goes_on is not None:
            self.engine.control.take_over_errors(start.scope.conversation, start.goes_on.errors)
        self.engine.runs.begin(start.scope.run)
        start.history.turns = max(start.history.turns, start.scope.turn)
        deaf = self._listen(start.scope, start.on_event) if start.on_event is not None else None
        record = RunRecord(self.engine, start.scope.run, start.phase)
        try:
            result = await self._result(start, record)
        finally:
            if record.last:  # also where the run is cancelled: the next one goes on from here
                start.history.recorded = record.last
            if deaf is not None:
                deaf()
        if why := self.engine.runs.why_lost(start.scope.run):
            result = replace(result, status="failed", turn_status="error", reason=why)
        result = await self._end(record, start.history, result)
        if start.on_event is not None:
            try:
                start.on_event(RunEnded(result))
            except (Exception, asyncio.CancelledError) as error:
                self._log.error("The listener failed at the end of the run, which is as it was", error=error)
        return result

    async def _result(self, start: Start, record: RunRecord) -> RunResult:
        """What the turn comes to; what fails it becomes its end."""
        parts, goes_on = self._parts(start, record), start.goes_on
        turn = Turn(parts, goes_on.course() if goes_on is not None else None)
        try:
            await self._begin(record, start)
            with self.engine.runs.showing(start.scope.run, start.history.messages):
                async with in_time(parts.account, self.engine.clock, self.engine.control, start.scope.conversation):
                    ending = await self._work(turn, goes_on)
                    return await self._typed(turn, ending) if self._output is not None else turn.result(ending)
        except Exception as error:
            self._log.error("The run failed", error=error)
            return turn.result(Ending("error", _said(error, self.engine.redactor)))
        except asyncio.CancelledError as error:
            if not is_own_failure(error):
                raise
            return turn.result(Ending("error", "the model cancelled itself; nobody had asked it to stop"))

    async def _begin(self, record: RunRecord, start: Start) -> None:
        """Put on record that the run begins, or goes on, and add its task to the conversation."""
        history, scope, goes_on, exposure = start.history, start.scope, start.goes_on, start.exposure
        if history.recorded:
            history.recorded = await self.engine.runs.placed(history.recorded)
        known, begun = (history.recorded, False) if goes_on is None else await self._on_record(history, scope.run, goes_on)
        body = Began(
            task=start.task,
            model=f"{self.model.provider}:{self.model.name}",
            tools={tool.name: tool.identity for tool in self.engine.tools},
            settings=self.settings,
            scope=replace(scope, extra=None, streaming=None),
            phase=start.phase,
            exposed=exposure.exposed if exposure is not None else None,
            exits=tuple(self._exits.values()),
            after=known if goes_on is None else 0,
            history=() if known else tuple(history.messages),
        )
        if goes_on is None or not begun:
            record.began(body)
        else:
            record.resumed(body, goes_on.last)
        if start.task is not None:
            history.add(start.task)

    async def _on_record(self, history: History, run: str, goes_on: GoesOn) -> tuple[int, bool]:
        """How much of the conversation the record of this run has, and whether it has its beginning."""

        def looked_up() -> tuple[int, bool]:
            return self._recorded(history, run), bool(goes_on.last) or self._has_begun(run)

        return await off_loop(self.engine.journal, looked_up)

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

    async def _end(self, record: RunRecord, history: History, result: RunResult) -> RunResult:
        """The result as it is on record; where it is not, it says so."""
        try:
            record.ended(result)
            await self.engine.runs.durable(record.last)
        except RecordFailed as error:
            self._log.error("The end of run %s is not on record: %s", result.run, error)
            history.recorded = 0
            return replace(result, reason=_with_unrecorded_end(result.reason, error))
        history.recorded = await self.engine.runs.placed(record.last)
        return replace(result, recorded=history.recorded)

    async def _typed(self, turn: Turn, ending: Ending) -> RunResult:
        """Read the answer as its type; one that is not goes back to the model, a few times."""
        from callgate.agent.output import OutputInvalid

        assert self._output is not None
        for attempt in range(self.settings.output_retries + 1):
            result = turn.result(ending)
            if ending.status != "completed":
                return result
            try:
                return replace(result, output=self._output.read(result.text, cut=turn.cut))
            except OutputInvalid as error:
                if attempt == self.settings.output_retries:
                    why = f"The answer was not what was asked for (try {attempt + 1} of {attempt + 1}): {error}."
                    return replace(result, status="failed", turn_status="error", reason=why)
                turn.say(f"Your answer is not what was asked for: {error}. Answer again, with nothing but the JSON.")
                ending = await turn.run()
        raise AssertionError("unreachable")

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


def _next_turn(history: History, scope: Scope) -> Scope:
    """The scope of the conversation's next turn, which has a number: the host's, or the one after the latest."""
    history.turns = scope.turn or history.turns + 1
    return replace(scope, turn=history.turns)


def _with_unrecorded_end(reason: str, error: RecordFailed) -> str:
    """The reason of a run whose end is not on record; why it is not is said once, where the run failed for the same cause."""
    cause = str(error.__cause__ or error).rstrip(".")
    why = "the end of this run is not on record" if cause in reason else f"the end of this run is not on record: {error}"
    return f"{reason} ({why})" if reason else why


def _said(error: Exception, redactor: Redactor | None) -> str:
    """What an exception says, whatever its `__str__` does: redacted, and then cut."""
    if isinstance(error, CallgateError):
        return redacted_text(str(error), redactor)
    kind, text = describe(error)
    text = text if text.startswith(kind) else f"{kind}: {text}"
    return redacted_text(cut_middle(text, _ERROR_CHARS, redactor), redactor)


def _ended(messages: Iterable[Message], scope: Scope, ending: Ending) -> RunResult:
    """The result of a run that never began, or did not go on: what waited for a human still waits on record."""
    return RunResult(
        status=RUN_STATUS[ending.status],
        turn_status=ending.status,
        reason=ending.reason,
        messages=tuple(messages),
        run=scope.run,
        conversation=scope.conversation,
    )
