"""Tools that write a line to a ledger outside the engine and may kill the whole process while they run.

They are found by name, so that a worker process can import them. Their arguments control what they do.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from callgate.tools import FunctionTool, ToolContext, Verified
from tests.effect_ledger import Ledger
from tests.waiting import HANGS_S

__all__ = ["EFFECTS", "RUNNERS", "acting"]

EFFECTS = ("none", "idempotent", "once", "verified")
RUNNERS = ("inline", "thread", "process")


def act(ledger: str, what: str, dies: int, when: str, ctx: ToolContext) -> str:
    """Write a line to the ledger; kill the process `dies` before or after that, on the first attempt only."""
    _perhaps_die(ledger, dies, when == "before")
    Ledger(Path(ledger)).write(f"{what} {ctx.idempotency_key}")
    _perhaps_die(ledger, dies, when == "after")
    return f"did {what}"


async def act_inline(ledger: str, what: str, dies: int, when: str, ctx: ToolContext) -> str:
    """Do the same as `act`, in the caller's task."""
    return act(ledger, what, dies, when, ctx)


def _perhaps_die(ledger: str, dies: int, now: bool) -> None:
    died = Path(f"{ledger}.died")
    if now and dies and not died.exists():
        died.touch()
        os.kill(dies, signal.SIGKILL)
        time.sleep(HANGS_S)


def has_acted(arguments: dict[str, Any], key: str) -> Verified:
    """Return whether the ledger has this call's line."""
    happened = f"{arguments['what']} {key}" in Ledger(Path(arguments["ledger"])).lines()
    return Verified(happened=happened, result=f"did {arguments['what']}" if happened else None)


def acting(effect: str, runner: str) -> FunctionTool:
    """Return the tool `act` with this effect for this runner."""
    function = act_inline if runner == "inline" else act
    verify = has_acted if effect == "verified" else None
    declared: Any = "once" if effect == "verified" else effect
    return FunctionTool(function, name="act", effect=declared, runner=None if runner == "inline" else runner, verify=verify)
