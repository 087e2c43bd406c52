"""Find calls that were started before a human denied them through a framework, so that the model learns of it.

The framework tells the model the human's reason, which alone would say that nothing has happened. Must not know any framework.
"""

from __future__ import annotations

from callgate._call_summary import CallSummary, summarise
from callgate._run_state.idempotency import NOTHING_HAPPENED
from callgate._run_state.settlements import advice_to_settle
from callgate._secret_redaction import Redactor
from callgate.calls import Scope
from callgate.event_queries import EventQuery
from callgate.integrations.journaled_calls import is_in_message, is_in_tick, read_journal, recorded_call_id, was_made_for, with_received
from callgate.protocols import Journal

__all__ = ["TOO_LATE", "started_before_denial"]

_MOST = 1_000
TOO_LATE = "The denial came too late"
"""How the text of `started_before_denial` begins."""


async def started_before_denial(journal: Journal, call_id: str, scope: Scope, redactor: Redactor | None, *, of_tick: bool = False) -> str:
    """Return a text for the model about a call with an effect that was started before a human denied it; empty if it was not started.

    Args:
        call_id: The framework's id of the call.
        scope: The scope of the call. Calls that were started for another user are left out.
        of_tick: Whether a call of another tick of the run is another call.
    """

    def find() -> str:
        started = journal.find(EventQuery(run=scope.run, kinds=("call.started",), newest_first=True, limit=_MOST))
        made = ((event, call) for event, call in with_received(journal, started) if call.id == recorded_call_id(call_id))
        same = (one for one in made if is_in_message(one[1], scope) and (not of_tick or is_in_tick(one[1], scope, redactor)))
        uids = dict.fromkeys(event.call for event, call in same if was_made_for(call, scope, redactor))
        texts = (_describe_started(call) for uid in uids for call in summarise(journal.read(call=uid)))
        return next(filter(None, texts), "")

    return await read_journal(journal, find)


def _describe_started(call: CallSummary) -> str:
    """Return a text with the start of a call and its outcome; empty if nothing happened or it has no effect."""
    if call.effect == "none" or call.code in NOTHING_HAPPENED or call.settled == "not_happened":
        return ""
    started = f"{TOO_LATE}: {call.tool} was started before, as {call.uid}"
    if call.settled:
        return f"{started}, and did happen: {call.settled_by or 'the tool'} has checked it."
    if call.status == "error":
        return f"{started}, and failed: {call.error}"
    if call.status != "ok":
        return f"{started}, and its outcome is not known. It may have taken effect. {advice_to_settle(call.uid)}"
    texts = [part["text"] for part in call.result.get("content", ()) if part.get("type") == "text"]
    return "\n".join((f"{started}, and has succeeded. Its result:", *texts))
