"""Tests of a system without free threads, processes or descriptors: calls that did not begin are reported as such, and none hangs."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from callgate._runners.process import ProcessRunner
from callgate._runners.process import worker_connection as link
from tests.runners.hostile_tools import own_session, state
from tests.runners.runner_requests import Made
from tests.waiting import COMMAND_S, soon


@pytest.fixture
def folder() -> Iterator[Path]:
    """Provide a folder that every user may write to: the program gives up root's rights, because limits do not apply to root."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)


def starved(what: str, folder: Path) -> dict[str, str]:
    """Run the program and return what it reports of each part."""
    command = [sys.executable, "-m", "tests.runners.exhausted_resources", what, str(folder / "journal.db")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S)
    assert ran.returncode == 0, ran.stderr
    return dict(json.loads(line) for line in ran.stdout.splitlines())


def test_a_call_is_not_started_if_no_thread_or_process_can_be_started(folder: Path) -> None:
    said = starved("threads", folder)
    assert said["in_thread"] == "error not_started"
    assert "no thread could be started for it: can't start new thread. Nothing happened; it may be sent again." in said["text of in_thread"]
    assert said["in_process"] == "error not_started"
    assert "no worker process could be started for it" in said["text of in_process"]
    assert said["in_task"] == "ok None"
    assert said["closed"] == "", "a thread of the engine is still running"


def test_journal_memory_and_sync_calls_do_not_hang_if_no_thread_can_be_started(folder: Path) -> None:
    said = starved("threads", folder)
    assert said["journal"].startswith("UsageError The journal")
    assert "no thread can be started to write it" in said["journal"]
    assert said["call_sync"].startswith("UsageError No thread can be started for the engine's event loop")
    assert said["close_sync"] == "ok"
    assert said["kept"] == "['files.kept']"
    assert said["memory"] == "RuntimeError: can't start new thread"


def test_a_call_waits_for_an_existing_thread_unless_that_thread_waits_for_it(folder: Path) -> None:
    said = starved("one thread", folder)
    assert said["in_thread of one"] == "ok None"
    assert said["asks"] == "ok None"
    assert "in_thread was not started: no thread could be started for it" in said["text of asks"]


def test_a_process_call_is_not_started_if_no_descriptor_is_free(folder: Path) -> None:
    said = starved("descriptors", folder)
    assert said["in_process"] == "error not_started"
    assert "Too many open files" in said["text of in_process"]
    assert (said["in_task"], said["closed"]) == ("ok None", "")


NO_FORK = """
import errno, os
def fork():
    raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
os.fork = fork
"""


@pytest.mark.parametrize(
    ("system", "why"),
    [
        (NO_FORK, "the system could not start its process"),
        ("raise MemoryError\n", "its supervisor could not start"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)\n", "its supervisor could not start"),
    ],
    ids=["no second process", "no memory for the supervisor", "killed at once"],
)
async def test_a_call_is_not_started_if_only_the_supervisor_process_starts(
    processes: ProcessRunner, monkeypatch: pytest.MonkeyPatch, system: str, why: str
) -> None:
    """Simulates a system that starts one process and no second."""
    with monkeypatch.context() as starving:
        starving.setattr(link, "_SUPERVISOR", system + link._SUPERVISOR)
        execution = await processes.run(Made(state).request)
    assert (execution.status, execution.not_started) == ("not_started", True)
    assert why in execution.error
    assert (await processes.run(Made(state).request)).status == "returned"


async def test_calls_waiting_for_a_worker_end_if_no_worker_can_be_started(
    processes: ProcessRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The only worker is lost while another call waits for it, and no replacement can be started."""
    hangs, waits = Made(own_session), Made(state)
    running = asyncio.ensure_future(processes.run(hangs.request))
    assert await soon(lambda: hangs.progress)
    waiting = asyncio.ensure_future(processes.run(waits.request))
    await asyncio.sleep(0)

    def refuses(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", refuses)
    hangs.kill.abort("killed")
    assert (await running).status == "killed"
    execution = await waiting
    assert execution.status == "not_started"
    assert "no worker process could be started for it" in execution.error
