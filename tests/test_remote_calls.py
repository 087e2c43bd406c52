"""Calls of tools that run in a real remote process behind a socket, through the whole route."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from examples.remote_runner.near import RemoteRunner

from callgate import Aborted, Engine, Scope
from tests.engine_calls import bodies, call, said
from tests.runners.far_side import TOKEN, Far
from tests.runners.remote_tools import look, pay, stubborn
from tests.runners.scripted_connections import Cable
from tests.waiting import soon

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def far() -> Iterator[Far]:
    with Far() as far:
        yield far


def begun(ledger: Path) -> int:
    return len(ledger.read_text(encoding="utf-8").splitlines()) if ledger.exists() else 0


def engine_over(runner: RemoteRunner) -> Engine:
    return Engine([pay, look, stubborn], runners={"remote": runner})


async def test_a_remote_effect_is_unknown_and_not_retried_after_a_lost_connection(far: Far, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    async with Cable(far.port) as cable, engine_over(cable.runner()) as engine:
        running = asyncio.ensure_future(said(engine, call("pay", ledger=str(ledger))))
        assert await soon(lambda: begun(ledger))
        cable.cut()
        result = await running
    assert (result.status, result.code, result.metadata.attempts) == ("unknown", "tool_crashed", 1)
    assert "the connection was lost" in (result.error or "")
    assert begun(ledger) == 1


async def test_a_remote_read_is_retried_after_a_lost_connection(far: Far, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    async with Cable(far.port) as cable, engine_over(cable.runner()) as engine:
        running = asyncio.ensure_future(said(engine, call("look", ledger=str(ledger))))
        assert await soon(lambda: begun(ledger))
        cable.cut()
        result = await running
    assert (result.structured, result.metadata.attempts) == (2, 2)
    assert cable.connections == 2


async def test_a_remote_call_that_was_never_sent_is_reported_as_not_started(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        async with engine_over(RemoteRunner("127.0.0.1", taken.getsockname()[1], TOKEN)) as engine:
            result = await said(engine, call("pay", ledger=str(ledger)))
    assert (result.status, result.failure_class) == ("error", "not_started")
    assert "Nothing happened" in (result.error or "")
    assert begun(ledger) == 0


async def test_a_kill_reaches_the_remote_worker_and_its_late_result_is_recorded(far: Far) -> None:
    runner = far.runner()
    async with engine_over(runner) as engine:
        shown: list[object] = []
        engine.bus.subscribe(lambda topic, piece: shown.append(piece), "call.progress")
        running = asyncio.ensure_future(engine.call(call("stubborn"), Scope(conversation="here")))
        assert await soon(lambda: shown)
        engine.control.kill("here")
        assert isinstance(await running, Aborted)
        assert [body["status"] for body in bodies(engine, "call.late")] == ["returned"]
    assert (runner.late, runner.abandoned) == (1, 0)
