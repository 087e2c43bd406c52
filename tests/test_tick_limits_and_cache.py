"""Hosts that count their own ticks: limits and cached results of a tick are valid until the host begins another one."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from callgate import Engine, Limits, Scope, tool
from callgate.testing import ManualClock
from tests.cacheable_tool import Count, counting
from tests.engine_calls import call, said


def at(tick: str, turn: int) -> Scope:
    return Scope(run="r", conversation="c", turn=turn, tick=tick)


async def test_the_dangerous_limit_counts_calls_over_all_turns_of_a_tick() -> None:
    ran: list[str] = []

    @tool(category="dangerous")
    async def drop(table: str) -> str:
        """Drop a table."""
        ran.append(table)
        return "dropped"

    async with Engine([drop], limits=Limits(dangerous_per_tick=1)) as engine:
        ends = [
            (await said(engine, call("drop", table=table), at(tick, turn))).failure_class
            for table, tick, turn in (("a", "morning", 1), ("b", "morning", 2), ("c", "evening", 2), ("d", "evening", 3))
        ]
    assert ends == [None, "dangerous_limit", None, "dangerous_limit"]
    assert ran == ["a", "c"]


async def test_a_tick_cached_result_is_reused_in_all_turns_of_its_tick_only() -> None:
    count = Count()
    async with Engine([counting(count, cache_scope="tick")]) as engine:
        cached = [
            (await said(engine, call("look"), at(tick, turn))).metadata.cached
            for tick, turn in (("morning", 1), ("morning", 2), ("evening", 2), ("evening", 3))
        ]
    assert cached == [None, "tick", None, "tick"]
    assert count.runs == 2


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Scope(run="r", conversation="c", turn=1), Scope(run="r", conversation="c", turn=2)),
        (Scope(run="r", conversation="c", turn=1), Scope(run="r", conversation="d", turn=1)),
        (Scope(run="r", conversation="c", turn=1), Scope(run="s", conversation="c", turn=1)),
        (at("morning", 1), at("evening", 1)),
    ],
    ids=["the next turn", "another conversation", "another run", "the host's next tick"],
)
async def test_a_tick_cached_result_is_not_reused_outside_its_tick(first: Scope, second: Scope) -> None:
    """Within its tick, the result is reused in every iteration, however long the tick lasts."""
    count, clock = Count(), ManualClock()
    async with Engine([counting(count)], clock=clock) as engine:
        for scope in (first, replace(first, iteration=7), second, replace(second, iteration=7)):
            await said(engine, call("look"), scope)
            clock.advance(1_000_000)
    assert count.runs == 2
