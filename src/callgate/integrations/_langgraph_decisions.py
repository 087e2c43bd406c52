"""Check and record the decision about one call with which a graph of LangGraph was resumed, and hide it from the tool.

The engine's journal counts. If its rules do not ask about the call any more, or somebody has answered there, the decision must not be lost,
and the code of the tool must not read it in place of an answer of its own. Must not know how a call is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from langgraph.prebuilt.tool_node import ToolCallRequest

from callgate.calls import Scope, Suspended
from callgate.engine import Engine
from callgate.errors import NotDone, UsageError
from callgate.integrations._langgraph_questions import TaskAnswers
from callgate.integrations.framework_call import CallsEngine, HumanDecision, record_decision
from callgate.integrations.journaled_calls import read_journal, recorded_call_id
from callgate.integrations.open_questions import find_paused_and_asked, last_question, refusal_by, withdraw_yes
from callgate.integrations.wrapped_tools import WrappedTools

__all__ = ["ResumedDecision"]


class ResumedDecision:
    """The decision about one call with which the graph was resumed.

    Args:
        engine: The engine.
        calls_engine: Runs the call, and takes answers.
        tools: The tools of the wrapper.
        request: The call, as LangGraph makes it.
        scope: The scope of the call.
        answers: Those of the task that the call runs in.
    """

    def __init__(
        self, engine: Engine, calls_engine: CallsEngine, tools: WrappedTools, request: ToolCallRequest, scope: Scope, answers: TaskAnswers
    ) -> None:
        self._engine = engine
        self._journal = engine.journal
        self._calls_engine = calls_engine
        self._tools = tools
        self._request = request
        self._call = request.tool_call
        self._scope = scope
        self._answers = answers

    async def record_early(self) -> None:
        """Record the decision, if the engine may not ask for it again.

        That is so for a denial, whatever answer the engine got elsewhere; if no rule, judge or tool of the engine asks any more; and for
        an edit of a call of the engine's own tool, which does not wait for `drop`.
        """
        answers, call_id = self._answers, recorded_call_id(str(self._call["id"]))
        if not self._is_resumed:
            return
        await answers.read_asked(self._journal, self._scope)
        paused, asked = await read_journal(self._journal, lambda: find_paused_and_asked(self._journal, self._scope))
        answers.in_order = answers.in_order or call_id in paused
        decision = answers.decision_about(self._request, self._given, asked.get(call_id, ""))
        if not isinstance(decision, HumanDecision):
            return
        with suppress(UsageError):  # the question is used up or has expired; or the run is held, which the call reports
            if await self._record(decision, asked[call_id]):
                self._take()

    async def _record(self, decision: HumanDecision, approval_id: str) -> bool:
        """Record the decision as the answer to a question, or in place of an earlier yes. Return whether nothing will ask for it now.

        Raises:
            UsageError: The question is used up or has expired, or the run is held.
        """
        engine, may_ask, is_external = self._calls_engine, self._engine.may_ask, self._tools.is_external(self._call["name"])
        answered = await engine.wait_for_answer(approval_id, timeout_s=0)
        if answered is None:
            asks_again = may_ask and (decision.arguments is None or is_external)
            if decision.allow and asks_again:
                return False
            await record_decision(engine, approval_id, decision)
            return not may_ask
        if not answered.allowed:
            return False
        if not decision.allow:
            await engine.deny(answered.approval_id, by=decision.by, reason=decision.reason)
            return True
        return not is_external and await withdraw_yes(engine, answered, decision, self._call["args"])

    async def find_undecided(self) -> Suspended | None:
        """Return the question about the call if the graph was resumed with a decision about it that cannot be used; else None.

        The call must not run then, although the engine may not ask any more, or has got a yes elsewhere.
        """
        answers, journal, given = self._answers, self._journal, self._given
        if answers.in_order or given is None or not answers.is_asked(self._call["id"]):
            return None
        question = await read_journal(journal, lambda: last_question(journal, self._scope, str(self._call["id"])))
        if question is None or isinstance(answers.decision_about(self._request, given, question.approval_id), HumanDecision):
            return None
        with suppress(UsageError):
            answered = await self._calls_engine.wait_for_answer(question.approval_id, timeout_s=0)
            if answered is not None and not answered.allowed:
                return None
        return question

    def drop(self, arguments: Mapping[str, Any]) -> NotDone | None:
        """Take the decision, if the engine did not ask for it, so that the tool cannot read it.

        The engine has got its answer elsewhere, or its rules do not ask any more. Return why the call must not run: the decision denies
        it, whatever that answer was, or is about other arguments; else None.
        """
        if not self._is_resumed or not self._answers.is_about(self._call["id"], self._given):
            return None
        decision = self._answers.decision_about(self._request, self._take(), "")
        if not isinstance(decision, HumanDecision):
            return None
        is_final = decision.arguments is not None and self._is_final(decision.arguments, arguments)
        return None if is_final and decision.allow else refusal_by(decision, arguments)

    @property
    def _is_resumed(self) -> bool:
        """Whether the graph was resumed with an answer that no tool has taken."""
        return bool(self._answers.taken) or self._answers.waiting

    @property
    def _given(self) -> Any:
        """What the graph was resumed with; None if that was taken by a tool, or is nothing."""
        return self._answers.taken[0] if self._answers.taken else self._answers.next_one()

    def _take(self) -> Any:
        """Take what the graph was resumed with, so that no tool reads it, and return it."""
        answers = self._answers
        if not answers.taken:
            text = f"A human has decided about {self._call['name']}. Resume with any decision."
            answers.taken.append(answers.take_all({"description": text}))
        return answers.taken[0]

    def _is_final(self, decided: Mapping[str, object], arguments: Mapping[str, object]) -> bool:
        """Return whether the call, as a human has edited it, would run with these arguments."""
        name = self._call["name"]
        return self._tools.final(name, decided) == self._tools.final(name, arguments)
