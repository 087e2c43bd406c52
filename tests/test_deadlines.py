"""Tests of deadlines that share one timer: each expires once, at its time and in a neutral context, unless it is cancelled."""

from __future__ import annotations

import asyncio
import math
from contextvars import ContextVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate._deadlines import Deadlines

whose: ContextVar[str] = ContextVar("whose", default="nobody's")


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=200))
def test_every_deadline_that_is_not_cancelled_expires_once(wanted: list[tuple[int, bool]]) -> None:
    """Other deadlines are set and cancelled before, after and at the same time."""

    async def rung() -> list[int]:
        deadlines, heard = Deadlines(), list[int]()
        done = asyncio.get_running_loop().create_future()
        made = [(deadlines.set(step / 10_000, lambda step=step: heard.append(step)), off) for step, off in wanted]  # type: ignore[misc]
        deadlines.set(6 / 10_000, lambda: done.set_result(None))
        for deadline, off in made:
            if off:
                deadlines.cancel(deadline)
        await done
        return heard

    assert sorted(asyncio.run(rung())) == sorted(step for step, off in wanted if not off)


async def test_a_deadline_expires_outside_the_context_that_set_it() -> None:
    """Otherwise the deadline's callback would run in the context of the tool whose call set the timer."""
    deadlines, heard = Deadlines(), asyncio.get_running_loop().create_future()
    whose.set("the tool's")
    deadlines.set(0.0, lambda: heard.set_result(whose.get()))
    assert await heard == "nobody's"


async def test_deadlines_due_at_the_same_time_expire_in_one_iteration_of_the_loop() -> None:
    """A call and its nested call share one deadline; the outer call must see it before the inner call has ended."""
    deadlines, turns, heard = Deadlines(), [0], list[int]()
    done = asyncio.get_running_loop().create_future()
    for _ in range(3):
        deadlines.set(0.0, lambda: heard.append(turns[0]))
    deadlines.set(0.0, lambda: done.set_result(None))
    while not done.done():
        turns[0] += 1
        await asyncio.sleep(0)
    assert len(set(heard)) == 1


async def test_cancelled_deadlines_leave_no_timer_on_the_loop() -> None:
    """The timer must not keep a closed engine alive."""
    deadlines = Deadlines()
    made = [deadlines.set(3_600.0, lambda: None) for _ in range(1_000)]
    for deadline in made:
        deadlines.cancel(deadline)
    assert len(deadlines._heap) < 200
    deadlines.close()
    assert deadlines._timer is None


async def test_a_time_limit_ends_the_block_and_is_told_from_a_cancellation() -> None:
    """The same as `asyncio.timeout`: only the limit's own cancellation becomes a `TimeoutError`."""
    deadlines = Deadlines()
    limit = deadlines.limit(0.001)
    with pytest.raises(TimeoutError), limit:
        await asyncio.Event().wait()
    assert limit.expired
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()

    entered = asyncio.Event()

    async def waiting() -> None:
        with deadlines.limit(3_600.0):
            entered.set()
            await asyncio.Event().wait()

    cancelled = asyncio.ensure_future(waiting())
    await entered.wait()
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled


async def test_a_time_limit_does_not_swallow_a_cancellation_at_its_end() -> None:
    """Who cancels the task when the time is over as well must have it cancelled."""
    deadlines, entered = Deadlines(), asyncio.Event()

    async def waiting() -> None:
        with deadlines.limit(3_600.0) as limit:
            entered.set()
            try:
                await asyncio.Event().wait()
            finally:
                limit._expire()

    task = asyncio.ensure_future(waiting())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_time_limit_that_is_met_or_infinite_changes_nothing() -> None:
    """No timer outlives the block."""
    deadlines = Deadlines()
    with deadlines.limit(math.inf) as unlimited:
        await asyncio.sleep(0)
    assert deadlines._timer is None
    with deadlines.limit(3_600.0) as limit:
        await asyncio.sleep(0)
    deadlines.close()
    assert deadlines._timer is None
    assert (limit.expired, unlimited.expired) == (False, False)
