"""Run the passes of one turn. A pass is one request to the model and its streamed answer.

Decides whether a further pass may begin, makes its request, streams the answer, and decides how the turn continues
after a message without calls. `message_calls` runs the calls of a message and `commit_results` commits them; this
module only hands the calls in while they stream.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, assert_never

from msgspec.structs import replace

from callgate._abort_signals import AbortController, AbortSignal, settled
from callgate.agent.exit_tools import ModelAfterReport
from callgate.agent.message_calls import MessageCalls
from callgate.agent.run_events import MessageBegan, MessageEnded, Notice
from callgate.agent.turn_state import RequestMessages, TurnParts, TurnState
from callgate.calls import Text
from callgate.errors import RecordFailed
from callgate.loop_decision import Ending
from callgate.messages import AssistantMessage, SystemMessage, ToolCall
from callgate.stream import StreamResult, stream_once

if TYPE_CHECKING:
    from callgate.agent.compaction import Compactor

__all__ = ["ModelPasses"]

log = logging.getLogger("callgate")

_DAY_S = 86_400.0
_NO_USAGE = "The provider tells no tokens, so the run's limit on tokens or cost counts nothing."
_CUT = {"length": "the answer was cut at its length limit", "content_filter": "the answer was cut by the provider's content filter"}


class ModelPasses:
    """Runs the passes of one turn.

    Args:
        parts: The parts of the turn.
        state: The turn's state. Modified.
    """

    def __init__(self, parts: TurnParts, state: TurnState) -> None:
        self._parts = parts
        self._state = state
        self._view = RequestMessages((), parts.history.messages)
        self._request = replace(parts.request, messages=self._view)
        exits = tuple(tool for tool in self._request.tools if parts.exits.has(tool.name))
        self._last_request = replace(self._request, tools=exits, tool_choice="auto" if exits else "none")
        """Used in the pass after the last iteration. Only exit tools can be called in it."""
        self._empty_answers = 0
        self._pauses = 0
        self._told_of_long_turn = False
        self._told_of_missing_usage = False

    def limit_reached(self) -> Ending | None:
        """Return why no further pass may begin, or None. Ignores a pending stop or follow-up, which ends the pass itself."""
        budget = self._parts.budget
        over = None if budget.boundless else budget.why_exhausted()
        if over is not None:
            return Ending("budget_exhausted", over)
        if self._state.iteration == self._parts.engine.limits.soft_warn_iteration and not self._told_of_long_turn:
            self._told_of_long_turn = True
            self._notice(Notice("long_turn", f"The turn has taken {self._state.iteration} rounds of tools and goes on."))
        return None

    async def compact_if_long(self, compactor: Compactor) -> Ending | None:
        """Compact the history if it is too long. Return why no further pass may begin after that, or None."""
        parts = self._parts
        with self._interruptible() as signal:
            sizes = await compactor.before_pass(parts.history, signal)
        if sizes is not None:
            parts.recorder.write_compaction(parts.history.messages)
            before, after = sizes
            self._notice(Notice("compacted", f"The history was made shorter: about {before} tokens, now {after}.", hidden=True))
        over = parts.budget.why_out_of_time()
        return None if over is None else Ending("budget_exhausted", over)

    async def stream(self, message_calls: MessageCalls, left: int | None) -> StreamResult:
        """Request one answer of the model. Calls are handed in as soon as they are complete.

        Args:
            message_calls: Runs the calls.
            left: The number of iterations that are left; None: no limit.
        """
        parts, iteration, system = self._parts, self._state.iteration, ""
        if parts.write_system_text is not None:
            system = parts.write_system_text(left)
            self._view.head = (SystemMessage(system),)
        if parts.enrichment.in_use:
            self._view.tail = parts.enrichment.tail()
        request = self._last_request if left == 0 and parts.settings.when_spent == "answer" else self._request
        self._state.cut = ""
        message_calls.cause = parts.recorder.write_pass_began(iteration, parts.history.prompt_hash(), system, self._view.tail)
        if parts.on_event is not None:
            parts.on_event(MessageBegan(iteration))
        after_report = ModelAfterReport(parts.model) if self._state.reported else None
        texts: list[str] = []
        try:
            result = await stream_once(
                after_report or parts.model,
                request,
                parts.context,
                control=parts.engine.control,
                limits=parts.limits,
                guards=parts.host_awaits,
                on_event=parts.on_event,
                on_call=message_calls.see,
                texts=texts,
            )
        except BaseException:
            self._state.texts.append("".join(texts))
            raise
        parts.budget.use(result.usage)
        if not parts.budget.boundless:
            self._warn_of_missing_usage(result)
        if parts.on_event is not None:
            parts.on_event(MessageEnded(iteration, result.status, result.reason))
        if result.text:
            self._state.texts.append(result.text)
        if after_report is not None and after_report.said_more and result.status != "function_call":
            self._state.reported = False
        return result

    def keep_exit_calls(self, message_calls: MessageCalls) -> None:
        """Keep the signals of a message whose stream raised an exception, and record its complete exit calls."""
        exits = message_calls.sealed_exits
        self._state.signals += message_calls.signals_of(exits)
        if exits:
            result = StreamResult(status="error", reason="the model's stream failed")
            with suppress(RecordFailed):  # the error of the stream is reported, not the later one of the record
                self._parts.recorder.write_answer(result, AssistantMessage(parts=exits), self._state.iteration, executes=False)

    async def commit_answer(self, result: StreamResult, message_calls: MessageCalls) -> Ending | None:
        """Commit a message whose calls are not run. Return how the turn ends, or None if the model is called again."""
        exits = message_calls.sealed_exits if result.status != "completed" else ()
        self._state.signals += message_calls.signals_of(exits)
        message = _part_to_keep(result, exits)
        self._parts.recorder.write_answer(result, message, self._state.iteration, executes=False)
        if message is not None:
            self._parts.history.answer(message)
        settings, status = self._parts.settings, result.status
        match status:
            case "completed" if result.finish == "pause" and message is not None and self._pauses < settings.pauses:
                self._pauses += 1
                return None
            case "completed":
                self._state.cut = _CUT.get(result.finish or "", "")
                return Ending("completed", self._state.cut)
            case "empty_response" if self._empty_answers < settings.empty_retries and not self._state.reported:
                self._empty_answers += 1
                await self._wait_and_retry()
                return None
            case "empty_response" | "error" | "timeout" | "stopped_by_user" | "follow_up_interrupt" | "budget_exhausted":
                return Ending(status, result.reason)
            case "function_call":
                raise AssertionError("a message with calls is settled, and not answered")
            case unknown:
                assert_never(unknown)

    # Inside

    async def _wait_and_retry(self) -> None:
        """Wait before the model is called again after an empty answer, unless the turn is stopped in the meantime."""
        self._notice(Notice("retry", "The model's answer was empty; it is asked again."))
        wait_s = self._parts.settings.empty_retry_s
        pause = asyncio.ensure_future(self._parts.engine.clock.sleep(wait_s))
        try:
            with self._interruptible() as signal:
                await settled(pause, signal, wait_s + _DAY_S)
        finally:
            pause.cancel()

    def _warn_of_missing_usage(self, result: StreamResult) -> None:
        """Warn once if a limit on tokens or cost has no effect, because the provider reported no tokens with a whole answer."""
        whole = result.status in ("completed", "function_call")
        if whole and not self._told_of_missing_usage and self._parts.budget.lacks_usage(result.usage):
            self._told_of_missing_usage = True
            log.warning("%s: %s", self._parts.model.name, _NO_USAGE)
            self._notice(Notice("budget", _NO_USAGE))

    @contextmanager
    def _interruptible(self) -> Iterator[AbortSignal]:
        """Yield a signal that fires if the turn is stopped or interrupted between two passes. The next pass then ends for that reason."""
        control, conversation = self._parts.engine.control, self._parts.scope.conversation
        abort = AbortController()
        waiting = control.pending(conversation) or control.pending_follow_up(conversation)
        if waiting is not None:
            abort.abort(waiting)
        control.enter_pass(conversation, lambda _, reason: abort.abort(reason))
        try:
            yield abort.signal
        finally:
            control.leave_pass(conversation)

    def _notice(self, notice: Notice) -> None:
        if self._parts.on_event is not None:
            self._parts.on_event(notice)


def _part_to_keep(result: StreamResult, exits: tuple[ToolCall, ...]) -> AssistantMessage | None:
    """Return the part of an answer that is kept if its calls are not run: its text and its complete exit calls."""
    if result.status == "completed":
        return result.message
    said = result.status in ("stopped_by_user", "budget_exhausted") and result.text
    parts = (*((Text(text=result.text),) if said else ()), *exits)
    return AssistantMessage(parts=parts) if parts else None
