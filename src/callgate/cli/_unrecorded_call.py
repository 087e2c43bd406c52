"""Make one call of a server's tool without a record, and print its outcome, for commands that check a server."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from callgate._terminal_text import one_line
from callgate.calls import Answered, Outcome, RawCall, Scope, Suspended
from callgate.cli._console import say
from callgate.cli._result_output import ShownWhere, show_result
from callgate.engine import Engine
from callgate.mcp import McpServer
from callgate.plugins import Plugin

__all__ = ["call_unrecorded", "show_unrecorded"]


async def call_unrecorded(
    server: McpServer | Plugin, tool: str, arguments: str | dict[str, object], timeout_s: float, *, quiet: bool
) -> Outcome:
    """Make one call through an engine of its own, which keeps no record.

    Args:
        timeout_s: The limit for the whole call, unless the tool has its own.
        quiet: Whether not to say that the call is made.
    """
    if not quiet:
        say(f"Calling {one_line(tool, 128)} for up to {timeout_s:g} s, unless it has its own limit …", "dim")
    with _say_warnings():
        async with Engine(servers=[server], timeout_s=timeout_s) as engine:
            return await engine.call(RawCall(name=tool, arguments=arguments, origin="cli"), Scope(run=engine.run))


class _SaidWarnings(logging.Handler):
    """Prints the warnings of callgate, such as that the server has sent something that is no answer."""

    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage(), "yellow")


@contextmanager
def _say_warnings() -> Iterator[None]:
    handler, log = _SaidWarnings(logging.WARNING), logging.getLogger("callgate")
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


def show_unrecorded(outcome: Outcome | None, command: str) -> None:
    """Print the result of the call, or that it has not run because it needs approval.

    Args:
        command: What the command does, such as `a test`.
    """
    if isinstance(outcome, Answered):
        show_result(outcome.result, ShownWhere(where="", more=f"none, {command} is not recorded"))
    elif isinstance(outcome, Suspended):
        say(f"asked  {one_line(outcome.question, 1_000)}", "cyan")
        say(f"Nothing ran: {one_line(outcome.tool, 128)} needs approval, and {command} asks nobody. `callgate run` asks.")
