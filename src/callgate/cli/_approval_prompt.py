"""One question at the terminal, until it has an answer: from the person here, from another terminal, or none because a signal came or the
run is to end."""

from __future__ import annotations

import asyncio

from callgate.cli._approver import TerminalApprover
from callgate.cli._console import console
from callgate.cli._interrupt_signals import Interrupts
from callgate.engine import Engine

__all__ = ["is_answered", "put_question"]


def is_answered(engine: Engine, approval_id: str) -> bool:
    """Whether nobody has to answer any more: somebody has, or the question is used up or has expired."""
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
    """Ask the person; None where somebody else answers first, where a signal comes or an event of `ends` is set, or where they go away."""
    elsewhere, loop = asyncio.Event(), asyncio.get_running_loop()

    def look() -> None:
        if is_answered(engine, approval_id):
            elsewhere.set()

    def hear(topic: str, item: object) -> None:
        loop.call_soon(look)  # an answer counts from right after its event on

    end = engine.bus.subscribe(hear, "approval.answered")
    try:
        allowed = await interrupts.unless(person.asked(tool, question, arguments), elsewhere, *ends)
    finally:
        end()
    if allowed is None:
        console().print()  # ends the line of the question
    return allowed
