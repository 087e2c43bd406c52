"""Identical concurrent calls share one execution. No call gets another's failure, kill or changed result, and no call waits for itself."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from callgate import Engine, Scope, ToolContext, ToolResult, after_call, tool
from callgate.stage_types import Checked, ValidatedCall
from tests.engine_calls import call, said
from tests.waiting import PATIENCE_S, until


class Failing:
    """A tool that waits for `release` and then fails in its first `failures` runs."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.runs = 0
        self.release = asyncio.Event()

    def tool(self, **settings: Any) -> Any:
        @tool(name="look", effect="none", cacheable=True, cache_scope="session", **settings)
        async def look() -> str:
            """Look."""
            self.runs += 1
            run = self.runs
            await self.release.wait()
            await asyncio.sleep(0)
            if run <= self.failures:
                raise ValueError(f"dark {run}")
            return f"seen {run}"

        return look


async def both(engine: Engine, looking: Failing) -> list[ToolResult]:
    """Make two identical calls, the second one while the first one runs."""
    first = asyncio.create_task(said(engine, call("look")))
    await until(lambda: looking.runs == 1)
    second = asyncio.create_task(said(engine, call("look")))
    await asyncio.sleep(0)
    looking.release.set()
    return [await first, await second]


async def test_identical_concurrent_calls_share_one_execution() -> None:
    looking = Failing(0)
    async with Engine([looking.tool()]) as engine:
        results = await both(engine, looking)
    assert [result.metadata.joined for result in results] == [False, True]
    assert looking.runs == 1


async def test_a_call_that_joined_a_failed_execution_runs_itself() -> None:
    async with Engine([(looking := Failing(1)).tool()]) as engine:
        assert [result.success for result in await both(engine, looking)] == [False, True]


async def test_a_result_changed_by_a_hook_is_not_seen_by_joined_calls() -> None:
    started, release = asyncio.Event(), asyncio.Event()

    @tool(effect="none", cacheable=True)
    async def look() -> dict[str, Any]:
        """Look."""
        started.set()
        await release.wait()
        return {"seen": []}

    @after_call(kind="transform")
    def scribble(call: ValidatedCall, result: Checked) -> object:
        result.value["seen"].append("hook")  # type: ignore[index]
        return result.value

    async with Engine([look], hooks=[scribble]) as engine:
        tasks = [asyncio.create_task(said(engine, call("look")))]
        await started.wait()
        tasks += [asyncio.create_task(said(engine, call("look"))) for _ in range(3)]
        await asyncio.sleep(0)
        release.set()
        results = [await task for task in tasks]
        results.append(await said(engine, call("look")))
    assert [result.metadata.joined for result in results] == [False, True, True, True, False]
    assert [result.structured for result in results] == [{"seen": ["hook"]}] * 5


@pytest.mark.parametrize("failures", [1, 2])
async def test_after_a_failed_execution_one_joined_call_runs_again_for_all(failures: int) -> None:
    """The other joined calls accept this execution, whether it succeeds or fails, because it began after they were made."""
    failing = Failing(failures)
    async with Engine([failing.tool()]) as engine:
        calls = [asyncio.create_task(said(engine, call("look"))) for _ in range(6)]
        await until(lambda: failing.runs == 1)
        failing.release.set()
        first, *others = [await one for one in calls]
    assert (failing.runs, first.success, first.metadata.joined) == (2, False, False)
    assert {one.success for one in others} == {failures == 1}
    assert [one.metadata.joined for one in others].count(False) == 1
    assert all(one.metadata.untrusted and ("2" in one.text) for one in others)


async def test_a_kill_of_the_executing_call_does_not_affect_joined_calls() -> None:
    failing = Failing(0)
    async with Engine([failing.tool()]) as engine:
        leader = asyncio.create_task(engine.call(call("look"), Scope(conversation="killed")))
        await until(lambda: failing.runs == 1)
        others = [asyncio.create_task(said(engine, call("look"))) for _ in range(3)]
        await asyncio.sleep(0)
        engine.control.kill("killed")
        await leader
        await until(lambda: failing.runs == 2)
        failing.release.set()
        assert [(await one).text for one in others] == ["seen 2"] * 3
    assert failing.runs == 2


def circling() -> list[Any]:
    @tool(effect="none", cacheable=True)
    async def mirror(ctx: ToolContext, of: str) -> Any:
        """Call the named tool with the name of this one."""
        await asyncio.sleep(0)
        return (await ctx.call(of, {"of": "mirror"})).code

    @tool(effect="none", cacheable=True)
    async def window(ctx: ToolContext, of: str) -> Any:
        """Call the named tool with the name of this one."""
        await asyncio.sleep(0)
        return (await ctx.call(of, {"of": "window"})).structured

    return [mirror, window]


async def test_a_cached_call_that_would_wait_for_itself_is_refused() -> None:
    """A nested call must not wait for the call that makes it."""
    async with asyncio.timeout(PATIENCE_S), Engine(circling()) as engine:
        result = await said(engine, call("mirror", of="mirror"))
        assert result.structured == "waits_for_itself"
        result = await said(engine, call("window", of="mirror"))
        assert result.structured == "waits_for_itself"


async def test_two_cached_calls_that_need_each_other_do_not_deadlock() -> None:
    """The call that would complete the cycle is refused, whichever that is."""

    @tool(effect="none", cacheable=True)
    async def half(ctx: ToolContext, of: str, other: str) -> Any:
        """Call the other half."""
        met.append(of)
        await until(lambda: len(met) == 2)
        result = await ctx.call("half", {"of": other, "other": of})
        return [result.code, result.structured]

    met: list[str] = []
    async with asyncio.timeout(PATIENCE_S), Engine([half]) as engine:
        one, two = await asyncio.gather(said(engine, call("half", of="a", other="b")), said(engine, call("half", of="b", other="a")))
    assert "waits_for_itself" in f"{one.structured} {two.structured}"
    assert (one.success, two.success, sorted(met)) == (True, True, ["a", "b"])
