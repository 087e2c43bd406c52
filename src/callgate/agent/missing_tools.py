"""Find calls that wait to run and have no tool here, before their run is resumed: it would go on without them.

Used by `Agent.resume` and by the command line. Only reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from msgspec import Struct

from callgate._run_state.recorder import off_loop
from callgate.calls import Suspended
from callgate.engine import Engine
from callgate.errors import UsageError
from callgate.event_queries import EventQuery
from callgate.recorded_calls import ToolCallEntry, find_tool_calls

__all__ = ["CallWithoutTool", "find_call_without_tool", "refuse_missing_tools", "refuse_tools_of_stopped_servers"]


class CallWithoutTool(Struct, frozen=True):
    """A call that a human has allowed or can still allow, and whose tool the engine does not have."""

    approval_id: str
    tool: str
    why: str
    """Why a tool server does not offer it, as sentences; empty if none is known."""


async def find_call_without_tool(engine: Engine, waiting: Sequence[Suspended]) -> CallWithoutTool | None:
    """Return the first of the waiting calls that could not run; None if there is none. The state of their run is known."""
    questions = [engine.approval(one.approval_id) for one in waiting]
    missing = await _calls_without_tool(engine, [one.approval_id for one in questions if one is not None and one.allowed is not False])
    return CallWithoutTool(missing[0].uid, missing[0].tool, _why_missing(engine, missing[0].tool)) if missing else None


async def refuse_missing_tools(engine: Engine, waiting: Sequence[Suspended]) -> None:
    """Check that each waiting call has a tool, unless a human has denied it.

    Raises:
        UsageError: One has none.
    """
    found = await find_call_without_tool(engine, waiting)
    if found is not None:
        because = f" {found.why}" if found.why else ""
        raise UsageError(
            f"The call {found.approval_id} waits to run, but there is no tool '{found.tool:.80}' here.{because} Nothing was run. Resume"
            f" with the tools and servers of the run, or deny the call: engine.deny({found.approval_id!r})."
        )


async def refuse_tools_of_stopped_servers(engine: Engine, unfinished: Sequence[str]) -> None:
    """Check that no call without an end would end only because the server of its tool does not run now.

    Args:
        unfinished: The uids of the calls.

    Raises:
        UsageError: One would. A tool that is missing for another reason is not refused: it may have been removed for good.
    """
    for call in await _calls_without_tool(engine, unfinished):
        why = _why_missing(engine, call.tool)
        if why:
            raise UsageError(
                f"The call {call.uid} has not ended, and its tool '{call.tool:.80}' is not there. {why} Nothing was run. Resume when the"
                " server runs, or without it: then the call ends without its tool."
            )


async def _calls_without_tool(engine: Engine, uids: Sequence[str]) -> list[ToolCallEntry]:
    if not uids:
        return []
    calls = await off_loop(engine.journal, partial(find_tool_calls, engine.journal, EventQuery(calls=tuple(uids))))
    return [call for call in calls if call.tool not in engine.tools]


def _why_missing(engine: Engine, tool: str) -> str:
    """Return why a tool server does not offer a tool; empty if no server could have it."""
    return engine.tools.withdrawn.get(tool) or " ".join(engine.tools.unavailable.values())
