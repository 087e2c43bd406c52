"""Everything outside an engine that may die: tools with their own ledger, simulated time, and a disk.

After a simulated death nothing that the engine does counts. The next engine gets a copy of the files on disk with all events that were
reported as durable, and a prefix of those that were not. This module checks no guarantees.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import apsw
from msgspec import Struct

from callgate import Engine, RawCall, Retryable, RetryPolicy, Scope, SqliteJournal, ToolContext, Verified, tool
from callgate.calls import Outcome
from callgate.events import Draft, Event
from callgate.protocols import Allow, Ask, Deny, Verdict
from callgate.stage_types import ValidatedCall
from callgate.tools import Tool
from tests.waiting import PATIENCE_S

__all__ = ["FATES", "TOOLS", "WHATS", "Death", "Effect", "Fate", "Rules", "World"]

Fate = Literal["ok", "flaky", "raises", "raises after", "hangs", "hangs after", "dies", "dies after"]
FATES: Sequence[Fate] = ("ok", "flaky", "raises", "raises after", "hangs", "hangs after", "dies", "dies after")
TOOLS = {"look": "none", "put": "idempotent", "pay": "once", "book": "once"}
"""The effect of each tool; `book` has a `verify`."""
WHATS = ("ann", "bob", "asked", "denied")
"""The arguments of the tools; the policy asks for an approval of one and denies another."""


class Effect(Struct, frozen=True):
    """An effect of a tool."""

    tool: str
    run: str
    what: str
    uid: str
    key: str


class Death(Struct):
    """The moment when an engine dies: after this many more events; None means inside a tool, or never."""

    left: int | None = None


class Clock:
    """Uses the event loop's time for deadlines; wall time changes only when a test sets it, and may go back."""

    def __init__(self) -> None:
        self.now_ns = 1_700_000_000_000_000_000
        self._ids = 0

    def wall_ns(self) -> int:
        return self.now_ns

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def jitter(self) -> float:
        return 0.5

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def new_id(self) -> str:
        self._ids += 1
        return f"{self._ids:016x}"


class Watched:
    """A journal that tracks the last event reported as durable and lets the engine die at a given event."""

    def __init__(self, world: World, journal: SqliteJournal) -> None:
        self._world = world
        self._journal = journal
        self.last = journal.status().written
        """The position of the last event that was appended before the death; another engine's event may move it."""
        self.promised = self.last
        """The final position of the last event that was reported as durable."""

    def append(self, draft: Draft) -> int:
        position = self._journal.append(draft)
        if self._world.alive:
            self.last = position
            self._world.one_step_nearer()
        return position

    async def durable(self, position: int) -> None:
        await self._journal.durable(position)
        if self._world.alive:
            self.promised = max(self.promised, self._journal.final_position(position))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)


class Rules:
    """A policy that asks for an approval of one argument and denies another."""

    async def decide(self, call: ValidatedCall) -> Verdict:
        match str(call.arguments["what"]).split()[0]:
            case "asked":
                return Ask(question="Really?")
            case "denied":
                return Deny(reason="not this one")
        return Allow()


class World:
    """The state that outlives an engine, and the current engine.

    Args:
        folder: The folder of the files of all engines.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lives = 0
        self.path = folder / "journal-0.db"
        self.clock = Clock()
        self.effects: list[Effect] = []
        self.entered: list[Effect] = []
        """Every start of a tool, whatever it did then."""
        self.fates: deque[Fate] = deque()
        """What the next tools to start do; after these, `ok`."""
        self.death = Death()
        self.dead = asyncio.Event()
        self.hung = asyncio.Event()
        """Set when a tool hangs, or the engine has died."""
        self.open()

    # Lifetimes of engines

    def open(self) -> None:
        self.alive, self.closed, self.death = True, False, Death()
        self.dead.clear()
        self.journal = Watched(self, SqliteJournal(self.path, self.clock, synchronous="normal"))
        self.engine = Engine(self.tools(), policies=[Rules()], journal=self.journal, clock=self.clock)

    async def from_beside(self, raw: RawCall, scope: Scope) -> Outcome:
        """Return the outcome of a call to another engine on the same journal."""
        journal = SqliteJournal(self.path, self.clock, synchronous="normal")
        async with Engine(self.tools(), policies=[Rules()], journal=journal, clock=self.clock) as engine:
            outcome = await engine.call(raw, scope)
        self.journal.last = self.journal.promised = _last_position(self.path)
        return outcome

    async def close(self) -> None:
        self.closed = True
        await self.engine.close()
        self.journal.promised = self.journal.final_position(self.journal.last)

    def die(self) -> None:
        self.alive = False
        self.dead.set()
        self.hung.set()

    def one_step_nearer(self) -> None:
        if self.death.left is not None:
            self.death.left -= 1
            if self.death.left <= 0:
                self.die()

    async def ended(self, tasks: Sequence[asyncio.Future[Any]]) -> None:
        """Wait until the tasks end, or cancel them if the engine dies first."""
        dead, over = asyncio.ensure_future(self.dead.wait()), asyncio.ensure_future(asyncio.wait(tasks))
        await asyncio.wait({dead, over}, timeout=PATIENCE_S, return_when="FIRST_COMPLETED")
        dead.cancel()
        if not self.alive:
            for task in tasks:
                task.cancel()
        await asyncio.wait({over}, timeout=PATIENCE_S)
        assert over.done(), "a task did not end"

    async def bury(self, share: float) -> None:
        """Keep the files for the next engine: all durable events, and this share of the others."""
        self.alive = False
        journal = self.journal
        await journal.durable(journal.append(Draft(kind="ghost", run="ghost", body=b"{}")))
        self._lives += 1
        heir = self._folder / f"journal-{self._lives}.db"
        for suffix in ("", "-wal"):
            shutil.copyfile(f"{self.path}{suffix}", f"{heir}{suffix}")
        await self.engine.close()
        last = max(journal.final_position(journal.last), journal.promised)
        _forget(heir, after=journal.promised + round((last - journal.promised) * share))
        self.path = heir

    def events(self) -> list[Event]:
        return list(self.journal.read())

    # Tools

    def tools(self) -> list[Tool]:
        quick = RetryPolicy(base_s=0.0, max_s=0.0)

        @tool(effect="none", retry=quick)
        async def look(what: str, ctx: ToolContext) -> str:
            """Look."""
            return await self._do("look", what, ctx)

        @tool(effect="idempotent", retry=quick)
        async def put(what: str, ctx: ToolContext) -> str:
            """Put."""
            return await self._do("put", what, ctx)

        @tool(retry=quick)
        async def pay(what: str, ctx: ToolContext) -> str:
            """Pay."""
            return await self._do("pay", what, ctx)

        def booked(arguments: dict[str, Any], key: str) -> Verified:
            found = any(effect.key == key for effect in self.effects)
            return Verified(happened=found, result=f"book {arguments['what']} before" if found else None)

        @tool(retry=quick, verify=booked)
        async def book(what: str, ctx: ToolContext) -> str:
            """Book."""
            return await self._do("book", what, ctx)

        return [look, put, pay, book]

    async def _do(self, name: str, what: str, ctx: ToolContext) -> str:
        fate = self.fates.popleft() if self.fates else "ok"
        effect = Effect(tool=name, run=ctx.scope.run, what=what, uid=ctx.uid, key=ctx.idempotency_key)
        if self.alive:
            self.entered.append(effect)
        if fate == "flaky":
            raise Retryable("connection refused", not_started=True)
        await self._meet(fate, after=False)
        if self.alive and TOOLS[name] != "none":
            self.effects.append(effect)
        await self._meet(fate, after=True)
        return f"{name} {what} #{len(self.effects)}"

    async def _meet(self, fate: Fate, *, after: bool) -> None:
        if fate.endswith(" after") is not after:
            return
        match fate.removesuffix(" after"):
            case "raises":
                raise ValueError("the service said no")
            case "dies":
                self.die()
            case "hangs":
                self.hung.set()
        if fate.startswith(("dies", "hangs")) or not self.alive:
            await asyncio.Event().wait()


def _last_position(path: Path) -> int:
    connection = apsw.Connection(str(path))
    try:
        return int(connection.execute("SELECT max(position) FROM events").get)
    finally:
        connection.close()


def _forget(path: Path, *, after: int) -> None:
    connection = apsw.Connection(str(path))
    with connection:
        connection.execute("DELETE FROM events WHERE position > ?", (after,))
        connection.execute("DELETE FROM causes WHERE child > ?", (after,))
        connection.execute("DELETE FROM calls WHERE call NOT IN (SELECT call FROM events)")
    connection.close()
