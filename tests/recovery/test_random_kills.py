"""Tests that kill workers at random moments from a process without an engine and count the effects in an independent ledger.

These tests make a few kills; `make faults` makes a thousand, also over PostgreSQL.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.waiting import COMMAND_S


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="forks and kills")
def test_random_kills_never_repeat_an_effect_or_report_a_wrong_outcome() -> None:
    command = [
        sys.executable,
        "-c",
        f"import sys; sys.path[:] = {sys.path!r}; from tests.recovery.random_kills import main; sys.exit(main(20, 'file'))",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "20 kills" in done.stdout
