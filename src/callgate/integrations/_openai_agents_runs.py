"""The id of a run of the OpenAI Agents SDK.

The SDK gives its runs no id, and models repeat call ids between runs. So the wrapper gives each run an id. It is kept among the
approvals of the run, as the message of a rejected call that no model made: those are what the SDK saves with a `RunState` and restores
from JSON. The id says which process made it, so that a run is known that another process began and whose record is lost.
"""

from __future__ import annotations

import logging
from typing import Any
from uuid import uuid4
from weakref import WeakSet

from agents import Agent, RunContextWrapper, ToolApprovalItem

from callgate.engine import Engine

__all__ = ["run_id_of", "run_of_call"]

log = logging.getLogger("callgate")
_LOST_RECORD = (
    "The RunState of this call of %s is from another process, but the journal of the engine is in memory, so nothing is known of the calls"
    " of that process: one that it has made is made again, also with a key. Give the engine a journal that survives:"
    " Engine(tools, journal=SqliteJournal('calls.db')). This is said once for each engine."
)
_PROCESS = uuid4().hex[:12]
"""Begins the ids of the runs that this process began."""
_warned: WeakSet[Engine] = WeakSet()
_MARK = "callgate.run"
"""The name of the tool and the id of the call that carry the id of the run."""
_owner: Agent[Any] = Agent(name="callgate")


def run_id_of(context: RunContextWrapper[Any]) -> str:
    """Return the id of the run that a context belongs to. A run that is resumed from a `RunState` keeps its id."""
    known = context.get_rejection_message(_MARK, _MARK)
    if known:
        return known
    made = _PROCESS + uuid4().hex[:20]
    call = {"type": "custom_tool_call", "name": _MARK, "call_id": _MARK, "input": ""}
    context.reject_tool(ToolApprovalItem(agent=_owner, raw_item=call, tool_name=_MARK), rejection_message=made)
    return made


def run_of_call(context: RunContextWrapper[Any], engine: Engine, tool: str) -> str:
    """Return the id of the run of a call. Log once that the run is from another process, if the engine cannot know what that has done."""
    run, bound = run_id_of(context), engine.tools.get(tool)
    has_effect = bound is not None and bound.effect != "none"
    if engine.journal.strength == "memory" and has_effect and not run.startswith(_PROCESS) and engine not in _warned:
        _warned.add(engine)
        log.warning(_LOST_RECORD, tool)
    return run
