"""Thread tools that call thread tools: a thread that waits for a nested call takes no slot that this call needs."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from callgate import Answered, Engine, Limits, RawCall, RetryPolicy, ToolContext, tool
from callgate.calls import Outcome
from tests.engine_calls import bodies, call, said
from tests.waiting import DEADLINE_S, HANGS_S, PATIENCE_S, LoopClock, let_pass, soon, until


@tool(effect="none")
def leaf(n: int) -> int:
    """Leaf."""
    return n


@tool(effect="none")
def parent(ctx: ToolContext, n: int) -> int:
    """Call another tool."""
    return int(str(ctx.call_sync("leaf", {"n": n}).structured))


@tool(effect="none")
def deep(ctx: ToolContext, n: int) -> int:
    """Call itself, this many levels deep."""
    return n if n == 0 else 1 + int(str(ctx.call_sync("deep", {"n": n - 1}).structured))


@tool(effect="none")
def many(ctx: ToolContext, n: int) -> int:
    """Make several calls at once, from threads of its own."""
    with ThreadPoolExecutor(4) as pool:
        return sum(int(str(one.structured)) for one in pool.map(lambda i: ctx.call_sync("parent", {"n": i}), range(n)))


@tool(effect="none")
async def gathers(ctx: ToolContext, n: int) -> int:
    """Call several thread tools at once, from the event loop."""
    return sum(int(str(one.structured)) for one in await asyncio.gather(*(ctx.call("parent", {"n": i}) for i in range(n))))


ALL = (leaf, parent, deep, many, gathers)


def values(outcomes: list[Outcome]) -> list[object]:
    return [outcome.result.structured if isinstance(outcome, Answered) else outcome for outcome in outcomes]


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("calls", [1, 3, 1_000], ids=lambda calls: f"{calls} calls")
async def test_more_parent_calls_than_threads_all_get_their_nested_results(threads: int, calls: int) -> None:
    async with Engine(ALL, limits=Limits(parallel_threads=threads, parallel_calls=calls), timeout_s=PATIENCE_S) as engine:
        outcomes = await engine.call_many([call("parent", n=n) for n in range(50)])
        assert values(outcomes) == list(range(50))
        assert (await said(engine, call("deep", n=40))).structured == 40
        assert values(await engine.call_many([call("many", n=4), call("gathers", n=4), call("many", n=3)])) == [6, 6, 3]


async def test_two_hundred_parent_calls_complete_with_the_default_thread_limit() -> None:
    async with Engine(ALL, timeout_s=PATIENCE_S) as engine:
        assert values(await engine.call_many([call("parent", n=n) for n in range(200)])) == list(range(200))


async def test_a_tool_with_parallel_1_can_call_itself_through_another_tool() -> None:
    @tool(effect="none", parallel=1)
    def only(ctx: ToolContext, n: int) -> int:
        """Run alone."""
        return n if n == 0 else int(str(ctx.call_sync("between", {"n": n - 1}).structured))

    @tool(effect="none", parallel=1)
    def between(ctx: ToolContext, n: int) -> int:
        """Run alone, too."""
        return int(str(ctx.call_sync("only", {"n": n}).structured))

    limits = Limits(parallel_threads=1, parallel_calls=2)
    async with Engine([only, between], limits=limits, timeout_s=PATIENCE_S) as engine:
        assert values(await engine.call_many([call("only", n=3) for _ in range(20)])) == [0] * 20


@pytest.mark.parametrize("end", ["kill", "deadline"])
async def test_a_kill_or_deadline_ends_parent_and_child_and_frees_their_threads(end: str) -> None:
    begun, release = threading.Event(), threading.Event()
    told: list[object] = []

    @tool(effect="none")
    def child() -> str:
        """Hang."""
        begun.set()
        release.wait(HANGS_S)
        return "late"

    @tool(effect="none")
    def root(ctx: ToolContext) -> str:
        """Wait for the child."""
        told.append(ctx.call_sync("child", {}).status)
        return "late"

    limits = Limits(parallel_threads=1)
    async with Engine([child, root, leaf], limits=limits, timeout_s=DEADLINE_S, clock=LoopClock()) as engine:
        running = asyncio.ensure_future(engine.call(RawCall(name="root")))
        await until(begun.is_set)
        if end == "kill":
            engine.control.kill("")
        else:
            let_pass(DEADLINE_S)
        await asyncio.wait([running], timeout=PATIENCE_S)
        assert running.done()
        assert await soon(lambda: told), "the thread that waits for the child is still blocked"
        engine.control.end_turn("")
        assert (await said(engine, call("leaf", n=7))).structured == 7
        release.set()
        assert await soon(lambda: len(bodies(engine, "call.late")) >= 1)


async def test_endless_recursion_of_calls_ends_at_the_waiting_threads_limit() -> None:
    @tool(effect="none", retry=RetryPolicy(attempts=1))
    def endless(ctx: ToolContext) -> str:
        """Call itself."""
        return str(ctx.call_sync("endless", {}).text)

    async with Engine([endless], limits=Limits(parallel_threads=2, waiting_threads=8), timeout_s=PATIENCE_S) as engine:
        result = await said(engine, RawCall(name="endless"))
        assert "8 threads wait for calls that their tools made; 8 is the limit" in result.text
        assert len(bodies(engine, "call.received")) <= 12
        assert (await said(engine, RawCall(name="endless"))).status == "ok", "the threads were not released"


async def test_a_call_that_waits_for_a_thread_gets_the_slot_of_an_abandoned_one() -> None:
    """The call does not wait for another call or for its deadline."""
    begun, release = threading.Event(), threading.Event()

    @tool(effect="none", timeout_s=0.05)
    def stuck() -> None:
        """Hang."""
        begun.set()
        release.wait(HANGS_S)

    async with Engine([stuck, leaf], limits=Limits(parallel_threads=1), timeout_s=PATIENCE_S) as engine:
        first = asyncio.ensure_future(engine.call(RawCall(name="stuck")))
        await until(begun.is_set)
        second = asyncio.ensure_future(engine.call(call("leaf", n=3)))
        assert values([await second]) == [3]
        release.set()
        await first
