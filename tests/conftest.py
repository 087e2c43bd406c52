from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

from tests.ledger import Ledger

settings.register_profile("callgate", deadline=None)  # how fast something is belongs to the benchmarks
settings.load_profile("callgate")


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.txt")
