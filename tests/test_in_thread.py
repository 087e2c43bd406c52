"""Blocking work runs in a thread if one can be started, and otherwise in the current thread."""

from __future__ import annotations

import asyncio
import threading

import pytest

from callgate._run_in_thread import BlockingPool, in_thread


def no_thread(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


async def test_a_blocking_pool_runs_work_in_its_threads_and_propagates_exceptions() -> None:
    pool = BlockingPool("work of a test", most=2)
    names = await asyncio.gather(*(pool.run(lambda: threading.current_thread().name) for _ in range(20)))
    assert set(names) == {"work of a test"}
    with pytest.raises(ZeroDivisionError):
        await pool.run(lambda: 1 // 0)


async def test_work_runs_in_the_current_thread_when_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    here = threading.current_thread()
    assert await in_thread(threading.current_thread) is here
    assert await BlockingPool("work of a test", most=2).run(threading.current_thread) is here
    with pytest.raises(ZeroDivisionError):
        await BlockingPool("work of a test", most=2).run(lambda: 1 // 0)


async def test_a_blocking_pool_keeps_working_when_it_cannot_start_more_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, go_on = BlockingPool("work of a test", most=2), threading.Event()
    busy = asyncio.ensure_future(pool.run(go_on.wait))
    await asyncio.sleep(0)
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    later = asyncio.ensure_future(pool.run(lambda: threading.current_thread().name))
    await asyncio.sleep(0)
    go_on.set()
    assert (await busy, await later) == (True, "work of a test")
