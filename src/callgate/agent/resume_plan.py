"""Decide how a resumed run continues with each call in its record.

Pure: takes a loaded run, and returns which results stay, which calls are handed in, and which are refused and why. The engine decides
whether a started call may be started again, because only it can ask the tool.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from callgate._run_state.approvals import human_denial
from callgate._run_state.event_bodies import decode_result, question_of
from callgate._run_state.run_recovery import UnfinishedCall, why_unknown
from callgate.agent.exit_tools import ExitTools
from callgate.agent.loop_settings import Prices
from callgate.agent.message_calls import UncommittedCall
from callgate.agent.recorded_results import broken_off_result, note_of_broken_off
from callgate.agent.recorded_run import LoadedRun, RecordedRound, UncommittedMessage
from callgate.agent.run_result import PendingCalls, Repeat, RunResult, Signal, Spent
from callgate.agent.turn_state import TurnState
from callgate.calls import Answered, Approval, Outcome, Part, Restarted, ToolResult
from callgate.errors import CallFailed, CallNotStarted
from callgate.events import Event
from callgate.messages import ToolCall

__all__ = ["ResumePlan", "orphaned_calls", "refused_approvals"]


class ResumePlan(Struct, frozen=True, kw_only=True):
    """The state from which a run is resumed."""

    spent: Spent
    signals: tuple[Signal, ...]
    results: tuple[ToolResult, ...]
    texts: tuple[str, ...]
    pending: PendingCalls | None
    """The calls that waited for a human."""
    errors: int
    """Failed calls since the last success."""
    added: tuple[Part, ...]
    """The context that calls have added."""
    restarted: frozenset[str]
    """The types of context that may not be added again."""
    iteration: int = 0
    last: int = 0
    """The position of the run's last event; 0: unknown, because the plan was not made from the record."""
    open: UncommittedMessage | None = None
    """The message whose calls were running when the run was interrupted."""
    uncommitted: Mapping[int, UncommittedCall] = {}
    """The recorded state of that message's calls, by position."""
    rounds: tuple[RecordedRound, ...] = ()
    """The recorded calls of the run, with their results and final arguments."""
    repeats: tuple[Repeat, ...] = ()
    """The calls that the run has repeated, if the plan was not made from the record."""

    def state(self) -> TurnState:
        """Return the state with which the turn is resumed."""
        return TurnState(iteration=self.iteration, signals=list(self.signals), results=list(self.results), texts=list(self.texts))

    @classmethod
    def from_result(cls, run: RunResult, pending: PendingCalls) -> ResumePlan:
        """Make a plan from the result that a waiting run had in this process."""
        return cls(
            spent=run.spent,
            signals=run.signals,
            results=run.results,
            texts=pending.texts,
            pending=pending,
            repeats=pending.repeats,
            errors=pending.errors,
            added=pending.added,
            restarted=pending.restarted,
        )

    @classmethod
    def from_record(cls, run: LoadedRun, exits: ExitTools, prices: Prices | None) -> ResumePlan:
        """Make a plan from the run's record."""
        return cls(
            spent=run.spent(prices),
            signals=tuple(run.signals),
            results=tuple(run.results),
            texts=tuple(run.texts),
            iteration=run.iteration,
            last=run.last,
            pending=run.pending,
            open=run.open,
            uncommitted=_uncommitted_calls(run, exits),
            rounds=tuple(run.rounds),
            errors=run.errors,
            added=tuple(run.added),
            restarted=frozenset(run.restarted),
        )


def _uncommitted_calls(run: LoadedRun, exits: ExitTools) -> dict[int, UncommittedCall]:
    """Return the recorded state of each call of the open message, by position. Calls that were never handed in are left out."""
    if run.open is None:
        return {}
    found: dict[int, UncommittedCall] = {}
    uids = iter(run.open.calls)
    for place, call in enumerate(run.open.message.calls):
        if exits.meant(call.name) is not None:
            continue
        uid, lost = next(uids, ""), place in run.open.body.lost
        end, unfinished = run.ends.get(uid), run.unfinished.get(uid)
        if end is not None:
            found[place] = UncommittedCall(uid=uid, position=end.position, outcome=_outcome(call, end), final=run.finals.get(uid, b""))
        elif unfinished is not None:
            found[place] = UncommittedCall(uid=uid, unfinished=unfinished, refusal=_error_for_lost(call, unfinished) if lost else None)
        elif lost:
            found[place] = UncommittedCall(refusal=_error_for_lost(call, None))
    return found


def orphaned_calls(run: LoadedRun) -> list[UnfinishedCall]:
    """Return unfinished calls that do not belong to the open message: nested calls, and calls of a message that never ended."""
    taken = set(run.open.calls) if run.open is not None else set()
    return [call for uid, call in run.unfinished.items() if uid not in taken]


def refused_approvals(pending: PendingCalls, answer_to: Callable[[str], Approval | None]) -> dict[int, UncommittedCall]:
    """Return the refused calls among the waiting ones, by position.

    A call is refused if a human denied it, or if its arguments are not on record.
    """
    refused: dict[int, UncommittedCall] = {}
    for place, (call, approval) in enumerate(zip(pending.message.calls, pending.approvals, strict=True)):
        question = answer_to(approval.approval_id)
        if question is not None and question.allowed is False:
            refusal = human_denial(call.name, approval_id=approval.approval_id, by=question.by, reason=question.reason)
            refused[place] = UncommittedCall(refusal=refusal)
        elif place in pending.lost:
            refused[place] = UncommittedCall(refusal=_error_for_lost(call, None))
    return refused


def _outcome(call: ToolCall, end: Event) -> Outcome | None:
    match end.kind:
        case "call.completed":
            return Answered(decode_result(end.body))
        case "call.suspended":
            return question_of(end)
        case "call.restarted":
            return Restarted(end.call)
    text = note_of_broken_off(end)
    return Answered(broken_off_result(call, end, text)) if text else None


def _error_for_lost(call: ToolCall, unfinished: UnfinishedCall | None) -> CallFailed:
    why = "The record does not have its arguments as the model wrote them, because a secret was taken out."
    if unfinished is not None and unfinished.claimed:
        return why_unknown(unfinished, why)
    return CallNotStarted(f"{call.name} was not run when the run was resumed. {why} Nothing was changed; call it again if it is needed.")
