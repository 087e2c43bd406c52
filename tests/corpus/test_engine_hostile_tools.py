"""Hostile results and behaviour of tools, on every runner, through the engine's public interface."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import resource
import secrets
import textwrap
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from callgate import Answered, Engine, ProcessLimits, RawCall, ToolResult, tool
from callgate.calls import Outcome
from callgate.tools import FunctionTool
from tests.corpus.input_files import most_ms, rows
from tests.corpus.test_engine_hostile_calls import assert_alive_and_clean, assert_bounded
from tests.corpus.worker_folder import folder_of_worker
from tests.runners.runner_requests import marked
from tests.waiting import DEADLINE_S, HANGS_S, LoopClock, past_deadline, soon

RUNNERS = {"inproc": None, "thread": "thread", "plugin": "process"}
_INSTEAD = {"{PORT}": "9", "time.sleep(5)": "time.sleep(0.5)", "asyncio.sleep(60)": f"asyncio.sleep({HANGS_S})"}
"""Waits of the rows: as short as shows the same, and longer than a deadline that passes at once."""
_WORKER_PROCESSES = 2
"""A worker and the process that watches over it."""


def cases() -> list[Any]:
    """Return a case for each row and each of its runners that the engine has."""
    found = []
    for parameter in rows("hostile/calls.jsonl", kind="result"):
        if not parameter.values[0]:
            return [pytest.param({}, "", marks=parameter.marks)]
        row = parameter.values[0]
        for runner in row["runner"]:
            if runner in RUNNERS:
                mark = [pytest.mark.process] if runner == "plugin" else []
                found.append(pytest.param(row, runner, id=f"{row['id']}-{runner}", marks=mark))
    return found


def of_the_loop(parameter: Any) -> bool:
    """Whether the row says something of the loop, or stands for the absent folder."""
    row = parameter.values[0]
    return not row or "loop_lag_250ms" in (row["expect"].get("inv") or ())


def module_with(row: dict[str, Any], folder: Path) -> Any:
    """A fresh module whose function `hostile` has the row's body, importable by a worker process; it leaves a file when it begins."""
    name = f"hostile_{secrets.token_hex(6)}"
    body = row["py"]
    for written, instead in _INSTEAD.items():
        body = body.replace(written, instead)
    lines = f"'Do what the row says.'\nopen({str(folder / 'begun')!r}, 'w').close()\n{body}"
    source = f"from __future__ import annotations\n\ndef hostile():\n{textwrap.indent(lines, '    ')}\n"
    (folder / f"{name}.py").write_text(source, encoding="utf-8")
    importlib.invalidate_caches()
    return importlib.import_module(name)


def as_tool(function: Any, runner: str) -> FunctionTool:
    return FunctionTool(function, runner=RUNNERS[runner], effect="once")


def word_for(result: ToolResult) -> set[str]:
    """Return all words of the rows that describe the result."""
    words: set[str] = {"tool_error" if result.status == "error" else result.status}
    if result.code == "tool_raised":  # counts as the tool's error, also if the outcome is unknown
        words.add("tool_error")
    if result.success and any(note.kind == "normalised" for note in result.metadata.notes):
        words.add("ok_normalised")
    if result.failure_class in ("timeout", "killed"):
        words.add("abandoned" if "could not be stopped" in str(result.error) else "killed")
    return words


@tool(effect="none")
async def ping() -> str:
    """Answer."""
    return "pong"


async def outcome_of(engine: Engine, row: dict[str, Any], begun: Callable[[], object]) -> Outcome:
    """What comes of the row's tool; where it hangs, its deadline passes as soon as it has begun."""
    calling = engine.call(RawCall(name="hostile", arguments="{}"))
    hangs = "timeout_s" in row and {"killed", "abandoned"} & set(row["expect"]["outcome"])
    return await (past_deadline(calling, begun) if hangs else calling)


@pytest.mark.parametrize(("row", "runner"), cases())
async def test_a_hostile_tool_does_not_harm_the_engine(
    row: dict[str, Any], runner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = f"marker-{secrets.token_hex(8)}"
    monkeypatch.setenv("TEST_MARKER", marker)
    monkeypatch.syspath_prepend(str(tmp_path))
    limits = ProcessLimits(memory_bytes=1024**3, file_bytes=64 * 1024**2, environment=("TEST_MARKER",))
    hostile = as_tool(module_with(row, tmp_path).hostile, runner)
    expect, inv = row["expect"], row["expect"].get("inv") or ()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tools = [hostile, ping, folder_of_worker]
    processes = _WORKER_PROCESSES * (runner == "plugin") + ("subprocess" in row["py"])
    async with Engine(tools, timeout_s=DEADLINE_S, process_limits=limits, clock=LoopClock()) as engine:
        if runner == "plugin":
            await engine.call(RawCall(name="folder_of_worker"))
        began = time.perf_counter()
        outcome = await outcome_of(engine, row, lambda: (tmp_path / "begun").exists() and len(marked(marker)) >= processes)
        took_ms = (time.perf_counter() - began) * 1000
        assert isinstance(outcome, Answered)
        result = outcome.result
        assert word_for(result) & set(expect["outcome"]), result
        if "code" in expect:
            assert result.code in expect["code"]
        if "value" in expect:
            assert result.structured == expect["value"]
        assert took_ms <= most_ms(row)
        assert_bounded(result)
        json.dumps(result.structured, allow_nan=False).encode("utf-8")
        await assert_alive_and_clean(engine)
        if "no_survivors" in inv:
            alive = await soon(lambda: len(marked(marker)) <= _WORKER_PROCESSES * (runner == "plugin"))
            assert alive, marked(marker)
        if "next_call_ok" in inv:
            again = await engine.call(RawCall(name="hostile", arguments="{}"))
            assert isinstance(again, Answered)
        if runner == "plugin":
            again = await engine.call(RawCall(name="folder_of_worker", idempotency_key="again"))
            assert isinstance(again, Answered)
            assert again.result.structured == os.getcwd()
    assert await soon(lambda: not marked(marker))
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024 <= max(expect.get("max_rss_mb", 64), 64) * 4


@pytest.mark.parametrize("row", [row for row in rows("hostile/calls.jsonl", kind="result") if of_the_loop(row)])
async def test_the_event_loop_stays_responsive_while_a_hostile_tool_runs(
    row: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    order: list[str] = []
    coroutines: list[Coroutine[Any, Any, Any]] = []
    function = told_of(module_with(row, tmp_path).hostile, order, coroutines)
    async with Engine([FunctionTool(function, runner="thread")], timeout_s=DEADLINE_S, clock=LoopClock()) as engine:
        beating = asyncio.create_task(_beat(order))
        await outcome_of(engine, row, lambda: "began" in order and "beat" in order[order.index("began") :])
        beating.cancel()
    for coroutine in coroutines:
        if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:  # returned after the deadline
            coroutine.close()
    began = order.index("began")
    assert "beat" in order[began : order.index("ended") if "ended" in order else None]


def told_of(function: Any, order: list[str], coroutines: list[Coroutine[Any, Any, Any]]) -> Any:
    """Wrap the function so that it records its start, its complete end and the coroutines that come of it."""

    def hostile() -> Any:
        """Do what the row says."""
        order.append("began")
        value = function()
        if inspect.iscoroutine(value):
            coroutines.extend([value, outlasted(value)])
            return coroutines[-1]
        order.append("ended")
        return value

    async def outlasted(value: Any) -> Any:
        try:
            return await value
        finally:
            order.append("ended")

    return hostile


async def _beat(order: list[str]) -> None:
    while True:
        order.append("beat")
        await asyncio.sleep(0.01)
