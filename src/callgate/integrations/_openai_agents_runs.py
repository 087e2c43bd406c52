"""The id of a run of the OpenAI Agents SDK.

The SDK gives its runs no id, and models repeat call ids between runs. So the wrapper gives each run an id. It is kept among the
approvals of the run, as the message of a rejected call that no model made: those are what the SDK saves with a `RunState` and restores
from JSON. Must not know of engines.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from agents import Agent, RunContextWrapper, ToolApprovalItem

__all__ = ["run_id_of"]

_MARK = "callgate.run"
"""The name of the tool and the id of the call that carry the id of the run."""
_owner: Agent[Any] = Agent(name="callgate")


def run_id_of(context: RunContextWrapper[Any]) -> str:
    """Return the id of the run that a context belongs to. A run that is resumed from a `RunState` keeps its id."""
    known = context.get_rejection_message(_MARK, _MARK)
    if known:
        return known
    made = uuid4().hex
    call = {"type": "custom_tool_call", "name": _MARK, "call_id": _MARK, "input": ""}
    context.reject_tool(ToolApprovalItem(agent=_owner, raw_item=call, tool_name=_MARK), rejection_message=made)
    return made
