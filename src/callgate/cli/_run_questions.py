"""Ask the person at the terminal about the calls of a run that wait for a human, and record the answers.

Another process may answer, stop or kill the run at any time; then its answer is shown, or the questions end. Knows nothing of the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from callgate.agent import RunResult
from callgate.calls import Scope, Suspended
from callgate.cli._approval_prompt import is_answered, put_question
from callgate.cli._interrupt_signals import Interrupts
from callgate.cli._run_events import ApprovalAnswered, ApprovalAsked, CommandEvent
from callgate.cli._terminal_approver import TerminalApprover
from callgate.engine import Engine
from callgate.messages import ToolCall

__all__ = ["RunQuestions"]


class RunQuestions:
    """The questions of a run's calls.

    Args:
        engine: The engine that makes the calls.
        person: The person at the terminal, who may be absent.
        interrupts: The signals of this turn. One that comes instead of an answer counts as Ctrl-C.
        tell: Called with each question and each answer.
        yes: Whether every question is answered with yes.
    """

    def __init__(
        self, engine: Engine, person: TerminalApprover, interrupts: Interrupts, tell: Callable[[CommandEvent], None], *, yes: bool
    ) -> None:
        self._engine = engine
        self._person = person
        self._interrupts = interrupts
        self._tell = tell
        self._yes = yes

    async def ask(self, result: RunResult) -> bool:
        """Ask every question that was not answered elsewhere; return whether to resume the run.

        The run is resumed if all questions are answered, or if another process has stopped or killed it. While it asks,
        this engine holds the run's lease, so that it receives answers, stops and kills from other processes.
        """
        assert result.pending is not None
        unanswered = 0
        with self._engine.runs.at_work(result.run) as end_wanted:
            await self._engine.runs.open(Scope(run=result.run))
            for call, approval in zip(result.pending.message.calls, result.pending.approvals, strict=True):
                unanswered += not await self._put(call, approval, end_wanted)
        return (not unanswered or end_wanted.is_set()) and not self._interrupts.count

    async def _put(self, call: ToolCall, approval: Suspended, end_wanted: asyncio.Event) -> bool:
        """Ask one question, unless it was answered elsewhere or the run has to end.

        Return whether the question is settled.
        """
        await asyncio.sleep(0)  # receive the messages of other processes first
        if self._show_if_settled(approval.approval_id):
            return True
        if end_wanted.is_set():
            return False
        arguments = self._person.final_arguments(approval.uid)
        question = approval.question
        self._tell(ApprovalAsked(call=approval.uid, tool=call.name, approval=approval.approval_id, question=question, arguments=arguments))
        allowed = await self._ask_person(approval.approval_id, call.name, question, arguments, end_wanted)
        if allowed is None:
            return self._show_if_settled(approval.approval_id)
        await self.answer(approval.approval_id, allow=allowed, by="--yes" if self._yes else "the person at the terminal")
        return True

    def _show_if_settled(self, approval_id: str) -> bool:
        """If the question was answered elsewhere, show that answer. Return whether it needs no answer here.

        An expired question also needs no answer; it is asked again when the run is resumed.
        """
        question = self._engine.approval(approval_id)
        if question is not None and question.allowed is not None:
            self._tell(ApprovalAnswered(approval=approval_id, allowed=question.allowed, by=question.by, elsewhere=True))
        return question is None or question.allowed is not None

    async def answer(self, approval_id: str, *, allow: bool, by: str) -> None:
        """Record an answer.

        If the question was answered elsewhere meanwhile, a yes is dropped, but a no replaces that answer.
        """
        await asyncio.sleep(0)
        question = self._engine.approval(approval_id)
        if question is None or (allow and question.allowed is not None):
            self._show_if_settled(approval_id)
            return
        await self._engine.answer(approval_id, allow=allow, by=by)
        self._tell(ApprovalAnswered(approval=approval_id, allowed=allow, by=by))

    async def _ask_person(
        self, approval_id: str, tool: str, question: str, arguments: dict[str, object], end_wanted: asyncio.Event
    ) -> bool | None:
        """Return the person's answer.

        Return None if no person can be asked, input ends, or another process answers or ends the run.
        """
        if self._yes:
            return True
        if not self._person.here or self._interrupts.count:
            return None
        allowed = await put_question(self._engine, self._person, self._interrupts, approval_id, tool, question, arguments, end_wanted)
        self._interrupts.count += allowed is None and not (end_wanted.is_set() or is_answered(self._engine, approval_id))
        return allowed
