"""Aborting, cancelling, closing or dropping a stream closes its connection."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator

import pytest

from callgate.models.http_model import HttpModel
from callgate.models.model_protocol import StreamingContext
from callgate.testing import Call, Reply, ScriptedServer
from callgate.testing.scripted_server import Script
from tests.models.decoding import calls_of, finished
from tests.models.http_requests import NEVER, REQUEST, abortable, ask, at
from tests.waiting import until


async def begun(of: HttpModel, context: StreamingContext) -> tuple[AsyncIterator[object], object]:
    events = of.stream(REQUEST, context)
    return events, await anext(events)


async def test_an_abort_closes_the_connection() -> None:
    controller, context = abortable()
    async with ScriptedServer([["Hello", Call("search", '{"q": ', delta_chars=1), NEVER]]) as server:
        of = at(server)
        events = []
        async for event in of.stream(REQUEST, context):
            events.append(event)
            if getattr(event, "text", "") == ":":
                controller.abort("enough")
        assert finished(events).reason == "cut"
        assert [call[3] for call in calls_of(events)] == ["cut"]
        await server.requests[0].gone.wait()
        await of.close()


async def test_an_abort_before_the_answer_closes_the_connection() -> None:
    controller, context = abortable()
    async with ScriptedServer([Reply(before=NEVER)]) as server:
        of = at(server)
        asking = asyncio.create_task(ask(of, context=context))
        await until(lambda: server.requests)
        controller.abort()
        assert finished(await asking).reason == "cut"
        await server.requests[0].gone.wait()
        await of.close()


@pytest.mark.parametrize("script", [Reply(before=NEVER), ["begun", NEVER]], ids=["before the answer", "in the middle"])
async def test_a_cancelled_task_closes_the_connection_and_stays_cancelled(script: Script) -> None:
    async with ScriptedServer([script]) as server:
        of = at(server)
        asking = asyncio.create_task(ask(of))
        await until(lambda: server.requests)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await server.requests[0].gone.wait()
        await of.close()


async def test_a_cancellation_is_raised_although_an_abort_comes_with_it() -> None:
    """The task that is cancelled must raise `CancelledError`, whatever else ends the stream at the same time."""
    controller, context = abortable()
    async with ScriptedServer([Reply(before=NEVER)]) as server:
        of = at(server)
        asking = asyncio.create_task(ask(of, context=context))
        await until(lambda: server.requests)
        controller.abort()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await of.close()


async def test_an_abort_leaves_the_task_uncancelled() -> None:
    """The task can still wait after an aborted pass."""
    controller, context = abortable()
    async with ScriptedServer([["begun", NEVER]]) as server:
        of = at(server)
        async for _ in of.stream(REQUEST, context):
            asyncio.get_running_loop().call_soon(controller.abort)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await of.close()


async def test_closing_the_generator_closes_the_connection() -> None:
    async with ScriptedServer([["begun", NEVER]]) as server:
        of = at(server)
        events, _ = await begun(of, StreamingContext())
        await events.aclose()  # type: ignore[attr-defined]
        await server.requests[0].gone.wait()
        await of.close()


async def test_dropping_the_generator_closes_the_connection() -> None:
    async with ScriptedServer([["begun", NEVER]]) as server:
        of = at(server)
        events, _ = await begun(of, StreamingContext())
        del events
        gc.collect()
        await server.requests[0].gone.wait()
        await of.close()


async def test_closing_the_model_closes_its_connections() -> None:
    async with ScriptedServer(["Hello"] * 3) as server:
        of = at(server)
        for _ in range(3):
            await ask(of)
        await of.close()
        await of.close()
        await server.requests[0].gone.wait()
        assert server.connections == 1
