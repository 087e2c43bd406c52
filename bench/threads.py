"""What it costs to hand a sync tool to a thread, and how many run at once."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable

from bench.calls import raws_of
from bench.floor import TEXT
from bench.measure import Counts, Row, cpu
from bench.tools import async_no_op, sleep_50_ms, sync_no_op
from callgate import Engine, Limits
from callgate._abort_signals import AbortController
from callgate._json import canonical, plain_bytes
from callgate._pipeline.parse import parse
from callgate._pipeline.resolve import resolve
from callgate._pipeline.validate import validate
from callgate._runners.thread_runner import ThreadRunner
from callgate.calls import RawCall, Scope
from callgate.protocols import RunRequest
from callgate.stage_types import ApprovedCall
from callgate.tools import ToolContext

__all__ = ["HandOff", "SleepingTools"]


class HandOff:
    """One sync call, handed to a thread and back."""

    def __init__(self) -> None:
        self.engine_row = Row(
            "sync hand-off in the engine / asyncio.to_thread", most=0.9, note="a whole call of a sync no-op minus one of an async no-op"
        )
        self.runner_row = Row("the thread runner alone / asyncio.to_thread", most=0.9)
        self.rows = (self.engine_row, self.runner_row)

    async def open(self, counts: Counts) -> None:
        self.engine = Engine([async_no_op, sync_no_op], run="bench")
        self.runner = ThreadRunner(Limits())
        self.request = request_of(self.engine, RawCall(name="sync_no_op", arguments=TEXT))
        await self.round(Counts(tasks=10))
        for row in self.rows:
            row.samples.clear()

    async def round(self, counts: Counts) -> None:
        bare = await cpu(lambda: repeat(self._to_thread, counts.tasks), counts.tasks)
        sync = await cpu(lambda: repeat(lambda: self._call("sync_no_op"), counts.tasks), counts.tasks)
        plain = await cpu(lambda: repeat(lambda: self._call("async_no_op"), counts.tasks), counts.tasks)
        alone = await cpu(lambda: repeat(lambda: self.runner.run(self.request), counts.tasks), counts.tasks)
        self.engine_row.ratio(sync - plain, bare)
        self.runner_row.ratio(alone, bare)

    async def _to_thread(self) -> object:
        return await asyncio.to_thread(sync_no_op.function, city="Hamburg", days=3, metric=True)

    async def _call(self, name: str) -> object:
        return await self.engine.call(RawCall(name=name, arguments=TEXT))

    async def close(self) -> None:
        await self.runner.close()
        await self.engine.close()


async def repeat(work: Callable[[], Awaitable[object]], times: int) -> None:
    for _ in range(times):
        await work()


def request_of(engine: Engine, raw: RawCall) -> RunRequest:
    """What a runner gets for this call."""
    scope, kill = Scope(run="bench"), AbortController().signal
    call = validate(resolve(parse(raw, "bench/0/0", engine.limits, repair=False), engine.tools, scope), scope, coerce=True)
    context = ToolContext(
        scope=scope,
        call_id="",
        uid=call.uid,
        tool=call.name,
        idempotency_key=call.uid,
        signal=kill,
        report=lambda text, stream: None,
    )
    approved = ApprovedCall(call=call, rule="", encoded=canonical(call.arguments), arguments_json=plain_bytes(call.arguments), key=call.uid)
    return RunRequest(approved=approved, context=context, attempt=1, timeout_s=60, grace_s=0.3, kill=kill)


class SleepingTools:
    """Many sync tools at once, with nothing set."""

    def __init__(self) -> None:
        self.time = Row("64 sync tools of 50 ms: wall / 50 ms", most=1.4)
        self.lag = Row("meanwhile, the longest hold-up of the event loop", unit="ms", most=10.0, note="the loop is never blocked")
        self.rows = (self.time, self.lag)

    async def open(self, counts: Counts) -> None:
        self.engine = Engine([sleep_50_ms], run="bench")
        self.raws = raws_of("sleep_50_ms", counts.threads)

    async def round(self, counts: Counts) -> None:
        gc.collect()
        lag = Lag()
        watching = asyncio.create_task(lag.watch())
        await asyncio.sleep(0.01)
        began = time.perf_counter()
        await self.engine.call_many(self.raws)
        self.time.ratio(time.perf_counter() - began, 0.05)
        watching.cancel()
        self.lag.samples.append(lag.worst_s * 1000)

    async def close(self) -> None:
        await self.engine.close()


class Lag:
    """How late a timer of 1 ms comes at worst."""

    worst_s = 0.0

    async def watch(self) -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.001)
            self.worst_s = max(self.worst_s, time.perf_counter() - began - 0.001)
