"""Tools that only a far side serves; their effects are written to a file that the test reads."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path

from callgate.tools import RetryPolicy, ToolContext, tool
from tests.waiting import HANGS_S

QUICK = RetryPolicy(base_s=0.0, max_s=0.0)


def _write_down(ledger: str) -> int:
    with Path(ledger).open("a", encoding="utf-8") as file:
        file.write("begun\n")
    return len(Path(ledger).read_text(encoding="utf-8").splitlines())


@tool(effect="once", runner="remote", retry=QUICK)
def pay(context: ToolContext, ledger: str) -> int:
    """Write to the file, report progress, and hang."""
    count = _write_down(ledger)
    context.progress("begun")
    time.sleep(HANGS_S)
    return count


@tool(effect="none", runner="remote", retry=QUICK)
def look(context: ToolContext, ledger: str) -> int:
    """Hang on the first attempt and return on later ones."""
    count = _write_down(ledger)
    context.progress("begun")
    if count == 1:
        time.sleep(HANGS_S)
    return count


@tool(effect="none", runner="remote")
async def stubborn(context: ToolContext) -> str:
    """Return a value although it was stopped."""
    context.progress("begun")
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(HANGS_S)
    return "too late"


@tool(effect="none")
def many_of(text: str, count: int) -> str:
    """Return a long text."""
    return text * count


@tool(effect="none")
def nested(depth: int) -> object:
    """Return a list nested to the given depth."""
    value: list[object] = []
    for _ in range(depth):
        value = [value]
    return value
