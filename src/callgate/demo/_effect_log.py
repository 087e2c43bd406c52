"""Evidence from outside the engine: a ledger that tools write, and the operating system's list of processes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any

import psutil
from msgspec import Struct

from callgate.events import Bus, Event
from callgate.tools import ToolContext
from callgate.tools.tool_decorator import FunctionTool

__all__ = ["EffectEntry", "EffectLog", "note_effect", "note_process", "watch_processes", "witnessed"]


class EffectEntry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a ledger."""

    kind: str
    """The kind of entry.

    `effect`: a tool is about to change something. `process`: a call has a process that must end with the call. `left`:
    such a process still ran when its call had ended.
    """
    call: str
    """The uid of the tool's call."""
    tool: str
    pid: int
    created: float
    """The process's start time, which identifies the process together with `pid`, because pids are reused."""
    what: str = ""


class EffectLog:
    """A file that tools append lines to."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def write(self, entry: EffectEntry) -> None:
        line = json.dumps({field: getattr(entry, field) for field in entry.__struct_fields__}) + "\n"
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)

    def entries(self, kind: str) -> list[EffectEntry]:
        if not self.path.exists():
            return []
        entries = [EffectEntry(**json.loads(line)) for line in self.path.read_text(encoding="utf-8").splitlines()]
        return [entry for entry in entries if entry.kind == kind]

    def running(self, call: str | None = None) -> list[EffectEntry]:
        """Return the entries of processes that still run, of one call or of all calls."""
        noted = [entry for entry in self.entries("process") if call in (None, entry.call)]
        return [entry for entry in noted if _runs(entry)]


def _runs(entry: EffectEntry) -> bool:
    try:
        process = psutil.Process(entry.pid)
        return process.create_time() == entry.created and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _entry(context: ToolContext, kind: str, pid: int, what: str) -> None:
    place = context.extra
    assert isinstance(place, dict), "the demonstration's scope names the ledger"
    with suppress(psutil.NoSuchProcess):
        created = psutil.Process(pid).create_time()
        EffectLog(str(place["ledger"])).write(
            EffectEntry(kind=kind, call=context.uid, tool=context.tool, pid=pid, created=created, what=what)
        )


def note_effect(context: ToolContext, what: str) -> None:
    """Write to the ledger that an effect is about to happen. Called in the process that runs the tool."""
    _entry(context, "effect", os.getpid(), what)


def note_process(context: ToolContext, pid: int) -> None:
    """Write to the ledger that a process must end with its call."""
    _entry(context, "process", pid, "")


def witnessed(original: FunctionTool, module: str) -> FunctionTool:
    """Return a copy of the tool that writes a line to the ledger each time its function is called.

    Args:
        original: A tool whose function takes its context as `context`.
        module: The module that contains the new tool, so that a worker process finds it by name.
    """
    function: Callable[..., Any] = original.function

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        words = [f"{key}={value}" for key, value in kwargs.items() if key != "context"]
        note_effect(kwargs["context"], " ".join(words)[:300])
        return function(*args, **kwargs)

    called.__module__ = module
    return FunctionTool(
        called,
        name=original.name,
        runner=original.runner,
        category=original.category,
        effect=original.effect,
        reads=original.reads,
        writes=original.writes,
    )


def watch_processes(bus: Bus, ledger: EffectLog) -> None:
    """Write to the ledger, whenever a call ends, which of its processes still run."""

    def ended(topic: str, item: object) -> None:
        if isinstance(item, Event):
            for entry in ledger.running(item.call):
                ledger.write(EffectEntry(kind="left", call=entry.call, tool=entry.tool, pid=entry.pid, created=entry.created, what=topic))

    bus.subscribe(ended, "call.completed", "call.aborted")
