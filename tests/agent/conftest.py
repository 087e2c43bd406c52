from __future__ import annotations

import pytest

from tests.agent.recording_tools import Board, RecordingTools


@pytest.fixture
def board() -> Board:
    return Board()


@pytest.fixture
def recording() -> RecordingTools:
    return RecordingTools()
