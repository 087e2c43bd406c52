"""Tools that a worker process can import: the same code in the caller's task, in a thread and in a process of its own."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

from callgate import Retryable
from callgate.tools import FunctionTool, ToolContext
from tests.waiting import HANGS_S

__all__ = ["RUNNERS", "answers", "asks_for_patience", "environment", "facts", "floods", "hangs", "raises", "run_by", "talks"]

RUNNERS = ["inline", "thread", "process"]


def answers(n: int) -> dict[str, Any]:
    """Answer with what came."""
    return {"success": True, "data": {"n": n}, "message": "done", "end_turn": True}


def raises(n: int) -> None:
    """Raise."""
    raise ValueError(f"no account {n}")


def asks_for_patience() -> None:
    """Fail like a service that says when to come again."""
    raise Retryable("busy", retry_after_s=20.0)


def environment() -> dict[str, str]:
    """The environment that a tool sees."""
    return dict(os.environ)


def floods(ctx: ToolContext, pieces: int, piece_chars: int, stream: str) -> str:
    """Write much more than anybody reads, as progress or to the standard output."""
    for _ in range(pieces):
        if stream == "progress":
            ctx.progress("x" * piece_chars)
        else:
            sys.stdout.write("x" * piece_chars)
    return "the end"


def facts(ctx: ToolContext) -> dict[str, Any]:
    """Say what a tool can see, and where it runs."""
    return {"names": sorted(name for name in dir(ctx) if not name.startswith("_")), "pid": os.getpid()}


def talks(ctx: ToolContext, gate: str) -> str:
    """Show two pieces of output, and end when the file `gate` is there."""
    ctx.progress("one ")
    ctx.progress("two", stream="stdout")
    while not os.path.exists(gate):
        time.sleep(0.01)
    return "the end"


def hangs(ctx: ToolContext) -> str:
    """Begin, and never end by itself."""
    ctx.progress("begun")
    time.sleep(HANGS_S)
    return "the end"


def run_by(function: Callable[..., Any], runner: str) -> FunctionTool:
    """`function` as a tool of this runner."""
    return FunctionTool(function, effect="none", runner=runner)
