"""Execute one run, from its first recorded event to its last: begin, run the turn, convert the answer to its type, end.

Only this module converts an exception of a model to a status. `run_starter` and `run_resumer` decide when the run may
begin.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from callgate._abort_signals import is_own_failure
from callgate._json import decode
from callgate._run_state.recorder import off_loop
from callgate._runners.exception_results import describe
from callgate._secret_redaction import RedactedLog, Redactor, cut_middle, redacted_text
from callgate.agent.agent_config import AgentConfig
from callgate.agent.budget import enforce_wall_time
from callgate.agent.event_listener import EventListener
from callgate.agent.history import History
from callgate.agent.run_events import AgentEvent, CallStarted, RunEnded
from callgate.agent.run_recorder import RunBeganBody, RunRecorder
from callgate.agent.run_result import RunResult
from callgate.agent.turn_factory import TurnFactory, TurnStart
from callgate.agent.turn_loop import Turn
from callgate.calls import Scope
from callgate.errors import CallgateError, RecordFailed
from callgate.events import Event, Progress
from callgate.loop_decision import RUN_STATUS, Ending
from callgate.messages import Message

if TYPE_CHECKING:  # loaded when first used: most agents need none of these
    from callgate.agent.resume_plan import ResumePlan

__all__ = ["RunExecutor", "result_of_unbegun"]

_ERROR_CHARS = 4_000


class RunExecutor:
    """Executes the runs of one agent.

    Args:
        config: The agent's configuration.
        turns: Makes the parts of each turn.
    """

    def __init__(self, config: AgentConfig, turns: TurnFactory) -> None:
        self._config = config
        self._engine = config.engine
        self._turns = turns
        self._log = RedactedLog(config.engine.redactor)

    async def run(self, start: TurnStart) -> RunResult:
        """Execute the run. A turn that a kill removed from its queue never begins."""
        if start.place.drained:
            return result_of_unbegun(start.history.messages, start.scope, Ending("stopped_by_user", start.place.drained))
        if start.plan is not None:
            self._engine.control.take_over_errors(start.scope.conversation, start.plan.errors)
        self._engine.runs.begin(start.scope.run)
        start.history.turns = max(start.history.turns, start.scope.turn)
        if start.on_event is not None:
            start = replace(start, on_event=EventListener(start.on_event, start.scope.run, self._engine.bus, self._log))
        stop_listening = self._listen(start.scope, start.on_event) if start.on_event is not None else None
        recorder = RunRecorder(self._engine, start.scope.run, start.phase)
        try:
            result = await self._run(start, recorder)
        finally:
            if recorder.last:  # also if the run is cancelled: the next run continues from here
                start.history.recorded = recorder.last
            if stop_listening is not None:
                stop_listening()
        if why := self._engine.runs.why_lost(start.scope.run):
            result = replace(result, status="failed", turn_status="error", reason=why)
        result = await self._end(recorder, start.history, result)
        if start.on_event is not None:
            start.on_event(RunEnded(result))
        return result

    async def _run(self, start: TurnStart, recorder: RunRecorder) -> RunResult:
        """Run the turn and return its result. An exception ends the turn with an error status."""
        parts, plan = self._turns.make_parts(start, recorder), start.plan
        turn = Turn(parts, plan.state() if plan is not None else None)
        try:
            await self._begin(recorder, start)
            with self._engine.runs.show_messages(start.scope.run, start.history.messages):
                async with enforce_wall_time(parts.budget, self._engine.clock, self._engine.control, start.scope.conversation):
                    ending = await self._work(turn, plan)
                    return await self._read_typed(turn, ending) if self._config.output is not None else turn.result(ending)
        except Exception as error:
            self._log_failure(error)
            return turn.result(Ending("error", _describe_error(error, self._engine.redactor)))
        except asyncio.CancelledError as error:
            if not is_own_failure(error):
                raise
            return turn.result(Ending("error", "the model cancelled itself; nobody had asked it to stop"))

    def _log_failure(self, error: Exception) -> None:
        """Log why the run failed; with the traceback only if the error is not one of callgate's, whose text says who must act."""
        if isinstance(error, CallgateError):
            self._log.error("The run failed: %s", error)
        else:
            self._log.error("The run failed", error=error)

    async def _begin(self, recorder: RunRecorder, start: TurnStart) -> None:
        """Record that the run begins or is resumed, and append its task to the conversation."""
        history, scope, plan, exposure = start.history, start.scope, start.plan, start.exposure
        if history.recorded:
            history.recorded = await self._engine.runs.final_position(history.recorded)
        known = history.recorded if plan is None else await self._find_recorded(history, scope.run)
        body = RunBeganBody(
            task=start.task,
            model=f"{self._config.model.provider}:{self._config.model.name}",
            tools={tool.name: tool.identity for tool in self._engine.tools},
            settings=self._config.settings,
            scope=replace(scope, extra=None, streaming=None),
            phase=start.phase,
            exposed=exposure.exposed if exposure is not None else None,
            exits=tuple(self._config.exits.values()),
            after=known if plan is None else 0,
            history=() if known else tuple(history.messages),
        )
        if plan is not None and (plan.last or await self._has_begun(scope.run)):
            recorder.write_run_resumed(body, plan.last)
        else:
            recorder.write_run_began(body)
        if start.task is not None:
            history.add(start.task)

    async def _has_begun(self, run: str) -> bool:
        """Return whether the beginning of the run is on record."""
        journal = self._engine.journal
        return await off_loop(journal, lambda: any(event.kind == "run.began" for event in journal.read(run=run)))

    async def _find_recorded(self, history: History, run: str) -> int:
        """Return the position up to which this run's record contains the conversation; 0 if it does not."""
        journal, at = self._engine.journal, history.recorded
        found = await off_loop(journal, lambda: list(journal.read(after=at - 1, limit=1))) if at else []
        return at if found and (found[0].position, found[0].run) == (at, run) else 0

    async def _work(self, turn: Turn, plan: ResumePlan | None) -> Ending:
        if plan is not None and plan.open is not None:
            return await turn.complete_interrupted(plan.open, plan.uncommitted)
        turn.note_interruption(asks_again=plan is not None and plan.pending is None)
        return await (turn.resume(plan.pending) if plan is not None and plan.pending is not None else turn.run())

    async def _end(self, recorder: RunRecorder, history: History, result: RunResult) -> RunResult:
        """Record the end. Return the result, with a note if its end could not be recorded."""
        try:
            recorder.write_run_ended(result)
            await self._engine.runs.durable(recorder.last)
        except RecordFailed as error:
            self._log.error("The end of run %s is not on record: %s", result.run, error)
            history.recorded = 0
            return replace(result, reason=_with_unrecorded_end(result.reason, error))
        history.recorded = await self._engine.runs.final_position(recorder.last)
        return replace(result, recorded=history.recorded)

    async def _read_typed(self, turn: Turn, ending: Ending) -> RunResult:
        """Read the answer as the requested type.

        An invalid answer is sent back to the model, at most `output_retries` times.
        """
        from callgate.agent.typed_output import OutputInvalid

        assert self._config.output is not None
        for attempt in range(self._config.settings.output_retries + 1):
            result = turn.result(ending)
            if ending.status != "completed":
                return result
            try:
                return replace(result, output=self._config.output.read(result.text, cut=turn.cut))
            except OutputInvalid as error:
                if attempt == self._config.settings.output_retries:
                    why = f"The answer was not what was asked for (try {attempt + 1} of {attempt + 1}): {error}."
                    return replace(result, status="failed", turn_status="error", reason=why)
                turn.say(f"Your answer is not what was asked for: {error}. Answer again, with nothing but the JSON.")
                ending = await turn.run()
        raise AssertionError("unreachable")

    def _listen(self, scope: Scope, on_event: Callable[[AgentEvent], None]) -> Callable[[], None]:
        """Call `on_event` when a call of the run starts or reports progress. Return a function that ends the subscription."""
        prefix = f"{scope.run}/"

        def hear(topic: str, item: object) -> None:
            if isinstance(item, Progress) and item.call.startswith(prefix):
                on_event(item)
            elif isinstance(item, Event) and item.run == scope.run:
                on_event(CallStarted(item.call, decode(item.body).get("tool", "")))

        return self._engine.bus.subscribe(hear, "call.started", "call.progress")


def _with_unrecorded_end(reason: str, error: RecordFailed) -> str:
    """Return the reason with a note that the end is not on record. The note names the cause unless the reason already does."""
    cause = str(error.__cause__ or error).rstrip(".")
    why = "the end of this run is not on record" if cause in reason else f"the end of this run is not on record: {error}"
    return f"{reason} ({why})" if reason else why


def _describe_error(error: Exception, redactor: Redactor | None) -> str:
    """Return the exception's text, redacted and then shortened; safe if its `__str__` raises."""
    if isinstance(error, CallgateError):
        return redacted_text(str(error), redactor)
    kind, text = describe(error)
    text = text if text.startswith(kind) else f"{kind}: {text}"
    return redacted_text(cut_middle(text, _ERROR_CHARS, redactor), redactor)


def result_of_unbegun(messages: Iterable[Message], scope: Scope, ending: Ending) -> RunResult:
    """Return the result of a run that was not started or resumed. Calls that waited for a human still wait, according to the record."""
    return RunResult(
        status=RUN_STATUS[ending.status],
        turn_status=ending.status,
        reason=ending.reason,
        messages=tuple(messages),
        run=scope.run,
        conversation=scope.conversation,
    )
