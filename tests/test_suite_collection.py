"""Every process collects the same list of tests: workers compare their lists, and refuse to start if these differ."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.waiting import COMMAND_S

ROOT = Path(__file__).parents[1]


def collecting(seed: str) -> subprocess.Popen[str]:
    """Start a process that lists the tests, with this hash seed."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", "-n", "0", "tests"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")} | {"PYTHONHASHSEED": seed}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_two_processes_collect_the_same_tests_in_the_same_order() -> None:
    """Neither the order of a set nor the address of an object affects the name or position of a test."""
    lists = []
    for process in [collecting("1"), collecting("2")]:
        output, _ = process.communicate(timeout=COMMAND_S)
        assert process.returncode == 0, output[-2000:]
        lists.append([line for line in output.splitlines() if "::" in line])
    assert lists[0] == lists[1]
    assert len(lists[0]) > 1_000
