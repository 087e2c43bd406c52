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
from callgate.errors import UsageError
from callgate.integrations._langgraph_order import MESSAGES, message_of, place_of
from callgate.integrations._langgraph_warnings import checkpointer_of
from callgate.integrations.framework_call import CallsEngine, HumanDecision, answer, human_named
from callgate.integrations.journaled_calls import read_journal, recorded_call_id
from callgate.integrations.open_questions import find_suspended_calls
from callgate.integrations.outdated_answers import why_outdated
from callgate.protocols import Journal

__all__ = ["USER", "AskedCall", "TaskAnswers", "ask_about", "decision_of", "question_about"]

log = logging.getLogger("callgate")
USER = "langgraph_auth_user_id"
"""The key of the user for whom a server runs or resumes the graph."""
_FORM = "Resume with {'decisions': [...]}, with one for each call of this interrupt, in their order or each with its tool_call_id."
_DECISIONS = ("approve", "edit", "reject")
_SCRATCHPAD = "__pregel_scratchpad"
"""The key of what LangGraph keeps for a task, such as the answers to its interrupts. LangGraph has no public name for it."""
_RESUME_MAP = "__pregel_resume_map"
"""The key of the answers that were given by the ids of their interrupts. LangGraph has no public name for it."""
_NOT_RESUMABLE = (
    "A human has to decide about a tool call, but the graph has no checkpointer: it ends with an interrupt that cannot be resumed. Compile"
    " the graph with checkpointer=..., as create_agent(..., checkpointer=InMemorySaver()), and give a thread_id."
)


class TaskAnswers:
    """The answers to the interrupts of one task of a graph, in one execution of it.

    LangGraph restarts the task for each answer and returns all its answers again, in order, to whatever code interrupts next. An answer
    counts only for its own question: the newest one, with which the graph is resumed now, for the question that is asked now. The older
    ones were recorded by the engine before, or could not be used. Only if the code of a tool has taken later ones, all are returned
    from the first on.

    Args:
        messages_key: The key of the messages in the state.
    """

    def __init__(self, messages_key: str = MESSAGES) -> None:
        self.messages_key = messages_key
        self._count = 0
        """How many answers were taken in this execution."""
        self.in_order = False
        """Whether the code of a tool has asked for answers, too, so that all are handed out in order."""
        self.asked: frozenset[str] | None = None
        """The recorded ids of the calls that the graph's last interrupt was about; None if they were not read, as without an answer."""
        self._not_started: frozenset[str] = frozenset()
        """Those in `asked`, and the calls that a human has decided about and that have not been started."""
        self.in_task: Collection[str] = ()
        """The ids of all calls of the task; empty if it has one call only."""
        self.taken: list[Any] = []
        """The answer that was taken because the engine got its own answer elsewhere; empty if none was."""

    @property
    def waiting(self) -> bool:
        """Whether the task has answers, and this execution has taken none."""
        return not self._count and (bool(_older_answers()) or _newest_answer() is not None)

    async def read_asked(self, journal: Journal, scope: Scope) -> None:
        """Read which calls the last interrupt was about, before a decision about them is recorded."""
        if self.asked is None:
            found = await read_journal(journal, lambda: find_suspended_calls(journal, scope))
            if self.asked is None:  # no other call of the task has read it meanwhile, and recorded a decision
                asked_once = len(self.in_task) <= 1 or not _has_earlier()
                self._not_started = frozenset(found)
                self.asked = frozenset(call_id for call_id, is_told in found.items() if asked_once or not is_told)

    def is_asked(self, call_id: object) -> bool:
        """Return whether the last interrupt was about this call."""
        return recorded_call_id(str(call_id)) in (self.asked or ())

    def is_about(self, call_id: object, given: Any) -> bool:
        """Return whether what the graph was resumed with may be about this call: it was asked about, or is named and was not started."""
        named = (one["tool_call_id"] for one in _with_call_ids(_as_decisions(given)))
        return self.is_asked(call_id) or (recorded_call_id(str(call_id)) in self._not_started and call_id in named)

    def decision_about(self, request: ToolCallRequest, given: Any, approval_id: str) -> HumanDecision | str | None:
        """Return the decision about a call in what the graph was resumed with; None if it has none, or the call was not asked about.

        Args:
            approval_id: The question about the call; empty if it does not matter which one the decision names.
        """
        call = request.tool_call
        if not self.is_about(call["id"], given):
            return None
        made = _decision_about(call["id"], given, self._calls_in_interrupt(request))
        return None if made is None else decision_of(made, call, approval_id)

    def why_undecided(self, request: ToolCallRequest, given: Any) -> str:
        """Return why `decision_about` has found no decision about a call."""
        call = request.tool_call
        name = f"{call['name']} ({call['id']!s:.200})"
        if not self.is_asked(call["id"]):
            return f"Nobody was asked about {name} before, so no decision can be about it."
        return _why_undecided(name, call["id"], given, self._calls_in_interrupt(request))

    def _calls_in_interrupt(self, request: ToolCallRequest) -> list[Any]:
        """Return the ids of the calls of the task that the last interrupt was about, in their order, with that of this call."""
        call_id = request.tool_call["id"]
        in_task = self.in_task or (call_id,)
        return [one for one in message_of(request, self.messages_key)[1] if one in in_task and self.is_asked(one)] or [call_id]

    def next_one(self) -> Any:
        """Return the answer that counts for the next question, without taking it; None if there is none, or one was taken."""
        if self._count:
            return None
        older = _older_answers() if self.in_order else []
        return older[0] if older else _newest_answer()

    def ask(self, value: dict[str, Any]) -> Any:
        """Return the answer that counts for a question, or interrupt the graph. A graph that cannot be resumed is logged."""
        if checkpointer_of(get_config()["configurable"]) is None:
            log.warning(_NOT_RESUMABLE)
        newest = None if self.in_order else _newest_answer()
        answer = self._interrupt_again(value)
        while not self.in_order and (newest is None or answer is not newest):
            answer = self._interrupt_again(value)
        return answer

    def take_all(self, value: dict[str, Any]) -> Any:
        """Take the answers that are about calls, so that no tool reads them, and return the last one."""
        newest = _newest_answer()
        if self.in_order or newest is not None:
            return self.ask(value)
        return [self._interrupt_again(value) for _ in _older_answers()[self._count :]][-1]

    def _interrupt_again(self, value: dict[str, Any]) -> Any:
        self._count += 1
        return interrupt(value)


def _newest_answer() -> Any:
    """Return the answer with which the graph is resumed now; None if it is not, or if it was taken."""
    configurable = get_config()["configurable"]
    scratchpad = configurable.get(_SCRATCHPAD)
    if scratchpad is None:
        return None
    given = (configurable.get(_RESUME_MAP) or {}).values()
    last = scratchpad.resume[-1] if scratchpad.resume else None
    return last if any(last is one for one in given) else scratchpad.get_null_resume()


def _older_answers() -> list[Any]:
    """Return the answers that LangGraph keeps for the task; the newest one is among them if it was given by the id of its interrupt."""
    scratchpad = get_config()["configurable"].get(_SCRATCHPAD)
    return [] if scratchpad is None else scratchpad.resume


def _has_earlier() -> bool:
    """Return whether LangGraph keeps answers for the task besides the newest one, so that it has asked again since the first."""
    newest = _newest_answer()
    return any(one is not newest for one in _older_answers())


# One call


def question_about(call: Mapping[str, Any], arguments: Mapping[str, Any], suspended: Suspended, problem: str) -> dict[str, Any]:
    """Return what a human is shown about a call.

    Args:
        arguments: Those with which it would run, with the tool's defaults.
    """
    description = f"{problem}\n\n{suspended.question}" if problem else suspended.question
    return {
        "name": call["name"],
        "args": arguments,
        "description": description,
        "tool_call_id": call["id"],
        "approval_id": suspended.approval_id,
    }


def _decision_about(call_id: Any, given: Any, in_order: Sequence[Any]) -> Any:
    """Return what a human has decided about a call; None if no decision is about it.

    Args:
        given: What the graph was resumed with: `{"decisions": [...]}`, or one decision. What has another form is returned as it is.
        in_order: The ids of the calls that the human was asked about.
    """
    if not isinstance(given, Mapping):
        return given
    made = _as_decisions(given)
    named = _with_call_ids(made)
    if named:
        own = [one for one in named if one["tool_call_id"] == call_id]
        return own[0] if len(own) == 1 else None
    return made[in_order.index(call_id)] if in_order.count(call_id) == 1 and len(in_order) == len(made) else None


def _as_decisions(given: Any) -> list[Any]:
    """Return the decisions with which the graph was resumed. A value that is not a list counts as one decision."""
    listed = given.get("decisions") if isinstance(given, Mapping) else None
    return listed if isinstance(listed, list) else [given]


def _with_call_ids(made: Sequence[Any]) -> list[Mapping[str, Any]]:
    return [one for one in made if isinstance(one, Mapping) and one.get("tool_call_id") is not None]


def _why_undecided(name: str, call_id: Any, given: Any, in_order: Sequence[Any]) -> str:
    """Return why `_decision_about` has found nothing about a call."""
    made = _as_decisions(given)
    about = [one["tool_call_id"] for one in _with_call_ids(made)]
    if call_id in about:
        return f"More than one decision names {name}, so none of them counts."
    if not about:
        return (
            "Decisions without a tool_call_id count only if there is one for each call that was asked about"
            f" (needed: {len(in_order)}, came: {len(made)}), so none is about {name}."
        )
    beside = "" if len(about) == len(made) else " Beside them, those without a tool_call_id count for no call."
    return f"No decision names {name}; those that came name {', '.join(map(str, about)):.500}.{beside}"


def decision_of(given: Any, call: Mapping[str, Any], approval_id: str) -> HumanDecision | str:
    """Return a human's decision, in the form of LangChain's human-in-the-loop middleware; if it has another form, why it cannot be used.

    Args:
        approval_id: The question about the call; empty if it does not matter which one the decision names.
    """
    named = given.get("tool_call_id") if isinstance(given, Mapping) else None
    if named is not None and named != call["id"]:
        return f"The decision was about the call {named!r:.200}, and this is the call {call['id']!r:.200}. Decide about this one."
    answered = given.get("approval_id") if isinstance(given, Mapping) else None
    if answered is not None and approval_id and answered != approval_id:
        return (
            f"The decision was about the question {answered!r:.200}, and the open question about {call['name']} is {approval_id!r}."
            " Decide about this one."
        )
    kind = given.get("type") if isinstance(given, Mapping) and "decisions" not in given else None
    by = human_named(str(get_config()["configurable"].get(USER) or ""))
    if kind == "approve":
        return HumanDecision(allow=True, by=by)
    if kind == "reject":
        return HumanDecision(allow=False, by=by, reason=str(given.get("message") or ""))
    edited = given.get("edited_action") if kind == "edit" else None
    if isinstance(edited, Mapping) and isinstance(edited.get("args"), Mapping) and edited.get("name", call["name"]) == call["name"]:
        return HumanDecision(allow=True, by=by, arguments=edited["args"])
    return (
        f"The decision about {call['name']} was {given!r:.200}, which cannot be used. Give {{'type': 'approve'}},"
        f" {{'type': 'reject', 'message': ...}} or {{'type': 'edit', 'edited_action': {{'name': '{call['name']}', 'args': {{...}}}}}}."
    )


# All calls of a message


class AskedCall(Struct, frozen=True):
    """A call of the node that a human has to decide about."""

    request: ToolCallRequest
    suspended: Suspended
    scope: Scope
    arguments: Mapping[str, Any]
    """The arguments with which it would run."""

    @property
    def call(self) -> Mapping[str, Any]:
        return self.request.tool_call


async def ask_about(engine: CallsEngine, calls: Iterable[AskedCall], answers: TaskAnswers) -> None:
    """Ask a human about calls of one message in one interrupt, and answer the engine's questions.

    Decisions that cannot be used are asked for again, with the reason, by the next interrupt.
    """
    waiting = sorted(calls, key=lambda one: (place_of(one.request, answers.messages_key)[1], str(one.call["id"])))
    problems = dict.fromkeys((one.suspended.approval_id for one in waiting), "")
    while waiting:
        asked = [question_about(one.call, one.arguments, one.suspended, problems[one.suspended.approval_id]) for one in waiting]
        configs = [{"action_name": one.call["name"], "allowed_decisions": list(_DECISIONS)} for one in waiting]
        given = answers.taken.pop() if answers.taken else answers.ask({"action_requests": asked, "review_configs": configs})
        if answers.in_order:  # they are about the one call that asks
            answers.asked = frozenset(recorded_call_id(str(one.call["id"])) for one in waiting)
        decisions = [_find_decision(one, given, answers) for one in waiting]
        for one, decision in zip(waiting, decisions, strict=True):
            unusable = decision if isinstance(decision, str) else await _answer(engine, one, decision)
            problems[one.suspended.approval_id] = unusable
        waiting = [one for one in waiting if problems[one.suspended.approval_id]]


async def _answer(engine: CallsEngine, asked: AskedCall, decision: HumanDecision) -> str:
    """Answer the engine's question. Return why the decision cannot be used; empty if it was, or if the question is not open any more.

    In the latter case another resume has answered it, and the call that is made again gets what became of it.
    """
    name, call_id = asked.call["name"], asked.call["id"] or ""
    outdated = await why_outdated(engine.journal, name, call_id, asked.scope, asked.suspended) if decision.allow else ""
    unusable = outdated or await answer(engine, asked.suspended, decision)
    return unusable if outdated or not unusable or await _is_open(engine, asked.suspended.approval_id) else ""


async def _is_open(engine: CallsEngine, approval_id: str) -> bool:
    try:
        return await engine.wait_for_answer(approval_id, timeout_s=0) is None
    except UsageError:  # the question is used up or has expired; or the run is held, which the call reports
        return False


def _find_decision(asked: AskedCall, given: Any, answers: TaskAnswers) -> HumanDecision | str:
    """Return the decision about a call: by its `tool_call_id`, or by its place. A text says why no decision can be used.

    The decisions are about the calls that the last interrupt was about. Some of them may have been answered another way since then, and
    others may wait now.
    """
    found = answers.decision_about(asked.request, given, asked.suspended.approval_id)
    if isinstance(found, HumanDecision):
        return found
    problem = answers.why_undecided(asked.request, given) if found is None else found
    return f"{problem} {_FORM}"
