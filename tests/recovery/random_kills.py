"""A worker process with an engine that is killed at random moments and restarted until its work is done; a ledger counts the effects.

The killer forks the worker, waits for a random time, sends SIGKILL, and forks it again; it has no engine, thread or event loop. Each result
is read from the ledger and from the workers' reports. `python -m tests.recovery.random_kills` makes a thousand kills over a file,
and over PostgreSQL if it is available; an argument sets another number.
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
"""The number of calls of a host, and of runs of an agent, in each batch."""
_LEASE_S: Final = 0.05
_LONGEST_S: Final = 0.12
"""The longest time between the start of a worker's orders and its kill."""


# The worker


def tools(ledger: Ledger) -> list[Tool]:
    """Return tools that write their name, argument and key to the ledger; one of them has a `verify`."""

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
    """A model that orders one of each in one message and ends its turn when it has the results."""

    provider, name, native_tools = "scripted", "clerk", True

    def __init__(self, order: str) -> None:
        self._order = order

    async def stream(self, request: ModelRequest, context: StreamingContext) -> AsyncIterator[ModelEvent]:
        done = any(isinstance(message, ToolMessage) for message in request.messages)
        calls = [call(name, {"what": f"{self._order}.{name}"}, id=name, position=at) for at, name in enumerate(TOOLS)]
        for step in says("Done.") if done else says(*calls):
            yield step  # type: ignore[misc]


def open_journal(where: str) -> Journal:
    """Open the journal, waiting until the lease of a killed writer has expired."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return PostgresJournal(where, lease_s=_LEASE_S) if "://" in where else SqliteJournal(where)
        except UsageError as error:
            if "another engine" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(_LEASE_S / 5)


async def work(where: str, folder: Path, batch: str, begun: Callable[[], None]) -> None:
    """Process the orders of a batch, resuming unfinished ones, and report the results of each."""
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
    """Make the host's own calls, whose repeats are recognised by idempotency key."""
    told: dict[str, str] = {}
    for name in TOOLS:
        what = f"{order}.{name}.host"
        raw = RawCall(name=name, arguments=json.dumps({"what": what}), idempotency_key=what)
        outcome = await engine.call(raw, Scope(run=f"{order}.calls"))
        assert isinstance(outcome, Answered)
        told[what] = outcome.result.status
    return told


async def by_run(engine: Engine, order: str) -> dict[str, str]:
    """Start or resume a run; if it is over already, read its results from the journal."""
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
    """The counts and violations of a test."""

    def __init__(self) -> None:
        self.kills = 0
        self.batches = 0
        self.told: Counter[str] = Counter()
        self.faults: list[str] = []

    def __str__(self) -> str:
        told = ", ".join(f"{times} {status}" for status, times in sorted(self.told.items()))
        return f"{self.kills} kills in {self.batches} batches; calls told: {told}; {len(self.faults)} not as promised"


def kill_at_random(where: str, folder: Path, kills: int, seed: int) -> Tally:
    """Make this number of kills and let each batch finish.

    Args:
        where: The journal: a file's path or a server's address.
        folder: The folder of the ledger and of the workers' reports.
        kills: The minimum number of kills.
        seed: The seed of the random times.
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
    """Return whether the worker was killed before it finished."""
    worker, begun = _begin(where, folder, batch)
    with begun:
        begun.read()
    time.sleep(after_s)
    os.kill(worker, signal.SIGKILL)
    return _ended(worker)


def _let_end(where: str, folder: Path, batch: str) -> None:
    worker, begun = _begin(where, folder, batch)
    begun.close()
    assert not _ended(worker)


def _begin(where: str, folder: Path, batch: str) -> tuple[int, IO[bytes]]:
    """Fork a worker; return its process id and a pipe that closes when the worker begins its orders."""
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
    """Wait for the worker and return whether it was killed."""
    _, status = os.waitpid(worker, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise SystemExit("a worker failed; see above")
    return os.WIFSIGNALED(status)


def _count(folder: Path, tally: Tally) -> None:
    """Compare the reported result of each order with its effects."""
    done: dict[str, list[str]] = {}
    for line in Ledger(folder / "ledger.txt").lines():
        _, what, key = line.split()
        done.setdefault(what, []).append(key)
    told: dict[str, str] = {}
    for line in Ledger(folder / "said.txt").lines():
        with suppress(json.JSONDecodeError):  # the worker was killed while it wrote the line
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
    """Make this number of kills over each store, `file` and `postgres`; return 1 if any guarantee is violated."""
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
