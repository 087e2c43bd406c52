"""Tests that kill a gateway and the servers behind it at random moments: no effect happens twice under one key, or is lost silently.

They make a few kills; `make faults` makes a hundred.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.gateway.random_kills import kill_at_random

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="kills, and looks in /proc")]


@pytest.mark.parametrize("seed", [2, 3, 5])
async def test_random_kills_repeat_no_effect_hide_no_unknown_outcome_and_leave_no_process(tmp_path: Path, seed: int) -> None:
    trial = await kill_at_random(tmp_path, 3, seed)
    assert await trial.faults() == []
    assert trial.kills.total() == 3
