"""Tools that a worker process can import, to run the same code inline, in a thread and in a separate process."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

from callgate import Retryable
from callgate.tools import FunctionTool, ToolContext
from tests.waiting import HANGS_S

__all__ = ["RUNNERS", "answers", "asks_for_patience", "environment", "facts", "floods", "hangs", "notices", "raises", "run_by", "talks"]

RUNNERS = ["inline", "thread", "process"]


def answers(n: int) -> dict[str, Any]:
    """Return the argument in a result dictionary that has every domain field."""
    return {"success": True, "data": {"n": n}, "message": "done", "end_turn": True}


def raises(n: int) -> None:
    """Raise ValueError."""
    raise ValueError(f"no account {n}")


def asks_for_patience() -> None:
    """Raise `Retryable` with a retry-after time."""
    raise Retryable("busy", retry_after_s=20.0)


def environment() -> dict[str, str]:
    """Return the environment variables that the tool sees."""
    return dict(os.environ)


def floods(ctx: ToolContext, pieces: int, piece_chars: int, stream: str) -> str:
    """Write many pieces of output, as progress or to standard output."""
    for _ in range(pieces):
        if stream == "progress":
            ctx.progress("x" * piece_chars)
        else:
            sys.stdout.write("x" * piece_chars)
    return "the end"


def facts(ctx: ToolContext) -> dict[str, Any]:
    """Return the names of the context's attributes and the process id."""
    return {"names": sorted(name for name in dir(ctx) if not name.startswith("_")), "pid": os.getpid()}


def notices(ctx: ToolContext) -> dict[str, bool]:
    """Return what the tool is told about notices to the user."""
    return {"show_kill_hint": ctx.show_kill_hint, "suppress_progress_notices": ctx.suppress_progress_notices}


def talks(ctx: ToolContext, gate: str) -> str:
    """Report two pieces of progress, then return once the file `gate` exists."""
    ctx.progress("one ")
    ctx.progress("two", stream="stdout")
    while not os.path.exists(gate):
        time.sleep(0.01)
    return "the end"


def hangs(ctx: ToolContext) -> str:
    """Report progress, then sleep for longer than any test."""
    ctx.progress("begun")
    time.sleep(HANGS_S)
    return "the end"


def run_by(function: Callable[..., Any], runner: str) -> FunctionTool:
    """Wrap `function` as a tool of the given runner."""
    return FunctionTool(function, effect="none", runner=runner)
