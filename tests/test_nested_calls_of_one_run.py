"""Calls that a tool makes: they follow the rules of their run, and none waits for its own tool or for ever."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from callgate import Engine, Scope, ToolContext, tool
from callgate.tools import TouchedKeys
from callgate.tools.resource_conflicts import conflict
from tests.engine_calls import call, kinds, result_of, said
from tests.test_calls_of_one_run import ONE, TWO, Meeting


@pytest.mark.parametrize("how", ["nested", "engine", "message"])
async def test_calls_that_a_bare_tool_makes_run_one_after_another_and_do_not_wait_for_their_own_tool(how: str) -> None:
    meeting = Meeting()
    engines: list[Engine] = []

    @tool
    async def outer(ctx: ToolContext) -> list[str]:
        """Call others."""
        raws = [call("act", name=name, id=f"{ctx.uid}-{name}") for name in "abc"]
        if how == "message":
            return [result_of(outcome).text for outcome in await engines[0].call_many(raws, ctx.scope)]
        if how == "engine":
            return [one.text for one in await asyncio.gather(*[said(engines[0], raw, ctx.scope) for raw in raws])]
        return [one.text for one in await asyncio.gather(*[ctx.call("act", {"name": name}) for name in "abc"])]

    async with Engine([*meeting.tools(), outer]) as engine:
        engines.append(engine)
        results = await asyncio.gather(*[said(engine, call("outer"), ONE) for _ in range(2)])
    assert [result.structured for result in results] == [["a", "b", "c"]] * 2
    assert meeting.most == 1


async def test_a_tool_may_use_again_what_it_has_declared_itself() -> None:
    meeting = Meeting()

    @tool(effect="idempotent", writes="account:{name}")
    async def move(name: str, ctx: ToolContext) -> str:
        """Book twice."""
        await ctx.call("book", {"name": name})
        return (await ctx.call("book", {"name": name})).text

    async with Engine([*meeting.tools(), move]) as engine:
        calls = [said(engine, call("move", name="a"), scope) for scope in (ONE, TWO, ONE)]
        assert [result.text for result in await asyncio.gather(*calls)] == ["a"] * 3
    assert meeting.most == 1


async def test_reads_that_call_bare_tools_do_not_wait_for_each_other_forever() -> None:
    meeting = Meeting()

    @tool(effect="none")
    async def research(name: str, ctx: ToolContext) -> str:
        """Ask others."""
        await meeting.work(f"before {name}")
        return (await ctx.call("act", {"name": name})).text

    async with Engine([*meeting.tools(), research]) as engine:
        results = await engine.call_many([call("research", name=name) for name in "abcd"], ONE)
    assert [result_of(outcome).text for outcome in results] == list("abcd")


async def test_of_two_tools_that_want_what_the_other_has_declared_one_call_is_refused() -> None:
    both = asyncio.Barrier(2)
    meeting = Meeting()

    @tool(effect="idempotent", writes="account:{mine}")
    async def move(mine: str, other: str, ctx: ToolContext) -> str:
        """Book on the other account."""
        await both.wait()
        result = await ctx.call("book", {"name": other})
        return f"{result.status} {result.code} {result.error}"

    async with Engine([*meeting.tools(), move]) as engine:
        calls = [said(engine, call("move", mine=mine, other=other), ONE) for mine, other in ("ab", "ba")]
        first, second = [result.text for result in await asyncio.gather(*calls)]
    assert {first.split()[0], second.split()[0]} == {"ok", "error"}
    refused = first if first.startswith("error") else second
    assert refused.startswith("error waits_for_itself book was not started: it must not run beside move (one/0/")
    assert "Nothing happened; it may be sent again" in refused


async def test_a_refusal_tells_nothing_of_another_run() -> None:
    both = asyncio.Barrier(2)

    @tool(effect="idempotent", writes="account:{mine}")
    async def move(mine: str, other: str, ctx: ToolContext) -> str:
        """Book on the other account."""
        await both.wait()
        return str((await ctx.call("book", {"name": other})).error)

    async with Engine([*Meeting().tools(), move]) as engine:
        calls = [said(engine, call("move", mine=a, other=b), Scope(run=f"secret-{a}")) for a, b in ("ab", "ba")]
        texts = " ".join(result.text for result in await asyncio.gather(*calls))
    assert "a call of another run" in texts
    assert "secret" not in texts


async def test_a_cached_call_is_not_joined_if_that_would_wait_for_itself() -> None:
    """The summary that runs waits for the update; the update wants the same summary."""
    asked, updating = asyncio.Event(), asyncio.Event()

    @tool(effect="none", reads="page:{page}")
    async def read(page: str) -> str:
        """Read."""
        return page

    @tool(effect="none", cacheable=True, cache_scope="session")
    async def summary(page: str, ctx: ToolContext) -> str:
        """Summarise."""
        asked.set()
        await updating.wait()
        return (await ctx.call("read", {"page": page})).text

    @tool(effect="idempotent", writes="page:{page}")
    async def update(page: str, ctx: ToolContext) -> str:
        """Update."""
        await asked.wait()
        updating.set()
        for _ in range(50):
            await asyncio.sleep(0)
        return str((await ctx.call("summary", {"page": page})).code)

    async with Engine([read, summary, update]) as engine:
        outside, inside = await asyncio.gather(said(engine, call("summary", page="p"), ONE), said(engine, call("update", page="p"), TWO))
    assert (outside.text, inside.text) == ("p", "waits_for_itself")


async def test_a_nested_call_waits_no_longer_than_its_time() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    @tool(effect="idempotent", writes="account:a")
    async def hold() -> None:
        """Hold."""
        begun.set()
        await go_on.wait()

    @tool(effect="none", timeout_s=0.2, retryable=False)
    async def outer(ctx: ToolContext) -> str:
        """Call on."""
        result = await ctx.call("hold", {})
        go_on.set()
        return str(result.error)

    async with Engine([hold, outer]) as engine:
        held = asyncio.create_task(said(engine, call("hold"), TWO))
        await begun.wait()
        result = await said(engine, call("outer"), ONE)
        go_on.set()
        await held
        assert "call.started" not in kinds(engine, "one/0/1")
    assert result.failure_class == "timeout"


def random_tools(chance: random.Random, live: list[tuple[int, TouchedKeys | None, bool]], broken: list[str]) -> list[Any]:
    """Tools that call others to a random depth; each notes what its own code does at the same time as others."""

    def keys(arguments: Mapping[str, object], scope: Scope) -> list[str]:
        return str(arguments["keys"]).split()

    def make(name: str, options: dict[str, Any]) -> Callable[..., Any]:
        async def work(number: int, keys: str, depth: int, ctx: ToolContext) -> int:
            """Work, call others, work."""
            touched = TouchedKeys(writes=frozenset(keys.split())) if "writes" in options else None
            mine = (number, touched, options["effect"] == "none")
            for _ in range(2):
                for _, other, _ in live:
                    if touched is not None and other is not None and conflict(touched, other) and not depth:
                        broken.append(f"{mine} beside {live}")
                live.append(mine)
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                live.remove(mine)
                if depth:
                    made = [{"number": chance.randrange(9), "keys": chance.choice(KEYS), "depth": depth - 1} for _ in range(2)]
                    await asyncio.gather(*[ctx.call(chance.choice(NAMES), one) for one in made])
            return number

        if "writes" in options:
            options["writes"] = keys
        return tool(name=name, **options)(work)

    return [
        make("reads", {"effect": "none"}),
        make("writes", {"effect": "idempotent", "writes": "declared"}),
        make("acts", {"effect": "once"}),
    ]


NAMES = ["reads", "writes", "acts"]
KEYS = ["a:", "a:1", "a:2", "b:1", "a:1 b:1", "b:1 c:1"]


@pytest.mark.parametrize("seed", range(40))
async def test_nested_calls_always_end_and_never_break_the_rule_of_declared_resources(seed: int) -> None:
    chance = random.Random(seed)
    live: list[tuple[int, TouchedKeys | None, bool]] = []
    broken: list[str] = []
    async with Engine(random_tools(chance, live, broken)) as engine, asyncio.timeout(20):
        raws = [
            call(chance.choice(NAMES), number=number, keys=chance.choice(KEYS), depth=chance.choice([0, 0, 1, 2])) for number in range(12)
        ]
        await asyncio.gather(*[engine.call(raw, chance.choice([ONE, TWO])) for raw in raws])
    assert not broken
