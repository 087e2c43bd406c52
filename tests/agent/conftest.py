from __future__ import annotations

import pytest

from tests.agent.recording_tools import Board, Desk


@pytest.fixture
def board() -> Board:
    return Board()


@pytest.fixture
def desk() -> Desk:
    return Desk()
