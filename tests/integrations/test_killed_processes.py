"""An agent of another framework is killed with SIGKILL and resumed in another process: no effect happens twice."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.integrations.killed_agents import AGENTS
from tests.recovery.child_process import child_process
from tests.waiting import COMMAND_S

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return what runs the agents of a framework once, kills and resumes them, and returns their folder."""

    @cache
    def folder(framework: str) -> Path:
        place = tmp_path_factory.mktemp("killed")
        with child_process("tests.integrations.killed_agents", framework, str(place)) as process:
            process.communicate(timeout=COMMAND_S)
        assert process.returncode == 0
        return place

    return folder


@pytest.mark.parametrize("framework", AGENTS)
def test_an_agent_killed_after_a_call_has_ended_resumes_with_the_stored_result(framework: str, folder_of: Callable[[str], Path]) -> None:
    place = folder_of(framework) / "after"
    assert (place / "said").read_text() == "A7 refunded"
    assert (place / "ledger").read_text() == "A7\n"


@pytest.mark.parametrize("framework", AGENTS)
def test_an_agent_killed_within_a_tool_resumes_without_repeating_it(framework: str, folder_of: Callable[[str], Path]) -> None:
    place = folder_of(framework) / "within"
    said = (place / "said").read_text()
    assert "was started before" in said
    assert "It was not run again" in said
    assert (place / "ledger").read_text() == "A7\n"
