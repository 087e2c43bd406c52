"""An agent of another framework is killed with SIGKILL and resumed in another process: no effect happens twice."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.integrations.killed_agents import AGENTS
from tests.recovery.child_process import child_process
from tests.waiting import COMMAND_S

pytestmark = pytest.mark.slow


def _run(framework: str, folder: Path, moment: str) -> tuple[int, str]:
    with child_process("tests.integrations.killed_agents", framework, str(folder), moment) as process:
        said, _ = process.communicate(timeout=COMMAND_S)
        return process.returncode, said


@pytest.mark.parametrize("framework", AGENTS)
def test_an_agent_killed_after_a_call_has_ended_resumes_with_the_stored_result(framework: str, tmp_path: Path) -> None:
    assert _run(framework, tmp_path, "after")[0] == -signal.SIGKILL
    code, said = _run(framework, tmp_path, "resume")
    assert (code, said) == (0, "A7 refunded\n")
    assert (tmp_path / "ledger").read_text() == "A7\n"


@pytest.mark.parametrize("framework", AGENTS)
def test_an_agent_killed_within_a_tool_resumes_without_repeating_it(framework: str, tmp_path: Path) -> None:
    assert _run(framework, tmp_path, "within")[0] == -signal.SIGKILL
    code, said = _run(framework, tmp_path, "resume")
    assert code == 0
    assert "was started before" in said
    assert "It was not run again" in said
    assert (tmp_path / "ledger").read_text() == "A7\n"
