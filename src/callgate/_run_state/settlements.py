"""Settle a call with an unknown outcome: record what an operator found out, and tell it to identical calls.

Such a call is always named by the uid of the call that was started. A call that was refused because of it, or that got
its result, has a uid of its own; `call_in_doubt` returns the uid of the first call for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from msgspec import Struct

from callgate._call_summary import body_of, summarise
from callgate._run_state.recorder import Recorder, off_loop
from callgate.calls import Text, ToolResult
from callgate.errors import OutcomeUnknown, UsageError
from callgate.events import Event
from callgate.protocols import Journal, NamesWriters

__all__ = [
    "EARLIER",
    "SETTLEMENTS",
    "STILL_RUNS",
    "OpensRuns",
    "Settlement",
    "advice_to_settle",
    "call_in_doubt",
    "did_happen",
    "happened_result",
    "how_to_free",
    "in_doubt_error",
    "is_settled",
    "refuse_against_record",
    "settle_call",
    "used_result",
    "why_not_in_doubt",
]

EARLIER = "earlier_call"
"""The key in the details of a refusal for the uid of the call because of which it was refused."""

STILL_RUNS = "still_runs"
"""The key in the details of a refusal that is true if that call still runs and does not have to be settled yet."""

SETTLEMENTS = {"happened": True, "not_happened": False}
"""The kinds of inbox messages that settle a call, each with whether the call happened."""


class Settlement(Struct, frozen=True, kw_only=True):
    """An operator's statement whether a call happened."""

    happened: bool
    by: str
    reason: str = ""


class OpensRuns(Protocol):
    """Loads the states of runs."""

    async def open(self, run: str) -> None: ...


class SettlesCalls(Protocol):
    """Settles the calls of runs that are open."""

    def settle_by_hand(self, uid: str, said: Settlement, *, cause: int = 0) -> int | None: ...


def advice_to_settle(uid: str) -> str:
    """Return the advice to a model whose call is refused because of `uid`."""
    return (
        f"Check whether {uid} happened; if you cannot, tell the user. If it happened, go on without this call; if it did not happen, the"
        f" operator can settle {uid} and the call can be sent again."
    )


def in_doubt_error(tool: str, uid: str, common: str, still: str = "") -> OutcomeUnknown:
    """Return the error for a call that is not run because an earlier one may have happened.

    Args:
        common: What both calls have in common.
        still: Why the earlier one may happen yet; empty if it cannot.
    """
    return OutcomeUnknown(
        f"{tool} was not run this time, because an earlier call may have happened: {uid} {common} and its outcome is not known{still}."
        f" {advice_to_settle(uid)}",
        details={EARLIER: uid},
    )


def how_to_free(uid: str) -> str:
    """Return the advice for a call that gets the failure of `uid`, which keeps the key of its effect."""
    return (
        f"If nothing happened, the operator can free the key with `callgate settle {uid} --not-happened`, and the call can be sent again."
    )


def did_happen(tool: str, uid: str, by: str) -> str:
    """Return the text for a call that did happen according to an operator."""
    return f"{tool} did happen, as {uid}: {by} has checked it. What it returned is not known. It was not run again."


def happened_result(tool: str, uid: str, by: str) -> ToolResult:
    """Return the result of a call that did happen, for when the call is submitted again."""
    return ToolResult(id="", uid=uid, name=tool, status="ok", content=(Text(text=did_happen(tool, uid, by)),))


def used_result(tool: str, uid: str) -> ToolResult:
    """Return the result of a call that took effect and whose own result was used instead of kept, for when the call is submitted again."""
    said = f"{tool} took effect before, as {uid}. Its result was added to the context and not kept. Nothing was run."
    return ToolResult(id="", uid=uid, name=tool, status="ok", content=(Text(text=said),))


def call_in_doubt(events: Iterable[Event], uid: str) -> str:
    """Return the uid of the call whose outcome decides about `uid`.

    This is another call if `uid` was refused because of that call or got its result; otherwise it is `uid`.

    Args:
        events: The events of the call `uid`.
    """
    for event in events:
        body = body_of(event)
        details = (
            body.get("structured") if event.kind == "call.completed" else body.get("details") if event.kind == "call.replayed" else None
        )
        found = details.get(EARLIER if event.kind == "call.completed" else "uid") if isinstance(details, dict) else None
        if isinstance(found, str):
            return found
    return uid


def is_settled(events: Iterable[Event]) -> bool:
    """Return whether an operator or the tool's `verify` has said what became of a call since its last start.

    The tool's word may be in the record of the key of the call's effect instead of that of its run.

    Args:
        events: The events of the call.
    """
    return any(call.settled for call in summarise(events))


def why_not_in_doubt(events: list[Event], uid: str) -> str:
    """Return why a call cannot be settled.

    Args:
        events: The events of the call.
    """
    calls = summarise(events)
    if not calls:
        return f"No call '{uid[:80]}' is on record, so nothing of it is in doubt. `callgate log list` shows the calls. Nothing was changed."
    call = calls[0]
    if call.settled:
        why = f"it was settled already, as {call.settled.replace('_', ' ')}, by {call.settled_by or 'its tool'}"
    else:
        why = f"its status is '{call.status}'"
        if call.status == "error" and call.effect_key:
            why += " (a returned failure that keeps the key of its effect is settled only as not happened)"
        if call.status == "ok" and call.effect_key:
            why += " (a success that holds the key of its effect is settled only as not happened, while no other process works on its run)"
    return f"The call '{uid[:80]}' is not in doubt: {why}. Nothing was changed."


def refuse_against_record(events: Iterable[Event], said: Settlement, has_ended: Callable[[str], bool]) -> None:
    """Refuse to settle a call as not happened without a reason, if its tool reported success, returned after its end, or may still run.

    Args:
        events: The events of the call.
        has_ended: Says whether an engine, by its name in the journal, has certainly ended.

    Raises:
        UsageError: The tool returned, or its code may still run.
    """
    call = next(iter(summarise(events)), None)
    if call is None or said.happened or said.reason:
        return
    if call.status == "ok" and call.effect_key:
        raise UsageError(
            f"{call.tool or 'The tool'} returned a success for the call {call.uid[:80]}, which is the result of all calls with the same key"
            " of their effect. If you know that the effect did not happen, give the reason, which is recorded: the next call with"
            " the key runs. Nothing was changed."
        )
    if call.late == "returned":
        raise UsageError(
            f"{call.tool or 'The tool'} returned after the call {call.uid[:80]} had ended, so it has probably taken effect: settle it as"
            " happened. If you know that it has not, give the reason, which is recorded. Nothing was changed."
        )
    if call.abandoned and not call.late and not has_ended(call.writer):
        raise UsageError(
            f"The code of {call.tool or 'the tool'} could not be stopped when the call {call.uid[:80]} ended, and may still take effect,"
            " because its program runs. Wait until `callgate settle` shows that it has returned, or end the program. If you know that"
            " it cannot take effect any more, give the reason, which is recorded. Nothing was changed."
        )


async def settle_call(uid: str, said: Settlement, runs: OpensRuns, known: SettlesCalls, recorder: Recorder) -> int:
    """Record whether a call happened, and return the event's position.

    Args:
        uid: The uid of the call, or of a call that was refused because of it.

    Raises:
        UsageError: The call cannot be settled, see `RunState.can_settle`, `RunState.can_free` and `refuse_against_record`; or, as
            `RunHeld`, another engine works on its run.
    """
    if not isinstance(uid, str):
        raise UsageError(f"The call {uid!s:.80} is {type(uid).__name__}; give the id of a call that is in doubt.")
    events = await off_loop(recorder.journal, partial(_of_call, recorder.journal, uid))
    first = call_in_doubt(events, uid)
    if events:
        await runs.open(first.rsplit("/", 2)[0])
    own = events if first == uid else await off_loop(recorder.journal, partial(_of_call, recorder.journal, first))
    if not is_settled(own):
        refuse_against_record(own, said, _ended_writers(recorder.journal))
    position = None if is_settled(own) else known.settle_by_hand(first, said)
    if position is None:
        raise UsageError(why_not_in_doubt(own, first))
    return position


def _ended_writers(journal: Journal) -> Callable[[str], bool]:
    return journal.has_ended if isinstance(journal, NamesWriters) else lambda _: False


def _of_call(journal: Journal, uid: str) -> list[Event]:
    return list(journal.read(call=uid))
