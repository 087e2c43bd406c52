"""Stop and kill also take effect while a run only waits in a pause or a compaction."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from operator import attrgetter

import pytest

from callgate.agent import Agent, Compaction, Notice, Settings
from callgate.messages import Message, UserMessage
from tests.agent.scripted_model import Script, ends


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_stop_and_kill_end_the_pause_before_an_empty_answer_is_retried(end: str) -> None:
    """The pause before a retry must not delay a stop."""
    settings = Settings(empty_retries=1, empty_retry_s=3_600)
    waits = asyncio.Event()
    async with Agent(Script([ends()]), settings=settings) as agent:
        run = asyncio.ensure_future(
            agent.run("x", conversation="c", on_event=lambda event: waits.set() if isinstance(event, Notice) else None)
        )
        await waits.wait()
        getattr(agent, end)("c")
        assert (await asyncio.wait_for(run, 60)).turn_status == "stopped_by_user"


@pytest.mark.parametrize("end", ["stop", "kill", "engine.control.follow_up"])
async def test_stop_kill_and_follow_up_end_a_compaction(end: str) -> None:
    """All three are checked between two passes; the history is not changed."""
    waits = asyncio.Event()

    async def compact(messages: Sequence[Message]) -> Sequence[Message]:
        waits.set()
        await asyncio.Event().wait()
        return messages

    compaction = Compaction(compact=compact, at_tokens=1, timeout_s=3_600)
    async with Agent(Script(), compact=compaction) as agent:
        run = asyncio.ensure_future(agent.run("x", conversation="c"))
        await waits.wait()
        attrgetter(end)(agent)("c")
        result = await asyncio.wait_for(run, 60)
    assert result.status == "stopped"
    assert [type(message) for message in result.messages] == [UserMessage]
