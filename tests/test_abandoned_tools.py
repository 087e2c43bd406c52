"""Threads that a test leaves in a tool do not affect later tests."""

from __future__ import annotations

import sys
import threading
import time
from types import FrameType

from callgate import Engine, tool
from tests.abandoned_tools import end_stray_tools
from tests.engine_calls import call
from tests.waiting import soon


async def test_an_abandoned_thread_is_ended_if_it_spins_and_left_if_it_waits() -> None:
    """An exception set in a waiting thread stays pending, and CPython 3.11 then never enters a profiled function."""
    release, begun = threading.Lock(), threading.Semaphore(0)
    release.acquire()
    left: list[str] = []

    @tool(effect="once", timeout_s=0.05)
    def spin() -> str:
        """Spin."""
        begun.release()
        try:
            while True:
                pass
        finally:
            left.append("spin")

    @tool(effect="once", timeout_s=0.05)
    def wait() -> str:
        """Wait."""
        begun.release()
        release.acquire()
        left.append("wait")
        return ""

    async with Engine([spin, wait]) as engine:
        await engine.call_many([call("spin", id="s"), call("wait", id="w")])
        assert begun.acquire(timeout=60)
        assert begun.acquire(timeout=60)

        def ended() -> bool:
            end_stray_tools()
            time.sleep(0.01)
            return left == ["spin"]

        assert await soon(ended)
        _run_profiled()
        release.release()
        assert await soon(lambda: left == ["spin", "wait"])


def _run_profiled() -> None:
    def see(frame: FrameType, event: str, argument: object) -> None: ...

    sys.setprofile(see)
    try:
        _run()
    finally:
        sys.setprofile(None)


def _run() -> None: ...
