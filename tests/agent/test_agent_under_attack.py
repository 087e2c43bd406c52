"""Models that lie, hosts that change their mind at the worst moment: what the loop promises holds all the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from callgate import tool
from callgate.agent import Agent
from callgate.calls import Text
from callgate.errors import UsageError
from callgate.messages import ToolCall
from callgate.models.events import CallOpened, CallReopened, CallSealed, Finished, ModelEvent, TextDelta
from callgate.models.model import StreamingContext
from callgate.models.wire.request import ModelRequest
from callgate.stream import StreamLimits
from tests.agent.scripts import Gate, Script, call, ends, says, tool_texts


async def rounds_of_the_loop() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


# One conversation, one turn


async def test_a_turn_that_leaves_the_queue_lets_nobody_in() -> None:
    """A11: one turn at a time. Whoever gives up waiting has no turn to hand on."""
    gate = Gate()
    model = Script([gate, *says("one")], says("three"))
    async with Agent(model) as agent:
        first = asyncio.ensure_future(agent.run("1", conversation="c"))
        await gate.reached.wait()
        second = asyncio.ensure_future(agent.run("2", conversation="c"))
        third = asyncio.ensure_future(agent.run("3", conversation="c"))
        await rounds_of_the_loop()
        second.cancel()
        await rounds_of_the_loop()
        assert second.cancelled()
        assert len(model.requests) == 1
        assert agent.conversations.busy("c")
        assert agent.conversations.waiting("c") == 1
        gate.open.set()
        assert [(await first).text, (await third).text] == ["one", "three"]
        assert not agent.conversations.busy("c")


async def test_a_turn_that_finds_the_queue_full_lets_nobody_in() -> None:
    """A11: one turn at a time, also where too many wait."""
    gate = Gate()
    model = Script([gate, *says("one")])
    async with Agent(model) as agent:
        first = asyncio.ensure_future(agent.run("1", conversation="c"))
        await gate.reached.wait()
        others = [asyncio.ensure_future(agent.run("more", conversation="c")) for _ in range(64)]
        await rounds_of_the_loop()
        with pytest.raises(UsageError, match="64 turns"):
            await agent.run("one too many", conversation="c")
        await rounds_of_the_loop()
        assert len(model.requests) == 1
        agent.kill("c")
        assert {(await run).turn_status for run in (first, *others)} == {"stopped_by_user"}


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_what_is_asked_for_between_two_turns_is_meant_for_the_second(end: str) -> None:
    """A12: no moment in which a stop is lost, not even the one in which the conversation is handed on."""
    gate = Gate()
    model = Script([gate, *says("one")], says("two"), says("three"))
    async with Agent(model) as agent:
        first = asyncio.ensure_future(agent.run("1", conversation="c"))
        await gate.reached.wait()
        second = asyncio.ensure_future(agent.run("2", conversation="c"))
        await rounds_of_the_loop()
        gate.open.set()
        while agent.conversations.waiting("c"):
            await asyncio.sleep(0)
        getattr(agent, end)("c")
        assert (await first).text == "one"
        assert (await second).turn_status == "stopped_by_user"
        assert (await agent.run("3", conversation="c")).turn_status == "completed"
