"""Helpers for the tests of a memory: a redactor for one secret, stores that fail or wait, and calls in a workspace."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from callgate import Engine, RawCall, Scope, ToolResult
from callgate.memory import MemoryPassages, Passage
from tests.engine_calls import said

__all__ = ["Broken", "Waiting", "found", "let_the_clock_move_on", "make"]


class Broken(MemoryPassages):
    """A store that raises for some origins while `broken` is set."""

    def __init__(self, origins: str = "file:") -> None:
        super().__init__()
        self.broken = True
        self._origins = origins

    def keep(self, changes: Mapping[str, Sequence[Passage]]) -> None:
        if self.broken and any(origin.startswith(self._origins) for origin in changes):
            raise OSError("the disk is full")
        super().keep(changes)


class Waiting(MemoryPassages):
    """A store that waits for `go` before it stores anything."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = threading.Event()
        self.go = threading.Event()

    def keep(self, changes: Mapping[str, Sequence[Passage]]) -> None:
        self.reached.set()
        self.go.wait(60)
        super().keep(changes)


def let_the_clock_move_on(folder: Path) -> None:
    """Wait until the file system gives a new file a later time than all earlier files."""
    probe = folder / "probe"
    probe.write_text("")
    before = probe.stat().st_ctime_ns
    while probe.stat().st_ctime_ns < before + 100_000_000:
        probe.write_text("")


async def make(engine: Engine, workspace: Path | str, name: str, /, principal: str = "ann", **arguments: object) -> ToolResult:
    """Make a call in a workspace."""
    scope = Scope(run="r1", workspace=str(workspace), principal=principal, conversation="c1")
    return await said(engine, RawCall(name=name, arguments=arguments), scope)


async def found(engine: Engine, workspace: Path | str, query: str, principal: str = "ann") -> list[dict[str, Any]]:
    """Return what `recall` finds."""
    result = await make(engine, workspace, "recall", principal, query=query, limit=50)
    assert result.status == "ok", result.error
    assert isinstance(result.structured, dict)
    return list(result.structured["found"])
