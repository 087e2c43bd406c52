"""An async tool that blocks the event loop cannot be ended at its deadline. Its author is told, once for each tool."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from callgate import Engine, Tool, tool
from tests.engine_calls import call, said

_BLOCKED_S = 0.4


def held_up(seconds: float = _BLOCKED_S) -> None:
    """Hold up the event loop, as a blocking client does."""
    time.sleep(seconds)


@tool(timeout_s=0.05)
async def at_once() -> str:
    """Block without an await."""
    held_up()
    return "done"


@tool(timeout_s=0.05)
async def after_an_await() -> str:
    """Block after an await."""
    await asyncio.sleep(0)
    held_up()
    return "done"


@tool(timeout_s=0.05)
async def before_an_await() -> str:
    """Block, then wait."""
    held_up()
    await asyncio.Event().wait()
    return "never"


@pytest.mark.parametrize("blocking", [at_once, after_an_await, before_an_await], ids=lambda one: one.name)
async def test_an_async_tool_that_blocks_beyond_its_timeout_is_warned_about_once(blocking: Tool, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "callgate"):
        async with Engine([blocking]) as engine:
            for order in ("a", "b"):
                await said(engine, call(blocking.name, id=order))
    warned = [one.getMessage() for one in caplog.records if "held up the event loop" in one.getMessage()]
    assert len(warned) == 1
    assert f"Tool {blocking.name} (" in warned[0]
    assert "beyond its timeout of 0.05 s" in warned[0]
    assert '@tool(runner="process")' in warned[0]


async def test_time_that_a_tool_blocks_before_its_first_await_counts_towards_its_timeout() -> None:
    @tool(timeout_s=_BLOCKED_S)
    async def slow() -> str:
        """Block for the whole timeout, then look whether the call still runs."""
        held_up()
        await asyncio.sleep(_BLOCKED_S / 2)
        return "done"

    async with Engine([slow]) as engine:
        result = await said(engine, call("slow"))
    assert "slow timed out" in result.text


async def test_a_tool_that_waits_while_other_code_blocks_is_not_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    @tool(timeout_s=0.05)
    async def waiting() -> str:
        """Wait."""
        asyncio.get_running_loop().call_soon(held_up)
        await asyncio.Event().wait()
        return "never"

    with caplog.at_level(logging.WARNING, "callgate"):
        async with Engine([waiting]) as engine:
            result = await said(engine, call("waiting"))
    assert "waiting timed out" in result.text
    assert "held up the event loop" not in caplog.text
