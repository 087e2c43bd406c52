"""Tests of what is passed to a tool's process, how workers are reused, and which tools can run there."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from callgate import Engine, Limits, ProcessLimits
from callgate._clock import SystemClock
from callgate._runners.process import ProcessRunner, process_target, strength
from callgate._runners.process.resource_limits import worker_environment
from callgate.calls import Scope
from callgate.errors import UsageError
from callgate.tools import FunctionTool, Tool, tool
from tests.engine_calls import call, said
from tests.runners import fixture_tools, hostile_tools
from tests.runners.runner_requests import Made
from tests.waiting import soon

process = pytest.mark.process


async def value_of(runner: ProcessRunner, made: Made) -> object:
    execution = await runner.run(made.request)
    assert execution.status == "returned", execution
    return execution.value


@process
async def test_a_nested_call_from_a_worker_process_is_refused(processes: ProcessRunner) -> None:
    execution = await processes.run(Made(hostile_tools.calls_another).request)
    assert "runs in its own process and cannot call other tools" in execution.error


@process
async def test_the_engines_environment_is_not_passed_to_a_tool(processes: ProcessRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_TOKEN", "secret")
    found = await value_of(processes, Made(hostile_tools.state))
    assert isinstance(found, dict)
    assert "API_TOKEN" not in found["environ"]
    assert found["stdin"] == ""


def test_the_worker_environment_is_an_allow_list() -> None:
    given = {"PATH": "/bin", "LC_ALL": "C", "AWS_SECRET_ACCESS_KEY": "x", "PROXY": "y"}
    passed = worker_environment(ProcessLimits(environment=("PROXY",)), "w1", given)
    assert passed == {"PATH": "/bin", "LC_ALL": "C", "PROXY": "y", "CALLGATE_WORKER": "w1"}


@process
async def test_a_worker_is_reused(processes: ProcessRunner) -> None:
    pids = set()
    for _ in range(3):
        found = await value_of(processes, Made(hostile_tools.state))
        assert isinstance(found, dict)
        pids.add(found["pid"])
    assert len(pids) == 1


@process
async def test_a_crashed_worker_fails_no_other_call(marker: str) -> None:
    runner = ProcessRunner(Limits(), SystemClock(), ProcessLimits(workers=3))
    good = [Made(fixture_tools.sync_steps, {"count": 500}) for _ in range(6)]
    bad = [Made(hostile_tools.kills_itself) for _ in range(3)]
    pairs = [runner.run(one.request) for pair in zip(good, bad * 2, strict=True) for one in pair]
    executions = await asyncio.gather(*pairs)
    assert [execution.status for execution in executions] == ["returned", "crashed"] * 6
    await runner.close()


@process
async def test_a_call_that_waits_for_a_worker_is_not_started(processes: ProcessRunner) -> None:
    busy = Made(fixture_tools.sync_hang)
    running = asyncio.ensure_future(processes.run(busy.request))
    assert await soon(lambda: busy.progress)
    late, killed, cancelled = (Made(fixture_tools.sync_echo, {"value": 1}, timeout_s=seconds) for seconds in (0.1, 600.0, 600.0))
    waiting = [asyncio.ensure_future(processes.run(made.request)) for made in (late, killed, cancelled)]
    await asyncio.sleep(0)
    killed.kill.abort("killed")
    waiting[2].cancel()
    executions = await asyncio.gather(*waiting, return_exceptions=True)
    assert [getattr(execution, "status", "cancelled") for execution in executions] == ["not_started", "not_started", "cancelled"]
    busy.kill.abort("killed")
    await running
    assert await value_of(processes, Made(fixture_tools.sync_echo, {"value": 2})) == 2


@process
async def test_a_result_that_is_too_large_is_an_error_of_the_tool(marker: str, tmp_path: Path) -> None:
    runner = ProcessRunner(Limits(result_bytes=1_000), SystemClock())
    execution = await runner.run(Made(fixture_tools.sync_echo, {"value": "x" * 200_000}).request)
    assert (execution.status, execution.error_type, execution.details) == (
        "returned",
        "ResultNotSerializable",
        {"code": "output_too_large"},
    )
    await runner.close()


@process
async def test_a_module_that_cannot_be_imported_is_named_to_the_operator_and_not_to_the_model(
    processes: ProcessRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    source = tmp_path / "half_there.py"
    source.write_text("from callgate.tools import tool\n@tool\ndef look() -> int:\n    'Look.'\n    return 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    half_there = __import__("half_there")
    source.write_text("raise RuntimeError('no licence')")
    execution = await processes.run(Made(half_there.look).request)
    assert execution.status == "raised"
    assert "half_there:look: RuntimeError: no licence" in execution.traceback
    assert "half_there:look: RuntimeError: no licence" in caplog.text
    assert execution.error == "it was not started, because it cannot be loaded in a worker process; the operator has been told"
    assert execution.error_type == "RuntimeError"


@process
async def test_a_tool_that_cannot_be_loaded_again_leaves_a_call_that_had_started_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt has paid and hung; that the second could not begin proves nothing of it."""
    source = tmp_path / "pays_once.py"
    source.write_text(
        "import pathlib, time\n"
        "from callgate import RetryPolicy, tool\n"
        "@tool(effect='idempotent', runner='process', retry=RetryPolicy(base_s=0), attempt_timeout_s=2)\n"
        "def pay() -> None:\n"
        "    'Pay, and hang.'\n"
        "    here = pathlib.Path(__file__)\n"
        "    here.with_suffix('.ledger').write_text('paid')\n"
        "    here.write_text('raise RuntimeError(\"no licence\")')\n"
        "    time.sleep(60)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    async with Engine([__import__("pays_once").pay]) as engine:
        result = await said(engine, call("pay"))
    assert source.with_suffix(".ledger").read_text() == "paid"
    assert "it cannot be loaded in a worker process" in result.text
    assert result.status == "unknown"


class Stateless(Tool):
    name = "stateless"
    description = "Has no state."
    parameters: dict[str, object] = {"type": "object"}
    category = "safe_chain"

    def execute(self, actor: str, **params: object) -> dict[str, object]:  # type: ignore[override]
        return {"success": True, "data": actor}


class Stateful(Stateless):
    name = "stateful"

    def __init__(self, name: str) -> None:
        self.client = name


bound = Stateful("a")


def undecorated(value: int) -> int:
    """Return the value."""
    return value


@process
async def test_tool_classes_and_module_level_names_can_run_in_a_process(processes: ProcessRunner) -> None:
    for one in (Stateless(), bound):
        made = Made(one, scope=Scope(actor="ann"))
        assert await value_of(processes, made) == {"success": True, "data": "ann"}
    assert await value_of(processes, Made(tool(undecorated), {"value": 4})) == 4


def test_a_process_target_is_module_and_qualified_name() -> None:
    assert process_target(hostile_tools.state) == "tests.runners.hostile_tools:state"
    assert process_target(bound) == f"{__name__}:bound"
    assert process_target(Stateless()) == f"{__name__}:Stateless"


def _nested() -> FunctionTool:
    @tool
    def inner() -> int:
        """Be nested."""
        return 1

    return inner


@pytest.mark.parametrize(
    ("refused", "fix"),
    [
        (_nested(), "Move it to the top level of its module"),
        (FunctionTool(lambda: 1, name="anonymous", description="x"), "Write it as a function of a module"),
        (Stateful("b"), "Bind it to a name at the top level"),
    ],
    ids=["nested", "lambda", "state"],
)
def test_a_tool_that_another_process_cannot_import_is_refused_with_the_fix(refused: Tool, fix: str) -> None:
    with pytest.raises(UsageError, match=fix) as caught:
        process_target(refused)
    assert caught.value.code == "usage"


SCRIPT = """
import asyncio, sys
from callgate._clock import SystemClock
from callgate._engine_limits import Limits
from callgate._runners.process import ProcessRunner
from callgate.tools import tool
from tests.runners.runner_requests import Made

@tool
def look() -> str:
    "Look."
    return __name__

async def main():
    runner = ProcessRunner(Limits(), SystemClock())
    sys.stdout.write(str((await runner.run(Made(look).request)).value))
    await runner.close()

if __name__ == "__main__":
    asyncio.run(main())
"""


@process
def test_a_tool_defined_in_a_script_is_imported_by_the_path_of_the_script(tmp_path: Path) -> None:
    script = tmp_path / "app.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env={"PYTHONPATH": ":".join(sys.path)}, check=False
    )
    assert done.stdout == "__callgate_main__", done.stderr


def test_a_tool_defined_interactively_is_refused_with_the_fix() -> None:
    code = "import sys; sys.path[:] = sys.argv[1:]; from callgate.tools import tool; from callgate._runners.process import process_target"
    code += "\n@tool\ndef look() -> int:\n    'Look.'\n    return 1\nprocess_target(look)"
    done = subprocess.run([sys.executable, "-c", code, *sys.path], capture_output=True, text=True, check=False)
    assert "Move it to a file" in done.stderr


def test_the_strength_of_each_guarantee_can_be_queried() -> None:
    assert set(strength()) >= {"stop", "engine killed", "memory"} or sys.platform == "win32"
