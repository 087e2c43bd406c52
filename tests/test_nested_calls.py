"""Nested calls: they take the same route, as part of the call whose tool makes them, and only while it runs."""

from __future__ import annotations

import asyncio
import concurrent.futures
from typing import Any

import pytest

from callgate import Engine, RawCall, Retryable, RetryPolicy, ToolContext, tool
from callgate.testing import ManualClock
from tests.engine_calls import bodies, call, kinds, said
from tests.waiting import DEADLINE_S, LoopClock, past_deadline


async def test_a_nested_call_takes_the_same_route_under_its_parents_deadline() -> None:
    @tool(effect="none")
    async def inner(n: int) -> str:
        """Inner."""
        return f"inner {n}"

    begun = asyncio.Event()

    @tool(effect="none")
    async def hang() -> None:
        """Hang."""
        begun.set()
        await asyncio.Event().wait()

    @tool(effect="none")
    async def outer(ctx: ToolContext) -> list[str]:
        """Outer."""
        good = await ctx.call("inner", {"n": 1})
        bad = await ctx.call("inner", {"n": "x"})
        return [good.text, str(bad.code)]

    @tool(effect="none")
    async def patient(ctx: ToolContext) -> str:
        """Wait for something that never ends."""
        return str((await ctx.call("hang", {})).failure_class)

    async with Engine([inner, hang, outer, patient], timeout_s=DEADLINE_S, clock=LoopClock()) as engine:
        result = await said(engine, call("outer"))
        assert result.structured == ["inner 1", "schema_invalid"]
        parents = [body.get("parent") for body in bodies(engine, "call.received")]
        assert parents == [None, result.uid, result.uid]
        late = await past_deadline(said(engine, call("patient")), begun.is_set)
        assert late.failure_class == "timeout"


@pytest.mark.parametrize("own_s", [None, 100.0, 5.0], ids=["none", "longer", "shorter"])
async def test_a_nested_call_gets_no_more_time_than_its_parent_has_left(own_s: float | None) -> None:
    """A shorter timeout of its own still applies, and so does each parent's deadline at deeper levels."""
    clock = ManualClock()
    deadlines: list[float] = []

    @tool(effect="none", timeout_s=own_s)
    async def innermost(ctx: ToolContext) -> str:
        """Record the deadline."""
        deadlines.append(ctx.deadline)
        return "done"

    @tool(effect="none")
    async def inner(ctx: ToolContext) -> str:
        """Call `innermost`."""
        clock.advance(10)
        deadlines.append(ctx.deadline)
        return (await ctx.call("innermost", {})).text

    @tool(effect="none")
    async def outer(ctx: ToolContext) -> str:
        """Call `inner` when most of the time has passed."""
        clock.advance(20)
        deadlines.append(ctx.deadline)
        return (await ctx.call("inner", {})).text

    async with Engine([innermost, inner, outer], timeout_s=40, clock=clock) as engine:
        assert (await said(engine, call("outer"))).text == "done"
        left = [body["timeout_s"] for body in bodies(engine, "call.started")]
    least = min(40.0, 30.0 + (own_s or 40.0))
    assert deadlines == [40.0, 40.0, least]
    assert left == [40.0, 20.0, least - 30.0]


async def test_a_nested_call_is_not_retried_past_its_parents_deadline() -> None:
    clock = ManualClock(jitter=1.0)
    tried: list[int] = []

    @tool(effect="none", retry=RetryPolicy(base_s=10, max_s=10))
    async def flaky() -> str:
        """Fail transiently."""
        tried.append(1)
        raise ConnectionError("reset")

    @tool(effect="none", retryable=False)
    async def outer(ctx: ToolContext) -> str:
        """Call `flaky` when most of the time has passed."""
        clock.advance(35)
        return str((await ctx.call("flaky", {})).failure_class)

    async with Engine([flaky, outer], timeout_s=40, clock=clock) as engine:
        assert (await said(engine, call("outer"))).text == "exception"
    assert tried == [1]


async def test_a_sync_tool_calls_other_tools_from_its_thread() -> None:
    @tool(effect="none")
    async def inner(n: int) -> int:
        """Inner."""
        return n + 1

    @tool(effect="none")
    def outer(ctx: ToolContext) -> str:
        """Outer."""
        return ctx.call_sync("inner", {"n": 41}).text

    async with Engine([inner, outer]) as engine:
        assert (await said(engine, call("outer"))).text == "42"


@pytest.mark.parametrize("in_thread", [False, True], ids=["task", "thread"])
async def test_a_leftover_task_cannot_call_tools_after_its_call_has_ended(in_thread: bool) -> None:
    """A nested call is part of the call that makes it, and nothing can become part of a call that has ended."""
    over = asyncio.Event()
    strays: list[Any] = []
    ran: list[int] = []

    @tool(effect="none")
    async def inner() -> str:
        """Inner."""
        ran.append(1)
        return "done"

    async def later(ctx: ToolContext) -> object:
        await over.wait()
        return await (asyncio.to_thread(ctx.call_sync, "inner", {}) if in_thread else ctx.call("inner", {}))

    async def plain(ctx: ToolContext) -> str:
        """Start a task, and return before it ends."""
        strays.append(asyncio.ensure_future(later(ctx)))
        return "begun"

    def threaded(ctx: ToolContext) -> str:
        """Start a task, and return before it ends."""
        assert ctx.loop is not None
        strays.append(asyncio.wrap_future(asyncio.run_coroutine_threadsafe(later(ctx), ctx.loop), loop=ctx.loop))
        return "begun"

    async with Engine([inner, tool(name="outer")(threaded if in_thread else plain)]) as engine:
        assert (await said(engine, call("outer"))).status == "ok"
        over.set()
        with pytest.raises(RuntimeError, match=r"inner was not called: the call .* has ended\. Await every call in outer"):
            await strays[0]
        assert kinds(engine).count("call.received") == 1
    assert ran == []


@pytest.mark.parametrize("in_thread", [False, True], ids=["task", "thread"])
async def test_a_leftover_task_of_an_attempt_cannot_call_tools_during_the_next_attempt(in_thread: bool) -> None:
    """Such a call would take the place of the next attempt's own nested call."""
    strays: list[Any] = []
    ran: list[int] = []

    @tool
    async def inner(n: int) -> str:
        """Inner."""
        ran.append(n)
        return "done"

    async def later(ctx: ToolContext, second: asyncio.Event) -> object:
        await second.wait()
        return await (asyncio.to_thread(ctx.call_sync, "inner", {"n": 1}) if in_thread else ctx.call("inner", {"n": 1}))

    second = asyncio.Event()

    async def plain(ctx: ToolContext) -> str:
        """Start a task, and fail once."""
        if ctx.attempt == 1:
            strays.append(asyncio.ensure_future(later(ctx, second)))
            raise Retryable("Not yet.")
        second.set()
        await asyncio.wait(strays)
        return (await ctx.call("inner", {"n": 2})).text

    def threaded(ctx: ToolContext) -> str:
        """Start a task, and fail once."""
        assert ctx.loop is not None
        if ctx.attempt == 1:
            strays.append(asyncio.run_coroutine_threadsafe(later(ctx, second), ctx.loop))
            raise Retryable("Not yet.")
        ctx.loop.call_soon_threadsafe(second.set)
        concurrent.futures.wait(strays)
        return ctx.call_sync("inner", {"n": 2}).text

    outer = tool(name="outer", effect="none", retry=RetryPolicy(base_s=0))(threaded if in_thread else plain)
    async with Engine([inner, outer]) as engine:
        assert (await said(engine, call("outer"))).text == "done"
        with pytest.raises(RuntimeError, match=r"inner was not called: attempt 1 of the call .* has ended"):
            strays[0].result()
    assert ran == [2]


async def test_a_parent_call_holds_no_slot_while_it_waits_for_a_nested_call() -> None:
    from callgate import Limits

    @tool(effect="none")
    async def inner() -> str:
        """Inner."""
        return "done"

    @tool(effect="none")
    async def outer(ctx: ToolContext) -> str:
        """Outer."""
        return (await ctx.call("inner", {})).text

    async with Engine([inner, outer], limits=Limits(parallel_calls=1)) as engine:
        assert (await said(engine, RawCall(name="outer"))).text == "done"
