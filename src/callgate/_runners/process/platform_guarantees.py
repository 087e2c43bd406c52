"""What the process runner guarantees on this machine; printed by `callgate doctor`."""

from __future__ import annotations

import sys

from callgate._runners.process.supervisor.process_tree import PROC
from callgate.errors import UsageError

__all__ = ["require_support", "strength"]


def strength() -> dict[str, str]:
    """Return each guarantee by name, and how far it holds on this machine."""
    if sys.platform == "win32":
        return {"process tools": "refused: Windows cannot end a tree of processes the way this runner does"}
    if sys.platform == "linux" and PROC:
        return {
            "stop": "the whole tree, orphans and own sessions included (child subreaper)",
            "engine killed": "the tree ends within two seconds",
            "memory": "bounded per process (RLIMIT_AS)",
        }
    return {
        "stop": "the tree as far as parents are known; a process that was orphaned before the stop is missed (no subreaper here)",
        "engine killed": "the same tree ends within two seconds",
        "memory": "not reliably bounded: this system may ignore RLIMIT_AS",
    }


def require_support() -> None:
    """Raise `UsageError` on systems where worker processes cannot be ended reliably."""
    if sys.platform == "win32":
        raise UsageError("Process tools do not run on Windows: a tool's processes could not be ended. Use runner='thread', or WSL.")
