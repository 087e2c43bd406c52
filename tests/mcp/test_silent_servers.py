"""Servers that answer nothing, and calls that are never sent to them."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from callgate import Engine, Scope
from tests.engine_calls import call, said
from tests.mcp.fakes import ANSWER, Fake
from tests.waiting import until

pytestmark = pytest.mark.process

NO_END = 20
"""More attempts than a test needs; a server that is never restarted ends the test by them."""


async def test_a_stopped_server_is_replaced_while_calls_overlap_without_a_pause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callgate.mcp._supervised_session._SILENT_S", 0.05)
    fake = Fake(tmp_path, ANSWER)
    answered: list[str] = []

    async def steadily(engine: Engine, worker: int) -> None:
        await asyncio.sleep(0.1 * worker)  # the calls of the workers end at different times, so that one always runs
        for number in range(NO_END):
            result = await said(engine, call("echo", text=f"{worker} {number}"))
            if result.success or answered:
                answered.append(result.text)
                return

    async with Engine(servers=[fake.server(timeout_s=0.4)]) as engine:
        os.kill(fake.pids[0], signal.SIGSTOP)
        await asyncio.gather(*(steadily(engine, worker) for worker in range(4)))
    assert answered
    assert len(fake.pids) == 2


async def test_a_call_that_times_out_in_the_queue_of_its_server_was_not_started(tmp_path: Path) -> None:
    fake = Fake(tmp_path, {"until_cancelled": True})
    async with Engine(servers=[fake.server(parallel=1, options={"echo": {"timeout_s": 0.2}})]) as engine:
        first = asyncio.ensure_future(engine.call(call("work"), Scope(conversation="c", run="one")))
        await until(fake.calls)
        queued = await said(engine, call("echo", text="hi"), Scope(run="two"))
        engine.control.kill("c")
        await first
    assert [params["name"] for params in fake.calls()] == ["work"]
    assert (queued.status, queued.code) == ("error", "timeout"), queued


async def test_a_call_that_times_out_before_the_server_reads_it_was_not_started(tmp_path: Path) -> None:
    fake = Fake(tmp_path, ANSWER)
    async with Engine(servers=[fake.server(timeout_s=0.3)]) as engine:
        os.kill(fake.pids[0], signal.SIGSTOP)
        sent = [await said(engine, call("work", text=letter * 800_000)) for letter in "xyz"]
        unsent = await said(engine, call("echo", text="late"))
    assert sent[0].status == "unknown"
    assert (unsent.status, unsent.code) == ("error", "timeout"), unsent


async def test_a_stateless_server_whose_start_takes_longer_than_the_first_question_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("callgate.mcp._negotiation._PROBE_S", 0.05)
    fake = Fake(tmp_path, ANSWER, late_discover=True)
    async with Engine(servers=[fake.server()]) as engine:
        assert (await said(engine, call("work"))).text == "done"
    assert len(fake.pids) == 1
    assert len(fake.seen("initialize")) == 1
