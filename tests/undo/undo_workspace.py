"""A workspace, an engine with undo, and helpers that compare the files before and after."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from callgate import Answered, Engine, RawCall, Scope, ToolResult
from callgate.builtins import command_tools, workspace_tools
from callgate.events import Event
from callgate.tools import Tool
from callgate.undo import UndoHistory, UndoLimits, UndoStore

Facts = dict[str, tuple[object, ...]]


class Bench:
    """Makes calls in one workspace, with one undo store beside it."""

    def __init__(self, root: Path, *, tools: Iterable[Tool] = (), limits: UndoLimits | None = None) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        self.undo_store = UndoStore(root.parent / "kept", limits=limits, sync=False)
        self.events: list[Event] = []
        self._calls = 0
        self.tools = [*workspace_tools(), *command_tools(), *tools]

    @property
    def undo_history(self) -> UndoHistory:
        return self.undo_store.of(self.root)

    def call(self, name: str, *, run: str = "run", turn: int = 0, **arguments: Any) -> ToolResult:
        """Make a call through a new engine."""
        return asyncio.run(self._call(name, run, turn, arguments))

    async def _call(self, name: str, run: str, turn: int, arguments: dict[str, Any]) -> ToolResult:
        async with Engine(self.tools, undo=self.undo_store) as engine:
            self._calls += 1
            scope = Scope(run=run, turn=turn, iteration=self._calls, workspace=str(self.root))
            engine.bus.subscribe(lambda _, item: self.events.append(item) if isinstance(item, Event) else None)
            outcome = await engine.call(RawCall(name=name, arguments=arguments), scope)
        assert isinstance(outcome, Answered), outcome
        return outcome.result

    def write(self, path: str, content: str, **where: Any) -> str:
        """Write a file with `write_file`; return the call's uid."""
        result = self.call("write_file", path=path, content=content, **where)
        assert result.success, result.text
        return result.uid

    def command(self, line: str, **where: Any) -> str:
        result = self.call("run_command", command=line, **where)
        assert isinstance(result.data, dict), result.text
        assert result.data["exit_code"] == 0, result.text
        return result.uid


def facts(root: Path, *, times: bool = True) -> Facts:
    """Return the file type and mode, owner, content and time of everything below `root`; the times of folders are left out."""
    found: Facts = {}
    for folder, folders, files in os.walk(root):
        for name in [*folders, *files]:
            path = Path(folder, name)
            status = path.lstat()
            body = os.readlink(path) if path.is_symlink() else path.read_bytes() if stat.S_ISREG(status.st_mode) else None
            mtime = status.st_mtime_ns if times and not stat.S_ISDIR(status.st_mode) else 0
            found[str(path.relative_to(root))] = (status.st_mode, status.st_uid, status.st_gid, body, mtime)
    return found
