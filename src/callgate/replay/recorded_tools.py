"""Match the present tools with those of a recorded run.

The journal has the tools' names and identities, not their code.
"""

from __future__ import annotations

from collections.abc import Iterable

from callgate.errors import ArgumentsInvalid, UsageError
from callgate.replay.rebuild_run import Replay
from callgate.replay.run_calls import ReplayedCall
from callgate.tools import Tool, ToolRegistry

__all__ = ["changed_tools", "tools_of"]


def tools_of(replay: Replay, tools: Iterable[Tool]) -> ToolRegistry:
    """Return the tools that the run had.

    Raises:
        UsageError: A tool that the run called is missing.
    """
    had = set(replay.began.tools) if replay.began is not None else None
    registry = ToolRegistry(tool for tool in tools if had is None or tool.name in had)
    missing = sorted({call.tool for call in replay.calls if _was_there(call) and call.tool not in registry})
    if missing:
        there = ", ".join(registry.names()[:20]) or "none of the run's"
        raise UsageError(
            f"The run called {', '.join(missing)}, which are not among the given tools ({there}). The journal has no code: give the tools"
            " that the run had (`--tools` on the command line)."
        )
    return registry


def _was_there(call: ReplayedCall) -> bool:
    """Whether the run had the tool of this call, because the call's arguments were validated or judged."""
    then = call.decision
    return bool(call.identity) or (then is not None and (then.word != "refused" or then.code == ArgumentsInvalid.code))


def changed_tools(replay: Replay, registry: ToolRegistry) -> tuple[str, ...]:
    """Return the tools that have changed since the run was recorded."""
    then: dict[str, str] = {call.tool: call.identity for call in replay.calls if call.identity}
    then |= dict(replay.began.tools) if replay.began is not None else {}
    now = {tool.name: tool.identity for tool in registry}
    return tuple(sorted(name for name, identity in then.items() if name in now and now[name] != identity))
