"""Random interleavings: each call has one terminal event, and everything that was acquired is released."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from callgate import Allow, Ask, Deny, Engine, Limits, Modify, RawCall, RetryPolicy, Scope, SqliteJournal, Suspended, ToolContext, tool
from callgate.emission import Emission
from callgate.errors import UsageError
from callgate.events import TERMINAL
from callgate.protocols import Verdict
from callgate.stage_types import ValidatedCall
from tests.effect_ledger import Ledger
from tests.engine_calls import call, kinds, result_of
from tests.waiting import PATIENCE_S


def tools_by(chance: random.Random) -> list[Any]:
    @tool(effect="none", parallel=2)
    async def nap(n: int = 0) -> int:
        """Nap."""
        for _ in range(n):
            await asyncio.sleep(0)
        return n

    @tool(effect="none", cacheable=True, reads="place:{n}")
    async def look(n: int = 0) -> int:
        """Look, and fail now and then."""
        await asyncio.sleep(0)
        if chance.random() < 0.3:
            raise ValueError("dark")
        return n

    @tool
    async def pay(n: int = 0) -> int:
        """Pay, with undeclared resources."""
        await asyncio.sleep(0)
        return n

    @tool(effect="idempotent", writes="place:{n}", attempt_timeout_s=0.003, retry=RetryPolicy(base_s=0.001))
    async def put(n: int = 0) -> int:
        """Put something somewhere, too slowly now and then."""
        await asyncio.sleep(chance.choice([0, 0.002, 0.01]))
        if chance.random() < 0.3:
            raise ConnectionError("the line is down")
        return n

    @tool
    def leave(n: int = 0) -> int:
        """A plain function that may exit the program."""
        if n == 3:
            raise SystemExit(2)
        return n

    @tool(effect="none")
    async def ask_around(ctx: ToolContext, n: int = 0) -> list[str]:
        """Call other tools, several at once."""
        names = [chance.choice(["nap", "look", "pay", "leave", "missing"]) for _ in range(n)]
        return [result.status for result in await asyncio.gather(*(ctx.call(name, {"n": n}) for name in names))]

    @tool(effect="none")
    async def stay(n: int = 0) -> int:
        """Refuse to stop, for a while."""
        for _ in range(n):
            try:
                await asyncio.sleep(0.003)
            except asyncio.CancelledError:
                continue
        return n

    @tool(category="dangerous")
    async def cancel_itself(n: int = 0) -> int:
        """Cancel the task it runs in."""
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)
        return n

    return [nap, look, pay, put, leave, ask_around, stay, cancel_itself]


class RandomVerdicts:
    """A policy that gives random verdicts or raises, with or without waiting."""

    def __init__(self, chance: random.Random, never_waits: bool) -> None:
        self._chance = chance
        self.never_waits = never_waits

    def judge(self, call: ValidatedCall) -> Verdict:
        mood = self._chance.random()
        if mood < 0.03:
            raise ValueError("out of order")
        changed = Modify(arguments={**call.arguments, "n": 1}, reason="one is enough")
        return Deny(reason="no") if mood < 0.06 else Ask(question="sure?") if mood < 0.1 else changed if mood < 0.12 else Allow()

    async def decide(self, call: ValidatedCall) -> Verdict:
        await asyncio.sleep(0)
        return self.judge(call)


class RandomInterleaving:
    """Runs calls, messages, kills, stops, cancels and a close in random order."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        limits = Limits(
            parallel_calls=chance.choice([1, 2, 64]),
            parallel_threads=chance.choice([1, 8]),
            dangerous_per_tick=chance.choice([None, 1]),
            grace_s=0.002,
        )
        policies = [RandomVerdicts(chance, chance.random() < 0.5) for _ in range(chance.randrange(3))]
        self.patient = chance.random() < 0.5
        self.engine = Engine(tools_by(chance), policies=policies, limits=limits, timeout_s=PATIENCE_S / 2 if self.patient else 0.005)
        self.names = [*self.engine.tools.names(), "missing", ""]
        self.tasks: list[asyncio.Task[None]] = []
        self.outcomes: list[Any] = []
        self.escaped: list[BaseException] = []

    def raw(self) -> RawCall:
        chance = self.chance
        arguments = chance.choice(['{"n": 0}', '{"n": 2}', '{"n": "3"}', '{"n": 5.0}', '{"n":'])
        key = chance.choice([None, None, None, "k"])
        return RawCall(name=chance.choice(self.names), arguments=arguments, id=chance.choice(["", "a", "b"]), idempotency_key=key)

    def scope(self) -> Scope:
        return Scope(conversation=self.chance.choice("xyz"), turn=self.chance.randrange(2), run=self.chance.choice(["", "r"]))

    async def message(self) -> object:
        emission = self.engine.emission(self.scope())
        try:
            for _ in range(self.chance.randrange(5)):
                emission.add(self.raw())
                await asyncio.sleep(0)
        except BaseException:
            await emission.discard("the host is gone")
            raise
        if self.chance.random() < 0.3:
            await emission.discard("the stream dropped")
            return None
        return await emission.seal()

    async def guarded(self, work: Awaitable[object]) -> None:
        try:
            self.outcomes.append(await work)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            if not isinstance(error, UsageError):
                self.escaped.append(error)

    def begin(self, work: Awaitable[object]) -> None:
        self.tasks.append(asyncio.create_task(self.guarded(work)))

    async def blow(self) -> None:
        for _ in range(self.chance.randrange(5, 40)):
            self.gust(self.chance.random())
            await asyncio.sleep(self.chance.choice([0, 0, 0, 0.001]))
        await asyncio.wait_for(asyncio.gather(*self.tasks, return_exceptions=True), PATIENCE_S)

    def gust(self, what: float) -> None:
        chance, control = self.chance, self.engine.control
        if what < 0.5:
            self.begin(self.engine.call(self.raw(), self.scope()))
        elif what < 0.6:
            self.begin(self.engine.call_many([self.raw() for _ in range(chance.randrange(6))], self.scope()))
        elif what < 0.7:
            self.begin(self.message())
        elif what < 0.78 and self.tasks:
            chance.choice(self.tasks).cancel()
        elif what < 0.84:
            chance.choice([control.kill, control.stop])(chance.choice("xyz"))
        elif what < 0.92:
            control.end_turn(chance.choice("xyz"))
        elif what < 0.94:
            self.begin(self.engine.close())
        else:
            self.begin(self.answer())

    async def answer(self) -> None:
        for outcome in list(self.outcomes):
            if isinstance(outcome, Suspended):
                with suppress(UsageError):  # already answered
                    await self.engine.answer(outcome.approval_id, allow=self.chance.random() < 0.7)


@pytest.mark.parametrize("first", range(0, 120, 12))
async def test_random_interleavings_leave_one_terminal_event_per_call_and_free_all_slots(first: int) -> None:
    """A call raises only `CancelledError` or `UsageError`."""
    for seed in range(first, first + 12):
        before = asyncio.all_tasks()
        storm = RandomInterleaving(seed)
        await storm.blow()
        engine = storm.engine
        events = list(engine.journal.read())
        ends = Counter(event.call for event in events if event.kind in TERMINAL)
        assert storm.escaped == [], seed
        assert ends == Counter(event.call for event in events if event.kind == "call.received"), seed
        assert not storm.patient or await has_room(engine), seed
        await asyncio.wait_for(engine.close(), PATIENCE_S)
        for task in asyncio.all_tasks() - before:
            await asyncio.wait_for(asyncio.wait([task]), PATIENCE_S)


async def has_room(engine: Engine) -> bool:
    """Return whether calls still get slots. Return True if the engine is closed."""
    try:
        outcomes = await engine.call_many([call("nap", n=1) for _ in range(4)], Scope(conversation="fresh", run="fresh"))
    except UsageError:
        return True
    return all(result_of(outcome).code != "not_started" for outcome in outcomes if not isinstance(outcome, Suspended))


async def begun(engine: Engine) -> Emission:
    """Return a message with a running read that ignores cancellation and two calls that wait for it."""
    emission = engine.emission()
    emission.add(call("stay"))
    emission.add(call("pay", id="1", n=1))
    emission.add(call("pay", id="2", n=2))
    await asyncio.sleep(0)
    return emission


def staying_and_paying(ledger: Ledger, stays: asyncio.Event) -> list[Any]:
    @tool(effect="none")
    async def stay() -> None:
        """Refuse to stop."""
        while not stays.is_set():
            with suppress(asyncio.CancelledError):
                await stays.wait()

    @tool
    async def pay(n: int) -> int:
        """Pay."""
        ledger.write(str(n))
        return n

    return [stay, pay]


@pytest.mark.parametrize("journal", ["memory", "file"])
async def test_closing_the_engine_ends_an_open_message_without_starting_waiting_calls(journal: str, tmp_path: Path, ledger: Ledger) -> None:
    """Each call has one terminal event."""
    stays, path = asyncio.Event(), tmp_path / "journal.db"
    engine = Engine(
        staying_and_paying(ledger, stays),
        journal=SqliteJournal(path) if journal == "file" else None,
        limits=Limits(grace_s=0.01),
    )
    emission = await begun(engine)
    await engine.close()
    outcomes = await emission.seal()
    stays.set()
    assert [result_of(outcome).success for outcome in outcomes] == [False, False, False]
    kept = SqliteJournal(path) if journal == "file" else engine.journal
    assert Counter(event.call for event in kept.read() if event.kind in TERMINAL) == Counter(result_of(one).uid for one in outcomes)
    await kept.close()
    assert ledger.lines() == []


@pytest.mark.parametrize("end", ["seal", "discard"])
async def test_every_call_ends_when_seal_or_discard_is_cancelled_twice(end: str, ledger: Ledger) -> None:
    """Each call has one terminal event, and no waiting call runs."""
    stays = asyncio.Event()
    async with Engine(staying_and_paying(ledger, stays), limits=Limits(grace_s=PATIENCE_S)) as engine:
        emission = await begun(engine)
        ending = asyncio.create_task(emission.seal() if end == "seal" else emission.discard("the stream dropped"))
        for _ in range(2):
            await asyncio.sleep(0)
            ending.cancel()
        await asyncio.wait([ending])
        stays.set()
        await asyncio.wait_for(asyncio.shield(emission._execution.queue.wait_until_done()), PATIENCE_S)
        assert [kinds(engine, uid).count("call.completed") for uid in [end.uid for end in emission.ends_so_far]] == [1, 1, 1]
    assert ledger.lines() == []
