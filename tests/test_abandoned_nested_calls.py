"""Abandoned nested calls: a parent and its nested call that ignore cancellation are recorded as ended, while their code runs on."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from callgate import Aborted, Engine, Judge, Limits, Scope, ToolContext, tool
from callgate.models.model_protocol import StreamingContext
from callgate.models.wire.request import ModelRequest
from tests.engine_calls import call, ends, said


@pytest.fixture
def problems() -> list[dict[str, Any]]:
    return []


@pytest.mark.parametrize("release_first", [False, True], ids=["after both were left behind", "when its caller was killed"])
async def test_a_nested_call_that_ignores_cancellation_is_abandoned_with_its_parent(
    problems: list[dict[str, Any]], release_first: bool
) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda _, problem: problems.append(problem))
    entered, release, gone = asyncio.Event(), asyncio.Event(), asyncio.Event()
    told: list[str] = []

    @tool
    async def inner() -> str:
        """Ignore cancellation."""
        entered.set()
        while not release.is_set():
            with suppress(asyncio.CancelledError):
                await release.wait()
        told.append("inner ended")
        return "done"

    @tool
    async def outer(ctx: ToolContext) -> str:
        """Call another tool."""
        try:
            await ctx.call("inner", {})
        finally:
            told.append("outer ended")
            gone.set()
        return "done"

    async with Engine([inner, outer], limits=Limits(grace_s=0.05)) as engine:
        running = asyncio.ensure_future(engine.call(call("outer"), Scope(conversation="c")))
        await entered.wait()
        engine.control.kill("c", "enough")
        if release_first:
            release.set()
        assert isinstance(await running, Aborted)
        release.set()
        await gone.wait()
        while len(ends(engine)) < 2 or len(told) < 2:
            await asyncio.sleep(0)
        assert set(ends(engine).values()) == {1}
    assert sorted(told) == ["inner ended", "outer ended"]
    assert problems == []


class Lingering:
    """A model that is slow to close its connection."""

    provider, name, native_tools = "lingering", "one", True

    async def stream(self, request: ModelRequest, context: StreamingContext) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
        yield


async def test_a_judge_model_that_is_slow_to_close_is_abandoned_after_the_grace_period(problems: list[dict[str, Any]]) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda _, problem: problems.append(problem))

    @tool
    async def pay() -> str:
        """Pay."""
        raise AssertionError

    judge = Judge(Lingering(), timeout_s=0.05)
    async with Engine([pay], policies=[judge], limits=Limits(grace_s=0.0)) as engine:
        result = await said(engine, call("pay"))
    assert result.code == "judge_failed"
    assert problems == []
