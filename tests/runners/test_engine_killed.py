"""Tests that the tools of a killed engine do not continue."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from tests.runners.runner_requests import marked
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.process, pytest.mark.skipif(sys.platform != "linux", reason="looks for survivors in /proc")]


def test_the_process_tree_of_a_tool_is_killed_when_the_engine_is_killed() -> None:
    """After SIGKILL the engine cannot clean up, so the supervisor does it when its channel closes."""
    command = [sys.executable, "-c", "import sys; sys.path[:] = sys.argv[1:]; from tests.runners import engine_to_kill as e;"]
    command[-1] += " import asyncio; asyncio.run(e.main())"
    with subprocess.Popen([*command, *sys.path], stdout=subprocess.PIPE, text=True) as engine:
        assert engine.stdout is not None
        uid = engine.stdout.readline().strip()
        assert marked(uid), "the tool has not begun"
        engine.send_signal(signal.SIGKILL)
        until = time.monotonic() + PATIENCE_S
        while marked(uid) and time.monotonic() < until:
            time.sleep(0.02)
        assert marked(uid) == []
