"""Answers to deferred calls that Pydantic AI reports to the model itself, without a call: a human's no, and a result from elsewhere."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

from pydantic_ai import CallDeferred, RunContext

from callgate._json import decode
from callgate.calls import Scope
from callgate.engine import Engine
from callgate.errors import UsageError
from callgate.event_queries import EventQuery
from callgate.integrations._pydantic_ai_messages import answered_calls, place_of
from callgate.integrations.framework_call import StartedElsewhere
from callgate.integrations.journaled_calls import is_in_message, read_journal, recorded_call_id, with_received
from callgate.integrations.open_questions import record_denial
from callgate.integrations.wrapper_scopes import placed_scope

__all__ = ["is_started_elsewhere", "record_answers"]

_MOST = 1_000


def is_started_elsewhere(error: BaseException) -> bool:
    """Return whether a tool's code has started its work elsewhere, and does not only ask a question."""
    return isinstance(error, CallDeferred) and error.kind == "external"


async def record_answers(engine: Engine, ctx: RunContext[Any], scope: object) -> None:
    """Record the answers in the latest message. If a denied call was started before, the model is told so, too."""
    for answered in answered_calls(ctx):
        ctx_of_call = replace(ctx, tool_name=answered.tool_name, tool_call_id=answered.tool_call_id)
        placed = placed_scope(scope, ctx_of_call, place_of(ctx_of_call), ctx.run_id or "")
        if answered.outcome == "denied":
            answered.content = await record_denial(engine, placed, answered.tool_call_id, str(answered.content))
        else:
            await _settle(engine, placed, answered.tool_call_id)


async def _settle(engine: Engine, scope: Scope, call_id: str) -> None:
    """Record that the work of a call has happened that was started elsewhere, if it was."""
    journal = engine.journal

    def find() -> str | None:
        raised = journal.find(EventQuery(run=scope.run, kinds=("call.raised",), newest_first=True, limit=_MOST))
        made = ((event, call) for event, call in with_received(journal, raised) if call.id == recorded_call_id(call_id))
        latest = next((event for event, call in made if is_in_message(call, scope)), None)
        return latest.call if latest is not None and decode(latest.body)["exception"] == StartedElsewhere.__name__ else None

    uid = await read_journal(journal, find)
    if uid is not None:
        with suppress(UsageError):  # it is settled already, or another engine works on the run: its outcome stays unknown
            await engine.settle(uid, happened=True, by="the application", reason="it has handed in the result of the deferred call")
