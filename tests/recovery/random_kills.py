"""A process that works with an engine, killed from outside at random moments and started again, until it is done; a ledger counts.

The killer forks the worker, lets a random moment pass, sends SIGKILL, and forks it again; it has no engine, no thread, no event loop. What
each order came to in the end is read from the ledger and from what the workers said. `python -m tests.recovery.random_kills` does it a
thousand times over a file, and over PostgreSQL where it can be had; another number may be given.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

from callgate import Agent, Engine, PostgresJournal, RawCall, Scope, SqliteJournal, ToolContext, Verified, tool
from callgate.calls import Answered
from callgate.errors import UsageError
from callgate.messages import ToolMessage
from callgate.models.model_events import ModelEvent
from callgate.models.model_protocol import StreamingContext
from callgate.models.wire.request import ModelRequest
from callgate.protocols import Journal
from callgate.tools import Tool
from tests.agent.scripted_model import call, says
from tests.effect_ledger import Ledger
from tests.journals.postgres_server import Unavailable, running_server
from tests.waiting import PATIENCE_S

__all__ = ["Tally", "kill_at_random"]

TOOLS: Final = {"put": "idempotent", "pay": "once", "book": "once"}
_ORDERS: Final = 8
"""In each batch: as many calls of a host, and as many runs of an agent."""
_LEASE_S: Final = 0.05
_LONGEST_S: Final = 0.12
"""Between a worker's beginning to work and its end."""


# The worker


def tools(ledger: Ledger) -> list[Tool]:
    """Each leaves its name, what it was about, and its key in the ledger; one can look there."""

    @tool(effect="idempotent")
    async def put(what: str, ctx: ToolContext) -> str:
        """Put."""
        ledger.write(f"put {what} {ctx.idempotency_key}")
        return f"put {what}"

    @tool
    async def pay(what: str, ctx: ToolContext) -> str:
        """Pay."""
        ledger.write(f"pay {what} {ctx.idempotency_key}")
        return f"paid {what}"

    def booked(arguments: dict[str, Any], key: str) -> Verified:
        found = f"book {arguments['what']} {key}" in ledger.lines()
        return Verified(happened=found, result=f"booked {arguments['what']}" if found else None)

    @tool(verify=booked)
    async def book(what: str, ctx: ToolContext) -> str:
        """Book."""
        ledger.write(f"book {what} {ctx.idempotency_key}")
        return f"booked {what}"

    return [put, pay, book]


class Clerk:
    """A model that orders one of each in one message, and is done when it has the results."""

    provider, name, native_tools = "scripted", "clerk", True

    def __init__(self, order: str) -> None:
        self._order = order

    async def stream(self, request: ModelRequest, context: StreamingContext) -> AsyncIterator[ModelEvent]:
        done = any(isinstance(message, ToolMessage) for message in request.messages)
        calls = [call(name, {"what": f"{self._order}.{name}"}, id=name, position=at) for at, name in enumerate(TOOLS)]
        for step in says("Done.") if done else says(*calls):
            yield step  # type: ignore[misc]


def open_journal(where: str) -> Journal:
    """The journal, once the lease of a writer that was killed has run out."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return PostgresJournal(where, lease_s=_LEASE_S) if "://" in where else SqliteJournal(where)
        except UsageError as error:
            if "another engine" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(_LEASE_S / 5)


async def work(where: str, folder: Path, batch: str, begun: Callable[[], None]) -> None:
    """Go through the orders of a batch, taking up what was begun; say of each what it came to."""
    said = Ledger(folder / "said.txt")
    over = {json.loads(line)[0] for line in said.lines() if line.endswith("]")}
    engine = Engine(tools(Ledger(folder / "ledger.txt")), journal=open_journal(where))
    begun()
    async with engine:
        for order in (f"{batch}-{n}" for n in range(_ORDERS)):
            if f"{order}.call" not in over:
                said.write(json.dumps([f"{order}.call", await by_call(engine, order)]))
            if f"{order}.run" not in over:
                said.write(json.dumps([f"{order}.run", await by_run(engine, order)]))


async def by_call(engine: Engine, order: str) -> dict[str, str]:
    """A host's own calls, known again by their keys."""
    told: dict[str, str] = {}
    for name in TOOLS:
        what = f"{order}.{name}.host"
        raw = RawCall(name=name, arguments=json.dumps({"what": what}), idempotency_key=what)
        outcome = await engine.call(raw, Scope(run=f"{order}.calls"))
        assert isinstance(outcome, Answered)
        told[what] = outcome.result.status
    return told


async def by_run(engine: Engine, order: str) -> dict[str, str]:
    """A run, begun or resumed; of one that is over its record tells."""
    agent = Agent(Clerk(order), engine)
    try:
        result = await agent.resume(order)
    except UsageError as error:
        if "is over" in str(error):
            return from_record(engine, order)
        result = await agent.run("Order.", scope=Scope(run=order))
    assert result.completed, result.reason
    return {f"{order}.{one.name}": str(one.status) for one in result.results}


def from_record(engine: Engine, order: str) -> dict[str, str]:
    ends = [json.loads(event.body) for event in engine.journal.read(run=order) if event.kind == "call.completed"]
    return {f"{order}.{end['name']}": end["status"] for end in ends}


# The killer


class Tally:
    """What came of it."""

    def __init__(self) -> None:
        self.kills = 0
        self.batches = 0
        self.told: Counter[str] = Counter()
        self.faults: list[str] = []

    def __str__(self) -> str:
        told = ", ".join(f"{times} {status}" for status, times in sorted(self.told.items()))
        return f"{self.kills} kills in {self.batches} batches; calls told: {told}; {len(self.faults)} not as promised"


def kill_at_random(where: str, folder: Path, kills: int, seed: int) -> Tally:
    """Kill workers so often, and let each batch come to its end.

    Args:
        where: The journal: a file's path, or a server's address.
        folder: For the ledger and for what is said.
        kills: How many at least.
        seed: Of the moments.
    """
    chance, tally = random.Random(seed), Tally()
    while tally.kills < kills:
        batch = f"b{tally.batches}"
        most = min(12, kills - tally.kills)
        for _ in range(most):
            if not _killed(where, folder, batch, chance.uniform(0, _LONGEST_S)):
                break
            tally.kills += 1
        else:
            _let_end(where, folder, batch)
        tally.batches += 1
    _count(folder, tally)
    if (broken := _verified(where)) is not None:
        tally.faults.append(f"the record does not verify: event {broken.position}, {broken.why}")
    return tally


def _killed(where: str, folder: Path, batch: str, after_s: float) -> bool:
    """Whether the worker was killed before it had come to its end."""
    worker, begun = _begin(where, folder, batch)
    with begun:
        begun.read()
    time.sleep(after_s)  # the random moment
    os.kill(worker, signal.SIGKILL)
    return _ended(worker)


def _let_end(where: str, folder: Path, batch: str) -> None:
    worker, begun = _begin(where, folder, batch)
    begun.close()
    assert not _ended(worker)


def _begin(where: str, folder: Path, batch: str) -> tuple[int, IO[bytes]]:
    """Fork a worker; gives its id, and what ends when it begins to work."""
    reading, writing = os.pipe()
    worker = os.fork()
    if worker == 0:
        os.close(reading)
        try:
            asyncio.run(work(where, folder, batch, lambda: os.close(writing)))
        except BaseException as error:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            os._exit(1)
        os._exit(0)
    os.close(writing)
    return worker, os.fdopen(reading, "rb")


def _ended(worker: int) -> bool:
    """Whether it was killed."""
    _, status = os.waitpid(worker, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise SystemExit("a worker failed; see above")
    return os.WIFSIGNALED(status)


def _count(folder: Path, tally: Tally) -> None:
    """Hold what was told of each order against what was done."""
    done: dict[str, list[str]] = {}
    for line in Ledger(folder / "ledger.txt").lines():
        _, what, key = line.split()
        done.setdefault(what, []).append(key)
    told: dict[str, str] = {}
    for line in Ledger(folder / "said.txt").lines():
        with suppress(json.JSONDecodeError):  # cut off with its worker
            told |= json.loads(line)[1]
    if len(told) != 2 * len(TOOLS) * _ORDERS * tally.batches:
        tally.faults.append(f"{len(told)} calls were told of")
    for what, status in told.items():
        tally.told[status] += 1
        tally.faults += [f"{what}, told as {status}: {fault}" for fault in _faults(what, status, done.get(what, []))]


def _faults(what: str, status: str, keys: list[str]) -> Iterator[str]:
    effect = TOOLS[what.split(".")[1]]
    if status == "ok" and not keys:
        yield "it was not done"
    if status not in ("ok", "unknown"):
        yield "neither ok nor unknown"
    if effect == "once" and len(keys) > 1:
        yield f"done {len(keys)} times"
    if len(set(keys)) > 1:
        yield f"done under {len(set(keys))} keys"
    if status == "unknown" and effect == "idempotent" and not what.endswith(".host"):
        yield "a resumed run does such a call again"
    if status == "unknown" and ".book" in what and not what.endswith(".host"):
        yield "the tool could have been asked"


def _verified(where: str) -> Any:
    return asyncio.run(_verify(where))


async def _verify(where: str) -> Any:
    journal = open_journal(where)
    try:
        return journal.verify()  # type: ignore[attr-defined]
    finally:
        await journal.close()


def main(kills: int, *stores: str) -> int:
    """Do it so often over each store, `file` and `postgres`; tells whether anything was not as promised."""
    seed = int.from_bytes(os.urandom(4))
    print(f"seed {seed}")  # noqa: T201
    wrong = 0
    if "file" in (stores or ("file",)):
        with tempfile.TemporaryDirectory() as folder:
            wrong += _said("a file", kill_at_random(f"{folder}/journal.db", Path(folder), kills, seed))
    if "postgres" in (stores or ("postgres",)):
        try:
            with running_server() as server, tempfile.TemporaryDirectory() as folder:
                wrong += _said("PostgreSQL", kill_at_random(server.new_database(), Path(folder), kills, seed))
        except Unavailable as reason:
            print(f"PostgreSQL: left out, {reason}")  # noqa: T201
    return 1 if wrong else 0


def _said(store: str, tally: Tally) -> int:
    print(f"{store}: {tally}", *tally.faults, sep="\n  ")  # noqa: T201
    return len(tally.faults)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000))
