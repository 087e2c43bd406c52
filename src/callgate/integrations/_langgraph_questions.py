"""The questions that a graph of LangGraph asks a human about its calls, and the decisions with which it is resumed.

They have the form of LangChain's human-in-the-loop middleware. The middleware asks about each call alone, the node about all calls of a
message at once. Must not know how calls are made.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from langgraph.config import get_config
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import interrupt
from msgspec import Struct

from callgate.calls import Scope, Suspended
from callgate.integrations._langgraph_order import message_of, place_of
from callgate.integrations.framework_call import CallsEngine, HumanDecision, answer, no_because
from callgate.integrations.open_questions import asked_calls
from callgate.integrations.outdated_answers import why_outdated
from callgate.protocols import Journal

__all__ = ["AskedCall", "TaskAnswers", "ask_about", "decision_in", "decision_of", "question_about"]

log = logging.getLogger("callgate")
_DECISIONS = ("approve", "edit", "reject")
_SCRATCHPAD = "__pregel_scratchpad"
"""The key of what LangGraph keeps for a task, such as the answers to its interrupts. LangGraph has no public name for it."""
_CHECKPOINTER = "__pregel_checkpointer"
"""The key of the checkpointer of a running graph, and of the graph that it is a part of. LangGraph has no public name for it."""
_NOT_RESUMABLE = (
    "A human has to decide about a tool call, but the graph has no checkpointer: it ends with an interrupt that cannot be resumed. Compile"
    " the graph with checkpointer=..., as create_agent(..., checkpointer=InMemorySaver()), and give a thread_id."
)


class TaskAnswers:
    """The answers to the interrupts of one task of a graph, in one execution of it.

    LangGraph hands them out in order, to whatever asks next in the task.
    """

    def __init__(self) -> None:
        self._asked = False
        self.taken: list[Any] = []
        """The answer that was taken because the engine was told another way; empty if none was."""

    def ask(self, value: dict[str, Any]) -> Any:
        """Return the next answer, or interrupt the graph. A graph that cannot be resumed is logged."""
        self._asked = True
        if get_config()["configurable"].get(_CHECKPOINTER) is None:
            log.warning(_NOT_RESUMABLE)
        return interrupt(value)

    def holds_another(self) -> bool:
        """Return whether the task was resumed with an answer, and this execution has not asked for one."""
        return self.next_one() is not None

    def next_one(self) -> Any:
        """Return the answer with which the task was resumed, without taking it; None if this execution has asked for one."""
        scratchpad = get_config()["configurable"].get(_SCRATCHPAD)
        if self._asked or scratchpad is None:
            return None
        return scratchpad.resume[0] if scratchpad.resume else scratchpad.get_null_resume()


# One call


def question_about(call: Mapping[str, Any], suspended: Suspended, problem: str) -> dict[str, Any]:
    """Return what a human is shown about a call."""
    description = f"{problem}\n\n{suspended.question}" if problem else suspended.question
    return {
        "name": call["name"],
        "args": call["args"],
        "description": description,
        "tool_call_id": call["id"],
        "approval_id": suspended.approval_id,
    }


def _decision_about(call_id: Any, given: Any, in_order: Sequence[Any]) -> Any:
    """Return what a human has decided about a call; the whole value if it is about one call only.

    Args:
        given: What the graph was resumed with: a decision, or `{"decisions": [...]}` about several calls.
        in_order: The ids of these calls.
    """
    made = given.get("decisions") if isinstance(given, Mapping) else None
    if not isinstance(made, list):
        return given
    by_id = {str(one.get("tool_call_id")): one for one in made if isinstance(one, Mapping)}
    if str(call_id) in by_id:
        return by_id[str(call_id)]
    return made[in_order.index(call_id)] if call_id in in_order and len(in_order) == len(made) else None


def decision_in(given: Any, request: ToolCallRequest, asked: Collection[str]) -> HumanDecision | str | None:
    """Return the decision about a call in what the graph was resumed with; None if no human was asked about the call.

    Args:
        asked: The ids of the calls of the message that a human was asked about.
    """
    call = request.tool_call
    if call["id"] not in asked:
        return None
    in_order = [one for one in message_of(request)[1] if one in asked] or [call["id"]]
    return decision_of(_decision_about(call["id"], given, in_order), call)


def decision_of(given: Any, call: Mapping[str, Any]) -> HumanDecision | str:
    """Return a human's decision, in the form of LangChain's human-in-the-loop middleware; if it has another form, why it cannot be used."""
    kind = given.get("type") if isinstance(given, Mapping) else None
    if kind == "approve":
        return HumanDecision(allow=True)
    if kind == "reject":
        return HumanDecision(allow=False, reason=str(given.get("message") or ""))
    edited = given.get("edited_action") if kind == "edit" else None
    if isinstance(edited, Mapping) and isinstance(edited.get("args"), Mapping) and edited.get("name", call["name"]) == call["name"]:
        return HumanDecision(allow=True, arguments=edited["args"])
    return (
        f"The decision about {call['name']} was {given!r:.200}, which cannot be used. Resume with {{'type': 'approve'}},"
        f" {{'type': 'reject', 'message': ...}} or {{'type': 'edit', 'edited_action': {{'name': '{call['name']}', 'args': {{...}}}}}}."
    )


# All calls of a message


class AskedCall(Struct, frozen=True):
    """A call of the node that a human has to decide about."""

    request: ToolCallRequest
    suspended: Suspended
    scope: Scope

    @property
    def call(self) -> Mapping[str, Any]:
        return self.request.tool_call


async def ask_about(engine: CallsEngine, calls: Iterable[AskedCall], answers: TaskAnswers) -> None:
    """Ask a human about calls of one message in one interrupt, and answer the engine's questions.

    Decisions that cannot be used are asked for again, with the reason, by the next interrupt.
    """
    waiting = sorted(calls, key=lambda one: (place_of(one.request)[1], str(one.call["id"])))
    problems = dict.fromkeys((one.suspended.approval_id for one in waiting), "")
    while waiting:
        asked = [question_about(one.call, one.suspended, problems[one.suspended.approval_id]) for one in waiting]
        configs = [{"action_name": one.call["name"], "allowed_decisions": list(_DECISIONS)} for one in waiting]
        given = answers.ask({"action_requests": asked, "review_configs": configs})
        for one, decision in zip(waiting, await _decisions(engine.journal, given, waiting), strict=True):
            unusable = decision if isinstance(decision, str) else await _answer(engine, one, decision)
            problems[one.suspended.approval_id] = unusable
        waiting = [one for one in waiting if problems[one.suspended.approval_id]]


async def _answer(engine: CallsEngine, asked: AskedCall, decision: HumanDecision) -> str:
    """Answer the engine's question. Return why the decision cannot be used; empty if it was."""
    name, call_id = asked.call["name"], asked.call["id"] or ""
    outdated = await why_outdated(engine.journal, name, call_id, asked.scope, asked.suspended) if decision.allow else ""
    return await answer(engine, asked.suspended, no_because(outdated) if outdated else decision)


async def _decisions(journal: Journal, given: Any, waiting: Sequence[AskedCall]) -> list[HumanDecision | str]:
    """Return the decision for each call: by its `tool_call_id` or by its place. A text is why a decision cannot be used.

    If there are more decisions than calls, the engine has been told some of them already: they are about all calls of the message that a
    human was asked about.
    """
    made = given.get("decisions") if isinstance(given, Mapping) else None
    if isinstance(made, list) and len(made) == len(waiting) and not any(isinstance(one, Mapping) and "tool_call_id" in one for one in made):
        return [decision_of(one, asked.call) for one, asked in zip(made, waiting, strict=True)]
    asked_ids = await asked_calls(journal, waiting[0].scope) if isinstance(made, list) and made else {}
    found = [decision for one in waiting if (decision := decision_in(given, one.request, asked_ids)) is not None]
    if len(found) == len(waiting):
        return found
    names = ", ".join(str(one.call["name"]) for one in waiting)
    problem = f"The node was resumed with {given!r:.200}; it needs {{'decisions': [...]}} with one for each of: {names}."
    return [problem for _ in waiting]
