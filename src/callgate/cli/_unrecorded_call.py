"""Make one call of a server's tool without a record, and print its outcome, for commands that check a server."""

from __future__ import annotations

from callgate.calls import Answered, Outcome, RawCall, Scope
from callgate.cli._result_output import ShownWhere, show_result
from callgate.engine import Engine
from callgate.mcp import McpServer
from callgate.plugins import Plugin

__all__ = ["call_unrecorded", "show_unrecorded"]


async def call_unrecorded(server: McpServer | Plugin, tool: str, arguments: str | dict[str, object]) -> Outcome:
    """Make one call through an engine of its own, which keeps no record."""
    async with Engine(servers=[server]) as engine:
        return await engine.call(RawCall(name=tool, arguments=arguments, origin="cli"), Scope(run=engine.run))


def show_unrecorded(outcome: Outcome | None, command: str) -> None:
    """Print the result of the call, if there is one.

    Args:
        command: What the command does, such as `a test`.
    """
    if isinstance(outcome, Answered):
        show_result(outcome.result, ShownWhere(where="", more=f"none, {command} is not recorded"))
