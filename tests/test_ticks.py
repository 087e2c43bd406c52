"""A host that counts its own ticks: what holds for one tick holds until the host says that another has begun."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from callgate import Engine, Limits, Scope, tool
from callgate.testing import ManualClock
from tests.counting import Count, counting
from tests.engine_calls import call, said


def at(tick: str, turn: int) -> Scope:
    return Scope(run="r", conversation="c", turn=turn, tick=tick)


async def test_the_dangerous_calls_of_a_tick_are_counted_over_its_turns() -> None:
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


async def test_a_result_that_is_cached_for_a_tick_is_given_in_all_its_turns_and_in_no_other_tick() -> None:
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
async def test_a_result_that_is_cached_for_a_tick_is_of_no_use_outside_it(first: Scope, second: Scope) -> None:
    """Within it, it is given for every iteration, however long that takes."""
    count, clock = Count(), ManualClock()
    async with Engine([counting(count)], clock=clock) as engine:
        for scope in (first, replace(first, iteration=7), second, replace(second, iteration=7)):
            await said(engine, call("look"), scope)
            clock.advance(1_000_000)
    assert count.runs == 2
