"""Hostile results and behaviour of tools, on every runner, through the engine's public interface."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import resource
import secrets
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from callgate import Answered, Engine, RawCall, ToolResult, tool
from callgate._runners.process import ProcessLimits
from callgate.tools import FunctionTool
from tests.corpus.input_files import most_ms, rows
from tests.corpus.test_engine_hostile_calls import assert_alive_and_clean, assert_bounded
from tests.runners.runner_requests import marked
from tests.waiting import PATIENCE_S, soon

RUNNERS = {"inproc": None, "thread": "thread", "plugin": "process"}


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


def module_with(body: str, folder: Path) -> Any:
    """Return a new module whose function `hostile` has this body; a worker process can import it."""
    name = f"hostile_{secrets.token_hex(6)}"
    source = f"from __future__ import annotations\n\ndef hostile():\n    'Do what the row says.'\n{textwrap.indent(body, '    ')}\n"
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
        words.add("abandoned" if "cannot be stopped" in str(result.error) or "still runs" in str(result.error) else "killed")
    return words


def seconds_for(row: dict[str, Any], runner: str) -> float:
    """Return the timeout of a call; a worker process gets more, because it first imports the tool."""
    return max(float(row.get("timeout_s", 120)), 4.0 if runner == "plugin" else 2.0)


@tool(effect="none", runner="process", timeout_s=PATIENCE_S)
def warm() -> None:
    """Start a worker process, so that its start takes no time of the next call."""


@tool(effect="none")
async def ping() -> str:
    """Answer."""
    return "pong"


@pytest.mark.parametrize(("row", "runner"), cases())
async def test_a_hostile_tool_does_not_harm_the_engine(
    row: dict[str, Any], runner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = f"marker-{secrets.token_hex(8)}"
    monkeypatch.setenv("TEST_MARKER", marker)
    monkeypatch.syspath_prepend(str(tmp_path))
    limits = ProcessLimits(memory_bytes=1024**3, file_bytes=64 * 1024**2, environment=("TEST_MARKER",))
    hostile = as_tool(module_with(row["py"].replace("{PORT}", "9"), tmp_path).hostile, runner)
    expect = row["expect"]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with Engine([hostile, ping, warm], timeout_s=seconds_for(row, runner), process_limits=limits) as engine:
        if runner == "plugin":
            await engine.call(RawCall(name="warm"))
        began = time.perf_counter()
        outcome = await engine.call(RawCall(name="hostile", arguments="{}"))
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
        if "no_survivors" in expect.get("inv", ()):
            alive = await soon(lambda: len(marked(marker)) <= 2 * (runner == "plugin"))
            assert alive, marked(marker)
        if expect.get("inv") and "next_call_ok" in expect["inv"]:
            again = await engine.call(RawCall(name="hostile", arguments="{}"))
            assert isinstance(again, Answered)
    assert await soon(lambda: not marked(marker))
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024 <= max(expect.get("max_rss_mb", 64), 64) * 4


@pytest.mark.parametrize("row", rows("hostile/calls.jsonl", kind="result"))
async def test_the_event_loop_stays_responsive_while_a_hostile_tool_runs(
    row: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "loop_lag_250ms" not in row.get("expect", {}).get("inv", ()):
        pytest.skip("this row says nothing of the loop")
    monkeypatch.syspath_prepend(str(tmp_path))
    order: list[str] = []
    function = told_of(module_with(row["py"], tmp_path).hostile, order)
    async with Engine([FunctionTool(function, runner="thread")], timeout_s=min(row.get("timeout_s", 1), 1)) as engine:
        beating = asyncio.create_task(_beat(order))
        await engine.call(RawCall(name="hostile", arguments="{}"))
        beating.cancel()
    began = order.index("began")
    assert "beat" in order[began : order.index("ended") if "ended" in order else None]


def told_of(function: Any, order: list[str]) -> Any:
    """Wrap the function so that it records its start and its complete end."""

    def hostile() -> Any:
        """Do what the row says."""
        order.append("began")
        value = function()
        if inspect.isawaitable(value):
            return outlasted(value)
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
