"""Workers that are killed at random moments by a process that knows nothing of engines; an independent ledger counts.

A few kills; `make faults` does a thousand, also over PostgreSQL.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.patience import COMMAND_S


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="forks and kills")
def test_whatever_moment_a_worker_is_killed_at_nothing_is_done_twice_or_told_wrongly() -> None:
    command = [
        sys.executable,
        "-c",
        f"import sys; sys.path[:] = {sys.path!r}; from tests.recovery.random_kills import main; sys.exit(main(20, 'file'))",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "20 kills" in done.stdout
