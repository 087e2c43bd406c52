"""Tests of every hostile tool body of the corpus, on each runner that the body names."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import textwrap
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from callgate._clock import SystemClock
from callgate._engine_limits import Limits
from callgate._runners import Runners
from callgate._runners.process import ProcessLimits
from callgate.protocols import Execution
from callgate.tools import tool
from tests.runners import hostile_tools
from tests.runners.runner_requests import Made, marked
from tests.waiting import soon

CORPUS = Path(os.environ.get("CALLGATE_CORPORA", Path(__file__).parents[3] / "shared" / "data")) / "hostile" / "calls.jsonl"
LIMITS = ProcessLimits(memory_bytes=1024**3, file_bytes=64 * 1024**2)
SERVED = ("inproc", "thread", "plugin")
OUTCOMES = {
    ("returned", False): {"ok", "ok_normalised", "tool_error"},
    ("raised", False): {"tool_error"},
    ("timed_out", False): {"killed"},
    ("timed_out", True): {"abandoned"},
    ("crashed", False): {"unknown"},
}
"""Maps an execution to the corpus's name for it. A returned value is checked later: it may not be valid JSON."""


def rows() -> Iterator[Any]:
    if not CORPUS.is_file():
        yield pytest.param({}, "", marks=pytest.mark.skip(reason=f"there is no {CORPUS.name} beside this checkout"))
        return
    for line in CORPUS.read_text().splitlines():
        row = json.loads(line)
        for runner in SERVED if row["kind"] == "result" else ():
            if runner not in row["runner"]:
                continue
            marks = pytest.mark.process if runner == "plugin" else ()
            yield pytest.param(row, runner, id=f"{row['id']}-{runner}", marks=marks)


ROWS = list(rows())


@pytest.fixture(scope="module")
def bodies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Build one module that contains all bodies as functions."""
    folder = tmp_path_factory.mktemp("bodies")
    unique = {row["id"]: row for row, _ in (parameters.values for parameters in ROWS) if row}
    source = "\n".join(f"def {name(row)}():\n{textwrap.indent(row['py'], '    ')}\n" for row in unique.values())
    (folder / "hostile_bodies.py").write_text(source)
    sys.path.insert(0, str(folder))
    yield import_module("hostile_bodies")
    sys.path.remove(str(folder))


def name(row: dict[str, Any]) -> str:
    return f"body_{row['id']}".replace("-", "_")


def runner_name(row: dict[str, Any], runner: str) -> Any:
    if runner == "inproc":
        return "inline" if "async def" in row["py"] else "thread"
    return {"thread": "thread", "plugin": "process"}[runner]


async def beats(counted: list[int]) -> None:
    """Count the iterations of the event loop."""
    while True:
        await asyncio.sleep(0.01)
        counted.append(1)


async def warmed(runners: Runners, runner: str) -> None:
    """Start a worker process in advance, so that a slow start does not use the time of the hostile call."""
    if runner == "plugin":
        await runners.pick("process").run(Made(hostile_tools.state).request)


def seconds_for(row: dict[str, Any], runner: str) -> float:
    return max(float(row.get("timeout_s", 120)), 4.0 if runner == "plugin" else 2.0)


@pytest.mark.parametrize(("row", "runner"), ROWS)
async def test_a_hostile_tool_body_has_one_of_the_expected_outcomes(row: dict[str, Any], runner: str, bodies: Any) -> None:
    runners = Runners(Limits(), SystemClock(), process_limits=LIMITS)
    made = Made(tool(description="Is hostile.")(getattr(bodies, name(row))), timeout_s=seconds_for(row, runner))
    counted: list[int] = []
    try:
        await warmed(runners, runner)
        counting = asyncio.ensure_future(beats(counted))
        execution = await runners.pick(runner_name(row, runner)).run(made.request)
        counting.cancel()
        assert OUTCOMES[execution.status, execution.abandoned] & set(row["expect"]["outcome"]), execution
        assert counted or "loop_lag_250ms" not in row["expect"].get("inv", ()), "the event loop was blocked all the time"
        _check_value(row, execution)
        assert await soon(lambda: not marked(made.uid))
        await _check_next(runners, runner)
    finally:
        await runners.close()


def _check_value(row: dict[str, Any], execution: Execution) -> None:
    if "value" in row["expect"] and execution.status == "returned":
        assert execution.value == row["expect"]["value"]
    assert len(execution.error.encode()) <= 8_192


async def _check_next(runners: Runners, runner: str) -> None:
    """Check that the runner still serves the next call."""
    if runner == "plugin":
        execution = await runners.pick("process").run(Made(hostile_tools.state).request)
        assert execution.status == "returned"
        assert isinstance(execution.value, dict)
        assert execution.value["cwd"] == os.getcwd()
