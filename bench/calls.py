"""What the whole route costs: one call, many at once, many that wait."""

from __future__ import annotations

import asyncio

from bench.floor import TEXT, floor_gather, floor_serial, no_op, wait_10_ms
from bench.measure import Counts, Row, cpu, wall
from callgate import Answered, Engine, Hook, Limits, RawCall, Rules, tool

__all__ = ["HookedCalls", "ParallelCalls", "SerialCalls", "WaitingCalls", "engine_of", "raws_of", "serial"]

RULES = """
[[rule]]
id = "not-too-far"
verdict = "deny"
tool = "no_op"
when = { "arguments.days" = { above = 14 } }
reason = "No forecast reaches that far."
"""


def engine_of(*, effect: str = "none", hooks: tuple[Hook, ...] = (), limits: Limits | None = None) -> Engine:
    """An engine as a user would make it: one tool, one rule about it, everything else by default."""
    made = [tool(effect=effect)(function) for function in (no_op, wait_10_ms)]  # type: ignore[call-overload]
    return Engine(made, policies=(Rules.parse(RULES),), hooks=hooks, limits=limits or Limits(), run="bench")


def raws_of(name: str, count: int) -> list[RawCall]:
    """`count` calls as a provider's decoder would hand them in, each with an id of its own."""
    return [RawCall(name=name, arguments=TEXT, id=f"call_{index}", origin="bench") for index in range(count)]


async def serial(engine: Engine, raws: list[RawCall]) -> list[object]:
    """One call after another; every one has to succeed."""
    outcomes: list[object] = [await engine.call(raw) for raw in raws]
    _require_success(outcomes)
    return outcomes


def _require_success(outcomes: list[object]) -> None:
    last = outcomes[-1]
    if not isinstance(last, Answered) or not last.result.success:
        raise RuntimeError(f"the call that is measured does not work: {last}")


class SerialCalls:
    """One call, the whole route."""

    def __init__(self) -> None:
        self.plain = Row("one call, whole route / floor", most=7.5, note="schema, a rule, hook point, deadline, 3 events in memory")
        self.effect = Row(
            "the same with an effect / floor", most=15.5, note="the call is remembered by its id, so that it never runs twice"
        )
        self.rows = (self.plain, self.effect)

    async def open(self, counts: Counts) -> None:
        self.reading, self.writing = engine_of(), engine_of(effect="once")
        self.raws = raws_of("no_op", counts.calls)
        self.fresh = 0

    async def round(self, counts: Counts) -> None:
        floor = await cpu(lambda: floor_serial(counts.calls), counts.calls)
        self.plain.ratio(await cpu(lambda: serial(self.reading, self.raws), counts.calls), floor)
        raws = [RawCall(name="no_op", arguments=TEXT, id=f"call_{self.fresh + index}") for index in range(counts.calls)]
        self.fresh += counts.calls
        self.effect.ratio(await cpu(lambda: serial(self.writing, raws), counts.calls), floor)

    async def close(self) -> None:
        await self.reading.close()
        await self.writing.close()


class HookedCalls:
    """What hooks add."""

    def __init__(self) -> None:
        self.hooked = Row("one call with an observer before and after / floor")
        self.rows = (self.hooked,)

    async def open(self, counts: Counts) -> None:
        hooks = (Hook(run=lambda call: None, phase="before"), Hook(run=lambda call, result: None, phase="after"))
        self.engine = engine_of(hooks=hooks)
        self.raws = raws_of("no_op", counts.calls)

    async def round(self, counts: Counts) -> None:
        floor = await cpu(lambda: floor_serial(counts.calls), counts.calls)
        self.hooked.ratio(await cpu(lambda: serial(self.engine, self.raws), counts.calls), floor)

    async def close(self) -> None:
        await self.engine.close()


class ParallelCalls:
    """Many calls in one message."""

    def __init__(self) -> None:
        self.many = Row("1,000 parallel no-ops in one emission / bare gather", most=3.0)
        self.rows = (self.many,)

    async def open(self, counts: Counts) -> None:
        self.engine = engine_of()
        self.raws = raws_of("no_op", counts.parallel)

    async def round(self, counts: Counts) -> None:
        floor = await cpu(lambda: floor_gather(counts.parallel), counts.parallel)
        self.many.ratio(await cpu(self._emission, counts.parallel), floor)

    async def _emission(self) -> None:
        _require_success(list(await self.engine.call_many(self.raws)))

    async def close(self) -> None:
        await self.engine.close()


class WaitingCalls:
    """Many calls that wait for something: what counts is the wall."""

    def __init__(self) -> None:
        self.bare = Row("1,000 calls of 10 ms, bare gather: wall / 10 ms")
        self.ours = Row("1,000 calls of 10 ms in one emission: wall / 10 ms", most=4.0)
        self.rows = (self.bare, self.ours)

    async def open(self, counts: Counts) -> None:
        self.engine = engine_of()
        self.raws = raws_of("wait_10_ms", counts.parallel)

    async def round(self, counts: Counts) -> None:
        self.bare.ratio(await wall(lambda: asyncio.gather(*(wait_10_ms("Hamburg", 3, True) for _ in range(counts.parallel)))), 0.01)
        self.ours.ratio(await wall(self._emission), 0.01)

    async def _emission(self) -> None:
        _require_success(list(await self.engine.call_many(self.raws)))

    async def close(self) -> None:
        await self.engine.close()
