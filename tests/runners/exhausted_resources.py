"""A program that cannot start more threads or processes, or open more descriptors, because it sets a real limit after all imports.

    python -m tests.runners.exhausted_resources WHAT JOURNAL

WHAT is `threads` (the same limit counts processes), `one thread` (the pool already has one), or `descriptors`.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import callgate._runners.process  # imported early: a process without root's rights might not be able to import it later
import callgate._runners.thread_runner  # noqa: F401
from callgate import Answered, Engine, RawCall, RetryPolicy, Scope, SqliteJournal, UsageError, tool
from callgate.memory import Memory
from callgate.testing import HashedEmbedder
from callgate.tools import ToolContext
from callgate.undo import UndoStore

_NOBODY = 65534
ONCE = RetryPolicy(attempts=1)


@tool(runner="thread", retry=ONCE)
def in_thread() -> str:
    """Run in a thread."""
    return "ran"


@tool(runner="process", retry=ONCE)
def in_process() -> str:
    """Run in a process."""
    return "ran"


@tool
async def in_task() -> str:
    """Run in the caller's task."""
    return "ran"


@tool(runner="thread", retry=ONCE, effect="none")
def asks(ctx: ToolContext) -> str:
    """Ask another thread tool."""
    return ctx.call_sync("in_thread", {}).text


@tool(effect="idempotent", writes="file:{path}")
async def write(ctx: ToolContext, path: str) -> str:
    """Write a file."""
    with open(f"{ctx.workspace}/{path}", "w") as file:  # noqa: ASYNC230
        file.write("new")
    return "ran"


def starve(what: str) -> None:
    if what == "descriptors":
        taken = []
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        return
    if os.getuid() == 0:  # root is exempt from the limits
        os.setgid(_NOBODY)
        os.setuid(_NOBODY)
    resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))


def say(what: str, text: str = "") -> None:
    sys.stdout.write(json.dumps([what, text]) + "\n")
    sys.stdout.flush()


async def told(engine: Engine, name: str, label: str = "") -> None:
    label = label or name
    outcome = await asyncio.wait_for(engine.call(RawCall(name=name), Scope(run="r")), 60)
    assert isinstance(outcome, Answered), outcome
    result = outcome.result
    say(label, f"{result.status} {result.failure_class}")
    say(f"text of {label}", result.text)


def said(what: str, act: Callable[[], object]) -> None:
    try:
        act()
        say(what, "ok")
    except UsageError as error:
        say(what, f"UsageError {error}")


async def with_parts(folder: Path, memory: Memory) -> None:
    """Run a call of an engine with undo and memory, whose parts also start threads."""
    engine = Engine([write], undo=UndoStore(folder / "kept"), memory=memory)
    outcome = await engine.call(RawCall(name="write", arguments={"path": "a.txt"}), Scope(workspace=str(folder / "workspace")))
    assert isinstance(outcome, Answered), outcome
    say("kept", str([event.kind for event in engine.journal.read() if event.kind.startswith("files.")]))
    say("memory", memory.status().failure)
    await engine.close()


def main(what: str, journal: Path) -> None:
    engine = Engine([in_thread, in_process, in_task, asks])  # in memory: a file journal belongs to root, and each commit needs a descriptor
    fed = Engine([in_thread, asks])

    async def starved() -> None:
        if what == "one thread":
            await told(fed, "in_thread")
            starve("threads")
            await told(fed, "in_thread", "in_thread of one")
            await told(fed, "asks")
        else:
            starve(what)
        for name in ("in_thread", "in_process", "in_task"):
            await told(engine, name)
        await engine.close()
        await fed.close()
        say("closed")

    asyncio.run(SqliteJournal(journal).close())  # imports the modules that a journal needs
    memory = Memory(journal.with_name("memory.db"), embedder=HashedEmbedder())
    journal.with_name("workspace").mkdir()
    journal.with_name("workspace").chmod(0o777)
    asyncio.run(starved())
    if what == "threads":
        sync = Engine([in_task])
        said("journal", lambda: SqliteJournal(journal.with_name("another.db")))
        said("call_sync", lambda: sync.call_sync(RawCall(name="in_task")))
        said("close_sync", sync.close_sync)
        asyncio.run(with_parts(journal.parent, memory))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
