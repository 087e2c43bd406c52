"""Cached results: per tick, per process or in a file; never of a denied or failed call, and never for another principal, actor or
workspace.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from callgate import Deny, Engine, Scope, SqliteCache, after_call, tool
from callgate.protocols import Allow, Verdict
from callgate.stage_types import Checked, ValidatedCall
from callgate.testing import ManualClock
from tests.cacheable_tool import Count, counting
from tests.engine_calls import bodies, call, kinds, said


async def test_a_cache_hit_does_not_run_the_tool_and_is_marked_as_cached() -> None:
    count = Count()
    async with Engine([counting(count)]) as engine:
        first = await said(engine, call("look"))
        second = await said(engine, call("look"))
        assert kinds(engine, second.uid) == ["call.received", "call.verdict", "call.completed"]
        assert engine.activity_since_wake == 1
    assert (first.metadata.cached, second.metadata.cached) == (None, "tick")
    assert (first.text, second.metadata.attempts, count.runs) == (second.text, 0, 1)


async def test_results_are_not_cached_unless_the_tool_is_cacheable() -> None:
    runs = []

    @tool(effect="none")
    async def look() -> int:
        """Look."""
        runs.append(1)
        return len(runs)

    async with Engine([look]) as engine:
        await said(engine, call("look"))
        await said(engine, call("look"))
    assert len(runs) == 2


async def test_a_result_with_tick_scope_is_cached_for_one_turn() -> None:
    count = Count()
    async with Engine([counting(count)]) as engine:
        for turn in (1, 1, 2):
            await said(engine, call("look"), Scope(turn=turn))
    assert count.runs == 2


async def test_a_result_with_session_scope_is_cached_across_turns_of_one_engine() -> None:
    count = Count()
    async with Engine([counting(count, cache_scope="session")]) as engine:
        for turn in (1, 2):
            await said(engine, call("look"), Scope(turn=turn, conversation=str(turn)))
    assert count.runs == 1
    async with Engine([counting(count, cache_scope="session")]) as engine:
        await said(engine, call("look"))
    assert count.runs == 2


async def test_a_result_with_persistent_scope_is_cached_across_engines(tmp_path: Path) -> None:
    count = Count()
    for _ in range(2):
        async with Engine([counting(count, cache_scope="persistent")], persistent_cache=SqliteCache(tmp_path / "cache.db")) as engine:
            assert (await said(engine, call("look"))).structured == {"seen": "door", "run": 1}
    assert count.runs == 1


@pytest.mark.parametrize(
    "other",
    [Scope(principal="eve"), Scope(actor="eve"), Scope(workspace="/elsewhere")],
    ids=["principal", "actor", "workspace"],
)
async def test_a_cached_result_is_used_only_for_its_principal_actor_and_workspace(other: Scope) -> None:
    count = Count()
    async with Engine([counting(count, cache_scope="session")]) as engine:
        await said(engine, call("look"))
        assert (await said(engine, call("look"), other)).metadata.cached is None


async def test_a_nul_in_a_name_does_not_give_one_scope_the_cached_result_of_another() -> None:
    count = Count()
    async with Engine([counting(count, cache_scope="session")]) as engine:
        await said(engine, call("look"), Scope(principal="p\0x", actor="y"))
        assert (await said(engine, call("look"), Scope(principal="p", actor="x\0y"))).metadata.cached is None
        assert (await said(engine, call("look"), Scope(principal="p\0x", actor="y"))).metadata.cached is not None


async def test_the_cache_key_depends_on_argument_values_and_not_on_key_order() -> None:
    runs = []

    @tool(effect="none", cacheable=True)
    async def pair(a: int, b: int) -> int:
        """Pair."""
        runs.append((a, b))
        return a - b

    async with Engine([pair]) as engine:
        await said(engine, call("pair", a=1, b=2))
        await said(engine, call("pair", b=2, a=1))
        await said(engine, call("pair", a=2, b=1))
    assert runs == [(1, 2), (2, 1)]


async def test_a_cached_result_expires_after_its_cache_ttl() -> None:
    count, clock = Count(), ManualClock()
    async with Engine([counting(count, cache_scope="session", cache_ttl=10)], clock=clock) as engine:
        await said(engine, call("look"))
        clock.advance(9.9)
        await said(engine, call("look"))
        assert count.runs == 1
        clock.advance(0.2)
        await said(engine, call("look"))
    assert count.runs == 2


async def test_failures_are_not_cached() -> None:
    runs = []

    @tool(effect="none", cacheable=True)
    async def look() -> str:
        """Look."""
        runs.append(1)
        if len(runs) == 1:
            raise ValueError("dark")
        return "seen"

    async with Engine([look]) as engine:
        assert not (await said(engine, call("look"))).success
        assert (await said(engine, call("look"))).success


async def test_a_denied_call_is_never_answered_from_the_cache() -> None:
    class Fickle:
        open = True

        async def decide(self, call: ValidatedCall) -> Verdict:
            return Allow() if self.open else Deny(reason="closed")

    policy, count = Fickle(), Count()
    async with Engine([counting(count)], policies=[policy]) as engine:
        await said(engine, call("look"))
        policy.open = False
        assert (await said(engine, call("look"))).failure_class == "denied"


async def test_the_cache_stores_and_returns_copies() -> None:
    kept: list[dict[str, Any]] = []

    @tool(effect="none", cacheable=True)
    async def look() -> dict[str, Any]:
        """Look."""
        kept.append({"list": [1]})
        return kept[0]

    async with Engine([look]) as engine:
        await said(engine, call("look"))
        kept[0]["list"].append(2)
        second = await said(engine, call("look"))
        second.structured["list"].append(3)  # type: ignore[index]
        assert (await said(engine, call("look"))).structured == {"list": [1]}


async def test_a_cache_hit_passes_through_the_after_call_hooks() -> None:
    seen = []

    @after_call()
    def watch(call: ValidatedCall, result: Checked) -> None:
        seen.append(result.cached)

    async with Engine([counting(Count())], hooks=[watch]) as engine:
        await said(engine, call("look"))
        await said(engine, call("look"))
        assert len(bodies(engine, "call.completed")) == 2
    assert seen == [None, "tick"]
