"""Tests of tools that misuse their process: they do not affect the engine or the next call."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from callgate._runners.process import ProcessRunner
from callgate._runners.process.supervisor.process_tree import ProcessTree
from callgate.protocols import Execution
from callgate.tools import FunctionTool
from tests.runners import hostile_tools as tools
from tests.runners.runner_requests import Made, marked
from tests.waiting import PATIENCE_S, past_deadline, soon

pytestmark = [pytest.mark.process, pytest.mark.skipif(sys.platform != "linux", reason="looks for survivors in /proc")]

HANGING = [
    tools.own_session,
    tools.double_fork,
    tools.ignores_term,
    tools.swallows_everything,
    tools.stopped,
    tools.fifty_forks,
    tools.busy_loop,
    tools.stuck_in_c,
    tools.swallows_cancel,
]
ROOT = pytest.mark.skipif(os.getuid() != 0, reason="only root can")


def named(tool: FunctionTool) -> str:
    return tool.name


async def value_of(runner: ProcessRunner, tool: FunctionTool) -> object:
    execution = await runner.run(Made(tool).request)
    assert execution.status == "returned", execution
    return execution.value


async def begin(runner: ProcessRunner, made: Made) -> asyncio.Future[Execution]:
    running = asyncio.ensure_future(runner.run(made.request))
    assert await soon(lambda: made.progress)
    return running


@pytest.mark.parametrize("tool", HANGING, ids=named)
async def test_the_whole_process_tree_is_killed_at_the_deadline(processes: ProcessRunner, marker: str, tool: FunctionTool) -> None:
    """This holds whatever the tool does to prevent it."""
    made = Made(tool, grace_s=0.2)
    execution = await past_deadline(processes.run(made.request), lambda: made.progress)
    assert (execution.status, execution.abandoned) == ("timed_out", False)
    assert await soon(lambda: not marked(marker))
    assert await value_of(processes, tools.state)


@pytest.mark.parametrize("tool", HANGING, ids=named)
async def test_the_whole_process_tree_is_killed_on_cancellation(processes: ProcessRunner, marker: str, tool: FunctionTool) -> None:
    made = Made(tool, grace_s=0.1)
    running = await begin(processes, made)
    assert marked(marker)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await soon(lambda: not marked(marker))


@pytest.mark.parametrize("tool", HANGING[:5], ids=named)
async def test_the_whole_process_tree_is_killed_when_the_runner_is_closed(
    processes: ProcessRunner, marker: str, tool: FunctionTool
) -> None:
    made = Made(tool)
    running = await begin(processes, made)
    assert marked(marker)
    await processes.close()
    assert (await running).status == "killed"
    assert await soon(lambda: not marked(marker))


@pytest.mark.parametrize(
    ("tool", "details"),
    [
        (tools.segfault, {"signal": 11, "signal_name": "SIGSEGV"}),
        (tools.os_exit, {"exit_code": 7}),
        (tools.kills_itself, {"signal": 9, "signal_name": "SIGKILL"}),
        (tools.closes_everything, {"channel": "closed"}),
        (tools.kills_its_supervisor, {"supervisor": "killed"}),
    ],
    ids=lambda value: value.name if isinstance(value, FunctionTool) else "",
)
async def test_a_process_that_ends_is_a_crash_and_is_detected_at_once(
    processes: ProcessRunner, tool: FunctionTool, details: dict[str, object]
) -> None:
    """Otherwise the call would run until its deadline, which is later than the test's timeout."""
    made = Made(tool)
    execution = await processes.run(made.request)
    assert (execution.status, execution.details) == ("crashed", details)
    assert await soon(lambda: not marked(made.uid))
    assert await value_of(processes, tools.state)


async def test_a_large_result_sent_just_before_the_worker_ends_is_returned(processes: ProcessRunner) -> None:
    """The value is decoded outside the event loop, which may see the worker's end first."""
    execution = await processes.run(Made(tools.leaves_thread_and_returns_much).request)
    assert (execution.status, execution.value) == ("returned", "x" * 1_000_000)
    assert await value_of(processes, tools.state)


@pytest.mark.parametrize(
    ("tool", "arguments", "status"),
    [
        (tools.speaks_for_others, {"kind": "X", "body": "0 0 0"}, "timed_out"),
        (tools.speaks_for_others, {"kind": "P", "body": "no json"}, "crashed"),
        (tools.speaks_for_others, {"kind": "E", "body": "no json"}, "crashed"),
        (tools.speaks_for_others, {"kind": "E", "body": "no json " * 10_000}, "crashed"),
        (tools.speaks_for_others, {"kind": "F", "body": "no json " * 10_000}, "crashed"),
        (tools.floods_the_channel, {}, "crashed"),
    ],
    ids=["its supervisor's words", "bad progress", "bad result", "large bad result", "large bad last result", "no frame"],
)
async def test_a_tool_that_writes_to_the_runners_channel_fails_only_its_own_call(
    processes: ProcessRunner, marker: str, tool: FunctionTool, arguments: dict[str, object], status: str
) -> None:
    made = Made(tool, arguments)
    calling = processes.run(made.request)
    execution = await (past_deadline(calling, lambda: made.progress) if status == "timed_out" else calling)
    assert execution.status == status
    assert await soon(lambda: not marked(marker))
    assert await value_of(processes, tools.state)


def test_without_proc_the_process_tree_is_found_through_parent_ids() -> None:
    """Systems other than Linux find the tree with `ps`."""
    with subprocess.Popen(["sh", "-c", "sleep 600 & sleep 600 & wait"]) as shell:
        until = time.monotonic() + PATIENCE_S
        while len(ProcessTree(shell.pid).alive()) < 2 and time.monotonic() < until:
            time.sleep(0.01)
        assert set(ProcessTree(shell.pid, proc=False).alive()) == set(ProcessTree(shell.pid).alive())
        ProcessTree.signal([*ProcessTree(shell.pid).alive(), shell.pid], signal.SIGKILL)


async def test_output_written_before_a_crash_is_kept(processes: ProcessRunner) -> None:
    execution = await processes.run(Made(tools.os_exit).request)
    assert execution.partial == "last words\n"


@pytest.mark.parametrize(
    ("tool", "value"),
    [
        (tools.leaves_children, "done"),
        (tools.grandchild_holds_pipe, "done"),
        (tools.forks_and_returns, 1),
        (tools.noisy_out, "real"),
        (tools.noisy_err, "real"),
        (tools.closes_stdout, "done"),
        (tools.leaves_thread, "done"),
        (tools.lowers_limits, "done"),
        (tools.sets_alarm, "done"),
        (tools.leaves_task, "done"),
        (tools.changes_directory, "/"),
        (tools.changes_environment, "done"),
        (tools.lowers_recursion_limit, [[[[1]]]]),
        pytest.param(tools.becomes_nobody, "done", marks=ROOT),
        pytest.param(tools.changes_root, "done", marks=ROOT),
        (tools.blocks_signals, "done"),
        (tools.ignores_in_c, "done"),
        (tools.handles_rare_signals, "done"),
        (tools.sets_locale, "done"),
        (tools.sets_umask, "done"),
        (tools.takes_one_processor, "done"),
        (tools.puts_in_the_environment, "done"),
        (tools.sets_in_the_environment_in_c, "done"),
        (tools.replaces_the_environment, "done"),
        (tools.moves_to_tokyo, "done"),
        (tools.lowers_a_soft_limit, "done"),
        (tools.patches_the_library, "done"),
        (tools.replaces_a_module, "done"),
        (tools.changes_imports, "done"),
        (tools.changes_the_interpreter, "done"),
    ],
    ids=lambda value: value.name if isinstance(value, FunctionTool) else "",
)
async def test_state_left_behind_by_a_call_does_not_affect_the_next_call(
    processes: ProcessRunner, tool: FunctionTool, value: object
) -> None:
    clean = await value_of(processes, tools.state)
    made = Made(tool, timeout_s=120.0)
    execution = await processes.run(made.request)
    assert (execution.status, execution.value) == ("returned", value), "the result waited for something that the tool left running"
    after = await value_of(processes, tools.state)
    assert isinstance(clean, dict)
    assert isinstance(after, dict)
    del clean["pid"], after["pid"]
    environments = clean.pop("environ"), after.pop("environ")
    assert after == clean
    assert {**environments[0], "CALLGATE_WORKER": ""} == {**environments[1], "CALLGATE_WORKER": ""}
    assert await soon(lambda: not marked(made.uid))


async def test_a_tool_that_exceeds_the_memory_limit_fails_only_its_own_call(processes: ProcessRunner) -> None:
    execution = await processes.run(Made(tools.wants_memory).request)
    assert (execution.status, execution.error_type) == ("raised", "MemoryError")
    assert await value_of(processes, tools.state)


async def test_excessive_output_is_bounded_and_reports_what_was_left_out(processes: ProcessRunner) -> None:
    """The limit is per second; the bound allows a slow machine many seconds for forty megabytes."""
    made = Made(tools.noisy_err)
    await processes.run(made.request)
    shown = made.text("stderr")
    assert "bytes left out" in shown
    assert shown.endswith("e" * 1000)
    assert len(shown) < 20_000_000


async def test_clean_up_code_of_a_tool_runs_within_the_grace_period(processes: ProcessRunner, tmp_path: Path) -> None:
    made = Made(tools.cleans_up, {"path": str(tmp_path / "said")}, grace_s=PATIENCE_S)
    running = await begin(processes, made)
    made.kill.abort("killed")
    assert (await running).status == "killed"
    assert "over" in (tmp_path / "said").read_text()


async def test_a_shell_command_streams_its_output_and_is_killed_with_its_children(processes: ProcessRunner) -> None:
    made = Made(tools.streams_command, {"command": "echo one; sleep 600 & (setsid sleep 600 &); sleep 600"})
    running = await begin(processes, made)
    assert await soon(lambda: made.text("stdout") == "one\n")
    made.kill.abort("killed")
    execution = await running
    assert (execution.status, execution.partial) == ("killed", "one\n")
    assert marked(made.uid) == []


async def test_a_worker_whose_open_files_cannot_be_counted_is_replaced(processes: ProcessRunner) -> None:
    """Counting needs a descriptor itself; if listing fails at the limit, the worker must not count as clean."""
    assert await value_of(processes, tools.leaks_every_file)
    assert await value_of(processes, tools.reads_folder)


async def test_a_worker_reports_how_many_tasks_its_tool_left_running(processes: ProcessRunner) -> None:
    execution = await processes.run(Made(tools.leaves_task).request)
    assert (execution.value, execution.tasks_left) == ("done", 1)
