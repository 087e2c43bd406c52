"""Ask one question at the terminal, until it is answered here or at another terminal, a signal arrives, or the run has to end."""

from __future__ import annotations

import asyncio

from callgate.cli._console import console
from callgate.cli._interrupt_signals import Interrupts
from callgate.cli._terminal_approver import TerminalApprover
from callgate.engine import Engine

__all__ = ["is_answered", "put_question"]


def is_answered(engine: Engine, approval_id: str) -> bool:
    """Return whether the question needs no answer any more: it was answered or used, or it has expired."""
    known = engine.approval(approval_id)
    return known is None or known.allowed is not None


async def put_question(
    engine: Engine,
    person: TerminalApprover,
    interrupts: Interrupts,
    approval_id: str,
    tool: str,
    question: str,
    arguments: dict[str, object],
    *ends: asyncio.Event,
) -> bool | None:
    """Ask the person at the terminal and return the answer.

    Return None if another terminal answers first, a signal arrives, an event of `ends` is set, or input ends.
    """
    elsewhere, loop = asyncio.Event(), asyncio.get_running_loop()

    def look() -> None:
        if is_answered(engine, approval_id):
            elsewhere.set()

    def hear(topic: str, item: object) -> None:
        loop.call_soon(look)  # the answer takes effect right after its event

    end = engine.bus.subscribe(hear, "approval.answered")
    try:
        allowed = await interrupts.unless(person.ask(tool, question, arguments), elsewhere, *ends)
    finally:
        end()
    if allowed is None:
        console().print()  # ends the line of the question
    return allowed
