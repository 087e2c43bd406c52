"""Deadlines of a request: the error names the deadline that passed, and only time spent waiting for the provider counts."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest

from callgate.errors import ModelTimeout, UsageError
from callgate.models.http_model import HttpModel
from callgate.models.http_transport import Timeouts
from callgate.models.model_protocol import StreamingContext
from callgate.testing import Beat, Pause, Reply, ScriptedServer
from callgate.testing.scripted_server import Script
from tests.models.decoding import text_of
from tests.models.http_requests import NEVER, NO_WAIT, REQUEST, ask, at
from tests.models.raw_server import RawServer
from tests.waiting import let_pass, until


@pytest.mark.parametrize(
    ("script", "deadline", "limit"),
    [
        (Reply(turn="late", before=NEVER), "headers", "300 s"),
        (["begun", NEVER], "idle", "120 s"),
        (["begun", NEVER], "total", "50 s"),
    ],
    ids=["no headers", "silence in the middle", "the whole request"],
)
async def test_an_expired_deadline_is_named_and_closes_the_connection(script: Script, deadline: str, limit: str) -> None:
    """The error names the deadline, the provider, the limit and its option; the connection is closed, and the request is not sent again."""
    async with ScriptedServer([script]) as server:
        of = at(server, timeouts=Timeouts(total_s=50 if deadline == "total" else None))
        events: list[object] = []
        asking = asyncio.create_task(collect(of, events))
        await until(lambda: events if deadline != "headers" else server.requests)
        let_pass({"headers": 301, "idle": 121, "total": 51}[deadline])
        with pytest.raises(ModelTimeout) as caught:
            await asking
        await server.requests[0].gone.wait()
        await of.close()
    error = caught.value
    assert (error.code, error.deadline, error.provider) == ("model_timeout", deadline, "someone")
    assert str(error).startswith("someone at http://127.0.0.1:")
    assert f"{limit}. Check whether it is running and overloaded, or increase Timeouts.{deadline}_s." in str(error)
    assert len(server.requests) == 1


async def test_the_environments_idle_timeout_applies_without_an_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requirement B24: the variable also applies if a model is used without an agent."""
    monkeypatch.setenv("STREAM_SDK_CALL_TIMEOUT_MS", "20000")
    async with ScriptedServer([["begun", NEVER], ["begun", NEVER]]) as server:
        for timeouts, limit_s in ((None, 20), (Timeouts(idle_s=40), 40)):
            of = at(server, timeouts=timeouts)
            events: list[object] = []
            asking = asyncio.create_task(collect(of, events))
            await until(lambda events=events: events)  # type: ignore[misc]
            let_pass(limit_s + 1)
            with pytest.raises(ModelTimeout, match=f"silent for {limit_s} s"):
                await asking
            await of.close()


async def collect(of: HttpModel, events: list[object]) -> None:
    async for event in of.stream(REQUEST, StreamingContext()):
        events.append(event)  # noqa: PERF401 - as they come


async def test_the_idle_deadline_restarts_with_every_received_piece() -> None:
    """The idle limit applies to each silence: six silences of 100 s do not exceed a limit of 120 s."""
    gates = [asyncio.Event() for _ in range(6)]
    script = [item for gate in gates for item in ("x", Pause(gate))]
    async with ScriptedServer([script]) as server:
        of = at(server)
        events: list[object] = []
        asking = asyncio.create_task(collect(of, events))
        for number, gate in enumerate(gates, 1):
            await until(lambda number=number: len(events) >= number)  # type: ignore[misc]
            let_pass(100)
            gate.set()
        await asking
        await of.close()


async def test_a_connection_that_is_never_accepted_is_reported_as_connect_timeout() -> None:
    """A listener with a full queue does not accept: the connect deadline passes for the first attempt and all retries."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                filler.connect(full.getsockname())
        of = at(f"http://127.0.0.1:{full.getsockname()[1]}", timeouts=Timeouts(connect_s=0.2), retries=NO_WAIT)
        with pytest.raises(ModelTimeout) as caught:
            await ask(of)
        await of.close()
        for filler in fillers:
            filler.close()
    assert caught.value.deadline == "connect"


async def test_time_spent_by_the_consumer_does_not_count_as_idle() -> None:
    """Only the provider's silence counts; a consumer may take any time for an event."""
    held = asyncio.Event()
    async with ScriptedServer([["one", Pause(held), "two"]]) as server:
        of = at(server)
        events = []
        async for event in of.stream(REQUEST, StreamingContext()):
            events.append(event)
            if len(events) == 1:
                let_pass(1_000)
                await asyncio.sleep(0.1)  # timers that are due fire here
                held.set()
        await of.close()
    assert text_of(events) == "onetwo"


async def test_progress_is_reported_for_headers_and_comments() -> None:
    beats = 0

    def beat() -> None:
        nonlocal beats
        beats += 1

    context = StreamingContext()
    context.on_progress = beat
    async with ScriptedServer([[Beat(), Pause(0.0), Beat(), "x"]]) as server:
        await ask(of := at(server), context=context)
        await of.close()
    assert beats >= 2  # the headers, and at least one piece of the body, however it was split


def test_a_deadline_must_be_a_positive_number() -> None:
    with pytest.raises(UsageError, match="idle_s"):
        Timeouts(idle_s=0)


async def test_a_stream_of_only_comments_ends_at_the_default_total_deadline() -> None:
    """Each comment restarts the idle deadline, so only the total deadline bounds the request."""
    turns = [asyncio.Event() for _ in range(40)]
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 1000000\r\n\r\n"
    async with RawServer([head, *(piece for turn in turns for piece in (b": still here\n\n", turn))]) as server:
        of, context, beats = at(server.url), StreamingContext(), list[int]()
        context.on_progress = lambda: beats.append(1)
        asking = asyncio.ensure_future(ask(of, context=context))
        for turn in turns:
            before = len(beats)
            await until(lambda before=before: len(beats) > before or asking.done())  # type: ignore[misc]
            if asking.done():
                break
            let_pass(100)
            turn.set()
        with pytest.raises(ModelTimeout) as caught:
            await asking
        await of.close()
    assert (caught.value.deadline, 30 < len(beats) < 40) == ("total", True)
