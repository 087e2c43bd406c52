"""The questions to a human that a framework shows, so that the human's no reaches the journal.

Some frameworks answer the model themselves when a human has denied a call, and never hand the call in again. So their wrappers remember the
questions, those that another process asked included, and record a no when they see one. Others hand the call in again with the arguments
that the human has given, so their wrappers ask whether the engine's question was about the call. Must not know any framework.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from msgspec import Struct

from callgate._json import decode, json_text
from callgate._run_state.event_bodies import approval_id_of, decode_reason, question_of
from callgate.calls import Approval, RawCall, Scope, Suspended
from callgate.engine import Engine
from callgate.errors import CallgateError, NotDone, PausedByTool, UsageError
from callgate.event_queries import EventQuery
from callgate.events import Event
from callgate.integrations.framework_call import (
    A_HUMAN,
    CallsEngine,
    FrameworkCall,
    HumanDecision,
    is_told_by_wrapper,
    record_decision,
)
from callgate.integrations.journaled_calls import as_recorded, is_in_message, is_in_tick, read_journal, recorded_call_id, with_received
from callgate.integrations.late_denials import TOO_LATE, started_before_denial
from callgate.integrations.outdated_answers import questions_about
from callgate.protocols import Journal

__all__ = [
    "DeniableCall",
    "DenialOf",
    "OpenQuestions",
    "find_paused_and_asked",
    "find_suspended_calls",
    "last_question",
    "make_refusal",
    "only_ask",
    "record_denial",
    "record_edit",
    "refusal_by",
    "was_asked",
    "was_asked_with",
    "withdraw_yes",
]

_MOST = 1_000

DenialOf = Callable[[str, str], str | None]
"""Returns the reason with which a human denied the call with this tool name and id, which may be empty; None if it was not denied.

The id is the recorded one if another process has asked."""


async def only_ask(arguments: dict[str, Any]) -> Any:
    """Raise `NotDone`: the code of a call that is made only to ask a human, who may have answered in the meantime.

    Raises:
        NotDone: Always; so the call can be made again.
    """
    raise NotDone("the call was made to ask about it, and is made again")


def _denied_error(reason: str) -> NotDone:
    return NotDone(f"a human has denied it{': ' if reason else ''}{reason}")


def make_refusal(reason: str) -> Callable[[dict[str, Any]], Awaitable[Any]]:
    """Return code that replaces a tool's in a call that a human has denied, if the engine does not ask about it any more."""

    async def refuse(arguments: dict[str, Any]) -> Any:
        raise _denied_error(reason)

    return refuse


async def record_edit(engine: Engine, call: FrameworkCall, edit: HumanDecision, answers: str, *, is_external: bool) -> None:
    """Answer the engine's question about a call with a human's edit. If somebody has approved the call before, the edit is refused.

    Args:
        answers: The id of the question that the edit answers, so that it answers no other one; empty if the framework does not know it.
        is_external: Whether the framework's own code runs for calls of the tool. Then that refuses the edit, see `refusal_by`.
    """
    journal = engine.journal
    asked = await read_journal(journal, lambda: last_question(journal, call.scope, call.id))
    if asked is None or (answers and asked.approval_id != answers):
        return
    with suppress(UsageError):  # the question is used up or has expired; or the run is held, which the call reports
        answered = await engine.wait_for_answer(asked.approval_id, timeout_s=0)
        if answered is None:
            await record_decision(engine, asked.approval_id, edit)
        elif answered.allowed and not is_external:
            await withdraw_yes(engine, answered, edit, call.arguments)


async def withdraw_yes(engine: CallsEngine, answered: Approval, decision: HumanDecision, arguments: Mapping[str, object] | str) -> bool:
    """Withdraw a yes to a call of the engine's own tool if the human decided about other arguments than would run. Return whether it was.

    Nothing else can refuse the decision: the engine's own code runs for the call.

    Args:
        arguments: The call's own.
    """
    refusal = refusal_by(decision, answered.arguments or arguments)
    if refusal is None:
        return False
    await engine.deny(answered.approval_id, by=decision.by, reason=str(refusal))
    return True


def refusal_by(decision: HumanDecision, arguments: Mapping[str, object] | str) -> NotDone | None:
    """Return why a call must not run that a human has decided about, and that the engine does not ask about any more; None if it may.

    Args:
        arguments: Those with which it would run.
    """
    if not decision.allow:
        return _denied_error(decision.reason)
    if decision.arguments is None or dict(decision.arguments) == arguments:
        return None
    return NotDone(
        "a human has given it other arguments, but the engine did not ask for them: it was approved another way before, or no rule asks"
        " about it any more. So it has not run."
        f" Make the call again, as a new one, with these: {json_text(decision.arguments)}"
    )


async def was_asked(engine: Engine, call: FrameworkCall) -> bool:
    """Return whether the engine has asked a human about a call, in this process or in another one, answered or not."""
    journal, scope = engine.journal, call.scope

    def find() -> bool:
        return any(is_in_message(made, scope) for _, made in questions_about(journal, call.name, call.id, scope.run))

    return await read_journal(journal, find)


async def was_asked_with(engine: Engine, call: FrameworkCall, arguments: Mapping[str, object]) -> bool:
    """Return whether the engine has asked a human about a call with these arguments, also if its message was made anew."""
    journal, raw = engine.journal, RawCall(name=call.name, arguments=arguments)
    text = as_recorded(raw, call.scope, engine.redactor).arguments

    def find() -> bool:
        return any(made.arguments == text for _, made in questions_about(journal, call.name, call.id, call.scope.run))

    return await read_journal(journal, find)


def find_paused_and_asked(journal: Journal, scope: Scope) -> tuple[set[str], dict[str, str]]:
    """Return the ids of the calls of a message whose tool has paused the run, and the latest question about each call of it."""
    paused: set[str] = set()
    asked: dict[str, str] = {}
    kinds = ("call.raised", "call.suspended")
    found = journal.find(EventQuery(run=scope.run, kinds=kinds, newest_first=True, limit=_MOST))
    for event, call in with_received(journal, found):
        if not is_in_message(call, scope):
            continue
        if event.kind == "call.suspended":
            asked.setdefault(call.id, approval_id_of(event))
        elif decode(event.body)["exception"] == PausedByTool.__name__:
            paused.add(call.id)
    return paused, asked


def find_suspended_calls(journal: Journal, scope: Scope) -> dict[str, bool]:
    """Return the recorded ids of the calls of a message that a human was asked about and that have not been started since.

    Each of them was suspended when it was last made, if that is not in a request or a process that has ended before the call was started.

    Returns:
        For each call, whether a decision about it was recorded through the framework. An operator's answer does not count, because
        the framework's interrupt is still open then.
    """
    latest: dict[str, Event] = {}
    kinds = ("call.suspended", "call.started", "call.completed", "call.replayed")
    found = journal.find(EventQuery(run=scope.run, kinds=kinds, newest_first=True, limit=_MOST))
    for event, call in with_received(journal, found):
        if is_in_message(call, scope):
            latest.setdefault(call.id, event)
    waiting = {call_id: event for call_id, event in latest.items() if event.kind == "call.suspended"}
    return {call_id: _is_told(journal, approval_id_of(event), event.position) for call_id, event in waiting.items()}


def last_question(journal: Journal, scope: Scope, call_id: str) -> Suspended | None:
    """Return the latest question about a call of a message; None if there is none."""
    query = EventQuery(run=scope.run, kinds=("call.suspended",), newest_first=True, limit=_MOST)
    for event, call in with_received(journal, journal.find(query)):
        if is_in_message(call, scope) and call.id == recorded_call_id(call_id):
            return question_of(event)
    return None


async def record_denial(engine: Engine, scope: Scope, call_id: str, reason: str) -> str:
    """Answer the engine's question about a call of a message, if there is one, with a denial that the framework tells the model itself.

    The call's id is enough: a toolset may have given the tool another name than the engine knows. Return what to tell the model: the
    reason, and if the call was started before, what became of it.
    """
    question = await read_journal(engine.journal, lambda: last_question(engine.journal, scope, call_id))
    if question is not None:
        await _deny(engine, question.approval_id, reason)
    started = await started_before_denial(engine.journal, call_id, scope, engine.redactor)
    return reason if started in reason else f"{reason}\n{started}"


async def _deny(engine: Engine, approval_id: str, reason: str) -> None:
    try:
        await engine.deny(approval_id, by=A_HUMAN, reason=reason, told=True)
    except CallgateError:
        return  # answered or expired, or the journal has failed; the model knows already from the framework


def _is_told(journal: Journal, approval_id: str, after: int) -> bool:
    """Return whether a decision about a call was recorded through a framework, not by an operator, after this position."""
    answers = journal.find(EventQuery(call=approval_id, kinds=("approval.answered",), after=after))
    return any(is_told_by_wrapper(decode_reason(event.body).reason) for event in answers)


class DeniableCall(Struct, frozen=True, kw_only=True):
    """A call that a human may deny: it waits for an answer, or was started after one."""

    id: str
    """The framework's id of the call; the recorded one if another process has made it."""
    name: str
    arguments: Mapping[str, object] | str
    approval_id: str = ""
    """The engine's question about it; empty if it was started, or if the framework asks itself."""


class OpenQuestions:
    """The open questions of an engine's runs, and the calls that were started after one, whose denial comes too late.

    Frameworks' runs repeat the ids of calls, and several of them can have one name. So a call is known by the run and the tick of the
    call's scope, which is the framework's own id of its run unless the host names one, and by the id of the call.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._asked: dict[tuple[str, str], dict[str, DeniableCall]] = {}
        """The calls by their ids, by the run and the tick."""
        self._read_runs = {""}

    def add(self, call: FrameworkCall, approval_id: str = "") -> None:
        """Remember a call that a human may deny. Of very many, the oldest are forgotten."""
        asked = DeniableCall(id=call.id, name=call.name, arguments=call.arguments, approval_id=approval_id)
        self._add((call.scope.run, call.scope.tick), asked)

    def _add(self, place: tuple[str, str], asked: DeniableCall) -> None:
        of_place = self._asked.setdefault(place, {})
        of_place[asked.id] = asked
        if len(of_place) > _MOST:
            del of_place[next(iter(of_place))]
        if len(self._asked) > _MOST:
            del self._asked[next(iter(self._asked))]

    async def record_denials(self, scope: Scope, denial_of: DenialOf, name: str) -> list[tuple[DeniableCall, str]]:
        """Record each no that the framework knows of in the run and the tick of this scope. Return the calls, each with the reason.

        The first time for a run, its questions are read from the journal.

        Args:
            name: Of the calls without an open question, which may be many, only those of this tool are looked at.
        """
        if scope.run not in self._read_runs:
            self._read_runs.add(scope.run)
            for place, asked in await read_journal(self._engine.journal, lambda: list(self._read_deniable_calls(scope))):
                self._add(place, asked)
        of_place, denied = self._asked.get((scope.run, scope.tick), {}), []
        for asked in [one for one in of_place.values() if one.approval_id or one.name == name]:
            reason = denial_of(asked.name, asked.id)
            if reason is not None and TOO_LATE not in reason:
                denied.append((of_place.pop(asked.id), reason))
        for asked, reason in denied:
            if asked.approval_id:
                await _deny(self._engine, asked.approval_id, reason)
        return denied

    def _read_deniable_calls(self, scope: Scope) -> Iterator[tuple[tuple[str, str], DeniableCall]]:
        journal, redactor = self._engine.journal, self._engine.redactor
        found = journal.find(EventQuery(run=scope.run, kinds=("call.suspended", "call.started"), newest_first=True, limit=_MOST))
        for event, call in with_received(journal, reversed(list(found))):
            tick = scope.tick if is_in_tick(call, scope, redactor) else str((call.scope or {}).get("tick", ""))
            approval_id = event.call if event.kind == "call.suspended" else ""
            yield (scope.run, tick), DeniableCall(id=call.id, name=call.name, arguments=call.arguments, approval_id=approval_id)
