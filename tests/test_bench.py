"""The benchmarks run. No test checks a measured value."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from bench.__main__ import GROUPS

from tests.waiting import COMMAND_S

_ROOT = Path(__file__).resolve().parent.parent
_WHOLE = "CALLGATE_WHOLE_BENCH"
"""The environment variable with which all rows are measured."""
_SLOW = ("gateway", "gateway-http", "wrappers", "peers", "imports")
"""Groups that start a server or import a framework for each of their rows, which takes seconds. A run measures one of them."""


@pytest.mark.timeout(4 * COMMAND_S)
def test_every_row_of_the_benchmarks_runs() -> None:
    """`make bench` works in a fresh clone: each row has a number, or the reason why it was skipped."""
    slow = _SLOW if _WHOLE in os.environ else (random.choice(_SLOW),)
    chosen = [*(group for group in GROUPS if group not in _SLOW), *slow]
    print(f"measured: {', '.join(chosen)}")  # noqa: T201
    paths = os.pathsep.join([str(_ROOT / "src"), str(_ROOT)])
    ran = subprocess.run(
        [sys.executable, "-m", "bench", "--quick", "--only", ",".join(chosen)],
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=3 * COMMAND_S,
    )
    assert ran.returncode == 0, ran.stderr
    rows = ran.stdout.splitlines()[1:]
    assert len(rows) > 25
    assert all("skipped: " in row or any(letter.isdigit() for letter in row[66:]) for row in rows)
    peers = ("openai-agents", "agent-framework", "pydantic-ai", "fastmcp", "the best peer")
    assert not [row for row in rows if "skipped: " in row and not any(peer in row.partition("skipped: ")[0] for peer in peers)]
