"""What the rows about threads and processes call; importable by a worker process."""

from __future__ import annotations

import subprocess
import time

from callgate.tools import ToolContext, tool

__all__ = ["async_no_op", "hang", "process_no_op", "sleep_50_ms", "sync_no_op"]


@tool(effect="none")
async def async_no_op(city: str, days: int, metric: bool) -> str:
    """Look up nothing."""
    return "sunny"


@tool(effect="none")
def sync_no_op(city: str, days: int, metric: bool) -> str:
    """Look up nothing, in a thread."""
    return "sunny"


@tool(effect="none")
def sleep_50_ms(city: str, days: int, metric: bool) -> str:
    """Wait as a blocking client would."""
    time.sleep(0.05)
    return "sunny"


@tool(effect="none", runner="process")
def process_no_op(city: str, days: int, metric: bool) -> str:
    """Look up nothing, in a process of its own."""
    return "sunny"


@tool(runner="process")
def hang(seconds: str, context: ToolContext) -> None:
    """Leave a child in a session of its own and two orphans of a double fork, and never come back.

    Args:
        seconds: How long they would sleep; a number that nobody else uses, so that they can be found.
    """
    subprocess.Popen(["setsid", "sleep", seconds])
    subprocess.run(["setsid", "sh", "-c", f"(sleep {seconds} & sleep {seconds} &)"], check=True)
    context.progress("begun")
    while True:
        time.sleep(60)
