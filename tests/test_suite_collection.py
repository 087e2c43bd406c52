"""Every process collects the same list of tests: workers compare their lists, and refuse to start if these differ."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.conftest import COLLECTED
from tests.waiting import COMMAND_S

ROOT = Path(__file__).parents[1]


def collected(files: Iterable[str], seed: str) -> list[str]:
    """What another process collects, with another order of every set."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", "-n", "0", *files]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")} | {"PYTHONHASHSEED": seed}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=COMMAND_S)
    assert done.returncode == 0, done.stdout[-2000:]
    return [line for line in done.stdout.splitlines() if "::" in line]


def test_another_process_collects_the_same_tests_in_the_same_order(request: pytest.FixtureRequest) -> None:
    """Neither the order of a set nor the address of an object affects the name or position of a test."""
    ours = request.config.stash[COLLECTED]
    theirs = collected(dict.fromkeys(test.partition("::")[0] for test in ours), "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2")
    own = set(ours)
    assert [test for test in theirs if test in own] == ours
