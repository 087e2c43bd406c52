"""Nested calls of tools with a key of their effect: calls that need each other's key are refused at once, and the rest goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import pytest

from callgate import Engine, Limits, RawCall, Scope, SqliteJournal, Tool, ToolContext, tool
from callgate.protocols import Journal
from tests.effect_ledger import Ledger
from tests.engine_calls import call, said
from tests.waiting import PATIENCE_S

A, B = Scope(run="a", conversation="one"), Scope(run="b", conversation="two")
T = TypeVar("T")
How = Literal["inline", "thread", "engine"]


async def in_time(work: Awaitable[T]) -> T:
    return await asyncio.wait_for(work, PATIENCE_S)


class Pair:
    """The tools `reserve` and `pay`, each with a key of its effect. Each calls the other one when both have begun."""

    def __init__(self, ledger: Ledger, how: How = "inline") -> None:
        self.both = threading.Barrier(2)
        self._ledger, self._how = ledger, how
        self.engine: Engine | None = None

    def tools(self, **settings: Any) -> list[Tool]:
        return [self._made("reserve", "pay", **settings), self._made("pay", "reserve", **settings)]

    def _made(self, name: str, other: str, **settings: Any) -> Tool:
        def in_thread(order: str, nested: bool, ctx: ToolContext) -> str:
            """Call the other tool, once."""
            self._ledger.write(name)
            if not nested:
                self.both.wait(PATIENCE_S)
                return self._said(ctx.call_sync(other, {"order": order, "nested": True}))
            return f"{name} done"

        async def inline(order: str, nested: bool, ctx: ToolContext) -> str:
            """Call the other tool, once."""
            self._ledger.write(name)
            if nested:
                return f"{name} done"
            await asyncio.to_thread(self.both.wait, PATIENCE_S)
            arguments: dict[str, Any] = {"order": order, "nested": True}
            if self._how == "engine":
                assert self.engine is not None
                return self._said(await said(self.engine, call(other, **arguments), ctx.scope))
            return self._said(await ctx.call(other, arguments))

        return tool(name=name, key="{order}", **settings)(in_thread if self._how == "thread" else inline)

    @staticmethod
    def _said(result: Any) -> str:
        return f"{result.status} {result.code or ''}: {result.text}"


@pytest.mark.parametrize("how", ["inline", "thread", "engine"])
@pytest.mark.parametrize("scopes", [(A, B), (A, A)], ids=["two runs", "one run"])
async def test_of_two_calls_that_need_each_others_key_one_is_refused_at_once(how: How, scopes: tuple[Scope, Scope], ledger: Ledger) -> None:
    pair = Pair(ledger, how)
    settings: dict[str, Any] = {"effect": "idempotent", "writes": ()} if scopes == (A, A) else {}
    async with Engine(pair.tools(**settings)) as engine:
        pair.engine = engine
        calls = [said(engine, call(name, order="A7", nested=False), scope) for name, scope in zip(("reserve", "pay"), scopes, strict=True)]
        results = await in_time(asyncio.gather(*calls))
    refused, answered = sorted((result.text for result in results), key=lambda text: not text.startswith("error"))
    assert refused.startswith("error waits_for_itself: ")
    assert "it has the same key of its effect (A7) as " in refused
    assert "which waits for a call within which this one was made. Nothing happened; it may be sent again when one of the two" in refused
    assert answered.startswith("ok : error waits_for_itself: ")  # the result of the call that has the key
    assert sorted(ledger.lines()) == ["pay", "reserve"]


async def test_calls_that_need_each_others_key_through_others_are_refused_at_once(ledger: Ledger) -> None:
    """Three calls in a ring; the waits of two of them are for a key, that of one is for a declared resource."""
    all_begun = asyncio.Barrier(3)

    @tool(key="{n}", writes="box:{box}", effect="idempotent")
    async def step(n: int, box: str, next_n: int, next_box: str, ctx: ToolContext) -> str:
        """Call the next one."""
        ledger.write(str(n))
        if next_n < 0:
            return "end"
        await all_begun.wait()
        return str((await ctx.call("step", {"n": next_n, "box": next_box, "next_n": -1, "next_box": ""})).code)

    steps = [(0, "a", 1, "none"), (1, "b", 7, "c"), (2, "c", 0, "none")]
    async with Engine([step]) as engine:
        calls = [
            said(engine, call("step", n=n, box=box, next_n=after, next_box=other), Scope(run=f"run-{n}")) for n, box, after, other in steps
        ]
        results = await in_time(asyncio.gather(*calls))
    assert "waits_for_itself" in {result.text for result in results}
    assert all(result.success for result in results)


async def test_a_tool_that_hands_itself_in_again_with_its_idempotency_key_is_refused_at_once(ledger: Ledger) -> None:
    engines: list[Engine] = []

    @tool
    async def pay(ctx: ToolContext) -> str:
        """Hand itself in."""
        ledger.write("pay")
        result = await said(engines[0], RawCall(name="pay", arguments={}, idempotency_key="k"), ctx.scope)
        return f"{result.code}: {result.error}"

    async with Engine([pay]) as engine:
        engines.append(engine)
        result = await in_time(said(engine, RawCall(name="pay", arguments={}, idempotency_key="k"), A))
    assert result.text.startswith("waits_for_itself: pay was not started: it is the same call as a/0/0, which waits for this one.")
    assert ledger.lines() == ["pay"]


async def test_a_tool_learns_that_it_waited_for_a_key_of_another_engine_before_its_own_time_is_over(ledger: Ledger, tmp_path: Path) -> None:
    """Two engines do not know each other's waits. The deadline ends the wait, and the text says what it was for."""
    pair = Pair(ledger)
    journals: list[Journal] = [SqliteJournal(tmp_path / "journal.db") for _ in "ab"]
    async with Engine(pair.tools(), journal=journals[0], timeout_s=3) as one, Engine(pair.tools(), journal=journals[1], timeout_s=3) as two:
        results = await asyncio.gather(
            said(one, call("reserve", order="A7", nested=False), A), said(two, call("pay", order="A7", nested=False), B)
        )
    assert [result.status for result in results] == ["ok", "ok"]
    refused = [result.text for result in results if "has not ended in time" in result.text]
    assert refused
    assert all("was not run: a call with the same key of its effect (A7) has not ended in time." in text for text in refused)
    assert sorted(set(ledger.lines())) == ["pay", "reserve"]


# A function that makes the key


async def test_a_slow_key_function_delays_no_other_call_and_ends_with_its_time(ledger: Ledger) -> None:
    go_on = threading.Event()

    def slow(arguments: Mapping[str, object], scope: Scope) -> str:
        go_on.wait()
        return "late"

    @tool(key=slow)
    async def pay() -> str:
        """Pay."""
        ledger.write("pay")
        return "paid"

    @tool(effect="none")
    async def look() -> str:
        """Look."""
        return "seen"

    async with Engine([pay, look], limits=Limits(hook_timeout_s=0.3)) as engine:
        paying = asyncio.ensure_future(said(engine, call("pay"), A))
        assert (await in_time(said(engine, call("look"), B))).text == "seen"
        result = await in_time(paying)
        assert engine.abandoned == 1
        go_on.set()
    assert (result.status, result.code) == ("error", "effect_key")
    assert "the function that makes the key of its effect did not return within 0.3 s." in str(result.error)
    assert ledger.lines() == []


async def test_a_kill_ends_the_wait_for_a_key_function(ledger: Ledger) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(arguments: Mapping[str, object], scope: Scope) -> str:
        begun.set()
        go_on.wait()
        return "late"

    @tool(key=slow)
    async def pay() -> str:
        """Pay."""
        ledger.write("pay")
        return "paid"

    async with Engine([pay]) as engine:
        paying = asyncio.ensure_future(engine.call(call("pay"), A))
        await asyncio.to_thread(begun.wait, PATIENCE_S)
        engine.control.kill("one", "the user left")
        outcome = await in_time(paying)
        go_on.set()
    assert "the user left" in str(outcome)
    assert ledger.lines() == []
