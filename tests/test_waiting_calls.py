"""Calls that wait for each other or for a slot: they keep their order, hold nothing while they wait, and never wait forever."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from callgate import Aborted, Allow, Engine, Limits, Modify, Scope, ToolContext, tool
from callgate.protocols import Verdict
from callgate.stage_types import ValidatedCall
from tests.effect_ledger import Ledger
from tests.effect_tools import paying_amounts
from tests.engine_calls import call, ends, result_of, said
from tests.waiting import PATIENCE_S


@pytest.mark.parametrize("first_effect", ["idempotent", "none"])
async def test_calls_that_conflict_only_after_a_policy_changed_one_run_sequentially(first_effect: Any) -> None:
    running: set[str] = set()
    met: list[set[str]] = []

    async def visit(name: str) -> str:
        running.add(name)
        for _ in range(20):
            met.append(set(running))
            await asyncio.sleep(0)
        running.remove(name)
        return name

    @tool(effect=first_effect, reads="file:{path}", writes=None if first_effect == "none" else "file:{path}")
    async def first(path: str) -> str:
        """First."""
        return await visit("first")

    @tool(effect="idempotent", writes="file:{path}")
    async def second(path: str) -> str:
        """Second."""
        return await visit("second")

    class Rewrite:
        async def decide(self, call: ValidatedCall) -> Verdict:
            for _ in range(10 if call.name == "second" else 0):
                await asyncio.sleep(0)
            if call.arguments["path"] == "a":
                return Modify(arguments={"path": "x"}, reason="x is meant")
            return Allow()

    async with Engine([first, second], policies=[Rewrite()]) as engine:
        outcomes = await engine.call_many([call("first", path="a"), call("second", path="x")])
    assert all(result_of(outcome).success for outcome in outcomes)
    assert {"first", "second"} not in met


class OntoA:
    """A policy that changes the place `b` to `a`."""

    async def decide(self, call: ValidatedCall) -> Verdict:
        return Modify(arguments={"place": "a"}, reason="a is meant") if call.arguments["place"] == "b" else Allow()


def keyed(trace: list[str]) -> list[Any]:
    @tool(effect="once", writes="f:{place}")
    async def write(place: str) -> str:
        """Write."""
        trace.append(f"write {place}")
        return "written"

    @tool(effect="none", reads="f:{place}")
    async def read(place: str) -> str:
        """Read."""
        trace.append(f"read {place}")
        return "read"

    return [write, read]


@pytest.mark.parametrize("end", ["seal", "discard", "cancel"])
async def test_an_early_read_moved_onto_an_earlier_write_waits_without_holding_a_slot(end: str) -> None:
    trace: list[str] = []
    async with Engine(keyed(trace), policies=[OntoA()]) as engine:
        emission = engine.emission()
        emission.add(call("write", place="a"))
        emission.add(call("read", place="b"))
        for _ in range(20):
            await asyncio.sleep(0)
        assert trace == []
        if end == "seal":
            await asyncio.wait_for(emission.seal(), PATIENCE_S)
        elif end == "discard":
            await asyncio.wait_for(emission.discard("the stream dropped"), PATIENCE_S)
        else:
            sealing = asyncio.create_task(emission.seal())
            await asyncio.sleep(0)
            sealing.cancel()
            await asyncio.wait([sealing], timeout=PATIENCE_S)
            assert sealing.cancelled()
        assert sorted(ends(engine).values()) == [1, 1]
    allowed: dict[str, list[list[str]]] = {
        "seal": [["write a", "read a"]],
        "discard": [[]],
        "cancel": [[], ["write a"]],
    }  # the cancel may come after the write
    assert trace in allowed[end]


async def test_a_kill_ends_the_wait_for_a_slot(ledger: Ledger) -> None:
    release = asyncio.Event()
    async with Engine([paying_amounts(ledger, release)], limits=Limits(parallel_calls=1)) as engine:
        holding = asyncio.create_task(engine.call(call("pay", to="ann"), Scope(conversation="one")))
        while not ledger.lines():
            await asyncio.sleep(0)
        waiting = asyncio.create_task(engine.call(call("pay", to="bob"), Scope(conversation="two")))
        for _ in range(5):
            await asyncio.sleep(0)
        engine.control.kill("two")
        assert isinstance(await asyncio.wait_for(waiting, PATIENCE_S), Aborted)
        release.set()
        assert result_of(await holding).success
        assert (await said(engine, call("pay", to="eve"))).success
    assert ledger.lines() == ["ann 1", "eve 1"]


async def test_nested_calls_of_one_parent_never_deadlock_on_slots() -> None:
    @tool(effect="none")
    async def leaf(n: int) -> int:
        """Leaf."""
        await asyncio.sleep(0)
        return n

    @tool(effect="none")
    async def middle(ctx: ToolContext) -> str:
        """Middle."""
        return (await ctx.call("leaf", {"n": 1})).text

    @tool(effect="none")
    async def root(ctx: ToolContext) -> list[str]:
        """Root."""
        return [r.text for r in await asyncio.gather(ctx.call("leaf", {"n": 0}), ctx.call("middle", {}), ctx.call("middle", {}))]

    async with Engine([leaf, middle, root], limits=Limits(parallel_calls=1), timeout_s=PATIENCE_S) as engine:
        assert (await said(engine, call("root"))).structured == ["0", "1", "1"]
        assert (await said(engine, call("leaf", n=7))).structured == 7
