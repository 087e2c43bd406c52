"""Kill a run at a given moment, resume it in a new process, and report the result: one cell of the recovery table.

Reads cells from standard input and writes their outcomes as lines of JSON. Each run and each resume is a separate process forked from this
one, which never starts a thread or an event loop.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import apsw  # noqa: F401 - what a process needs is imported once, before it is forked
import jsonschema_rs  # noqa: F401

import callgate._runners.process.process_runner
import callgate.agent.resume_plan  # noqa: F401
from callgate import Engine, Scope, SqliteJournal, ToolResult
from callgate.agent import Agent, RunResult
from callgate.agent.recorded_run import load_run
from callgate.errors import UsageError
from callgate.events import Draft
from callgate.messages import Message, ToolCall, ToolMessage
from callgate.models.model_events import ModelEvent
from callgate.models.model_protocol import StreamingContext
from callgate.models.wire.request import ModelRequest
from callgate.replay import Replay
from tests.agent.scripted_model import call, says
from tests.effect_ledger import Ledger
from tests.recovery.fixture_tools import acting

__all__ = ["main"]

RUN = "the-run"
CALLS = ("a", "b")


class JournalThatKillsItsProcess:
    """A journal that kills its process after a given number of events.

    Args:
        journal: The journal that stores the events.
        at: The number of events.
        durable: Whether the last event is on disk before the kill.
    """

    def __init__(self, journal: SqliteJournal, at: int, durable: bool) -> None:
        self._journal = journal
        self._left = at
        self._durable = durable
        self.writer = journal.writer

    def has_ended(self, writer: str) -> bool:
        return self._journal.has_ended(writer)

    def append(self, draft: Draft) -> int:
        position = self._journal.append(draft)
        self._left -= 1
        if self._left == 0:
            if self._durable:
                waiting = threading.Thread(target=asyncio.run, args=(self._journal.durable(position),))
                waiting.start()
                waiting.join()
            os.kill(os.getpid(), signal.SIGKILL)
        return position

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)


class Worker:
    """A model that requests every call in one message and ends its turn when it has their results."""

    provider, name, native_tools = "scripted", "worker", True

    def __init__(self, ledger: Path, inside: str) -> None:
        self._ledger = str(ledger)
        self._inside = inside

    async def stream(self, request: ModelRequest, context: StreamingContext) -> AsyncIterator[ModelEvent]:
        if any(isinstance(message, ToolMessage) for message in request.messages):
            answer = says("Done.")
        else:
            answer = says("On it.", *(self._call(at, what) for at, what in enumerate(CALLS)))
        for step in answer:
            yield step  # type: ignore[misc]

    def _call(self, at: int, what: str) -> ToolCall:
        """Return a call of `act`; the first one may kill this process while it runs."""
        dies = os.getpid() if self._inside and at == 0 else 0
        return call("act", {"ledger": self._ledger, "what": what, "dies": dies, "when": self._inside}, id=what, position=at)


class Cell:
    """A moment of the kill, an effect and a runner."""

    def __init__(self, cell: dict[str, Any], folder: Path) -> None:
        self.cell = cell
        self.ledger = folder / "ledger.txt"
        self.journal = folder / "journal.db"
        self.told = folder / "told.json"

    def run(self) -> None:
        asyncio.run(self._with_agent(self.cell.get("at", 0), lambda agent: agent.run("Do it.", scope=Scope(run=RUN))))

    def resume(self, at: int) -> None:
        facts: dict[str, Any] = {}
        try:
            facts["found"] = asyncio.run(self._found())
            result = asyncio.run(self._with_agent(at, lambda agent: agent.resume(RUN)))
            facts |= _facts(result.status, result.results, result.messages) | {"reason": result.reason}
        except UsageError as error:
            facts |= asyncio.run(self._recorded()) if "is over" in str(error) else {"refused": str(error)}
        if "refused" not in facts:
            facts["differences"] = asyncio.run(self._differences())
        self.told.write_text(json.dumps(facts), encoding="utf-8")

    async def _recorded(self) -> dict[str, Any]:
        """Return the recorded facts of a run that is over."""
        journal = SqliteJournal(self.journal)
        run = load_run(journal, journal.blobs, RUN)
        await journal.close()
        return _facts(run.ended, run.results, run.history.messages)

    async def _differences(self) -> list[str]:
        """Return the differences between the run and its replay."""
        journal = SqliteJournal(self.journal)
        differences = [str(difference) for difference in Replay.of(journal, RUN).differences]
        await journal.close()
        return differences

    async def _found(self) -> dict[str, str]:
        """Return the last recorded step of each call."""
        journal = SqliteJournal(self.journal)
        kinds: dict[str, list[str]] = {}
        names: dict[str, str] = {}
        for event in journal.read(run=RUN):
            if event.kind == "call.received":
                names[event.call] = json.loads(event.body)["id"]
            kinds.setdefault(event.call, []).append(event.kind)
        await journal.close()
        return {what: next(step for step in _STEPS if step in kinds[uid]) for uid, what in names.items()}

    async def _with_agent(self, at: int, do: Callable[[Agent], Any]) -> RunResult:
        tool = acting(self.cell["effect"], self.cell["runner"])
        journal: Any = SqliteJournal(self.journal)
        if at:
            journal = JournalThatKillsItsProcess(journal, at, self.cell.get("durable", True))
        engine = Engine([tool], journal=journal)
        async with engine, Agent(Worker(self.ledger, self.cell.get("inside", "")), engine) as agent:
            result = await do(agent)
            assert isinstance(result, RunResult)
            return result

    def outcome(self) -> dict[str, Any]:
        killed = [_in_a_process(self.run)]
        killed += [_in_a_process(lambda at=at: self.resume(at)) for at in self.cell.get("again", ())]  # type: ignore[misc]
        _in_a_process(lambda: self.resume(0))
        told = json.loads(self.told.read_text(encoding="utf-8")) if self.told.exists() else {}
        return {"cell": self.cell, "killed": killed, "ledger": Ledger(self.ledger).lines(), **told}


_STEPS = ("call.completed", "call.aborted", "call.claimed", "call.started", "call.received")


def _facts(status: str, results: Sequence[ToolResult], messages: Sequence[Message]) -> dict[str, Any]:
    return {
        "status": status,
        "reason": "",
        "results": {one.id: {"status": one.status, "text": one.text} for one in results},
        "told": Counter(message.call_id for message in messages if isinstance(message, ToolMessage)),
    }


def _in_a_process(do: Callable[[], None]) -> bool:
    """Run `do` in a forked process and return whether that process was killed."""
    child = os.fork()
    if child == 0:
        try:
            do()
        except BaseException as error:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise SystemExit("a process of a cell failed; see above")
    return os.WIFSIGNALED(status)


def main() -> None:
    for line in sys.stdin:
        with tempfile.TemporaryDirectory() as folder:
            sys.stdout.write(json.dumps(Cell(json.loads(line), Path(folder)).outcome()) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
