from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.ledger import Ledger

# How fast something is belongs to the benchmarks.
settings.register_profile("callgate", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("callgate")


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.txt")
