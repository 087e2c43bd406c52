"""Which calls a human has rejected in a run of the OpenAI Agents SDK, and what the model reads about those that were started before.

The SDK tells the model the message of a rejection, and never hands the call in again. So what became of the call is added to the message,
with the SDK's own means to reject a call.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from agents import ModelBehaviorError, RunContextWrapper, ToolApprovalItem

from callgate._json import json_text
from callgate.engine import Engine
from callgate.integrations.framework_call import FrameworkCall
from callgate.integrations.late_denials import started_before_denial
from callgate.integrations.open_questions import DenialOf

__all__ = ["denials_in", "was_told_too_late"]


def denials_in(context: RunContextWrapper[Any]) -> DenialOf:
    """Return the function that finds the message of a rejected call of this run."""

    def denial_of(name: str, call_id: str) -> str | None:
        return (context.get_rejection_message(name, call_id) or "") if context.is_tool_approved(name, call_id) is False else None

    return denial_of


async def was_told_too_late(engine: Engine, context: RunContextWrapper[Any], agent: Any, call: FrameworkCall, reason: str) -> bool:
    """Add to the message of a rejected call what became of it, if it was started before. Return whether it was.

    Args:
        reason: The message.
    """
    started = await started_before_denial(engine.journal, call.id, call.scope, engine.redactor, of_tick=True)
    if not started:
        return False
    arguments = call.arguments if isinstance(call.arguments, str) else json_text(call.arguments)
    made = {"type": "function_call", "name": call.name, "call_id": call.id, "arguments": arguments}
    with suppress(ModelBehaviorError):  # another process has made the call, and the journal has its arguments redacted or shortened
        context.reject_tool(
            ToolApprovalItem(agent=agent, raw_item=made, tool_name=call.name), rejection_message=f"{reason}\n{started}".lstrip()
        )
        return True
    return False
