"""The loop itself: stream the model once, run what it asks, commit, decide; until the turn ends.

    ready? → stream_once → calls? → run → commit → go on?          each arrow may end the turn with one `Ending`

Every pass of the model and every call has its place in the record and the history by the time the next begins. What only decides lives in
`callgate.decide`; what only counts in `account`; the calls of one message in `intake`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, overload

from msgspec.structs import replace

from callgate._runners.guard import Guards
from callgate._signals import AbortController, AbortSignal, settled
from callgate.agent.account import Account
from callgate.agent.events import AgentEvent, CallEnded, MessageBegan, MessageEnded, Notice
from callgate.agent.exits import Exits
from callgate.agent.history import History
from callgate.agent.intake import BROKEN_OFF, Intake, LeftOpen, results_of
from callgate.agent.record import Executed, RunRecord
from callgate.agent.restart import Enrichment
from callgate.agent.results import Beside, Pending, RunResult, Signal
from callgate.agent.settings import Settings
from callgate.agent.stuck import StuckGuard
from callgate.calls import Aborted, Outcome, Scope, Suspended, Text, ToolResult
from callgate.decide import RUN_STATUS, CallEnd, Ending, TurnStatus, check_loop_continuation
from callgate.engine import Engine
from callgate.errors import CallFailed, RecordFailed
from callgate.messages import AssistantMessage, Message, SystemMessage, ToolCall
from callgate.models.events import ModelEvent
from callgate.models.model import Model, StreamingContext
from callgate.models.wire.request import ModelRequest
from callgate.stream import PassStatus, StreamLimits, StreamResult, stream_once

if TYPE_CHECKING:
    from callgate.agent.compaction import Compactor
    from callgate.agent.deliberate import Exposure
    from callgate.agent.recall import OpenMessage

__all__ = ["Conversation", "Turn"]

_DAY_S = 86_400.0
_CUT = {"length": "the answer was cut at its length limit", "content_filter": "the answer was cut by the provider's content filter"}


class Conversation(Sequence[Message]):
    """The history with what stands before and after it in a request, without a copy of any."""

    __slots__ = ("_history", "head", "tail")

    def __init__(self, head: tuple[Message, ...], history: list[Message]) -> None:
        self.head = head
        self.tail: tuple[Message, ...] = ()
        self._history = history

    def __len__(self) -> int:
        return len(self.head) + len(self._history) + len(self.tail)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        if isinstance(index, slice):
            return list(self)[index]
        if index < 0:
            index += len(self)
        if index < len(self.head):
            return self.head[index]
        index -= len(self.head)
        return self._history[index] if index < len(self._history) else self.tail[index - len(self._history)]

    def __iter__(self) -> Iterator[Message]:
        yield from self.head
        yield from self._history
        yield from self.tail


class Turn:
    """One turn of one conversation.

    Args:
        model: Answers.
        engine: Runs the calls.
        request: What every pass asks for; its messages are put in here.
        history: The conversation; grows.
        scope: Of the turn.
        context: What the model streams in; tools may see it.
        settings: Bounds and rules.
        limits: On a stream's silence.
        record: What the turn leaves on record.
        guards: Keep models that would not stop.
        exits: The exit tools.
        head: Makes the system text of the next pass, from the iterations that are left.
        tell: Told everything that happens.
        exposure: What deliberate mode offers in this turn; None where it is off.
        enrichment: Takes what calls add to the context instead of the history.
        compactor: Makes a long history shorter.
    """

    def __init__(
        self,
        *,
        model: Model,
        engine: Engine,
        request: ModelRequest,
        history: History,
        scope: Scope,
        context: StreamingContext,
        settings: Settings,
        limits: StreamLimits,
        guards: Guards,
        account: Account,
        record: RunRecord,
        exits: Exits,
        head: Callable[[int | None], str] | None = None,
        tell: Callable[[AgentEvent], None] | None = None,
        guard: StuckGuard | None = None,
        exposure: Exposure | None = None,
        enrichment: Enrichment | None = None,
        compactor: Compactor | None = None,
    ) -> None:
        self.history = history
        self.account = account
        self.iteration = scope.iteration
        self.signals: list[Signal] = []
        self.results: list[ToolResult] = []
        self.texts: list[str] = []
        self.pending: Pending | None = None
        self._model = model
        self._engine = engine
        self._view = Conversation((), history.messages)
        self._request = replace(request, messages=self._view)
        self._toolless = replace(self._request, tools=(), tool_choice="none")
        self._scope = scope
        self._context = context
        self._settings = settings
        self._limits = limits
        self._guards = guards
        self._exits = exits
        self._head = head
        self._tell = tell
        self._guard = guard
        self._exposure = exposure
        self._enrichment = enrichment or Enrichment()
        self._compactor = compactor
        self._record = record
        self._empty = 0
        self._pauses = 0
        self._warned = False
        self._intake: Intake | None = None

    async def run(self) -> Ending:
        """Go through passes until the turn ends."""
        with self._enrichment:
            while True:
                ending = self._not_ready() or await self._compact() or await self._once()
                if ending is not None:
                    return ending

    async def resume(self, pending: Pending) -> Ending:
        """Hand in again what waited for a human, then go on."""
        from callgate.agent.resume import waited_for

        self.iteration, self.pending = pending.iteration, None
        left = waited_for(pending, self._engine.approval)
        self.account.give_back(len(pending.message.calls) - len(left))  # reserved when they were asked for, and again now
        with self._enrichment:
            intake = self._new_intake()
            intake.cause = self._record.handed_in_again(pending.message, pending.closed, pending.iteration)
            outcomes = await intake.take_up(pending.message.calls, pending.closed, left)  # type: ignore[arg-type]
        return self._settled(pending.message, pending.closed, outcomes, intake, pending.beside) or await self.run()

    async def go_on(self, opened: OpenMessage, left: Mapping[int, LeftOpen]) -> Ending:
        """Bring a message whose calls were cut off to its end, then go on."""
        message, closed = opened.message, opened.body.closed
        self.iteration = opened.body.iteration
        with self._enrichment:
            intake = self._new_intake()
            intake.cause = self._record.last
            outcomes = await intake.take_up(message.calls, closed, left)  # type: ignore[arg-type]
        self.signals += intake.signals
        self.account.iterations += not opened.again
        self.account.calls += sum(1 for call in left.values() if call.uid)
        ending = self._settled(message, closed, outcomes, intake, opened.beside, broken_off=True)
        if ending is not None and self.pending is not None and self._was_answered(self.pending):
            return await self.resume(self.pending)
        return ending or await self.run()

    def _was_answered(self, pending: Pending) -> bool:
        questions = [self._engine.approval(approval.approval_id) for approval in pending.approvals]
        return any(question is not None and question.allowed is not None for question in questions)

    def say(self, text: str) -> None:
        """Tell the model something, as the user."""
        self.history.user(text)
        self._record.said(text)

    def result(self, ending: Ending) -> RunResult:
        """The turn as a whole."""
        last = self.texts[-1] if self.texts and ending.status == "completed" else "\n\n".join(filter(None, self.texts))
        return RunResult(
            status=RUN_STATUS[ending.status],
            turn_status=ending.status,
            reason=ending.reason,
            text=last,
            signals=tuple(self.signals),
            results=tuple(self.results),
            messages=tuple(self.history.messages),
            spent=self.account.spent(),
            run=self._scope.run,
            conversation=self._scope.conversation,
            pending=self.pending,
        )

    # One pass

    def _not_ready(self) -> Ending | None:
        """Why no further pass may begin. A stop or a follow-up that is pending ends the pass itself, first thing."""
        over = self.account.over()
        if over is not None:
            return Ending("budget_exhausted", over)
        if self.iteration == self._settings.soft_warn and self._tell is not None and not self._warned:
            self._warned = True
            self._tell(Notice("long_turn", f"The turn has taken {self.iteration} rounds of tools and goes on."))
        return None

    async def _once(self) -> Ending | None:
        left = self.account.iterations_left
        last = left == 0 and self._settings.when_spent == "answer"
        system = self._head(left) if self._head is not None else ""
        if self._head is not None:
            self._view.head = (SystemMessage(system),)
        self._view.tail = self._enrichment.tail()
        self._intake = intake = self._new_intake()
        intake.cause = self._record.pass_began(self.iteration, self.history.shown(), system, self._view.tail)
        if self._tell is not None:
            self._tell(MessageBegan(self.iteration))
        result = await self._stream(self._toolless if last else self._request, intake)
        try:
            self.account.use(result.usage)
            if self._tell is not None:
                self._tell(MessageEnded(self.iteration, result.status, result.reason))
            self._note_text(result)
            if result.status == "function_call":
                return await self._calls(result, intake)
        except BaseException:
            await intake.drop("the run failed")
            raise
        await intake.drop(result.reason or result.status)
        return await self._answer(result)

    async def _compact(self) -> Ending | None:
        if self._compactor is None:
            return None
        with self._interruptible() as signal:
            sizes = await self._compactor.before_pass(self.history, signal)
        if sizes is not None:
            self._record.compacted(self.history.messages)
            if self._tell is not None:
                before, after = sizes
                self._tell(Notice("compacted", f"The history was made shorter: about {before} tokens, now {after}.", hidden=True))
        return self._out_of_time(None)

    async def _stream(self, request: ModelRequest, intake: Intake) -> StreamResult:
        try:
            return await stream_once(
                self._model,
                request,
                self._context,
                control=self._engine.control,
                limits=self._limits,
                guards=self._guards,
                on_event=self._see if self._tell is not None else intake.see,
            )
        except BaseException:
            await intake.drop("the model's stream failed")
            raise

    def _see(self, event: ModelEvent) -> None:
        assert self._tell is not None
        assert self._intake is not None
        self._tell(event)
        self._intake.see(event)

    def _new_intake(self) -> Intake:
        return Intake(
            self._engine,
            replace(self._scope, iteration=self.iteration),
            exits=self._exits,
            may_run=self._may_run,
            give_back=self.account.give_back,
            early=self._settings.early_start and self.account.iterations_left != 0,
            origin=self._model.provider,
        )

    def _may_run(self, call: ToolCall, place: int) -> CallFailed | None:
        refusal: CallFailed | None = self._guard.refusal(call) if self._guard is not None else None
        return refusal or self.account.reserve(place)

    def _note_text(self, result: StreamResult) -> None:
        if result.text:
            self.texts.append(result.text)

    # A message without calls

    async def _answer(self, result: StreamResult) -> Ending | None:
        message = _kept(result)
        self._record.answered(result, message, self.iteration, executes=False)
        if message is not None:
            self.history.answer(message)
        match result.status:
            case "completed" if result.finish == "pause" and message is not None and self._pauses < self._settings.pauses:
                self._pauses += 1
                return None
            case "completed":
                return Ending("completed", _CUT.get(result.finish or "", ""))
            case "empty_response" if self._empty < self._settings.empty_retries:
                self._empty += 1
                return await self._wait_and_retry()
        return Ending(_STATUS[result.status], result.reason)

    async def _wait_and_retry(self) -> Ending | None:
        """An empty answer is asked for again after a moment, unless somebody stops the turn meanwhile."""
        if self._tell is not None:
            self._tell(Notice("retry", "The model's answer was empty; it is asked again."))
        pause = asyncio.ensure_future(self._engine.clock.sleep(self._settings.empty_retry_s))
        try:
            with self._interruptible() as signal:
                await settled(pause, signal, self._settings.empty_retry_s + _DAY_S)
        finally:
            pause.cancel()
        return None

    @contextmanager
    def _interruptible(self) -> Iterator[AbortSignal]:
        """What fires when somebody ends the turn, or wants it to yield, between two passes; the next pass then says so."""
        control, conversation = self._engine.control, self._scope.conversation
        abort = AbortController()
        waiting = control.pending(conversation) or control.pending_follow_up(conversation)
        if waiting is not None:
            abort.abort(waiting)
        control.enter_pass(conversation, lambda _, reason: abort.abort(reason))
        try:
            yield abort.signal
        finally:
            control.leave_pass(conversation)

    # A message with calls

    async def _calls(self, result: StreamResult, intake: Intake) -> Ending | None:
        message = result.message
        assert message is not None
        calls = result.calls
        normal = len(calls) if not self._exits else sum(self._exits.meant(call.name) is None for call in calls)
        out_of_iterations = bool(normal) and self.account.iterations_left == 0
        try:
            intake.cause = self._record.answered(result, message, self.iteration, executes=bool(normal) and not out_of_iterations)
        except RecordFailed:
            await intake.drop("the message could not be recorded")
            raise
        if out_of_iterations:
            await intake.drop("no iteration is left")
            self.signals += intake.signals_of(calls)
            return self._out_of_iterations(message)
        outcomes = await intake.outcomes(calls, result.closed)
        self.signals += intake.signals
        if not normal:  # exit calls only: the message was the last
            self.history.answer(message)
            return Ending("completed", "")
        self.account.iterations += 1
        return self._settled(message, result.closed, outcomes, intake, Beside(text=message.text))

    def _out_of_iterations(self, message: AssistantMessage) -> Ending:
        self.history.answer(message)
        why = "no iteration is left, and the model asked for another round of tools"
        return Ending("tool_execution_error" if self._settings.rules.failures == "strict" else "budget_exhausted", why)

    def _settled(
        self,
        message: AssistantMessage,
        closed: Sequence[str],
        outcomes: list[Outcome | None],
        intake: Intake,
        beside: Beside,
        *,
        broken_off: bool = False,
    ) -> Ending | None:
        """Commit what the calls came to, and decide.

        Args:
            beside: What the message had before, where its calls have waited for a human.
            broken_off: Whether some of the results may stand for calls that have none on record.
        """
        given = results = results_of(outcomes)
        if self._guard is not None:
            results = self._guard.told(message.calls, results, intake.finals)
        hints = _added(given, results)
        if broken_off:
            hints |= {str(place): str(one.error) for place, one in enumerate(given) if one is not None and one.code == BROKEN_OFF}
        executed = Executed(
            calls=tuple(uid for uid, _ in intake.ends), hints=hints, exits=self._exits.renamed(message.calls), added=self._enrichment.news
        )
        self._record.executed(executed, [end for _, end in intake.ends])
        self.history.commit(message, results)
        kept = self._enrichment.settle(self.history)
        if kept:
            self._record.kept(kept)
        answered = [result for result in results if result is not None]
        self.results += answered
        if self._tell is not None:
            for position, outcome in enumerate(outcomes):
                if outcome is not None:
                    self._tell(CallEnded(position, outcome))
        if self._exposure is not None:
            self._exposure.ended(self._scope, message.calls, outcomes, self._tell)
        self.iteration += 1
        beside = replace(beside, results=(*beside.results, *answered)) if answered else beside
        return self._ended_by(message, closed, outcomes, beside) or self._decided(beside)

    def _out_of_time(self, ending: Ending | None) -> Ending | None:
        """What a message's calls came to where the run's time is up: they did not fail by themselves."""
        if ending is not None and ending.status in ("completed", "stopped_by_user"):
            return ending
        over = self.account.out_of_time()
        return Ending("budget_exhausted", over) if over is not None else ending

    def _ended_by(self, message: AssistantMessage, closed: Sequence[str], outcomes: list[Outcome | None], beside: Beside) -> Ending | None:
        """The end of a turn whose message a call aborted, or whose calls wait for a human."""
        for outcome in outcomes:
            if isinstance(outcome, Aborted):
                strict = outcome.status == "error" and self._settings.rules.failures == "strict"
                return Ending("tool_parse_error" if strict else outcome.status, outcome.reason)
        waiting = [index for index, outcome in enumerate(outcomes) if isinstance(outcome, Suspended)]
        if not waiting:
            return None
        calls = message.calls
        self.pending = Pending(
            message=AssistantMessage(parts=tuple(calls[index] for index in waiting), api=message.api),
            closed=tuple(closed[index] for index in waiting),
            iteration=self.iteration - 1,
            approvals=tuple(outcome for outcome in outcomes if isinstance(outcome, Suspended)),
            scope=self._scope,
            exposed=self._exposure.exposed if self._exposure is not None else None,
            added=self._enrichment.parts,
            restarted=self._enrichment.disabled,
            beside=beside,
            texts=tuple(self.texts),
            repeats=self._guard.repeats if self._guard is not None else (),
            errors=self._engine.control.errors_in_a_row(self._scope.conversation),
        )
        return Ending("waiting", "; ".join(one.question for one in self.pending.approvals))

    def _decided(self, message: Beside) -> Ending | None:
        if self._guard is not None and self._guard.gave_up:
            return Ending("error", self._guard.gave_up)
        tools = self._engine.tools
        ends = [CallEnd(result, tool.category if (tool := tools.get(result.name)) else None) for result in message.results]
        errors = self._engine.control.errors_in_a_row(self._scope.conversation)
        return self._out_of_time(check_loop_continuation(ends, self._settings.rules, errors_in_a_row=errors, text_before=message.text))


def _kept(result: StreamResult) -> AssistantMessage | None:
    """What the conversation keeps of a pass without calls."""
    if result.status == "completed":
        return result.message
    if result.status in ("stopped_by_user", "budget_exhausted") and result.text:
        return AssistantMessage(parts=(Text(text=result.text),))
    return None


def _added(given: Sequence[ToolResult | None], told: Sequence[ToolResult | None]) -> dict[str, str]:
    """What the loop added to results, by the call's place."""
    return {
        str(place): now.text[len(before.text) + 1 :] if before.text else now.text
        for place, (before, now) in enumerate(zip(given, told, strict=True))
        if now is not before and now is not None and before is not None
    }


_STATUS: dict[PassStatus, TurnStatus] = {
    "error": "error",
    "timeout": "timeout",
    "empty_response": "empty_response",
    "stopped_by_user": "stopped_by_user",
    "follow_up_interrupt": "follow_up_interrupt",
    "budget_exhausted": "budget_exhausted",
}
